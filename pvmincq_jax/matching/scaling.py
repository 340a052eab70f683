"""The expected matching without a draw: a doubly stochastic scaling of the radius graph, differentiable in the points.

The means of random maximum matchings of a graph, under any law, are the matrices on its edges whose rows and columns
sum to at most 1 and whose entries sum to the size of a maximum matching. Drawing matchings picks one of these by
chance. Scaling picks the one of largest entropy: it has the form p_st = u_s a_st v_t, treats interchangeable points
exactly alike, and is the limit of a few hundred matrix-vector products (Sinkhorn). Not in the paper.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_count, check_not_negative, check_points, check_positive, check_samples, is_traced
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.matching.spread import MatchedSpread, plan_spread

__all__ = ["ScaledMatching", "ScaledTransport", "scaled_matching", "scaled_transport"]


class ScaledMatching(NamedTuple):
    """A fractional matching of largest entropy.

    Attributes:
      plan: p ``[m_s, m_t]``; its rows sum to at most 1, and so do its columns up to the error.
      weights: its row sums P_s ``[m_s]``: how much each source point is matched.
      error: the largest excess or lack of a column: how far the iteration was from its limit.
    """

    plan: Array
    weights: Array
    error: Array


def radius_affinity(source: ArrayLike, target: ArrayLike, radius: ArrayLike, softness: ArrayLike = 0.0) -> Array:
    """The radius graph as a matrix, with a sharp or a soft edge.

    a_st = 1 if |x_s - x_t| <= radius, else 0; with a softness tau, 1 / (1 + exp((|x_s - x_t| / radius - 1) / tau)).

    ``[m_s, m_t]`` in [0, 1]. A softness of 0 is the graph itself, which has no derivative.

    Example:
      >>> print(radius_affinity(np.array([[0.0]]), np.array([[1.0], [2.0]]), 1.5))
      [[1. 0.]]
    """
    check_samples(source, target)
    check_positive("radius", radius)
    check_not_negative("softness", softness)
    # Points that coincide stay within the radius whichever way they move: their root's derivative of 0 is right.
    ratio = root(squared_distances(source, target)) / radius
    soft = jnp.asarray(softness, ratio.dtype)
    width = jnp.where(soft > 0, soft, 1.0)
    return jnp.where(soft > 0, jax.nn.sigmoid((1 - ratio) / width), (ratio <= 1).astype(ratio.dtype))


def scaled_matching(affinity: ArrayLike, pairs: ArrayLike, *, iterations: int = 500) -> ScaledMatching:
    """Scales a matrix to a fractional matching of so many pairs. Not in the paper.

    p_st = u_s a_st v_t with sum_t p_st + u_s b = 1, sum_s p_st + v_t c = 1 and sum_st p_st = pairs.

    What a row or a column lacks to 1 goes to one more column or row (of scales b and c): the point is unmatched with
    that share. Of all such plans this one has the largest entropy relative to the affinities, those shares counted in.

    Args:
      affinity: a, not negative ``[m_s, m_t]``, e.g. of `radius_affinity`.
      pairs: of a maximum matching of the entries above 0, or fewer, e.g. (1 - PV) m for samples of one size m.
      iterations: of Sinkhorn's; pairs that no maximum matching holds fade like one over this number.

    Returns: a `ScaledMatching`. More pairs than a matching can have show as an error that does not vanish.

    Example:
      >>> scaled = scaled_matching(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]), 3)
      >>> print(scaled.plan.round(2))
      [[0.62 0.38 0.  ]
       [0.38 0.24 0.38]
       [0.   0.38 0.62]]
    """
    check_points("affinity", affinity)
    if not is_traced(affinity) and np.any(np.asarray(affinity) < 0):
        raise ValueError(f"affinity must not be negative; the smallest is {np.min(np.asarray(affinity)):g}")
    check_positive("pairs", pairs)
    iterations = check_count("iterations", iterations, 1)
    affinity = jnp.asarray(affinity, jnp.result_type(affinity, float))
    sizes = affinity.shape
    pairs = jnp.asarray(pairs, affinity.dtype)
    left_rows, left_columns = jnp.maximum(sizes[0] - pairs, 0.0), jnp.maximum(sizes[1] - pairs, 0.0)

    # Points without any neighbour take the whole of their 1 from the extra column or row.
    def inverse(total: Array) -> Array:
        return jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1.0), 0.0)

    def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        v, b = state
        u = inverse(affinity @ v + b)
        c = left_columns * inverse(jnp.sum(v))
        v = inverse(affinity.T @ u + c)
        return (v, left_rows * inverse(jnp.sum(u))), None

    (v, b), _ = jax.lax.scan(step, (jnp.ones(sizes[1], affinity.dtype), left_rows / sizes[0]), None, iterations)
    u = inverse(affinity @ v + b)
    plan = u[:, None] * affinity * v
    # Rows are exact after the last half step; columns tell how far the limit is.
    columns = jnp.sum(plan, axis=0) + left_columns * inverse(jnp.sum(v)) * v
    error = jnp.max(jnp.abs(columns - (jnp.sum(affinity, axis=0) + left_columns > 0)))
    return ScaledMatching(plan, jnp.sum(plan, axis=1), error)


class ScaledTransport(NamedTuple):
    """Where the source points go under a scaled matching.

    Attributes:
      spread: moved points and the spread around them, as the bounds take them.
      matching: the plan behind it.
    """

    spread: MatchedSpread
    matching: ScaledMatching


def scaled_transport(
    source: ArrayLike,
    target: ArrayLike,
    radius: ArrayLike,
    *,
    softness: ArrayLike = 0.02,
    pairs: ArrayLike | None = None,
    iterations: int = 500,
) -> ScaledTransport:
    """Moves each source point to the mean of the target points under the plan of largest entropy. Not in the paper.

    z_s = sum_t p_st x_t / P_s, with p of `scaled_matching` on `radius_affinity`.

    A traced function throughout, differentiable in both samples and the radius, where `pvmincq_jax.pv_transport` draws.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: above 0.
      softness: see `radius_affinity`.
      pairs: see `scaled_matching`; all of the smaller sample when None, which a soft edge always allows and a sharp one
        from the bottleneck radius on.
      iterations: see `scaled_matching`.

    Returns: a `ScaledTransport`. A source point without any weight is moved to the origin and has weight 0.

    Example:
      >>> found = scaled_transport(np.array([[0.0], [9.0]]), np.array([[9.5], [1.0]]), 2.0)
      >>> print(found.spread.moved[:, 0].round(3))
      [1.  9.5]
    """
    affinity = radius_affinity(source, target, radius, softness)
    matching = scaled_matching(affinity, min(affinity.shape) if pairs is None else pairs, iterations=iterations)
    return ScaledTransport(plan_spread(jnp.asarray(target), matching.plan), matching)
