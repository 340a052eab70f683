"""Two samples and a distance between them, in an order that the points alone decide.

Vertices are numbered by the points' coordinates, sorted, never by the order of the rows: whatever is drawn afterwards
cannot read anything off the row numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from pvmincq_jax._checks import check_finite, check_points, check_rank, check_samples
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import ArrayLike

__all__ = ["Metric", "Precomputed"]

# Pairs of points handled at once: 32 MB a temporary array.
PAIR_BLOCK = 1 << 22
# Pairs whose features are added up at once: few enough for the processor's cache.
_TILE = 1 << 15
# With more coordinates than this, looking at every pair beats a KD-tree.
TREE_DIMENSIONS = 12
# Squares of larger coordinates would overflow.
_LARGEST = 1e150
_POWERS = {"cityblock": 1.0, "euclidean": 2.0, "chebyshev": np.inf}


class Precomputed(NamedTuple):
    """A metric given by all distances between the two samples.

    Attributes:
      distances: ``[m_s, m_t]``, not negative. Source and target are then not looked at, except for their lengths, and
        may be None. Without coordinates, points are told apart by their distances: the values that a point sees, then
        by which kinds of points it sees them from, and so on. Points that no such rule tells apart count as coinciding.
    """

    distances: ArrayLike


Metric = str | float | np.ndarray | Callable[[np.ndarray, np.ndarray], float] | Precomputed


class Space(NamedTuple):
    """Two samples in the order that the points decide, ready to be measured.

    Attributes:
      source: ``[m_s, d]``, moved so that the Minkowski distance of order `power` is the metric; None with a matrix.
      target: ``[m_t, d]``.
      power: order of the Minkowski distance.
      matrix: all distances, where there are no coordinates to measure, or where these are many.
      source_rows: the row of each source vertex in the sample as given ``[m_s]``.
      target_rows: ``[m_t]``.
    """

    source: np.ndarray | None
    target: np.ndarray | None
    power: float
    matrix: np.ndarray | None
    source_rows: np.ndarray
    target_rows: np.ndarray

    def block(self, start: int, stop: int) -> np.ndarray:
        """Distances of source vertices ``start`` to ``stop`` to all targets ``[stop - start, m_t]``."""
        if self.matrix is not None:
            return self.matrix[start:stop]
        assert self.source is not None
        assert self.target is not None
        columns = np.ascontiguousarray(self.target.T)
        rows = np.ascontiguousarray(self.source[start:stop].T)[:, :, None]
        lengths = np.empty((rows.shape[1], columns.shape[1]))
        step = max(1, _TILE // columns.shape[1])
        for first in range(0, len(lengths), step):
            part = lengths[first : first + step]
            part[:] = _minkowski(zip(rows[:, first : first + step], columns), part.shape, self.power)
        return lengths

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All distances, some rows at a time, each with the number of its first row."""
        step = max(1, PAIR_BLOCK // self.target_rows.size)
        for start in range(0, self.source_rows.size, step):
            yield start, self.block(start, start + step)

    def lengths(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Distances of given pairs of vertices ``[pairs]``."""
        if self.matrix is not None:
            return self.matrix[sources, targets]
        assert self.source is not None
        assert self.target is not None
        features = zip(np.ascontiguousarray(self.source.T), np.ascontiguousarray(self.target.T))
        return _minkowski(((x[sources], y[targets]) for x, y in features), sources.shape, self.power)

    def flipped(self) -> "Space":
        """The target as source."""
        matrix = None if self.matrix is None else self.matrix.T
        return Space(self.target, self.source, self.power, matrix, self.target_rows, self.source_rows)

    def part(self, sources: np.ndarray, targets: np.ndarray) -> "Space":
        """The space of some of the vertices."""
        rows = self.source_rows[sources], self.target_rows[targets]
        if self.matrix is not None:
            return Space(None, None, self.power, self.matrix[np.ix_(sources, targets)], *rows)
        assert self.source is not None
        assert self.target is not None
        return Space(self.source[sources], self.target[targets], self.power, None, *rows)

    def some_lengths(self) -> np.ndarray:
        """Distances of a few sources to all targets."""
        few = np.arange(0, self.source_rows.size, max(1, self.source_rows.size // 64))
        return self.part(few, np.arange(self.target_rows.size)).block(0, few.size)

    def smallest(self) -> float:
        """The distance of the closest pair."""
        if self.source is not None and self.source.shape[1] <= TREE_DIMENSIONS:
            _, nearest = cKDTree(self.target).query(self.source, p=self.power)
            return float(np.min(self.lengths(np.arange(nearest.size), nearest)))
        return float(min(block.min() for _, block in self.blocks()))


def _minkowski(features: Iterable[tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...], power: float) -> np.ndarray:
    """Distances of pairs, feature by feature, by the same additions in the same order whatever the shape.

    Every function of the package gets its distances here: a radius that one of them returns has then exactly the
    same edges in the others, which routines that round in different ways would not give.
    """
    total, gap = np.zeros(shape), np.empty(shape)
    for one, other in features:
        np.subtract(one, other, out=gap)
        if power == 2:
            gap *= gap
        else:
            np.abs(gap, out=gap)
            if np.isinf(power):
                np.maximum(total, gap, out=total)
                continue
            if power != 1:
                gap **= power
        total += gap
    if power == 2:
        return np.sqrt(total, out=total)
    return total if power == 1 or np.isinf(power) else total ** (1 / power)


def _factor(metric: np.ndarray, dimensions: int) -> np.ndarray:
    """F with A = F F', for (x - y)' A (x - y) = |F'(x - y)|^2."""
    check_finite("metric", metric)
    matrix = np.asarray(metric, dtype=float)
    if matrix.shape != (dimensions, dimensions):
        raise ValueError(
            f"metric must be a matrix with a row per feature ({dimensions}, {dimensions}); its shape is {matrix.shape}"
        )
    scale = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-10 * scale:
        raise ValueError("metric must be a symmetric matrix")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if scale == 0 or values[0] < -1e-10 * scale:
        raise ValueError(
            f"metric must be positive semi-definite and not zero; its smallest eigenvalue is {values[0]:g}"
        )
    return vectors * np.sqrt(np.maximum(values, 0))


def _told_apart(ranks: np.ndarray, ties: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Orders of the rows and columns of a matrix that do not depend on the order in which they are given."""
    row_class = np.zeros(ranks.shape[0], dtype=np.int64) if ties is None else np.unique(ties, return_inverse=True)[1]
    column_class = np.zeros(ranks.shape[1], dtype=np.int64)
    classes = 0
    while True:
        # A point's signature: its own class, then what it sees of every class on the other side.
        seen = np.sort(ranks * (column_class.max() + 1) + column_class, axis=1)
        row_class = np.unique(np.column_stack([row_class, seen]), axis=0, return_inverse=True)[1].ravel()
        seen = np.sort(ranks.T * (row_class.max() + 1) + row_class, axis=1)
        column_class = np.unique(np.column_stack([column_class, seen]), axis=0, return_inverse=True)[1].ravel()
        found = int(row_class.max() + column_class.max())
        if found <= classes:
            return np.argsort(row_class, kind="stable"), np.argsort(column_class, kind="stable")
        classes = found


def _precomputed(
    source: ArrayLike | None, target: ArrayLike | None, metric: Precomputed, ties: np.ndarray | None
) -> Space:
    check_points("metric.distances", metric.distances)
    matrix = np.asarray(metric.distances, dtype=float)
    for name, value, size in (("source", source, matrix.shape[0]), ("target", target, matrix.shape[1])):
        if value is not None and np.shape(value)[0] != size:
            raise ValueError(f"{name} has {np.shape(value)[0]} rows; metric.distances is {matrix.shape}")
    if matrix.min() < 0:
        raise ValueError(f"metric.distances must not be negative; the smallest is {matrix.min():g}")
    ranks = np.unique(matrix, return_inverse=True)[1].reshape(matrix.shape)
    source_rows, target_rows = _told_apart(ranks, ties)
    return Space(None, None, 2.0, matrix[np.ix_(source_rows, target_rows)], source_rows, target_rows)


def make_space(
    source: ArrayLike | None, target: ArrayLike | None, metric: Metric = "euclidean", ties: np.ndarray | None = None
) -> Space:
    """Checks two samples and a metric, and puts the points in an order of their own.

    Ties ``[m_s]`` are what else tells coinciding source points apart: their labels.
    """
    if isinstance(metric, Precomputed):
        return _precomputed(source, target, metric, ties)
    if source is None or target is None:
        raise ValueError("source and target may be None only with metric=Precomputed(distances)")
    check_samples(source, target)
    x, y = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    for name, points in (("source", x), ("target", y)):
        if np.abs(points).max() > _LARGEST:
            raise ValueError(f"{name} holds {np.abs(points).max():g}; coordinates up to {_LARGEST:g} can be measured")
    source_rows, target_rows = canonical_order(x, ties), canonical_order(y)
    x, y = x[source_rows], y[target_rows]
    power, matrix = 2.0, None
    if isinstance(metric, str):
        if metric not in _POWERS:
            raise ValueError(f"metric must be one of {', '.join(_POWERS)}, or not a string; it is {metric!r}")
        power = _POWERS[metric]
    elif callable(metric):
        matrix = np.array([[float(metric(a, b)) for b in y] for a in x])
        if not (np.all(np.isfinite(matrix)) and matrix.min() >= 0):
            raise ValueError("metric must return finite distances that are not negative; this function does not")
    elif np.ndim(metric) == 0:
        power = float(metric)
        if not power >= 1:
            raise ValueError(f"metric, as the order of a Minkowski distance, must be at least 1; it is {power:g}")
    else:
        check_rank("metric", metric, 2)
        factor = _factor(np.asarray(metric), x.shape[1])
        x, y = x @ factor, y @ factor
    if matrix is not None:
        return Space(None, None, power, matrix, source_rows, target_rows)
    space = Space(x, y, power, None, source_rows, target_rows)
    if x.shape[1] > TREE_DIMENSIONS and len(x) * len(y) <= PAIR_BLOCK:
        # Every graph would go over all pairs.
        return space._replace(matrix=space.block(0, len(x)))
    return space
