"""A maximum matching that grows with the radius, one pair at a time, and the exact lengths at which it does.

Rows are the points of the smaller sample, columns those of the other. From all unmatched rows a forest of alternating
paths grows over the edges up to the radius. Edges are added in the order of their lengths. One that leads from a row of
the forest to a column outside extends the forest; if the column is unmatched, it completes a path, and the matching has
one pair more, at that length. All other edges change nothing yet.

Which rows and columns an edge joins is kept as one bit for each pair, in both directions: a whole level of the forest
is then a few operations on words of 64 bits, however many edges there are.

Completing a path dissolves one tree and leaves the others as they are. Nothing outside the forest can join it then, and
of the dissolved tree all that an edge links to the other trees joins them.
"""

import numpy as np

from pvmincq_jax.matching.graph import RadiusGraph

__all__: list[str] = []

# Edges sorted at once, and looked at together for one that leaves the forest.
_WINDOW = 1 << 19
_CHUNK = 1 << 10
# Words of 64 rows in which a column looks for a row of the forest at random, before it looks at all of them.
_RANDOM = 4
# Bits set at once from an array of one byte for each pair.
_PAIRS = 1 << 23


def _pack(flags: np.ndarray) -> np.ndarray:
    """Flags along the last axis, 64 in a word."""
    size = flags.shape[-1]
    whole = np.zeros((*flags.shape[:-1], -(-size // 64) * 8), dtype=np.uint8)
    whole[..., : -(-size // 8)] = np.packbits(flags, axis=-1, bitorder="little")
    return whole.view(np.uint64)


def _bits(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """One bit for each of the pairs given, which are sorted by row ``[rows, words]``."""
    bits = np.empty((shape[0], -(-shape[1] // 64)), dtype=np.uint64)
    step = max(1, _PAIRS // shape[1])
    for first in range(0, shape[0], step):
        part = slice(*np.searchsorted(rows, [first, first + step]))
        flags = np.zeros((min(step, shape[0] - first), shape[1]), dtype=bool)
        flags[rows[part] - first, columns[part]] = True
        bits[first : first + step] = _pack(flags)
    return bits


class Forest:
    """Alternating paths from all unmatched rows of a maximum matching, over the edges up to a radius.

    Attributes:
      radius: up to which edges are in use; never falls.
      pairs: of the matching.
      column_mate: the row of each column, or -1 ``[columns]``.
    """

    def __init__(self, graph: RadiusGraph, column_mate: np.ndarray, radius: float) -> None:
        """Starts from a matching that is maximum at the radius; the rows are the graph's source."""
        rows, columns = shape = graph.source_rows.size, graph.target_rows.size
        self.radius, self.graph = radius, graph
        self.column_mate, self._row_mate = column_mate.copy(), np.full(rows, -1)
        matched = np.flatnonzero(column_mate >= 0)
        self._row_mate[column_mate[matched]] = matched
        self.pairs = matched.size
        self._rows = np.repeat(np.arange(rows, dtype=np.int32), np.diff(graph.starts))
        used = np.flatnonzero(graph.distances <= radius)
        row, column = self._rows[used], graph.neighbours[used]
        self._of_row = _bits(row, column, shape)
        order = np.argsort(column, kind="stable")
        self._of_column = _bits(column[order], row[order], shape[::-1])
        self._sorted_to, self._next = radius, 0
        self._edges = np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32)
        # A tree has the number of its root.
        self._row_tree = np.where(self._row_mate < 0, np.arange(rows), -1)
        self._column_tree, self._parent = np.full(columns, -1), np.full(columns, -1)
        self._random = np.random.default_rng(0)
        self._join(np.flatnonzero(self._row_mate < 0), np.arange(columns))

    def next_pair(self) -> float:
        """Grows the matching by one pair; returns the radius that it took, infinity if the graph has no path left."""
        while True:
            lengths, rows, columns = self._edges
            part = slice(self._next, self._next + _CHUNK)
            if part.start >= lengths.size:
                if not self._sort_more():
                    return np.inf
                continue
            leaves = (self._row_tree[rows[part]] >= 0) & (self._column_tree[columns[part]] < 0)
            first = int(np.argmax(leaves))
            if not leaves[first]:
                self._use(part)
                continue
            edge = self._next + first
            self._use(slice(self._next, edge + 1))
            self.radius = float(lengths[edge])
            column = columns[edge : edge + 1]
            self._add(column, rows[edge])
            at = int(column[0])
            if self.column_mate[at] >= 0:
                at = self._join(self.column_mate[column], np.flatnonzero(self._column_tree < 0))
            if at >= 0:
                self._complete(at)
                return self.radius

    def _sort_more(self) -> bool:
        """Sorts the next longer edges; False if there are none."""
        distances = self.graph.distances
        if self._sorted_to >= self.graph.radius:
            return False
        beyond = np.flatnonzero(distances > self._sorted_to)
        self._sorted_to = self.graph.radius
        if beyond.size > _WINDOW:
            some = distances[beyond[:: max(1, beyond.size >> 16)]]
            self._sorted_to = float(np.quantile(some, _WINDOW / beyond.size))
            beyond = beyond[distances[beyond] <= self._sorted_to]
        order = beyond[np.argsort(distances[beyond])]
        self._edges = distances[order], self._rows[order], self.graph.neighbours[order]
        self._next = 0
        return True

    def _use(self, part: slice) -> None:
        """Sets the bits of the next edges."""
        row, column = self._edges[1][part], self._edges[2][part]
        for bits, one, other in ((self._of_row, row, column), (self._of_column, column, row)):
            np.bitwise_or.at(bits, (one, other >> 6), np.uint64(1) << (other & 63).astype(np.uint64))
        self._next = part.stop

    def _add(self, columns: np.ndarray, parents: np.ndarray) -> None:
        """Columns join the trees of their parents, with their mates."""
        self._parent[columns] = parents
        tree = self._row_tree[parents]
        self._column_tree[columns] = tree
        mates = self.column_mate[columns]
        matched = mates >= 0
        self._row_tree[mates[matched]] = np.broadcast_to(tree, columns.shape)[matched]

    def _join(self, frontier: np.ndarray, columns: np.ndarray) -> int:
        """Adds what rows of the forest reach among some columns outside; an unmatched one ends it and is returned."""
        while frontier.size and columns.size:
            left = columns
            if frontier.size < columns.size:
                reached = np.bitwise_or.reduce(self._of_row[frontier], axis=0)
                reached = np.unpackbits(reached.view(np.uint8), bitorder="little").view(bool)[columns]
                left = columns[reached]
            flags = np.zeros(self._row_tree.size, dtype=bool)
            flags[frontier] = True
            found, parents = self._links(left, _pack(flags))
            self._add(found, parents)
            mates = self.column_mate[found]
            if mates.size and mates.min() < 0:
                return int(found[np.argmin(mates)])
            frontier, columns = mates, columns[self._column_tree[columns] < 0]
        return -1

    def _links(self, columns: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those columns that have an edge to some of the rows, and such a row for each."""
        common = self._of_column[columns] & rows
        word = np.argmax(common != 0, axis=1)
        bit = common[np.arange(columns.size), word]
        found = np.flatnonzero(bit)
        bit, word = bit[found], word[found]
        lowest = np.log2((bit & (~bit + np.uint64(1))).astype(float)).astype(np.int64)
        return columns[found], 64 * word + lowest

    def _complete(self, column: int) -> None:
        """Augments along the path to an unmatched column, and hands the rest of its tree to the others."""
        root = self._column_tree[column]
        while column >= 0:
            row = self._parent[column]
            self._row_mate[row], self.column_mate[column], column = column, row, self._row_mate[row]
        self.pairs += 1
        self._row_tree[self._row_tree == root] = -1
        lost = np.flatnonzero(self._column_tree == root)
        self._column_tree[lost] = -1
        self._join(np.flatnonzero(self._row_tree >= 0), lost)
