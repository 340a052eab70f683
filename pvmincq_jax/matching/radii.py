"""The radius at which a maximum matching first has so many pairs, exactly, for any numbers of pairs.

Matchings at guessed radii, each from the one below it, close in on a number that is asked for; over the last few edges
a forest grows edge by edge and tells the exact length. The first guess comes from small parts of the samples: it
decides what the answer costs, never what it is.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pvmincq_jax.matching.augment import draw_strands
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.growth import Forest
from pvmincq_jax.matching.space import Space

__all__: list[str] = []

# Rows of the parts that a guess comes from. Samples not much larger need no guess.
_PARTS = (64, 256)
_SMALL = 300
# With fewer pairs than this to go, growing pair by pair costs no more than matchings.
_FAR = 64
# So few edges are looked at one by one, in the order of their lengths; of more, matchings find the part that counts.
_NEAR = 1 << 15
# How much further than a guess edges are looked up.
_FURTHER = 1.25
# One bit for each of so many pairs is cheap to go through; of more pairs, so few numbers are better found by matchings.
_BITS = 1 << 28
_NUMBERS = 64
# Edges of a graph that is built on a guess alone (100 MB), and how many times as many each further one may have.
_EDGES = 1 << 23
_MORE_EDGES = 4
_LARGEST = float(np.finfo(float).max)


def path_lengths(space: Space, needed: Sequence[int] | np.ndarray) -> np.ndarray:
    """The radius at which a maximum matching first has so many pairs, for increasing numbers of them, 1 at least.

    It is 0 if coinciding points suffice.
    """
    if space.source_rows.size > space.target_rows.size:
        space = space.flipped()
    guess = _Guess(space)
    # Below any distance, so that coinciding points are matched like others.
    empty = guess.graph(int(needed[-1])), np.full(space.target_rows.size, -1), -1.0
    many = space.source_rows.size * space.target_rows.size > _BITS and len(needed) <= _NUMBERS
    forest: Forest | _Matched = _Matched(*empty) if many else Forest(*empty)
    lengths = []
    for pairs in needed:
        if isinstance(forest, Forest) and pairs - forest.pairs > _FAR:
            forest = _approach(forest, int(pairs), guess, _NEAR)[0]
        while forest.pairs < pairs:
            if isinstance(forest, Forest):
                enough = not np.isinf(forest.next_pair())
            else:
                forest, reached = _approach(forest, int(pairs), guess, 0)
                enough = reached is not None
                forest = reached or forest
            if not enough:
                graph = guess.graph(int(pairs), forest.graph)
                forest = type(forest)(graph, forest.column_mate, forest.graph.radius)
                if isinstance(forest, Forest):
                    forest = _approach(forest, int(pairs), guess, _NEAR)[0]
        lengths.append(forest.radius)
    return np.array(lengths)


class _Matched:
    """A maximum matching at a radius, for samples too large for one bit of each pair; as `Forest`."""

    def __init__(self, graph: RadiusGraph, column_mate: np.ndarray, radius: float) -> None:
        self.graph, self.column_mate, self.radius = graph, column_mate, radius
        self.pairs = int(np.count_nonzero(column_mate >= 0))

    def at(self, radius: float, _: np.ndarray) -> "_Matched":
        graph = self.graph.within(max(radius, np.finfo(float).tiny))
        (found,) = draw_strands([graph], 0, [0], held=self.column_mate)[0]
        return _Matched(self.graph, found, radius)

    def beyond(self, radius: float) -> np.ndarray:
        return np.flatnonzero((self.graph.distances >= self.radius) & (self.graph.distances <= radius))

    def line_up(self, edges: np.ndarray, radius: float) -> None:
        """Nothing: its edges need no order."""


_Any = TypeVar("_Any", Forest, _Matched)


def _approach(forest: _Any, pairs: int, guess: "_Guess", near: int) -> tuple[_Any, _Any | None]:
    """Closes in on so many pairs, by matchings at radii between one that is too small and one that suffices.

    Args:
      forest: with fewer pairs.
      pairs: how many are asked for.
      guess: where to look first.
      near: with so few edges in between, and few pairs to go, the search ends. With 0, only when no radius is between.

    Returns: the last forest with fewer pairs and the first with enough; None if the whole graph has not enough.
    """
    distances, last = forest.graph.distances, forest.graph.radius
    edges, lengths, loaded = np.zeros(0, int), np.zeros(0), 0.0
    reached, halve = None, False
    guess.see(forest)
    while True:
        gap = pairs - forest.pairs
        # A matching with too few pairs can be built on, one with too many cannot: aim a little below.
        aim = pairs - (_FAR // 2 if near and gap > _FAR else 0)
        if reached is None:
            radius, end = (guess.ahead(forest, count) for count in (aim, pairs))
            if (not edges.size or end > loaded) and loaded < last:
                # Most edges are longer than what is looked for, and wait.
                further = _FURTHER * end
                loaded = further if loaded < further < last else last
                edges = forest.beyond(loaded)
                lengths = distances[edges]
                continue
            if not edges.size:
                break
        some = lengths[:: 1 + edges.size // 10_000]
        if reached is None:
            # So many pairs more take as many edges at least.
            least = float(np.quantile(some, min(gap / edges.size, 1.0), method="lower"))
            radius, end = min(max(radius, least), loaded), min(max(end, least), loaded)
        else:
            some = some[some < reached.radius]
            if not some.size:
                some = lengths[lengths < reached.radius]
            if not some.size:
                break
            end, share = reached.radius, (aim - 0.5 - forest.pairs) / (reached.pairs - forest.pairs)
            radius = max(forest.radius, 0.0) * (1 - share) + end * share
            sides = np.quantile(some, [0.5, 0.5] if halve else [1 / 64, 63 / 64], method="lower")
            radius = float(np.clip(radius, *sides))
        if gap <= _FAR and np.count_nonzero(lengths <= end) <= near:
            break
        within = lengths <= radius
        trial = forest.at(radius, edges[within])
        if trial.pairs >= pairs:
            reached = trial
        else:
            forest, within = trial, ~within
            guess.see(forest)
        halve = bool(2 * np.count_nonzero(within) > edges.size)
        edges, lengths = edges[within], lengths[within]
    if reached is not None:
        loaded = reached.radius
    elif edges.size > near:
        loaded = max(end, float(np.quantile(some, near / edges.size)))
    forest.line_up(edges[lengths <= loaded], loaded)
    return forest, reached


class _Guess:
    """Where the radii of a space may lie, from the exact ones of two small parts of it."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.rows, self.columns = space.source_rows.size, space.target_rows.size
        self.parts: list[np.ndarray] = []
        self.seen: list[tuple[int, float]] = []
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

    def see(self, forest: "Forest | _Matched") -> None:
        """Takes a matching into account, larger than those before."""
        self.seen.append((forest.pairs, max(forest.radius, 0.0)))

    def ahead(self, forest: "Forest | _Matched", pairs: int) -> float:
        """A radius with about so many pairs, more than those of a matching: as the last ones have it, if there are any.

        On a straight line, which does not go too far: the fewer points are left, the more of the radius each of them
        takes. Of the last ones as much as halves of them do: on a straight line in the logarithm of what is left.
        """
        gap, left = pairs - forest.pairs, self.rows - forest.pairs + 1
        before = [one for one in self.seen if 0 < one[0] <= forest.pairs - gap / 4]
        if before:
            count, radius = before[-1]
            share = gap / (forest.pairs - count)
            if 2 * gap > left:
                share = np.log1p(-gap / left) / np.log(left / (self.rows - count + 1))
            return forest.radius + abs(share) * (forest.radius - radius)
        radius, known = self.radius(pairs), self.radius(forest.pairs) if forest.pairs else 0.0
        # Where the guess was wrong by some factor, it will be again.
        return radius * forest.radius / known if 0 < known < _LARGEST else radius

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
