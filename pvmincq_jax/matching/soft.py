"""Smooth counterparts of the matching, the perturbed variation and eps_H, for following gradients through them.

All of it is traced code, and one iteration, Sinkhorn's: a matrix K is scaled to a plan p_st = u_s K_st v_t whose rows
and columns sum to 1 together with what stays unmatched. Two ways to say how much stays unmatched:

- `soft_matching`, `soft_pv`: a price, the temperature. In the limit of temperature 0 the plan is a maximum matching.
- `sinkhorn_matching`, `sinkhorn_transport`: the number of pairs. The means of random maximum matchings of a graph,
  under any law, are the matrices on its edges whose rows and columns sum to at most 1 and whose entries sum to the size
  of a maximum matching. Drawing matchings picks one of these by chance; scaling picks the one of largest entropy, which
  treats interchangeable points exactly alike.

Not in the paper.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import (
    check_count,
    check_not_negative,
    check_number,
    check_points,
    check_positive,
    check_samples,
)
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.matching.selflabel import MatchedSpread, matched_spread

__all__ = [
    "SinkhornMatching",
    "SinkhornTransport",
    "SoftMatching",
    "sinkhorn_matching",
    "sinkhorn_transport",
    "soft_eps_h",
    "soft_matching",
    "soft_pv",
]


def _inverse(total: Array) -> Array:
    """1 / total, and 0 for a point without any neighbour."""
    return jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1.0), 0.0)


def _sinkhorn(
    kernel: Array, row_slack: Callable[[Array], Array], column_slack: Callable[[Array], Array], iterations: int
) -> tuple[Array, Array]:
    """Sinkhorn's iteration: u = 1 / (K v + b), v = 1 / (K' u + c), with what stays unmatched of rows and columns.

    Args:
      kernel: K ``[m_s, m_t]``.
      row_slack: from u to b, a scalar: a row leaves u_s b unmatched.
      column_slack: from v to c.
      iterations: how many.

    Returns: u and v, of which the rows are met exactly.
    """

    def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        u, v = state
        u = _inverse(kernel @ v + row_slack(u))
        return (u, _inverse(u @ kernel + column_slack(v))), None

    start = jnp.ones(kernel.shape[0], kernel.dtype), jnp.ones(kernel.shape[1], kernel.dtype)
    (u, v), _ = jax.lax.scan(step, start, None, iterations)
    return _inverse(kernel @ v + row_slack(u)), v


class SoftMatching(NamedTuple):
    """A matching with shares in place of pairs.

    Attributes:
      plan: how much of each pair is matched ``[m_s, m_t]``, not negative; rows and columns sum to at most 1.
      edges: how much each pair is within the radius ``[m_s, m_t]``, in [0, 1].
    """

    plan: Array
    edges: Array

    @property
    def pair_weights(self) -> Array:
        """The matched share that is within the radius ``[m_s, m_t]``."""
        return self.plan * self.edges

    @property
    def pv(self) -> Array:
        """1/2 (S_u / m_s + T_u / m_t) with shares of points for numbers of points."""
        rows, columns = self.plan.shape
        return 1 - jnp.sum(self.pair_weights) * (1 / rows + 1 / columns) / 2


def soft_matching(
    source: ArrayLike, target: ArrayLike, radius: ArrayLike, temperature: ArrayLike, iterations: int = 60
) -> SoftMatching:
    """A smooth counterpart of a maximum matching of the radius graph (Algorithm 2). Not in the paper.

    The size of a maximum matching is the value of a linear program, max sum_st P_st e_st over P >= 0 whose rows and
    columns sum to at most 1, with e_st = 1 where |x_s - x_t| <= radius and 0 elsewhere. Two things make it smooth. The
    indicator becomes e_st = sigmoid((1 - |x_s - x_t|^2 / radius^2) / t), and the program gets t times the entropy of P
    and of what rows and columns leave unmatched. Its solution has the form P_st = a_s b_t K_st, where unmatched shares
    are a_s and b_t themselves, so that Sinkhorn's iteration is

    a_s = 1 / (1 + sum_t K_st b_t),   b_t = 1 / (1 + sum_s K_st a_s),   K_st = exp(e_st / t) - 1.

    The -1 keeps pairs far outside the radius at P = 0; without it each would weigh as much as staying unmatched does,
    and there are many of them. As t goes to 0 both changes vanish (if no distance is exactly the radius).

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: above 0.
      temperature: t, above 0; from about 0.01 on in float32.
      iterations: of Sinkhorn; more are needed at low temperatures. Derivatives go through them, so that they are those
        of the value returned, converged or not.

    Returns: a `SoftMatching`; it keeps the sums of rows and columns at any number of iterations.

    Example:
      >>> points = np.array([[0.0], [1.0]])
      >>> print(np.asarray(soft_matching(points, points + 0.1, 0.5, 0.1).plan, float).round(3))
      [[0.993 0.   ]
       [0.    0.993]]
    """
    check_process()
    check_samples(source, target)
    check_number("radius", radius, check_positive)
    check_number("temperature", temperature, check_positive)
    iterations = check_count("iterations", iterations, 1)
    return _soft_matching(*map(jnp.asarray, (source, target, radius, temperature)), iterations)


@partial(jax.jit, static_argnames="iterations")
def _soft_matching(source: Array, target: Array, radius: Array, temperature: Array, iterations: int) -> SoftMatching:
    edges = jax.nn.sigmoid((1 - squared_distances(source, target) / radius**2) / temperature)
    # K, a and b are held divided by exp(1/t), exp(-1/2t) and exp(-1/2t), which keeps them inside the floats' range.
    alone = jnp.exp(-0.5 / temperature)
    # Also of pairs far outside the radius: a difference of exponentials would leave nothing but rounding there.
    kernel = jnp.exp((edges - 1) / temperature) * -jnp.expm1(-edges / temperature)
    a, b = _sinkhorn(kernel, lambda _: alone, lambda _: alone, iterations)
    # Rows are met exactly; a column that is still too full is cut back to 1.
    b = jnp.minimum(b, 1 / (alone + a @ kernel))
    return SoftMatching(a[:, None] * kernel * b, edges)


def soft_pv(
    source: ArrayLike, target: ArrayLike, radius: ArrayLike, temperature: ArrayLike, iterations: int = 60
) -> Array:
    """A smooth surrogate of the perturbed variation (Algorithm 2), its limit at temperature 0. Not in the paper.

    1 - 1/2 (1 / m_s + 1 / m_t) sum_st P_st e_st, see `soft_matching`. Pairs near the radius count in part, so that it
    is above `pvmincq_jax.perturbed_variation` as a rule, and the more so the higher the temperature.

    Args: source ``[m_s, d]``, target ``[m_t, d]``, radius, temperature and iterations as of `soft_matching`.

    Returns: a scalar in [0, 1], differentiable in the points, the radius and the temperature.

    Example:
      >>> source, target = np.array([[0.0], [1.0]]), np.array([[0.1], [5.0]])
      >>> print([round(float(soft_pv(source, target, 0.2, t)), 3) for t in (0.2, 0.1, 0.01)], "and exactly 0.5")
      [0.552, 0.504, 0.5] and exactly 0.5
    """
    return soft_matching(source, target, radius, temperature, iterations).pv


def soft_eps_h(source_votes: ArrayLike, target_votes: ArrayLike, pair_weights: ArrayLike) -> Array:
    """How far voters move between softly matched points: eps_H (definition 4) with a mean for the maximum.

    (sum_st W_st mean_j (h_j(x_s) - h_j(x_t))^2 / sum_st W_st)^(1/2), which is at most `pvmincq_jax.eps_h` of all pairs
    of weight above 0.

    Args:
      source_votes: ``[m_s, n]``.
      target_votes: ``[m_t, n]``.
      pair_weights: W ``[m_s, m_t]``, not negative, of any scale.

    Returns: a scalar, differentiable in all three; 0, with derivative 0, if no pair has any weight.

    Example:
      >>> print(soft_eps_h(np.array([[0.5, 1.0]]), np.array([[0.5, 0.0], [9.0, 9.0]]), np.array([[1.0, 0.0]])).round(3))
      0.707
    """
    check_process()
    for name, value in (("source_votes", source_votes), ("target_votes", target_votes), ("pair_weights", pair_weights)):
        check_points(name, value)
    check_not_negative("pair_weights", pair_weights)
    if np.shape(pair_weights) != (np.shape(source_votes)[0], np.shape(target_votes)[0]):
        raise ValueError(
            f"pair_weights must have a row per source point and a column per target point "
            f"({np.shape(source_votes)[0]}, {np.shape(target_votes)[0]}); their shape is {np.shape(pair_weights)}"
        )
    square = jnp.asarray(squared_distances(source_votes, target_votes) / np.shape(source_votes)[1])
    # The mean does not depend on the weights' scale. They are divided by their sum, as by a constant, because the
    # quotient's derivative divides by the sum's square, which may be 0. A sum without a safe inverse counts as 0.
    weights, limits = jnp.asarray(pair_weights, square.dtype), jnp.finfo(square.dtype)
    total = jax.lax.stop_gradient(jnp.sum(weights))
    shares = weights * _inverse(jnp.where(total > limits.tiny / limits.eps, total, 0.0))
    return root(jnp.sum(shares * square) * _inverse(jnp.sum(shares)))


class SinkhornMatching(NamedTuple):
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
    check_process()
    check_samples(source, target)
    check_number("radius", radius, check_positive)
    check_number("softness", softness, check_not_negative)
    # Points that coincide stay within the radius whichever way they move: their root's derivative of 0 is right.
    ratio = root(squared_distances(source, target)) / radius
    soft = jnp.asarray(softness, ratio.dtype)
    width = jnp.where(soft > 0, soft, 1.0)
    return jnp.where(soft > 0, jax.nn.sigmoid((1 - ratio) / width), (ratio <= 1).astype(ratio.dtype))


def sinkhorn_matching(affinity: ArrayLike, pairs: ArrayLike, *, iterations: int = 500) -> SinkhornMatching:
    """Scales a matrix to a fractional matching of so many pairs. Not in the paper.

    p_st = u_s a_st v_t with sum_t p_st + u_s b = 1, sum_s p_st + v_t c = 1 and sum_st p_st = pairs.

    What a row or a column lacks to 1 goes to one more column or row (of scales b and c): the point is unmatched with
    that share. Of all such plans this one has the largest entropy relative to the affinities, those shares counted in.

    Args:
      affinity: a, not negative ``[m_s, m_t]``, e.g. of `radius_affinity`.
      pairs: of a maximum matching of the entries above 0, or fewer, e.g. (1 - PV) m for samples of one size m.
      iterations: of Sinkhorn's; pairs that no maximum matching holds fade like one over this number.

    Returns: a `SinkhornMatching`. More pairs than a matching can have show as an error that does not vanish.

    Example:
      >>> matching = sinkhorn_matching(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]), 3)
      >>> print(matching.plan.round(2))
      [[0.62 0.38 0.  ]
       [0.38 0.24 0.38]
       [0.   0.38 0.62]]
    """
    check_process()
    check_points("affinity", affinity)
    check_not_negative("affinity", affinity)
    check_number("pairs", pairs, check_positive)
    iterations = check_count("iterations", iterations, 1)
    affinity = jnp.asarray(affinity, jnp.result_type(affinity, float))
    rows_left, columns_left = (jnp.maximum(size - jnp.asarray(pairs, affinity.dtype), 0.0) for size in affinity.shape)

    # What all rows leave unmatched adds up to rows_left.
    def column_slack(v: Array) -> Array:
        return columns_left * _inverse(jnp.sum(v))

    u, v = _sinkhorn(affinity, lambda u: rows_left * _inverse(jnp.sum(u)), column_slack, iterations)
    plan = u[:, None] * affinity * v
    # Rows are exact after the last half step; columns tell how far the limit is.
    columns = jnp.sum(plan, axis=0) + column_slack(v) * v
    error = jnp.max(jnp.abs(columns - (jnp.sum(affinity, axis=0) + columns_left > 0)))
    return SinkhornMatching(plan, jnp.sum(plan, axis=1), error)


class SinkhornTransport(NamedTuple):
    """Where the source points go under a matching of largest entropy.

    Attributes:
      spread: moved points and the spread around them, as the bounds take them.
      matching: the plan behind it.
    """

    spread: MatchedSpread
    matching: SinkhornMatching


def sinkhorn_transport(
    source: ArrayLike, target: ArrayLike, radius: ArrayLike, *, softness: ArrayLike = 0.02, iterations: int = 500
) -> SinkhornTransport:
    """Moves each source point to the mean of the target points under the plan of largest entropy. Not in the paper.

    z_s = sum_t p_st x_t / P_s, with p of `sinkhorn_matching` on `radius_affinity`, of as many pairs as the smaller
    sample has points: a soft edge always allows them, and a sharp one from the bottleneck radius on.

    A traced function throughout, differentiable in both samples and the radius, whereas `pvmincq_jax.pv_transport`
    draws matchings at random.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: above 0.
      softness: see `radius_affinity`.
      iterations: see `sinkhorn_matching`.

    Returns: a `SinkhornTransport`. A source point without any weight is moved to the origin and has weight 0.

    Example:
      >>> transport = sinkhorn_transport(np.array([[0.0], [9.0]]), np.array([[9.5], [1.0]]), 2.0)
      >>> print(transport.spread.moved[:, 0].round(3))
      [1.  9.5]
    """
    check_process()
    affinity = radius_affinity(source, target, radius, softness)
    matching = sinkhorn_matching(affinity, min(affinity.shape), iterations=iterations)
    return SinkhornTransport(matched_spread(target, matching.plan), matching)
