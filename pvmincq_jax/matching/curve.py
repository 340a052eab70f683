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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_list, check_numbers, check_positive
from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.matching import pv_of
from pvmincq_jax.matching.space import Metric, Space, make_space

__all__ = ["PVCurve", "bottleneck_radius", "grid_radii", "pv_curve"]

# Levels of PV, the natural scale of the radius: it follows the data on rotations and translations alike.
PV_LEVELS = (0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)

# Radii are above 0. Points that coincide are matched at the smallest one that keeps its digits when scaled.
_SMALLEST = float(np.finfo(float).tiny)
# Edges for each point of the first graph that is looked at, and how many times as many each further one has.
_EDGES, _MORE_EDGES = 64, 2
_LARGEST = float(np.finfo(float).max)
# Edges sorted or used at once, and those looked at together for one that leaves the forest.
_WINDOW = 1 << 19
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
    edges = _EDGES * space.target_rows.size
    # Below any distance, so that coinciding points are matched like others.
    forest = _Forest(_shortest(space, edges, 0.0), np.full(space.target_rows.size, -1), -1.0)
    radii = []
    for pairs in map(int, needed):
        while forest.pairs < pairs:
            if np.isinf(forest.next_pair()):
                edges *= _MORE_EDGES
                graph = _shortest(space, edges, forest.graph.radius)
                forest = _Forest(graph, forest.column_mate, forest.graph.radius)
        radii.append(forest.radius)
    return np.array(radii)


def _shortest(space: Space, edges: int, radius: float) -> RadiusGraph:
    """A graph of about so many of the shortest edges, one at least, and of a radius beyond this one."""
    share = edges / (space.source_rows.size * space.target_rows.size)
    reach = float(np.quantile(space.some_lengths(), share)) if share < 1 else _LARGEST
    graph = space_graph(space, max(reach, 1.1 * radius, _SMALLEST))
    return graph if graph.neighbours.size else space_graph(space, graph.nearest)


def _pack(chosen: np.ndarray, size: int) -> np.ndarray:
    """Some of so many numbers as bits, 64 in a word."""
    flags = np.zeros(-(-size // 64) * 64, dtype=bool)
    flags[chosen] = True
    return np.packbits(flags, bitorder="little").view(np.uint64)


class _Forest:
    """Alternating paths from all unmatched rows of a maximum matching, over the edges up to a radius.

    Attributes:
      graph: its source points are the rows, its target points the columns.
      radius: up to which edges are in use; never falls.
      pairs: of the matching.
      column_mate: the row of each column, or -1 ``[columns]``.
    """

    def __init__(self, graph: RadiusGraph, column_mate: np.ndarray, radius: float) -> None:
        """Starts from any matching at a radius, and makes it maximum; below 0, no edge is in use yet."""
        rows, columns = graph.source_rows.size, graph.target_rows.size
        self.graph, self.radius = graph, radius
        self.column_mate, self._row_mate = column_mate.copy(), np.full(rows, -1)
        matched = np.flatnonzero(column_mate >= 0)
        self._row_mate[column_mate[matched]] = matched
        self.pairs = matched.size
        self._rows = np.repeat(np.arange(rows, dtype=np.int32), np.diff(graph.starts))
        self._of_row = np.zeros((rows, -(-columns // 64)), dtype=np.uint64)
        self._of_column = np.zeros((columns, -(-rows // 64)), dtype=np.uint64)
        # In which words a column looks for a parent first: each in an order of its own, so that no tree sweeps up all.
        self._taste = np.random.default_rng(0).integers(1, 256, self._of_column.shape, dtype=np.uint8)
        # A tree has the number of its root.
        self._row_tree, self._column_tree = np.where(self._row_mate < 0, np.arange(rows), -1), np.full(columns, -1)
        self._parent = np.full(columns, -1)
        self._window = _WINDOW // 2
        self._use_all(np.flatnonzero(graph.distances <= radius))

    def line_up(self, edges: np.ndarray, radius: float) -> None:
        """Sorts these edges, which are all from the radius in use up to this one."""
        lengths = self.graph.distances[edges]
        order = np.argsort(lengths)
        edges = edges[order]
        self._edges, self._next = (lengths[order], self._rows[edges], self.graph.neighbours[edges]), 0
        self._sorted_to = radius

    def next_pair(self) -> float:
        """Grows the matching by one pair; returns the radius that it took, infinity if the graph has no path left."""
        before = self.pairs
        while self.pairs == before:
            lengths, rows, columns = self._edges
            part = slice(self._next, self._next + _CHUNK)
            if part.start >= lengths.size:
                if not self._sort_more():
                    return np.inf
                continue
            leaves = (self._row_tree[rows[part]] >= 0) & (self._column_tree[columns[part]] < 0)
            first = int(np.argmax(leaves))
            if leaves[first]:
                part = slice(part.start, part.start + first + 1)
                self.radius = float(lengths[part.stop - 1])
            self._use(rows[part], columns[part])
            self._next = part.stop
            if leaves[first]:
                edge = slice(part.stop - 1, part.stop)
                self._settle(rows[edge], columns[edge])
        return self.radius

    def _sort_more(self) -> bool:
        """Sorts the next longer edges; False if there are none."""
        if self._sorted_to >= self.graph.radius:
            return False
        distances, radius = self.graph.distances, self.graph.radius
        edges = np.flatnonzero(distances > self._sorted_to)
        # Each time twice as many: the search for them goes over all.
        self._window *= 2
        if edges.size > self._window:
            some = distances[edges[:: edges.size >> 16]]
            radius = float(np.quantile(some, self._window / edges.size))
            edges = edges[distances[edges] <= radius]
        self.line_up(edges, radius)
        return True

    def _use_all(self, edges: np.ndarray) -> None:
        """Uses given edges, all up to the radius, and makes the matching maximum."""
        for first in range(0, edges.size, _WINDOW):
            part = edges[first : first + _WINDOW]
            self._use(self._rows[part], self.graph.neighbours[part])
        self.line_up(edges[:0], self.radius)
        self._settle(np.flatnonzero(self._row_tree >= 0), np.flatnonzero(self._column_tree < 0))

    def _use(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Sets the bits of edges."""
        for bits, one, other in ((self._of_row, rows, columns), (self._of_column, columns, rows)):
            word = one.astype(np.int64) * bits.shape[1] + (other >> 6)
            np.bitwise_or.at(bits.reshape(-1), word, np.uint64(1) << (other & 63).astype(np.uint64))

    def _settle(self, frontier: np.ndarray, columns: np.ndarray) -> None:
        """Grows the forest and augments until no path is left; edges leave it from the frontier to the columns only."""
        while True:
            ends = self._join(frontier, columns)
            if not ends.size:
                return
            self.pairs += ends.size
            roots = np.zeros(self._row_tree.size + 1, dtype=bool)
            roots[self._column_tree[ends]] = True
            while ends.size:
                row = self._parent[ends]
                before = self._row_mate[row]
                self._row_mate[row], self.column_mate[ends] = ends, row
                ends = before[before >= 0]
            # The last entry stands for -1, no tree. Trees without a path have all other columns in their reach already.
            self._row_tree[roots[self._row_tree]] = -1
            columns = np.flatnonzero(roots[self._column_tree])
            self._column_tree[columns] = -1
            frontier = np.flatnonzero(self._row_tree >= 0)

    def _join(self, frontier: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Grows the forest over edges of the frontier to the columns; returns unmatched ones, one for each tree."""
        ending = np.full(self._row_tree.size, -1)
        while frontier.size and columns.size:
            near = columns
            if frontier.size < columns.size:
                reach = np.bitwise_or.reduce(self._of_row[frontier], axis=0).view(np.uint8)
                near = columns[np.unpackbits(reach, bitorder="little")[columns] > 0]
            if frontier.size == 1 < columns.size:
                reached, parents = near, np.repeat(frontier, near.size)
            else:
                reached, parents = self._links(near, _pack(frontier, self._row_tree.size))
            tree, mates = self._row_tree[parents], self.column_mate[reached]
            self._parent[reached], self._column_tree[reached] = parents, tree
            free = mates < 0
            ending[tree[free]] = reached[free]
            self._row_tree[mates[~free]] = tree[~free]
            # A tree with its path in hand grows no further, which leaves the other trees more room.
            frontier = mates[~free & (ending[tree] < 0)]
            columns = np.flatnonzero(self._column_tree < 0)
        return ending[ending >= 0]

    def _links(self, columns: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those columns that have an edge to some of the rows, which are given as bits, and such a row for each."""
        common = self._of_column[columns] & rows
        word = np.argmax((common != 0) * self._taste[columns], axis=1)
        bits = common[np.arange(columns.size), word]
        reached = np.flatnonzero(bits)
        bits = bits[reached]
        lowest = np.log2((bits & (~bits + np.uint64(1))).astype(float)).astype(np.int64)
        return columns[reached], 64 * word[reached] + lowest
