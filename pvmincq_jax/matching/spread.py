"""Where the matched target points of each source point lie: their mean and how far they are spread around it."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from pvmincq_jax._checks import check_length, check_points, check_rank, check_sample_weights, on_device
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax._types import Array, ArrayLike

__all__ = ["MatchedSpread", "matched_spread"]

_Map = Callable[[Any], Any]
# With more features than these, all distances by a product of matrices are cheaper than those of the pairs alone, up to
# 32 MB of them.
_MANY_FEATURES, _ALL_PAIRS = 32, 1 << 22


class MatchedSpread(NamedTuple):
    """Where the matched target points of each source point lie. A source point without any has weight 0.

    Attributes:
      moved: their means ``[m_s, d]``: the source points, moved.
      weights: how much each source point is matched ``[m_s]``.
      mean_distance: mean distance of the matched points from their mean ``[m_s]``.
      variance: mean squared distance ``[m_s]``.
    """

    moved: Array
    weights: Array
    mean_distance: Array
    variance: Array


def matched_spread(
    target: ArrayLike, source_index: ArrayLike, target_index: ArrayLike, pair_weights: ArrayLike, size: int
) -> MatchedSpread:
    """Moves each source point to the mean of its matched target points, and measures their spread. Not in the paper.

    z_s = sum_t p_st x_t / P_s with P_s = sum_t p_st, and the means of |x_t - z_s| and |x_t - z_s|^2 under p_st / P_s.

    Args:
      target: ``[m_t, d]``.
      source_index: integers ``[k]``, one per pair; a pair may come more than once.
      target_index: integers ``[k]``.
      pair_weights: p, ``[k]``, not negative.
      size: m_s, the number of source points.

    Returns: a `MatchedSpread`, differentiable in the target points and the pair weights.

    Example:
      >>> target = np.array([[0.0], [2.0], [5.0]])
      >>> spread = matched_spread(target, np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([0.5, 0.5, 1.0]), 2)
      >>> print(spread.moved[:, 0], spread.variance)
      [1. 5.] [1. 0.]
    """
    check_points("target", target)
    check_rank("source_index", source_index, 1)
    k = np.shape(source_index)[0]
    check_length("target_index", target_index, k, "pair")
    check_sample_weights("pair_weights", pair_weights, k)
    if size < 1:
        raise ValueError(f"size must be at least 1; it is {size}")
    for name, index, limit in (
        ("source_index", source_index, size),
        ("target_index", target_index, np.shape(target)[0]),
    ):
        if not jnp.issubdtype(jnp.result_type(index), jnp.integer):
            raise ValueError(f"{name} must hold integers; its dtype is {jnp.result_type(index)}")
        if not on_device(index) and np.any((np.asarray(index) < 0) | (np.asarray(index) >= limit)):
            raise ValueError(f"{name} must lie in [0, {limit - 1}]; it reaches from {np.min(index)} to {np.max(index)}")
    target = jnp.asarray(target)
    source_index, target_index = jnp.asarray(source_index), jnp.asarray(target_index)
    pair_weights = jnp.asarray(pair_weights, jnp.result_type(target, float))
    total = partial(jax.ops.segment_sum, segment_ids=source_index, num_segments=size)

    # What a feature gives to the pairs is computed again on the way back rather than kept for all features.
    def means(share: Array) -> Array:
        mean = jax.checkpoint(lambda column: total(share * column[target_index]))
        return jax.lax.map(mean, target.T).T

    @jax.checkpoint
    def add(square: Array, column: tuple[Array, Array]) -> tuple[Array, None]:
        moved, target = column
        return square + (target[target_index] - moved[source_index]) ** 2, None

    def squares(moved: Array) -> Array:
        return jax.lax.scan(add, jnp.zeros_like(pair_weights), (moved.T, target.T))[0]

    return _spread(pair_weights, total, lambda values: values[source_index], means, squares, root, jnp)


def plan_spread(target: Array, plan: Array) -> MatchedSpread:
    """`matched_spread` for a matrix of pair weights ``[m_s, m_t]``."""
    return _spread(
        plan,
        partial(jnp.sum, axis=1),
        lambda values: values[:, None],
        lambda share: share @ target,
        lambda moved: squared_distances(moved, target),
        root,
        jnp,
    )


def host_spread(
    target: np.ndarray, source_index: np.ndarray, target_index: np.ndarray, pair_weights: np.ndarray, size: int
) -> MatchedSpread:
    """`matched_spread` in NumPy, which compiles nothing for a new number of pairs."""

    def means(share: np.ndarray) -> np.ndarray:
        return csr_array((share, (source_index, target_index)), shape=(size, target.shape[0])) @ target

    def squares(moved: np.ndarray) -> np.ndarray:
        if target.shape[1] > _MANY_FEATURES and size * len(target) <= _ALL_PAIRS:
            return squared_distances(moved, target)[source_index, target_index]
        square = np.zeros(len(pair_weights))
        for k in range(target.shape[1]):
            square += (target[target_index, k] - moved[source_index, k]) ** 2
        return square

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(source_index, values, minlength=size)

    return _spread(pair_weights, total, lambda values: values[source_index], means, squares, np.sqrt, np)


def _spread(
    pair_weights: Any, total: _Map, at_source: _Map, means: _Map, squares: _Map, root: _Map, xp: ModuleType
) -> MatchedSpread:
    """The equations of `matched_spread`, for any way to hold pairs.

    ``total`` sums numbers of pairs by source point, ``at_source`` goes back to the pairs, ``means`` takes p_st / P_s to
    z ``[m_s, d]``, and ``squares`` z to the |x_t - z_s|^2 of the pairs.
    """
    weights = total(pair_weights)
    share = pair_weights / at_source(xp.where(weights > 0, weights, 1.0))
    moved = means(share)
    square = squares(moved)
    return MatchedSpread(moved, weights, total(share * root(square)), total(share * square))
