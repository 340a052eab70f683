"""The radius graph of two samples: which source and target points are within a radius of each other (Algorithm 2)."""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from pvmincq_jax._checks import check_number, check_positive, read_samples
from pvmincq_jax.matching.space import PAIR_BLOCK, Metric, Points, Space, make_space

__all__ = ["RadiusGraph", "radius_graph"]

# With a larger share of all pairs within the radius, looking at every pair beats a KD-tree.
_TREE_DENSITY = 0.03


class RadiusGraph(NamedTuple):
    """All pairs within a radius, stored by source point (compressed rows), in the order that the points decide.

    Attributes:
      starts: ``[m_s + 1]``; the neighbours of source vertex s are entries ``starts[s]`` to ``starts[s + 1]``.
      neighbours: target vertices ``[edges]``.
      distances: ``[edges]``.
      source_rows: ``[m_s]``, the row of each source vertex in the sample as it was given.
      target_rows: ``[m_t]``.
      radius: the largest distance of an edge.
      nearest: the smallest distance of any pair if no pair is within the radius, else NaN; in a part of a graph the
        smallest that the graph knows of.
    """

    starts: np.ndarray
    neighbours: np.ndarray
    distances: np.ndarray
    source_rows: np.ndarray
    target_rows: np.ndarray
    radius: float
    nearest: float

    def within(self, radius: float, source_rows: np.ndarray | None = None) -> "RadiusGraph":
        """The graph of a smaller radius, or of some of the source: as if built from it, at a fraction of the cost.

        Args:
          radius: at most the radius of this graph.
          source_rows: which rows of the source to keep, each once; all when None. Rows of the new graph count along
            this array.

        Returns: a `RadiusGraph`.
        """
        check_positive("radius", radius)
        if radius > self.radius:
            raise ValueError(f"radius must be at most that of the graph, {self.radius:g}; it is {radius:g}")
        size = self.source_rows.size
        rows = np.arange(size) if source_rows is None else np.asarray(source_rows)
        if rows.ndim != 1 or not rows.size or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(f"source_rows must be a vector of row numbers, at least one; its shape is {rows.shape}")
        if rows.min() < 0 or rows.max() >= size or np.unique(rows).size < rows.size:
            raise ValueError(f"source_rows must be different numbers in [0, {size - 1}]; they are {rows}")
        place = np.full(size, -1)
        place[rows] = np.arange(rows.size)
        # Vertices keep their order among themselves, so the edges stay grouped by source.
        new_rows = place[self.source_rows]
        kept = new_rows >= 0
        part = np.repeat(kept, np.diff(self.starts))
        edges = np.flatnonzero(part & (self.distances <= radius))
        starts = np.append(0, np.cumsum(np.diff(np.searchsorted(edges, self.starts))[kept]))
        # What is nearest is NaN in a graph with edges, and `fmin` takes the other number then.
        nearest = np.nan if edges.size else float(np.fmin.reduce(self.distances[part], initial=self.nearest))
        ends = self.neighbours[edges], self.distances[edges]
        return RadiusGraph(starts, *ends, new_rows[kept], self.target_rows, float(radius), nearest)


def space_graph(space: Space, radius: float) -> RadiusGraph:
    """The pairs of a space with distance at most the radius (step 1 of Algorithm 2)."""
    (value,) = read_samples(radius=radius)
    check_number("radius", value, check_positive)
    radius = float(value)
    rows, columns, lengths = _tree_edges(space, radius) if _tree_pays(space, radius) else _all_edges(space, radius)
    nearest = np.nan if lengths.size else space.smallest()
    starts = np.append(0, np.cumsum(np.bincount(rows, minlength=space.source_rows.size)))
    return RadiusGraph(starts, columns, lengths, space.source_rows, space.target_rows, radius, nearest)


def check_reach(graph: RadiusGraph) -> RadiusGraph:
    """The graph itself; it is an error if it has no edge."""
    if not graph.neighbours.size:
        raise ValueError(
            f"radius {graph.radius:g} leaves every point unmatched: the smallest distance between source and target "
            f"is {graph.nearest:g}. Give a larger radius"
        )
    return graph


def _tree_pays(space: Space, radius: float) -> bool:
    if not space.suits_tree or space.source_rows.size * space.target_rows.size <= PAIR_BLOCK:
        return False
    return bool(np.mean(space.some_lengths() <= radius) < _TREE_DENSITY)


def _all_edges(space: Space, radius: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = []
    for start, block in space.blocks():
        pairs = np.flatnonzero(block.ravel() <= radius)
        row, column = np.divmod(pairs, space.target_rows.size)
        parts.append(((row + start).astype(np.int32), column.astype(np.int32), block.ravel()[pairs]))
    rows, columns, lengths = (np.concatenate(part) for part in zip(*parts))
    return rows, columns, lengths


def _tree_edges(space: Space, radius: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # The tree rounds in its own way: it proposes a little more than the radius, and the lengths of the space decide.
    reach = radius * (1 + 1e-9) + np.finfo(float).tiny
    source_tree, target_tree = cKDTree(space.source.T), cKDTree(space.target.T)
    pairs = source_tree.sparse_distance_matrix(target_tree, reach, p=space.power, output_type="ndarray")
    rows, columns = pairs["i"].astype(np.int32), pairs["j"].astype(np.int32)
    del pairs
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    lengths = space.lengths(rows, columns)
    keep = lengths <= radius
    return rows[keep], columns[keep], lengths[keep]


def radius_graph(source: Points, target: Points, radius: float, *, metric: Metric = "euclidean") -> RadiusGraph:
    """The radius graph of two samples (step 1 of Algorithm 2), to be cut down and drawn from many times.

    Edges are the pairs with d(x_s, x_t) <= radius, the bound included.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: above 0.
      metric: see `pvmincq_jax.match`.

    Returns: a `RadiusGraph`.

    Example:
      >>> graph = radius_graph(np.array([[0.0], [3.0]]), np.array([[1.0], [2.0]]), 2.0)
      >>> graph.distances, graph.within(1.0).distances
      (array([1., 2., 2., 1.]), array([1., 1.]))
    """
    return space_graph(make_space(source, target, metric), radius)
