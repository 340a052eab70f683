"""Distances between the points of two samples, without an array of all differences."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from pvmincq_jax._checks import on_device
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike, common_dtype

__all__: list[str] = []

# Features handled in one pass over the pairs: 784 features of 600 x 600 points are as fast with 16, and 20 features
# of 2 000 x 2 000 points are done in one pass.
_FEATURES = 24
# From how many features a product of matrices is faster than differences, on the host; and the share of the lengths
# below which it has lost three digits.
_MANY_FEATURES, _CANCELLED = 32, 1e-3


def squared_distances(x: ArrayLike, y: ArrayLike) -> Any:
    """All squared distances between two samples.

    |x_i - y_j|^2 = sum_k (x_ik - y_jk)^2, a few features at a time: no array is larger than ``[m, n]``, in the
    derivatives either.

    Differences come before squares, so that points far from the origin lose no digits. The derivative is a product of
    matrices, 2 sum_k (x_ik - y_jk) (dx_ik - dy_jk) multiplied out around the mean of y; it is off by a few units of
    rounding of the largest |x_i - mean| or |y_j - mean|, wherever the origin is.

    JAX arrays stay on their device. Of NumPy arrays it is computed in NumPy, in the points' own precision, and nothing
    is compiled. From 32 features on that is |x_i|^2 + |y_j|^2 - 2 x_i y_j around the mean of y, which is a product of
    matrices; where less than a thousandth of the first two is left, differences are taken after all. The error is below
    1e-10 of each distance, wherever the origin is.

    Args:
      x: ``[m, d]``.
      y: ``[n, d]``.

    Returns:
      ``[m, n]``, not negative; differentiable in both samples, in forward and in reverse mode, any number of times.

    Example:
      >>> print(squared_distances(jnp.array([[0.0, 1.0]]), jnp.array([[0.0, 1.0], [3.0, 5.0]])))
      [[ 0. 25.]]
    """
    if not on_device(x, y):
        # In float32 far points are infinitely far.
        with np.errstate(over="ignore", invalid="ignore"):
            return _on_host(np.asarray(x, float), np.asarray(y, float)).astype(common_dtype(x, y), copy=False)
    check_process()
    dtype = jnp.result_type(x, y, float)
    return _squared_distances(jnp.asarray(x, dtype), jnp.asarray(y, dtype))


def _on_host(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.shape[1] < _MANY_FEATURES or not x.size or not y.size:
        return cdist(x, y, "sqeuclidean")
    middle = np.mean(y, axis=0)
    x_centred, y_centred = x - middle, y - middle
    lengths = np.sum(x_centred**2, axis=1)[:, None] + np.sum(y_centred**2, axis=1)
    square = lengths - 2 * x_centred @ y_centred.T
    # What is not a number, or too large to be squared, is for SciPy to say.
    rows, columns = np.nonzero(~(square > _CANCELLED * lengths) | ~np.isfinite(square))
    if rows.size > square.size // 8:
        return cdist(x, y, "sqeuclidean")
    for start in range(0, rows.size, len(x) + len(y)):
        pairs = rows[start : start + len(x) + len(y)], columns[start : start + len(x) + len(y)]
        square[pairs] = np.sum((x[pairs[0]] - y[pairs[1]]) ** 2, axis=1)
    return square


def root(square: Array) -> Array:
    """The square root with a derivative of 0, not infinity, at 0."""
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def _pass(x: Array, y: Array) -> Array:
    # An unrolled sum becomes one loop over the pairs; jnp.sum over a third axis is ten times slower on a CPU.
    total = jnp.zeros((x.shape[0], y.shape[0]), x.dtype)
    for k in range(x.shape[1]):
        gap = x[:, k, None] - y[None, :, k]
        total = total + gap * gap
    return total


@jax.custom_jvp
@jax.jit
def _squared_distances(x: Array, y: Array) -> Array:
    if x.shape[1] <= _FEATURES:
        return _pass(x, y)

    def passes(points: Array) -> Array:
        # Features of zeros, up to a whole number of passes, add nothing.
        padded = jnp.pad(points, ((0, 0), (0, -points.shape[1] % _FEATURES)))
        return jnp.swapaxes(padded.reshape(points.shape[0], -1, _FEATURES), 0, 1)

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        return total + _pass(*part), None

    start = jnp.zeros((x.shape[0], y.shape[0]), x.dtype)
    return jax.lax.scan(add, start, (passes(x), passes(y)))[0]


@_squared_distances.defjvp
def _squared_distances_jvp(points: tuple[Array, Array], steps: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, y), (dx, dy) = points, steps
    value = _squared_distances(x, y)
    middle = jax.lax.stop_gradient(jnp.mean(y, axis=0))
    x, y = x - middle, y - middle
    along = jnp.sum(x * dx, axis=1)[:, None] + jnp.sum(y * dy, axis=1)
    highest = jax.lax.Precision.HIGHEST
    crossed = jnp.matmul(dx, y.T, precision=highest) + jnp.matmul(x, dy.T, precision=highest)
    return value, 2 * (along - crossed)
