"""Where the matched target points of each source point lie: their mean and how far they are spread around it."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_length, check_points, check_rank, check_sample_weights, is_traced
from pvmincq_jax._types import Array, ArrayLike

__all__ = ["MatchedSpread", "matched_spread"]


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
    """Moves each source point to the mean of its matched target points, and measures how far these are spread.

    z_s = sum_t p_st x_t / P_s with P_s = sum_t p_st, and the means of |x_t - z_s| and |x_t - z_s|^2 under p_st / P_s.

    Args:
      target: ``[m_t, d]``.
      source_index: integers ``[k]``, one per pair; a pair may come more than once.
      target_index: integers ``[k]``.
      pair_weights: p, ``[k]``, not negative.
      size: m_s, the number of source points.

    Returns:
      A `MatchedSpread`, differentiable in the target points and the pair weights.

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
        if not is_traced(index) and np.any((np.asarray(index) < 0) | (np.asarray(index) >= limit)):
            raise ValueError(f"{name} must lie in [0, {limit - 1}]; it reaches from {np.min(index)} to {np.max(index)}")
    target = jnp.asarray(target)
    dtype = jnp.result_type(target, float)
    source_index, target_index = jnp.asarray(source_index), jnp.asarray(target_index)
    pair_weights = jnp.asarray(pair_weights, dtype)
    gather = partial(jax.ops.segment_sum, segment_ids=source_index, num_segments=size)
    weights = gather(pair_weights)
    share = pair_weights / jnp.where(weights > 0, weights, 1.0)[source_index]
    points = target[target_index]
    moved = gather(share[:, None] * points)
    squared = jnp.sum((points - moved[source_index]) ** 2, axis=-1)
    # The root of 0 has no derivative; a point at its own mean has one of 0.
    distance = jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
    return MatchedSpread(moved, weights, gather(share * distance), gather(share * squared))
