"""Two samples and a distance between them, in an order that the points alone decide.

Vertices are numbered by the points' coordinates, sorted, never by the order of the rows: a matching that is drawn from
the graph cannot read anything off the row numbers.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from pvmincq_jax._checks import (
    check_finite,
    check_not_negative,
    check_points,
    check_rank,
    check_real,
    check_samples,
    read_samples,
)
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import ArrayLike

__all__ = ["Metric", "Precomputed"]

# Pairs up to which all are looked at, or their distances kept: 32 MB.
PAIR_BLOCK = 1 << 22
# Pairs whose features are added up at once: few enough for the processor's cache.
_TILE = 1 << 15
# The eigenvalues of matrices of larger numbers would overflow.
_LARGEST = 1e150
# With more coordinates than this, looking at every pair beats a KD-tree.
_TREE_DIMENSIONS = 12
_POWERS = {"cityblock": 1.0, "euclidean": 2.0, "chebyshev": np.inf}


class Precomputed(NamedTuple):
    """A metric given by all distances between the two samples.

    Attributes:
      distances: ``[m_s, m_t]``, not negative. Source and target are then not looked at, except for their lengths, and
        may be None. Without coordinates, points are told apart by their distances: the values that a point sees, then
        by which kinds of points it sees them from, and so on. Points that no such rule tells apart count as coinciding.
    """

    distances: ArrayLike


# A sample; None beside `Precomputed` distances alone.
Points = ArrayLike | None
Metric = str | float | np.ndarray | Callable[[np.ndarray, np.ndarray], float] | Precomputed


class Space(NamedTuple):
    """Two samples in the order that the points decide, ready to be measured.

    Attributes:
      source: ``[d, m_s]``, a row per feature, so that the Minkowski distance of order `power` is the metric. No
        features where only the matrix is known.
      target: ``[d, m_t]``.
      power: order of the Minkowski distance.
      matrix: all distances ``[m_s, m_t]``, where there are no features to measure, or where these are many.
      source_rows: the row of each source vertex in the sample as given ``[m_s]``.
      target_rows: ``[m_t]``.
    """

    source: np.ndarray
    target: np.ndarray
    power: float
    matrix: np.ndarray | None
    source_rows: np.ndarray
    target_rows: np.ndarray

    @property
    def suits_tree(self) -> bool:
        """Whether the points have few enough coordinates for a KD-tree."""
        return self.matrix is None and len(self.source) <= _TREE_DIMENSIONS

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Distances of pairs of vertices, given as two arrays that broadcast against each other.

        They are added up feature by feature, in the same order whatever the shape. Every function of the package gets
        its distances here: a radius that one of them returns has then exactly the same edges in the others, which
        routines that round in different ways would not give.
        """
        if self.matrix is not None:
            return self.matrix[sources, targets]
        power, add = (1.0, np.maximum) if np.isinf(self.power) else (self.power, np.add)
        shape = np.broadcast_shapes(sources.shape, targets.shape)
        total, gap = np.zeros(shape), np.empty(shape)
        for source_feature, target_feature in zip(self.source, self.target):
            np.subtract(source_feature[sources], target_feature[targets], out=gap)
            if power == 2:
                gap *= gap
            else:
                np.abs(gap, out=gap)
                if power > 1:
                    gap **= power
            add(total, gap, out=total)
        # NumPy's power of 1/2 is its root.
        return total if power == 1 else total ** (1 / power)

    def block(self, start: int, stop: int) -> np.ndarray:
        """Distances of source vertices ``start`` to ``stop`` to all targets ``[stop - start, m_t]``."""
        if self.matrix is not None:
            return self.matrix[start:stop]
        return self.lengths(np.arange(self.source_rows.size)[start:stop, None], np.arange(self.target_rows.size))

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All distances, some rows at a time, each with the number of its first row."""
        step = max(1, _TILE // self.target_rows.size)
        for start in range(0, self.source_rows.size, step):
            yield start, self.block(start, start + step)

    def flipped(self) -> "Space":
        """The target as source."""
        matrix = None if self.matrix is None else self.matrix.T
        return Space(self.target, self.source, self.power, matrix, self.target_rows, self.source_rows)

    def some_lengths(self) -> np.ndarray:
        """Distances of a few sources, evenly spaced among all, to all targets."""
        step = max(1, self.source_rows.size // 64)
        return self.lengths(np.arange(0, self.source_rows.size, step)[:, None], np.arange(self.target_rows.size))

    def smallest(self) -> float:
        """The distance of the closest pair."""
        if self.suits_tree:
            _, nearest = cKDTree(self.target.T).query(self.source.T, p=self.power)
            return float(np.min(self.lengths(np.arange(nearest.size), nearest)))
        return float(min(block.min() for _, block in self.blocks()))


def _mahalanobis_factor(metric: np.ndarray) -> np.ndarray:
    """F with A = F F', for (x - y)' A (x - y) = |F'(x - y)|^2."""
    matrix = np.asarray(metric, dtype=float)
    scale = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-10 * scale:
        raise ValueError("metric must be a symmetric matrix")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if scale == 0 or values[0] < -1e-10 * scale:
        raise ValueError(
            f"metric must be positive semi-definite and not zero; its smallest eigenvalue is {values[0]:g}"
        )
    return vectors * np.sqrt(np.maximum(values, 0))


def check_metric(metric: Metric, dimensions: int) -> None:
    """Whether a metric is one of samples of so many features, before anything is measured."""
    if isinstance(metric, Precomputed):
        (distances,) = read_samples(**{"metric.distances": metric.distances})
        check_points("metric.distances", distances)
        check_not_negative("metric.distances", distances)
    elif isinstance(metric, str):
        if metric not in _POWERS:
            raise ValueError(f"metric must be one of {', '.join(_POWERS)}, or not a string; it is {metric!r}")
    elif not callable(metric):
        order = check_real("metric", *read_samples(metric=metric))
        if order.ndim == 0:
            if not order >= 1:
                raise ValueError(f"metric, as the order of a Minkowski distance, must be at least 1; it is {order:g}")
            return
        check_rank("metric", order, 2)
        check_finite("metric", order)
        if order.shape != (dimensions, dimensions):
            raise ValueError(
                f"metric must be a matrix with a row per feature ({dimensions}, {dimensions}); its shape is "
                f"{order.shape}"
            )
        if np.max(np.abs(order)) > _LARGEST:
            raise ValueError(f"metric must hold numbers up to {_LARGEST:g}; it holds {np.max(np.abs(order)):g}")


def _canonical_matrix_order(ranks: np.ndarray, ties: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Orders of the rows and columns of a matrix that do not depend on the order in which they are given."""
    row_class = np.zeros(ranks.shape[0], dtype=np.int64) if ties is None else np.unique(ties, return_inverse=True)[1]
    column_class = np.zeros(ranks.shape[1], dtype=np.int64)

    def refine(ranks: np.ndarray, own_class: np.ndarray, other_class: np.ndarray) -> np.ndarray:
        # A point's signature: its class so far, then the distances at which it sees each class on the other side.
        seen = np.sort(ranks * (other_class.max() + 1) + other_class, axis=1)
        return np.unique(np.column_stack([own_class, seen]), axis=0, return_inverse=True)[1].ravel()

    classes, before = 0, -1
    while classes > before:
        row_class = refine(ranks, row_class, column_class)
        column_class = refine(ranks.T, column_class, row_class)
        classes, before = int(row_class.max() + column_class.max()), classes
    return np.argsort(row_class, kind="stable"), np.argsort(column_class, kind="stable")


def _matrix_space(source: Points, target: Points, metric: Precomputed, ties: np.ndarray | None) -> Space:
    check_metric(metric, 0)
    matrix = np.asarray(metric.distances)
    for name, points, size in zip(("source", "target"), (source, target), matrix.shape):
        rows = size if points is None else len(np.atleast_1d(*read_samples(**{name: points})))
        if rows != size:
            raise ValueError(f"{name} has {rows} rows; metric.distances is {matrix.shape}")
    matrix = matrix.astype(float)
    ranks = np.unique(matrix, return_inverse=True)[1].reshape(matrix.shape)
    rows, columns = _canonical_matrix_order(ranks, ties)
    features = np.empty((0, rows.size)), np.empty((0, columns.size))
    return Space(*features, 2.0, matrix[np.ix_(rows, columns)], rows, columns)


def make_space(source: Points, target: Points, metric: Metric = "euclidean", ties: np.ndarray | None = None) -> Space:
    """Checks two samples and a metric, and puts the points in the order that their coordinates decide.

    Ties ``[m_s]`` are what else tells coinciding source points apart: their labels.
    """
    if isinstance(metric, Precomputed):
        return _matrix_space(source, target, metric, ties)
    if source is None or target is None:
        raise ValueError("source and target may be None only with metric=Precomputed(distances)")
    source, target = read_samples(source=source, target=target)
    check_samples(source, target)
    check_metric(metric, source.shape[1])
    x, y = source.astype(float), target.astype(float)
    source_rows, target_rows = canonical_order(x, ties), canonical_order(y)
    x, y = x[source_rows], y[target_rows]
    power, matrix = 2.0, None
    if isinstance(metric, str):
        power = _POWERS[metric]
    elif callable(metric):
        matrix = np.array([[float(metric(a, b)) for b in y] for a in x])
        if not (np.all(np.isfinite(matrix)) and matrix.min() >= 0):
            raise ValueError("metric must return finite distances that are not negative; this function does not")
    elif np.ndim(metric) == 0:
        power = float(metric)
    else:
        factor = _mahalanobis_factor(np.asarray(metric))
        x, y = x @ factor, y @ factor
    features = np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)
    space = Space(*features, power, matrix, source_rows, target_rows)
    if matrix is None and not space.suits_tree and len(x) * len(y) <= PAIR_BLOCK:
        # Every graph would go over all pairs. SciPy's sums equal `lengths` to the last bit; its powers need not.
        if power in _POWERS.values():
            return space._replace(matrix=cdist(x, y, "minkowski", p=power))
        return space._replace(matrix=np.concatenate([block for _, block in space.blocks()]))
    return space
