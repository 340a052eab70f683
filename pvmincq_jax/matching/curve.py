"""The perturbed variation as a function of the radius, exactly, and the radii at which it takes given values.

Matchings at guessed radii, each grown from the one below it, close in on a number of pairs that is asked for; over the
last few edges a forest grows edge by edge and tells the exact length. The first guess comes from small parts of the
samples: it decides what the answer costs, never what it is.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_list, check_numbers, check_positive
from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.growth import Forest
from pvmincq_jax.matching.matching import pv_of
from pvmincq_jax.matching.space import Metric, Space, make_space

__all__ = ["PVCurve", "bottleneck_radius", "grid_radii", "pv_curve"]

# Levels of PV, the natural scale of the radius: it follows the data on rotations and translations alike.
PV_LEVELS = (0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)

# Radii are above 0. Points that coincide are matched at the smallest one that keeps its digits when scaled.
_SMALLEST = float(np.finfo(float).tiny)
# Rows of the parts that a guess comes from. Samples not much larger need no guess.
_PARTS = (64, 256)
_SMALL = 300
# With fewer pairs than this to go, growing pair by pair costs no more than matchings.
_FAR = 64
# So few edges are looked at one by one, in the order of their lengths; of more, matchings find the part that counts.
_NEAR = 1 << 15
# How much further than a guess edges are looked up.
_FURTHER = 1.25
# Edges of a graph that is built on a guess alone (100 MB), and how many times as many each further one may have.
_EDGES = 1 << 23
_MORE_EDGES = 4
_LARGEST = float(np.finfo(float).max)


class PVCurve(NamedTuple):
    """The step function of PV over all radii; unpacks to radii and values.

    Attributes:
      radii: where PV falls ``[steps]``, increasing; each is the distance of a pair (coinciding pairs: the smallest
        normal float, since radii are above 0).
      pv: from that radius, included, to the next ``[steps]``. Below the first radius PV is 1.
    """

    radii: np.ndarray
    pv: np.ndarray

    def at(self, radius: ArrayLike) -> np.ndarray:
        """PV at any radius above 0."""
        radius = np.maximum(np.asarray(radius), _SMALLEST)
        return np.concatenate([[1.0], self.pv])[np.searchsorted(self.radii, radius, side="right")]


def pv_curve(source: ArrayLike | None, target: ArrayLike | None, *, metric: Metric = "euclidean") -> PVCurve:
    """Every step of the perturbed variation as the radius grows (Algorithm 2 at every radius).

    One matching grows: unmatched points of the smaller sample keep a forest of alternating paths, and the
    shortest edge that leaves the forest either extends it or completes a path, which is a step of PV at that length.

    Holds the pairs up to the last radius in memory, about 30 bytes for each, and two bits for every pair.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      metric: see `pvmincq_jax.match`.

    Returns: a `PVCurve`, which agrees with `pvmincq_jax.perturbed_variation` at every radius.

    Example:
      >>> radii, pv = pv_curve(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]))
      >>> radii, pv
      (array([0.5, 2. ]), array([0.5, 0. ]))
    """
    space = make_space(source, target, metric)
    pv = _pv_of_pairs(space)
    radii = radii_of_pairs(space, np.arange(pv.size) + 1)
    last = np.flatnonzero(np.append(np.diff(radii) > 0, True))
    return PVCurve(np.maximum(radii[last], _SMALLEST), pv[last])


def bottleneck_radius(
    source: ArrayLike | None, target: ArrayLike | None, pv: float = 0.0, *, metric: Metric = "euclidean"
) -> float:
    """The smallest radius whose perturbed variation is at most ``pv`` (not in the paper).

    With samples of different sizes PV cannot reach 0; ``pv=0`` then asks for the smallest radius that matches the whole
    smaller sample, and any other value below the smallest PV is an error.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      pv: in [0, 1).
      metric: see `pvmincq_jax.match`.

    Returns:
      The distance of some pair; matching at this radius gives that PV. For coinciding points, which any radius
      matches, the smallest normal float.

    Example:
      >>> bottleneck_radius(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]))
      2.0
    """
    space = make_space(source, target, metric)
    if check_numbers("pv", pv).ndim != 0 or not 0 <= pv < 1:
        raise ValueError(f"pv must be one number in [0, 1); it is {pv}")
    least = _pv_of_pairs(space)[-1]
    if 0 < pv < least:
        raise ValueError(
            f"pv must be at least {least:g}, the smallest that samples of {space.source_rows.size} and "
            f"{space.target_rows.size} points can reach, or 0 to match the whole smaller sample; it is {pv:g}"
        )
    return float(_radii_at(space, np.array([max(pv, least)]))[0])


def grid_radii(
    source: ArrayLike,
    target: ArrayLike,
    radii: ArrayLike | Sequence[float],
    unit: RadiusUnit,
    metric: Metric = "euclidean",
) -> np.ndarray:
    """Absolute radii from levels of PV, fractions of the bottleneck radius, or absolute radii (not in the paper).

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radii: ``[r]``. As PV: the share, in [0, 1), that may stay unmatched of what can be matched at all (for samples of
        one size, PV itself); each gives the smallest radius that reaches it.
      unit: "pv", "bottleneck" or "absolute".
      metric: see `pvmincq_jax.match`.

    Returns: increasing radii ``[r]``.

    Example:
      >>> grid_radii(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]), [0.0, 0.5], "pv")
      array([0.5, 2. ])
    """
    values = check_list("radii", radii)
    if unit == "absolute":
        check_positive("radii", values)
        return np.sort(values)
    if unit not in ("pv", "bottleneck"):
        raise ValueError(f"radius_unit must be 'pv', 'bottleneck' or 'absolute'; it is {unit!r}")
    if unit == "bottleneck":
        check_positive("radii", values)
        return np.sort(values * bottleneck_radius(source, target, metric=metric))
    if not np.all((values >= 0) & (values < 1)):
        raise ValueError(f"radii must be in [0, 1) as levels of PV; they are {values}")
    return level_radii(make_space(source, target, metric), values)


def level_radii(space: Space, levels: ArrayLike | Sequence[float]) -> np.ndarray:
    """`grid_radii` at levels of PV."""
    least = _pv_of_pairs(space)[-1]
    # Rounding in PV must not push a level that is met exactly to the next step.
    return np.sort(_radii_at(space, least + np.asarray(levels) * (1 - least) + 1e-12))


def _pv_of_pairs(space: Space) -> np.ndarray:
    """PV of a maximum matching of 1, 2, .. pairs, up to all of the smaller sample."""
    sizes = space.source_rows.size, space.target_rows.size
    return np.array([pv_of(pairs, *sizes) for pairs in range(1, min(sizes) + 1)])


def _radii_at(space: Space, levels: np.ndarray) -> np.ndarray:
    """The smallest radius at which PV is at most each level; every level can be reached."""
    pv = _pv_of_pairs(space)
    needed, place = np.unique([np.argmax(pv <= level) + 1 for level in levels], return_inverse=True)
    return np.maximum(radii_of_pairs(space, needed), _SMALLEST)[place]


def radii_of_pairs(space: Space, needed: Sequence[int] | np.ndarray) -> np.ndarray:
    """The smallest radius whose maximum matching has so many pairs, for increasing numbers of pairs, 1 at least.

    It is 0 if coinciding points suffice.
    """
    if space.source_rows.size > space.target_rows.size:
        space = space.flipped()
    guess = _Guess(space)
    # Below any distance, so that coinciding points are matched like others.
    forest = Forest(guess.graph(int(needed[-1])), np.full(space.target_rows.size, -1), -1.0)
    radii = []
    for pairs in map(int, needed):
        approach = pairs - forest.pairs > _FAR
        while forest.pairs < pairs:
            forest = _approach(forest, pairs, guess) if approach else forest
            approach = bool(np.isinf(forest.next_pair()))
            if approach:
                forest = Forest(guess.graph(pairs, forest.graph), forest.column_mate, forest.graph.radius)
        radii.append(forest.radius)
    return np.array(radii)


def _approach(forest: Forest, pairs: int, guess: "_Guess") -> Forest:
    """Closes in on so many pairs, by matchings at radii between one that is too small and one that suffices.

    Args:
      forest: with fewer pairs.
      pairs: how many are asked for.
      guess: where to look first.

    Returns: a forest with fewer pairs yet, with few pairs to go and few edges in between, which are lined up.
    """
    distances, last = forest.graph.distances, forest.graph.radius
    edges, lengths, loaded = np.zeros(0, int), np.zeros(0), 0.0
    reached, halve = None, False
    guess.see(forest)
    while True:
        gap = pairs - forest.pairs
        # A matching with too few pairs can be built on, one with too many cannot: aim a little below.
        aim = pairs - (_FAR // 2 if gap > _FAR else 0)
        if reached is None:
            radius, end = (guess.ahead(forest, count) for count in (aim, pairs))
            if (not edges.size or end > loaded) and loaded < last:
                # Most edges are longer than what is looked for, and wait.
                further = _FURTHER * end
                loaded = further if loaded < further < last else last
                edges = np.flatnonzero((distances >= forest.radius) & (distances <= loaded))
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
        if gap <= _FAR and np.count_nonzero(lengths <= end) <= _NEAR:
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
    elif edges.size > _NEAR:
        loaded = max(end, float(np.quantile(some, _NEAR / edges.size)))
    forest.line_up(edges[lengths <= loaded], loaded)
    return forest


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
        for size in _PARTS:
            rows = random.choice(self.rows, size, False)
            columns = random.choice(self.columns, min(size * self.columns // self.rows, 8 * size), False)
            matrix = space.lengths(rows[:, None], columns)
            part = space._replace(matrix=matrix, source_rows=rows, target_rows=columns)
            self.parts.append(radii_of_pairs(part, np.arange(size) + 1))

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

    def see(self, forest: Forest) -> None:
        """Takes a matching into account, larger than those before."""
        self.seen.append((forest.pairs, max(forest.radius, 0.0)))

    def ahead(self, forest: Forest, pairs: int) -> float:
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
        radius = max(radius, _SMALLEST)
        if before is not None:
            radius = max(radius, 1.1 * before.radius)
        graph = space_graph(self.space, radius)
        return graph if graph.neighbours.size else space_graph(self.space, graph.nearest)
