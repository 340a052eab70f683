"""The perturbed variation as a function of the radius, exactly, and the radii at which it takes given values.

One maximum matching grows with the radius, edge by edge, and tells the exact length at which it gets one pair more.
Rows are the points of the smaller sample, columns those of the other. From all unmatched rows a forest of alternating
paths grows over the edges up to the radius. Edges come in the order of their lengths. One that leads from a row of the
forest to a column outside extends the forest; where that reaches an unmatched column, a path is complete, and the
matching has one pair more, at that length. All other edges change nothing yet.

Which rows and columns an edge joins is kept as one bit for each pair, in both directions: a whole level of the forest
is then a few operations on words of 64 bits, however many edges there are. Completing a path dissolves its tree and
leaves the others as they are; what an edge links to them joins them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np

from pvmincq_jax._checks import check_list, check_one_of, check_positive, check_real
from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.matching import pv_of
from pvmincq_jax.matching.space import Metric, Points, Space, make_space

__all__ = ["PVCurve", "bottleneck_radius", "grid_radii", "pv_curve"]

# Levels of PV, the natural scale of the radius: it follows the data on rotations and translations alike.
PV_LEVELS = (0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)

# Radii are above 0. Points that coincide are matched at the smallest one that keeps its digits when scaled.
_SMALLEST = float(np.finfo(float).tiny)
# Edges for each point of the first graph that is looked at; each further one has twice as many.
_EDGES = 64
# Edges looked at together for one that leaves the forest.
_CHUNK = 1 << 10


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


def pv_curve(source: Points, target: Points, *, metric: Metric = "euclidean") -> PVCurve:
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


def bottleneck_radius(source: Points, target: Points, pv: float = 0.0, *, metric: Metric = "euclidean") -> float:
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
    if check_real("pv", pv).ndim != 0 or not 0 <= pv < 1:
        raise ValueError(f"pv must be one number in [0, 1); it is {pv}")
    least = _pv_of_pairs(space)[-1]
    if 0 < pv < least:
        raise ValueError(
            f"pv must be at least {least:g}, the smallest that samples of {space.source_rows.size} and "
            f"{space.target_rows.size} points can reach, or 0 to match the whole smaller sample; it is {pv:g}"
        )
    return float(_radii_at(space, np.array([max(pv, least)]))[0])


def grid_radii(
    source: Points, target: Points, radii: ArrayLike | Sequence[float], unit: RadiusUnit, metric: Metric = "euclidean"
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
    check_one_of("unit", unit, get_args(RadiusUnit))
    values = check_radii(radii, unit)
    if unit == "pv":
        return level_radii(make_space(source, target, metric), values)
    return np.sort(values if unit == "absolute" else values * bottleneck_radius(source, target, metric=metric))


def check_radii(radii: ArrayLike | Sequence[float], unit: RadiusUnit, name: str = "radii") -> np.ndarray:
    """A list of radii in a unit, as an array ``[r]``."""
    values = check_list(name, radii)
    if unit != "pv":
        check_positive(name, values)
    elif not np.all((values >= 0) & (values < 1)):
        raise ValueError(f"{name} must be in [0, 1) as levels of PV; they are {values}")
    return values


def level_radii(space: Space, levels: ArrayLike | Sequence[float]) -> np.ndarray:
    """`grid_radii` at levels of PV."""
    least = _pv_of_pairs(space)[-1]
    # Rounding in PV must not push a level that is met exactly to the next step.
    return np.sort(_radii_at(space, least + np.asarray(levels) * (1 - least) + 1e-12))


def _pv_of_pairs(space: Space) -> np.ndarray:
    """PV of a maximum matching of 1, 2, .. pairs, up to all of the smaller sample."""
    sizes = space.source_rows.size, space.target_rows.size
    return pv_of(np.arange(1, min(sizes) + 1), *sizes)


def _radii_at(space: Space, levels: np.ndarray) -> np.ndarray:
    """The smallest radius at which PV is at most each level; every level can be reached."""
    pv = _pv_of_pairs(space)
    needed, place = np.unique([np.argmax(pv <= level) + 1 for level in levels], return_inverse=True)
    return np.maximum(radii_of_pairs(space, needed), _SMALLEST)[place]


def radii_of_pairs(space: Space, needed: Sequence[int] | np.ndarray) -> np.ndarray:
    """The smallest radius whose maximum matching has so many pairs, for increasing numbers of pairs, 1 at least.

    It is 0 if coinciding points suffice.
    """
    growth, pairs, radii = _growing_matching(space), 0, []
    for number in needed:
        while pairs < number:
            pairs, radius = next(growth)
        radii.append(radius)
    return np.array(radii)


def _edges_by_length(space: Space) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """All pairs in the order of their lengths, some at a time: lengths, rows and columns."""
    rows, columns = space.source_rows.size, space.target_rows.size
    # Below any distance, so that coinciding points come like others.
    edges, radius = _EDGES * columns, -1.0
    while True:
        share = edges / (rows * columns)
        reach = float(np.quantile(space.some_lengths(), share)) if share < 1 else float(np.finfo(float).max)
        graph = space_graph(space, max(reach, 1.1 * radius, _SMALLEST))
        graph = graph if graph.neighbours.size else space_graph(space, graph.nearest)
        order = np.flatnonzero(graph.distances > radius)
        order = order[np.argsort(graph.distances[order])]
        row = np.repeat(np.arange(rows, dtype=np.int32), np.diff(graph.starts))
        for start in range(0, order.size, _CHUNK):
            part = order[start : start + _CHUNK]
            yield graph.distances[part], row[part], graph.neighbours[part]
        edges, radius = 2 * edges, graph.radius


def _growing_matching(space: Space) -> Iterator[tuple[int, float]]:
    """The number of pairs of a maximum matching and its radius, each time that it grows."""
    space = space if space.source_rows.size <= space.target_rows.size else space.flipped()
    rows, columns = sizes = space.source_rows.size, space.target_rows.size
    row_mate, column_mate = (np.full(size, -1) for size in sizes)
    # A tree has the number of its root, and what is in no tree -1. At first each row is a tree.
    row_tree, column_tree, parent = np.arange(rows), np.full(columns, -1), np.full(columns, -1)
    of_row, of_column = (np.zeros((one, -(-other // 64)), np.uint64) for one, other in (sizes, sizes[::-1]))
    # In which words a column looks for a parent first: each in an order of its own, so that no tree sweeps up all.
    taste = np.random.default_rng(0).integers(1, 256, of_column.shape, dtype=np.uint8)

    def link(frontier: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those columns that have an edge in use to some row of the frontier, and such a row for each."""
        if frontier.size < columns.size:
            reach = np.bitwise_or.reduce(of_row[frontier], axis=0).view(np.uint8)
            columns = columns[np.unpackbits(reach, bitorder="little")[columns] > 0]
            if frontier.size == 1:
                return columns, np.repeat(frontier, columns.size)
        flags = np.zeros(64 * of_column.shape[1], dtype=bool)
        flags[frontier] = True
        common = of_column[columns] & np.packbits(flags, bitorder="little").view(np.uint64)
        word = np.argmax((common != 0) * taste[columns], axis=1)
        bits = common[np.arange(columns.size), word]
        linked = np.flatnonzero(bits)
        bits = bits[linked]
        lowest = np.log2((bits & (~bits + np.uint64(1))).astype(float)).astype(np.int64)
        return columns[linked], 64 * word[linked] + lowest

    def join(frontier: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Grows the forest over edges of the frontier to the columns; returns unmatched ones, one for each tree."""
        ending = np.full(rows, -1)
        while frontier.size and columns.size:
            reached, parents = link(frontier, columns)
            tree, mates = row_tree[parents], column_mate[reached]
            parent[reached], column_tree[reached] = parents, tree
            free = mates < 0
            ending[tree[free]] = reached[free]
            row_tree[mates[~free]] = tree[~free]
            # A tree with its path in hand grows no further, which leaves the other trees more room.
            frontier = mates[~free & (ending[tree] < 0)]
            columns = np.flatnonzero(column_tree < 0)
        return ending[ending >= 0]

    pairs = 0
    for lengths, tails, heads in _edges_by_length(space):
        while lengths.size:
            leaves = (row_tree[tails] >= 0) & (column_tree[heads] < 0)
            first = int(np.argmax(leaves))
            passed = first + 1 if leaves[first] else leaves.size
            used = tails[:passed], heads[:passed]
            for bits, one, other in ((of_row, *used), (of_column, *used[::-1])):
                word = one.astype(np.int64) * bits.shape[1] + (other >> 6)
                np.bitwise_or.at(bits.reshape(-1), word, np.uint64(1) << (other & 63).astype(np.uint64))
            frontier, outside = (ends[leaves[:passed]] for ends in used)
            while (ends := join(frontier, outside)).size:
                pairs += ends.size
                dissolved = np.zeros(rows + 1, dtype=bool)
                dissolved[column_tree[ends]] = True
                while ends.size:
                    row = parent[ends]
                    before = row_mate[row]
                    row_mate[row], column_mate[ends] = ends, row
                    ends = before[before >= 0]
                # The last entry stands for -1, no tree. Other trees have all other columns in their reach already.
                row_tree[dissolved[row_tree]] = -1
                outside = np.flatnonzero(dissolved[column_tree])
                column_tree[outside] = -1
                frontier = np.flatnonzero(row_tree >= 0)
                yield pairs, float(lengths[first])
            lengths, tails, heads = lengths[passed:], tails[passed:], heads[passed:]
