"""A maximum matching that grows with the radius, one pair at a time, and the exact lengths at which it does.

Rows are the points of the smaller sample, columns those of the other. From all unmatched rows a forest of alternating
paths grows over the edges up to the radius. Edges come in the order of their lengths. One that leads from a row of the
forest to a column outside extends the forest; where that reaches an unmatched column, a path is complete, and the
matching has one pair more, at that length. All other edges change nothing yet.

Which rows and columns an edge joins is kept as one bit for each pair, in both directions: a whole level of the forest
is then a few operations on words of 64 bits, however many edges there are.

Completing a path dissolves its tree and leaves the others as they are; what an edge links to them joins
them.
"""

import numpy as np

from pvmincq_jax.matching.graph import RadiusGraph

__all__: list[str] = []

# Edges sorted or used at once, and those looked at together for one that leaves the forest.
_WINDOW = 1 << 19
_CHUNK = 1 << 10


def _pack(chosen: np.ndarray, size: int) -> np.ndarray:
    """Some of so many numbers as bits, 64 in a word."""
    flags = np.zeros(-(-size // 64) * 64, dtype=bool)
    flags[chosen] = True
    return np.packbits(flags, bitorder="little").view(np.uint64)


class Forest:
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
