"""The radii at which a maximum matching gets more pairs, exactly, by one matching that grows with the radius.

Rows are the points of the smaller sample, columns those of the other, edges the pairs of points. Edges are put to use
from the shortest to the longest. From all unmatched rows a forest of alternating paths grows over the edges in use; the
matching is maximum as soon as no edge in use leads out of the forest. An edge that leads from a row of the forest to a
column outside extends the forest. If that reaches an unmatched column, an augmenting path is complete: the matching has
one pair more, the tree of the path is dissolved, and the other trees stay as they are.

The matching grows in two ways. Edge by edge, it finds the radius of every number of pairs (`radii_of_all_pairs`). In
strides, it puts many edges to use at once; a stride that reaches a number of pairs whose radius is asked for is undone
and made anew in two halves, until few edges are left to be put to use one by one (`radii_of_pairs`). Both find the
same radii: the size of a maximum matching does not depend on how it is found.

Which rows and columns the edges in use join is kept as one bit for each pair, in both directions: a whole level of the
forest is then a few operations on words of 64 bits, however many edges there are.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.space import Space

__all__ = ["SMALLEST_RADIUS", "radii_of_all_pairs", "radii_of_pairs"]

# Radii are above 0. Points that coincide are matched at the smallest one that keeps its digits when scaled.
SMALLEST_RADIUS = float(np.finfo(float).tiny)
_LARGEST = float(np.finfo(float).max)
# Edges for each column in the first part of a graph; each further part has twice as many.
_FIRST = 64
# So few edges are put to use one by one.
_FEW = 128
# Edges looked at together for one that leads out of the forest.
_CHUNK = 1 << 10
# Edges of the first graph (64 MB); each further one has twice as many.
_EDGES = 1 << 22
# Rows of the part of a sample whose radius is the guess for a sample of more than twice as many.
_PART = 256
# Words that are looked at together: 8 MB.
_WORDS = 1 << 20
# With fewer edges than one in so many pairs, bits are set one by one.
_SPARSE = 64


class _Edges(NamedTuple):
    """Pairs of points: their lengths, rows and columns ``[edges]``."""

    lengths: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    def at(self, places: np.ndarray | slice) -> "_Edges":
        return _Edges(self.lengths[places], self.rows[places], self.columns[places])

    def split(self, sizes: Sequence[int] | np.ndarray) -> "list[_Edges]":
        """Parts that end after so many of the shortest edges, the last one with all the others."""
        order = np.argpartition(self.lengths, sizes) if len(sizes) else np.arange(self.lengths.size)
        return [self.at(places) for places in np.split(order, sizes)]


class _Forest(NamedTuple):
    """A matching, and a forest of alternating paths from its unmatched rows; -1 stands for none.

    Attributes:
      row_mate, column_mate: the matched column of each row, and the other way round.
      row_tree, column_tree: the tree that holds the row or column, numbered by its root.
      parent: the row from which a column of the forest was reached.
    """

    row_mate: np.ndarray
    column_mate: np.ndarray
    row_tree: np.ndarray
    column_tree: np.ndarray
    parent: np.ndarray

    def copy(self) -> "_Forest":
        return _Forest(*(array.copy() for array in self))


class _Growth:
    """A maximum matching of the edges in use, which may be more and more."""

    def __init__(self, rows: int, columns: int) -> None:
        # At first each row is a tree.
        none = np.full(columns, -1)
        self.forest = _Forest(np.full(rows, -1), none, np.arange(rows), none.copy(), none.copy())
        self._of_row = np.zeros((rows, -(-columns // 64)), np.uint64)
        self._of_column = np.zeros((columns, -(-rows // 64)), np.uint64)
        # In which words a column looks for a parent first: each in an order of its own, so that no tree sweeps up all.
        self._taste = np.random.default_rng(0).integers(1, 256, self._of_column.shape, dtype=np.uint8)

    @property
    def pairs(self) -> int:
        """The number of pairs of the matching."""
        return int(np.count_nonzero(self.forest.row_mate >= 0))

    def stride(self, edges: _Edges) -> None:
        """Puts edges to use, all at once."""
        self._toggle(edges)
        leaving = edges.at(np.flatnonzero(self._leave(edges)))
        ends = zip((leaving.rows, leaving.columns), (self.forest.row_mate.size, self.forest.column_mate.size))
        self._grow(*(np.flatnonzero(np.bincount(end, minlength=size)) for end, size in ends))

    def undo(self, edges: _Edges, forest: _Forest) -> None:
        """Goes back to the forest before the last stride."""
        self._toggle(edges)
        self.forest = forest

    def walk(self, edges: _Edges) -> Iterator[tuple[int, float]]:
        """Puts edges to use in the order of their lengths; the number of pairs and the radius whenever it grows."""
        order = np.argsort(edges.lengths)
        for start in range(0, order.size, _CHUNK):
            part, pairs = edges.at(order[start : start + _CHUNK]), self.pairs
            while part.lengths.size:
                leave = self._leave(part)
                first = int(np.argmax(leave))
                passed = first + 1 if leave[first] else leave.size
                self._toggle(part.at(slice(passed)))
                if leave[first]:
                    self._grow(part.rows[first:passed], part.columns[first:passed])
                    if self.pairs > pairs:
                        pairs = self.pairs
                        yield pairs, float(part.lengths[first])
                part = part.at(slice(passed, None))

    def _leave(self, edges: _Edges) -> np.ndarray:
        """Whether each edge leads out of the forest."""
        return (self.forest.row_tree[edges.rows] >= 0) & (self.forest.column_tree[edges.columns] < 0)

    def _toggle(self, edges: _Edges) -> None:
        """Puts edges to use, or those that are in use out of it."""
        for bits, one, other in (
            (self._of_row, edges.rows, edges.columns),
            (self._of_column, edges.columns, edges.rows),
        ):
            if edges.lengths.size * _SPARSE > 64 * bits.size:
                flags = np.zeros((len(bits), 64 * bits.shape[1]), dtype=bool)
                flags[one, other] = True
                bits ^= np.packbits(flags, axis=1, bitorder="little").view(np.uint64)
            else:
                word = one.astype(np.int64) * bits.shape[1] + (other >> 6)
                np.bitwise_xor.at(bits.reshape(-1), word, np.uint64(1) << (other & 63).astype(np.uint64))

    def _grow(self, frontier: np.ndarray, columns: np.ndarray) -> None:
        """Grows the forest over edges of rows to columns outside, and the matching over the paths that are complete."""
        row_mate, column_mate, row_tree, column_tree, parent = self.forest
        while (ends := self._extend(frontier, columns)).size:
            # The last entry stands for -1, no tree.
            dissolved = np.zeros(row_tree.size + 1, dtype=bool)
            dissolved[column_tree[ends]] = True
            while ends.size:
                row = parent[ends]
                before = row_mate[row]
                row_mate[row], column_mate[ends] = ends, row
                ends = before[before >= 0]
            row_tree[dissolved[row_tree]] = -1
            # Other trees have all other columns in their reach already.
            columns = np.flatnonzero(dissolved[column_tree])
            column_tree[columns] = -1
            frontier = np.flatnonzero(row_tree >= 0)

    def _extend(self, frontier: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Grows the forest over edges of rows to columns outside; returns unmatched ones, one for each tree."""
        _, column_mate, row_tree, column_tree, parent = self.forest
        ending = np.full(row_tree.size, -1)
        while frontier.size and columns.size:
            reached, parents = self._link(frontier, columns)
            tree, mates = row_tree[parents], column_mate[reached]
            parent[reached], column_tree[reached] = parents, tree
            free = mates < 0
            ending[tree[free]] = reached[free]
            row_tree[mates[~free]] = tree[~free]
            # A tree with its path in hand grows no further, which leaves the other trees more room.
            frontier = mates[~free & (ending[tree] < 0)]
            columns = np.flatnonzero(column_tree < 0)
        return ending[ending >= 0]

    def _link(self, frontier: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those columns that have an edge in use to some row of the frontier, and such a row for each."""
        if frontier.size < columns.size:
            reach = np.zeros(self._of_row.shape[1], np.uint64)
            for part in _pieces(frontier, reach.size):
                reach |= np.bitwise_or.reduce(self._of_row[part], axis=0)
            columns = columns[np.unpackbits(reach.view(np.uint8), bitorder="little")[columns] > 0]
            if frontier.size == 1 or not columns.size:
                return columns, np.repeat(frontier[:1], columns.size)
        flags = np.zeros(64 * self._of_column.shape[1], dtype=bool)
        flags[frontier] = True
        mask = np.packbits(flags, bitorder="little").view(np.uint64)
        linked, parents = [], []
        for part in _pieces(columns, mask.size):
            common = self._of_column[part] & mask
            word = np.argmax((common != 0) * self._taste[part], axis=1)
            bits = common[np.arange(part.size), word]
            found = np.flatnonzero(bits)
            bits = bits[found]
            lowest = np.log2((bits & (~bits + np.uint64(1))).astype(float)).astype(np.int64)
            linked.append(part[found])
            parents.append(64 * word[found] + lowest)
        return np.concatenate(linked), np.concatenate(parents)


def _pieces(vertices: np.ndarray, words: int) -> list[np.ndarray]:
    """Vertices in pieces, so that not too many words for each are looked at together."""
    count = 1 + vertices.size * words // _WORDS
    return [vertices] if count == 1 else np.array_split(vertices, count)


def radii_of_all_pairs(space: Space) -> np.ndarray:
    """The smallest radius whose maximum matching has 1, 2, .. pairs, up to all of the smaller sample; 0 counts, too."""
    space = _smaller_first(space)
    growth, rows = _Growth(space.source_rows.size, space.target_rows.size), space.source_rows.size
    radii: list[float] = []
    for edges in _edges_outwards(space, rows):
        for pairs, radius in growth.walk(edges):
            radii += [radius] * (pairs - len(radii))
            if pairs == rows:
                return np.array(radii)
    raise AssertionError("all edges match the whole smaller sample")


def radii_of_pairs(space: Space, needed: Sequence[int] | np.ndarray) -> np.ndarray:
    """The smallest radius whose maximum matching has so many pairs, for increasing numbers of pairs, 1 at least.

    It is 0 if coinciding points suffice.
    """
    space = _smaller_first(space)
    growth = _Growth(space.source_rows.size, space.target_rows.size)
    radii: list[float] = []
    for outwards in _edges_outwards(space, int(needed[-1])):
        # Edges to be put to use, the shortest ones last, and how many pairs the matching has with them, where known.
        waiting: list[tuple[_Edges, int | None]] = [(outwards, None)]
        while waiting:
            edges, pairs = waiting.pop()
            if edges.lengths.size <= _FEW:
                for reached, radius in growth.walk(edges):
                    radii += [radius] * int(np.searchsorted(needed, reached, side="right") - len(radii))
                if len(radii) == len(needed):
                    return np.array(radii)
                continue
            if pairs is None or pairs < needed[len(radii)]:
                before = growth.forest.copy()
                growth.stride(edges)
                pairs = growth.pairs
                if pairs < needed[len(radii)]:
                    continue
                growth.undo(edges, before)
            shorter, longer = edges.split([edges.lengths.size // 2])
            waiting += [(longer, pairs), (shorter, None)]
    raise AssertionError("all edges match the whole smaller sample")


def _smaller_first(space: Space) -> Space:
    return space if space.source_rows.size <= space.target_rows.size else space.flipped()


def _edges_outwards(space: Space, pairs: int) -> Iterator[_Edges]:
    """All edges from the shortest to the longest, in parts, each with about twice as many as the one before.

    They come from a graph that may suffice for so many pairs, and from larger ones if it does not.
    """
    rows, columns = space.source_rows.size, space.target_rows.size
    # Below any distance, so that coinciding points come like others.
    radius, reach, most = -1.0, _guess(space, pairs), _EDGES
    while True:
        if most < rows * columns:
            reach = min(reach, float(np.quantile(space.some_lengths(), most / (rows * columns))))
        graph = space_graph(space, max(reach, 1.1 * radius, SMALLEST_RADIUS))
        graph = graph if graph.neighbours.size else space_graph(space, graph.nearest)
        row = np.repeat(np.arange(rows, dtype=np.int32), np.diff(graph.starts))
        edges = _Edges(graph.distances, row, graph.neighbours).at(np.flatnonzero(graph.distances > radius))
        sizes = _FIRST * columns * 2 ** np.arange(40)
        yield from edges.split(sizes[sizes < edges.lengths.size])
        if graph.neighbours.size == rows * columns:
            return
        radius, reach, most = graph.radius, _LARGEST, 2 * max(graph.neighbours.size, _FIRST * columns)


def _guess(space: Space, pairs: int) -> float:
    """About the radius of so many pairs: that of a part of the samples, where they are large."""
    rows, columns = space.source_rows.size, space.target_rows.size
    if rows <= 2 * _PART:
        return _LARGEST
    random = np.random.default_rng(0)
    some_rows = random.choice(rows, _PART, replace=False)
    some_columns = random.choice(columns, min(_PART * columns // rows, 8 * _PART), replace=False)
    matrix = space.lengths(some_rows[:, None], some_columns)
    part = space._replace(matrix=matrix, source_rows=some_rows, target_rows=some_columns)
    return float(radii_of_pairs(part, [-(-pairs * _PART // rows)])[0])
