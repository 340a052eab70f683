"""A maximum matching that grows with the radius, one pair at a time, and the exact lengths at which it does.

Rows are the points of the smaller sample, columns those of the other. From all unmatched rows a forest of alternating
paths grows over the edges up to the radius. The shortest edge that leaves the forest says how far the radius must grow
until the forest does; an edge to an unmatched column completes a path, and the matching has one pair more.

Completing a path dissolves one tree and leaves the others as they are. Its columns look for rows of the other trees
among a few random edges first: any edge within the radius will do, and random ones lead out of the tree at once,
where the shortest would lead around in it.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pvmincq_jax.matching.graph import RadiusGraph

__all__: list[str] = []

# Random edges by which a column looks for another tree, and the sorted ones that a search looks at first.
_RANDOM = 8
_FIRST = 8


class SortedEdges(NamedTuple):
    """A graph with the rows as source, and its edges by column and length.

    Attributes:
      graph: a `RadiusGraph`.
      starts: ``[columns + 1]``; the edges of a column are entries ``starts[column]`` to ``starts[column + 1]``.
      rows: ``[edges]``.
      lengths: ``[edges]``, increasing for each column.
    """

    graph: RadiusGraph
    starts: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray


def sort_edges(graph: RadiusGraph) -> SortedEdges:
    """Sorts the edges of each column."""
    shape = graph.source_rows.size, graph.target_rows.size
    edge = csr_array((np.arange(graph.neighbours.size), graph.neighbours, graph.starts), shape=shape).tocsc()
    starts, lengths = edge.indptr.astype(np.int64), graph.distances[edge.data]
    order = np.concatenate([first + np.argsort(lengths[first:end]) for first, end in itertools.pairwise(starts)])
    return SortedEdges(graph, starts, edge.indices[order], lengths[order])


class Forest:
    """Alternating paths from all unmatched rows of a maximum matching, over the edges up to a radius.

    Attributes:
      radius: up to which edges are in use; never falls.
      pairs: of the matching.
      row_mate: the column of each row, or -1 ``[rows]``.
      column_mate: the row of each column, or -1 ``[columns]``.
    """

    def __init__(self, edges: SortedEdges, column_mate: np.ndarray, radius: float) -> None:
        """Starts from a matching that is maximum at the radius; ``column_mate`` as the attribute."""
        graph = edges.graph
        rows, columns = graph.source_rows.size, graph.target_rows.size
        self.edges, self.radius = edges, radius
        self.column_mate, self.row_mate = column_mate.copy(), np.full(rows, -1)
        matched = np.flatnonzero(column_mate >= 0)
        self.row_mate[column_mate[matched]] = matched
        self.pairs = matched.size
        # So many edges of each column, or more, are within the radius.
        self._within = np.bincount(graph.neighbours[graph.distances <= radius], minlength=columns)
        # A tree has the number of its root. Of a column outside the forest, the shortest edge from a row inside; or, if
        # that row has left, a stale edge, not longer than the shortest: it is looked up again when its turn comes.
        self._row_tree = np.where(self.row_mate < 0, np.arange(rows), -1)
        self._column_tree, self._parent = np.full(columns, -1), np.full(columns, -1)
        self._gap, self._via = np.full(columns, np.inf), np.full(columns, -1)
        self._random = np.random.default_rng(0)
        self._find_nearest(np.arange(columns))

    def next_pair(self) -> float:
        """Grows the matching by one pair; returns the radius that it took, infinity if the graph has no path left."""
        while True:
            shortest = float(self._gap.min())
            if np.isinf(shortest):
                return shortest
            radius = max(self.radius, shortest)
            new = np.flatnonzero(self._gap <= radius)
            stale = new[self._row_tree[self._via[new]] < 0]
            if stale.size:
                self._find_nearest(stale)
                continue
            self.radius = radius
            free = new[self.column_mate[new] < 0]
            if free.size:
                break
            self._parent[new] = self._via[new]
            self._add(new)
            self._look_from(self.column_mate[new])
        self._complete(int(free[0]))
        return self.radius

    def _add(self, columns: np.ndarray) -> None:
        """Columns with a parent in the forest join it, with their mates."""
        self._column_tree[columns] = self._row_tree[self._parent[columns]]
        self._row_tree[self.column_mate[columns]] = self._column_tree[columns]
        self._gap[columns] = np.inf

    def _look_from(self, rows: np.ndarray) -> None:
        """Rows that have joined may be closer to columns outside than the rows before them."""
        graph = self.edges.graph
        degree = graph.starts[rows + 1] - graph.starts[rows]
        entry = np.arange(int(degree.sum())) + np.repeat(graph.starts[rows] - np.cumsum(degree) + degree, degree)
        column, length = graph.neighbours[entry], graph.distances[entry]
        closer = np.flatnonzero((length < self._gap[column]) & (self._column_tree[column] < 0))
        column, length = column[closer], length[closer]
        np.minimum.at(self._gap, column, length)
        shortest = length == self._gap[column]
        self._via[column[shortest]] = np.repeat(rows, degree)[closer][shortest]

    def _find_nearest(self, columns: np.ndarray) -> None:
        """The shortest edge of each column to a row of the forest: the first in its list."""
        self._gap[columns], self._via[columns] = np.inf, -1
        edges = self.edges
        at, end, depth = edges.starts[columns], edges.starts[columns + 1], _FIRST
        while columns.size:
            entry = at[:, None] + np.arange(depth)
            inside = self._row_tree[edges.rows[np.minimum(entry, edges.rows.size - 1)]] >= 0
            inside &= entry < end[:, None]
            every, first = np.arange(columns.size), np.argmax(inside, axis=1)
            found = inside[every, first]
            shortest = entry[every, first][found]
            self._via[columns[found]], self._gap[columns[found]] = edges.rows[shortest], edges.lengths[shortest]
            left = np.flatnonzero(~found & (at + depth < end))
            columns, at, end, depth = columns[left], at[left] + depth, end[left], 4 * depth

    def _complete(self, column: int) -> None:
        """Augments along the path to an unmatched column, and hands the rest of its tree to the others."""
        self._parent[column] = self._via[column]
        root = self._row_tree[self._via[column]]
        while column >= 0:
            row = self._parent[column]
            self.row_mate[row], self.column_mate[column], column = column, row, self.row_mate[row]
        self.pairs += 1
        self._row_tree[self._row_tree == root] = -1
        lost = np.flatnonzero(self._column_tree == root)
        self._column_tree[lost] = -1
        self._find_nearest(self._hand_over(lost))

    def _hand_over(self, lost: np.ndarray) -> np.ndarray:
        """Columns of a dissolved tree join trees that an edge within the radius leads to; returns the rest of them."""
        starts, lengths = self.edges.starts, self.edges.lengths
        # One step is enough for a column that is here often; it need not know all of its edges within the radius.
        count = self._within[lost]
        next_count = np.minimum(count + 1 + count // 8, starts[lost + 1] - starts[lost])
        self._within[lost] = np.where(lengths[starts[lost] + next_count - 1] <= self.radius, next_count, count)
        lost = self._join_at_random(lost)
        self._find_nearest(lost)
        found = self._gap[lost] <= self.radius
        self._parent[lost[found]] = self._via[lost[found]]
        self._add(lost[found])
        # What is still in reach after this, through the columns that have just joined, is found as the forest grows.
        return self._join_at_random(lost[~found])

    def _join_at_random(self, lost: np.ndarray) -> np.ndarray:
        """Columns that a random edge within the radius joins to the forest join it; returns the rest."""
        first, rows = self.edges.starts, self.edges.rows
        while lost.size:
            at = self._random.random((_RANDOM, lost.size)) * self._within[lost]
            row = rows[first[lost] + at.astype(np.int64)]
            inside = self._row_tree[row] >= 0
            every, some = np.arange(lost.size), np.argmax(inside, axis=0)
            found = inside[some, every]
            if not found.any():
                break
            self._parent[lost[found]] = row[some, every][found]
            self._add(lost[found])
            lost = lost[~found]
        return lost
