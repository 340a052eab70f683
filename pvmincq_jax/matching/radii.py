"""The radius at which a maximum matching first has so many pairs, exactly, for any numbers of pairs.

Far from a number that is asked for, a maximum matching at a guessed radius is quicker than growing pair by pair; close
to it, only growing tells the exact length. Matchings at increasing radii extend each other. The guess comes from
small parts of the samples: it decides what the answer costs, never what it is.
"""

from collections.abc import Sequence

import numpy as np

from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.growth import Forest
from pvmincq_jax.matching.space import Space

__all__: list[str] = []

# Rows of the parts that a guess comes from. Samples not much larger need no guess.
_PARTS = (128, 512)
_SMALL = 600
# With more pairs than this to go, a matching at a guessed radius is worth its while; it aims for half of that.
_FAR = 128
# Most matchings on the way to one number of pairs.
_TRIES = 20
# Edges of a graph that is built on a guess alone (100 MB), and how many times as many each further one may have.
_EDGES = 1 << 23
_MORE_EDGES = 4
_LARGEST = float(np.finfo(float).max)


def path_lengths(space: Space, needed: Sequence[int] | np.ndarray) -> np.ndarray:
    """The radius at which a maximum matching first has so many pairs.

    Args:
      space: two samples.
      needed: numbers of pairs, increasing, from 1 to the size of the smaller sample.

    Returns:
      A radius for each number, 0 if coinciding points suffice.
    """
    if space.source_rows.size > space.target_rows.size:
        space = space.flipped()
    guess = _Guess(space)
    graph = guess.graph(int(needed[-1]))
    # Below any distance, so that coinciding points are matched like others.
    forest = Forest(graph, np.full(space.target_rows.size, -1), -1.0)
    lengths = []
    for pairs in needed:
        near = False
        while forest.pairs < pairs:
            if not near:
                forest, near = _approach(forest, int(pairs), guess), True
            if np.isinf(forest.next_pair()):
                graph = guess.graph(int(pairs), forest.graph)
                forest, near = Forest(graph, forest.column_mate, forest.graph.radius), False
        lengths.append(forest.radius)
    return np.array(lengths)


def _approach(forest: Forest, pairs: int, guess: "_Guess") -> Forest:
    """A forest with a little less than so many pairs, by maximum matchings at radii that come closer and closer."""
    graph = forest.graph
    high, high_pairs = np.inf, pairs
    aim = pairs - _FAR // 2
    radius = guess.radius(aim)
    for _ in range(_TRIES):
        if pairs - forest.pairs <= _FAR or forest.radius >= graph.radius:
            break
        radius = min(max(radius, 1.02 * forest.radius, np.finfo(float).tiny), graph.radius)
        trial = forest.at(radius)
        before, before_pairs = forest.radius, forest.pairs
        if trial.pairs < pairs:
            forest = trial
        else:
            high, high_pairs = radius, trial.pairs
        if np.isinf(high):
            radius += min((aim - trial.pairs) / max(trial.pairs - before_pairs, 1), 1.0) * (radius - before)
        else:
            share = (aim - forest.pairs) / (high_pairs - forest.pairs)
            radius = forest.radius + min(max(share, 0.1), 0.6) * (high - forest.radius)
    return forest


class _Guess:
    """Where the radii of a space may lie, from the exact ones of two small parts of it."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.rows, self.columns = space.source_rows.size, space.target_rows.size
        self.parts: list[np.ndarray] = []
        if self.rows <= _SMALL:
            return
        random = np.random.default_rng(0)
        for rows in _PARTS:
            columns = min(rows * self.columns // self.rows, 8 * rows)
            part = space.part(random.choice(self.rows, rows, False), random.choice(self.columns, columns, False))
            self.parts.append(path_lengths(part, np.arange(rows) + 1))

    def radius(self, pairs: int) -> float:
        """A radius with about so many pairs."""
        if not self.parts:
            return _LARGEST
        share = min(pairs / self.rows, 1.0)
        small, large = (part[max(int(np.ceil(share * part.size)) - 1, 0)] for part in self.parts)
        if small == 0:
            return float(large)
        # Radii fall as samples grow: for ever if both have one law, else less and less.
        fall = np.log(self.rows / _PARTS[1]) / np.log(_PARTS[1] / _PARTS[0])
        return float(large * min(large / small, 1.0) ** (min(fall, 1.0) + max(fall - 1.0, 0.0) / 2))

    def graph(self, pairs: int, before: RadiusGraph | None = None) -> RadiusGraph:
        """A graph that may suffice for so many pairs, larger than the one before, and with some edge."""
        radius, edges = 1.1 * min(self.radius(pairs), _LARGEST / 2), float(_EDGES)
        if before is not None:
            radius, edges = max(radius, 1.5 * before.radius), max(edges, _MORE_EDGES * before.neighbours.size)
        share = edges / (self.rows * self.columns)
        if share < 1:
            radius = min(radius, float(np.quantile(self.space.some_lengths(), share)))
        radius = max(radius, np.finfo(float).tiny)
        if before is not None:
            radius = max(radius, 1.1 * before.radius)
        graph = space_graph(self.space, radius)
        return graph if graph.neighbours.size else space_graph(self.space, graph.nearest)
