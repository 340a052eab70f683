"""The worst C-bound over a ball of disagreements and joint errors: what PAC-Bound 2 asks for.

PAC-Bound 2 is a convex problem. With s = 1 - 2e - d and v = 1 - 2d, the C-bound is 1 - s^2 / v. A vote can have
(d, e) iff s^2 <= v, that is iff the C-bound is not negative; as the sample's own pair is among them, that condition
never binds at the worst pair. What remains is to minimise s^2 / v, convex, over a convex set, the ball in kl. As
  s^2 / v = max_a 2 a s - a^2 v,
minimum and maximum change places: for each slope a a linear function is minimised over the ball, or
<l, p> with l = (2 - 2a, 4, 0) maximised over p = (d, e, 1 - d - e), and at the best slope s = a v. The linear problem
has the solution p_i = scale p_S,i / (nu - l_i), where nu > 4 spends the budget. Both nu and a are found by halving.

At the solution, the derivative of the value is that of the Lagrangian alone (envelope theorem):
  d bound = a scale (d budget - sum_i log(p_S,i / p_i) d p_S,i),
and p_S,i / p_i = (nu - l_i) / scale. It is monotone as the theory says: in the Gibbs risk at a fixed d_S by
nu > nu - 4, in d_S at a fixed Gibbs risk by (nu - 2 + 2a)^2 > nu (nu - 4).
"""

from typing import Any

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array

__all__: list[str] = []


@jax.custom_jvp
@jax.jit
def worst_c_bound(disagreement: Array, joint_error: Array, budget: Array) -> Array:
    """The largest C-bound of a pair within the budget of the sample's; 1 if one reaches a Gibbs risk of 1/2."""
    _, gaps, scale = _worst_pair(disagreement, joint_error, budget)
    first, second = _worst_moments(disagreement, joint_error, gaps, scale)
    usable = (first > 0) & (second > 0)
    ratio = jnp.where(usable, first, 0.0) / jnp.sqrt(jnp.where(usable, second, 1.0))
    return jnp.clip(1 - ratio**2, 0.0, 1.0)


@worst_c_bound.defjvp
def _worst_c_bound_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    disagreement_dot, joint_dot, budget_dot = tangents
    value = worst_c_bound(*primals)
    slope, (w_d, w_e, w_0), scale = _worst_pair(*primals)
    # log(p_S,i / p_i) up to a constant, which the tangents' sum of 0 cancels.
    spent = (jnp.log(w_d) - jnp.log(w_0)) * disagreement_dot + (jnp.log(w_e) - jnp.log(w_0)) * joint_dot
    rate = jnp.where(value < 1, slope * scale, 0.0)
    return value, rate * (budget_dot - spent)


def _worst_moments(
    disagreement: Array, joint_error: Array, gaps: tuple[Array, Array, Array], scale: Array
) -> tuple[Array, Array]:
    """s and v at p_i = scale p_S,i / gap_i; what is left of the mass goes to the joint error."""
    d = scale * disagreement / gaps[0]
    correct = scale * jnp.maximum(1 - disagreement - joint_error, 0.0) / gaps[2]
    # s = 1 - 2e - d = (1 - d - e) - e and e = 1 - d - (1 - d - e).
    return 2 * correct + d - 1, 1 - 2 * d


@jax.custom_jvp
@jax.jit
def _worst_pair(
    disagreement: Array, joint_error: Array, budget: Array
) -> tuple[Array, tuple[Array, Array, Array], Array]:
    """The slope a, the gaps nu - l_i of (d, e, the rest), and the scale at the worst pair."""
    correct = jnp.maximum(1 - disagreement - joint_error, 0.0)
    # Exponents of nu - 4 between which the budget is always spent, to the limits of the dtype.
    lowest = jnp.log(jnp.finfo(budget.dtype).tiny) / 2
    highest = -jnp.log(jnp.finfo(budget.dtype).eps)

    def gaps_at(exponent: Array, slope: Array) -> tuple[Array, Array, Array]:
        w_e = jnp.exp(exponent)
        return w_e + 2 + 2 * slope, w_e, w_e + 4

    def spent(gaps: tuple[Array, Array, Array]) -> Array:
        # sum p_S log w + log sum p_S / w, written around the mean of w so that it keeps its digits where w is large.
        w_d, w_e, w_0 = gaps
        mean = disagreement * w_d + joint_error * w_e + correct * w_0
        r_d, r_e, r_0 = w_d / mean - 1, w_e / mean - 1, w_0 / mean - 1
        logs = disagreement * jnp.log1p(r_d) + joint_error * jnp.log(w_e / mean) + correct * jnp.log1p(r_0)
        inverse = disagreement * r_d**2 * mean / w_d + joint_error * r_e**2 * mean / w_e + correct * r_0**2 * mean / w_0
        return logs + jnp.log1p(inverse)

    def inner(slope: Array) -> tuple[tuple[Array, Array, Array], Array]:
        def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = (low + high) / 2
            over = spent(gaps_at(middle, slope)) > budget
            return jnp.where(over, middle, low), jnp.where(over, high, middle)

        ends = (jnp.full_like(budget, lowest), jnp.full_like(budget, highest))
        _, exponent = jax.lax.fori_loop(0, 56, halve, ends)
        gaps = gaps_at(exponent, slope)
        # This form of the scale spends the budget exactly, also where e_S = 0 and no nu does: then nu = 4, and the
        # mass that is left goes to the joint error.
        logs = disagreement * jnp.log(gaps[0]) + joint_error * exponent + correct * jnp.log(gaps[2])
        return gaps, jnp.exp(logs - budget)

    def outer(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        slope = (low + high) / 2
        first, second = _worst_moments(disagreement, joint_error, *inner(slope))
        rising = first > slope * second
        return jnp.where(rising, slope, low), jnp.where(rising, high, slope)

    # Above slope 1 the worst d is below d_S, so there a = s / v <= v^(-1/2) <= (1 - 2 d_S)^(-1/2).
    steepest = 1 / jnp.sqrt(jnp.maximum(1 - 2 * disagreement, jnp.finfo(budget.dtype).eps))
    low, high = jax.lax.fori_loop(0, 56, outer, (jnp.zeros_like(budget), jnp.maximum(steepest, 1.0)))
    slope = (low + high) / 2
    gaps, scale = inner(slope)
    return slope, gaps, scale


@_worst_pair.defjvp
def _worst_pair_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Any, Any]:
    # Halving has no derivative; a NaN says so where a zero would lie.
    out = _worst_pair(*primals)
    unknown = sum(tangents) * jnp.nan
    return out, jax.tree.map(lambda leaf: jnp.broadcast_to(unknown, leaf.shape), out)
