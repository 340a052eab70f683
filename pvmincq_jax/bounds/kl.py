"""Divergences between two and three events, and what a budget of divergence leaves possible, differentiable.

PAC-Bayes theorems bound kl(rate on the sample || true rate). The functions here turn such a budget into the worst true
rate (`kl_inverse_upper`, `kl_inverse_lower`), or into the worst C-bound of a disagreement and a joint error together.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_broadcast, check_finite, is_traced
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike

__all__ = ["binary_kl", "kl_inverse_lower", "kl_inverse_upper", "pac_bayes_xi"]


def floats(*values: ArrayLike) -> tuple[Array, ...]:
    """The values in one floating dtype: theirs, or the default one for integers and Python numbers."""
    dtype = jnp.result_type(*values, float)
    return tuple(jnp.asarray(value, dtype) for value in values)


def within(low: float, high: float, *, open_ends: bool = False, **values: ArrayLike) -> Array:
    """Whether traced values lie in [low, high], or in (low, high), elementwise; a ValueError for others that do not."""
    check_process()
    inside: Any = True
    for name, value in values.items():
        check_finite(name, value)
        array = value if is_traced(value) else np.asarray(value)
        allowed = (array > low) & (array < high) if open_ends else (array >= low) & (array <= high)
        if not is_traced(value) and not np.all(allowed):
            interval = f"({low:g}, {high:g})" if open_ends else f"[{low:g}, {high:g}]"
            raise ValueError(f"{name} must lie in {interval}; it holds {value}")
        inside = inside & allowed
    return inside


def known(inside: Array, value: Array) -> Array:
    """NaN where a traced argument was out of range: never a plausible wrong number."""
    return jnp.where(inside, value, jnp.nan)


def binary_kl(q: ArrayLike, p: ArrayLike) -> Array:
    """Divergence between two coins. Not in the paper.

    kl(q || p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)), with 0 log 0 = 0.

    Args:
      q: probabilities in [0, 1].
      p: probabilities in [0, 1].

    Returns:
      Non-negative, infinite where p is 0 or 1 and q is not the same, NaN out of range. Its slope in q is infinite at
      the ends 0 and 1, where a large finite number stands for it.

    Example:
      >>> print(*(f"{kl:.4f}" for kl in binary_kl(0.5, np.array([0.5, 0.25, 1.0]))))
      0.0000 0.1438 inf
    """
    check_broadcast(q=q, p=p)
    return known(within(0, 1, q=q, p=p), _binary_kl(*floats(q, p)))


def _binary_kl(q: Array, p: Array) -> Array:
    return _half_kl(q, p, q - p) + _half_kl(1 - q, 1 - p, p - q)


def _half_kl(q: Array, p: Array, gap: Array) -> Array:
    """q log(q / p), infinite for p = 0 < q; the gap q - p is handed in because 1 - q and 1 - p have lost its digits."""
    tiny = jnp.finfo(q.dtype).tiny
    safe = jnp.where(p > 0, p, 1.0)
    # The logarithm of 1 + (q - p) / p keeps its digits where q and p are close; far apart it would lose a small q. At
    # q = 0 the slope is minus infinity, for which the logarithm of the smallest number stands. The inner `where` keeps
    # the branch that is not taken from sending NaN into the gradient.
    close = q > safe / 2
    ratio = jnp.log1p(jnp.where(close, gap / safe, 0.0))
    value = q * jnp.where(close, ratio, jnp.log(jnp.maximum(q, tiny)) - jnp.log(safe))
    return jnp.where((q > 0) & (p <= 0), jnp.inf, value)


def kl_inverse_upper(q: ArrayLike, budget: ArrayLike) -> Array:
    """The largest probability that an observed rate q leaves possible. Not in the paper.

    max {p in [q, 1] : kl(q || p) <= budget}.

    The derivatives follow from kl(q || p) = budget by the implicit function theorem:

    dp/dbudget = p (1 - p) / (p - q),    dp/dq = log(p (1 - q) / (q (1 - p))) dp/dbudget.

    Where the true one-sided derivative is infinite (in the budget at 0, in q at 0) a large finite number stands for it,
    so that what does not depend on it keeps a gradient of 0 and not NaN.

    Args:
      q: rates in [0, 1].
      budget: not negative.

    Returns: probabilities in [q, 1]; 1 - exp(-budget) at q = 0, and 1 at q = 1.

    Example:
      >>> print(*(f"{p:.4f}" for p in kl_inverse_upper(np.array([0.0, 0.2, 1.0]), 0.1)))
      0.0952 0.4100 1.0000
    """
    check_broadcast(q=q, budget=budget)
    inside = within(0, 1, q=q) & within(0, np.inf, budget=budget)
    return known(inside, _kl_inverse(*jnp.broadcast_arrays(*floats(q, budget))))


def kl_inverse_lower(q: ArrayLike, budget: ArrayLike) -> Array:
    """The smallest probability that an observed rate q leaves possible. Not in the paper.

    min {p in [0, q] : kl(q || p) <= budget} = 1 - max {p in [1 - q, 1] : kl(1 - q || p) <= budget}.

    Args: q and budget as of `kl_inverse_upper`; so are the derivatives.

    Returns: probabilities in [0, q]; 0 at q = 0, and exp(-budget) at q = 1.

    Example:
      >>> print(*(f"{p:.4f}" for p in kl_inverse_lower(np.array([0.0, 0.2, 1.0]), 0.1)))
      0.0000 0.0650 0.9048
    """
    within(0, 1, q=q)
    within(0, np.inf, budget=budget)
    q, budget = floats(q, budget)
    return 1 - kl_inverse_upper(1 - q, budget)


def pac_bayes_xi(m: ArrayLike) -> Array:
    """The constant of Germain et al.'s bounds, between sqrt(m) and 2 sqrt(m). Not in the paper.

    xi(m) = sum_{k=0}^m C(m, k) (k/m)^k (1 - k/m)^(m-k).

    By Abel's identity this is sum_{j=0}^m m! / ((m-j)! m^j), whose terms are running products of 1 - i/m. Up to
    m = 64 these are summed; beyond, the sum is 1 + Q(m) for Ramanujan's function Q, whose expansion in m^(-1/2) (Knuth,
    Seminumerical Algorithms) is right there to nine digits.

    Args:
      m: sample sizes, at least 1.

    Returns: xi(m), elementwise.

    Example:
      >>> print(*(f"{xi:.3f}" for xi in pac_bayes_xi(np.array([1, 2, 1000]))))
      2.000 2.500 40.303
    """
    inside = within(1, np.inf, m=m)
    (m,) = floats(m)
    index = jnp.arange(64, dtype=m.dtype)
    few = jnp.minimum(m, 64.0)[..., None]
    exact = 1 + jnp.sum(jnp.cumprod(jnp.maximum(1 - index / few, 0.0), axis=-1), axis=-1)
    many = jnp.maximum(m, 64.0)
    half_powers = 1 + 1 / (12 * many) + 1 / (288 * many**2) - 139 / (51840 * many**3)
    expansion = jnp.sqrt(jnp.pi * many / 2) * half_powers + 2 / 3 - 4 / (135 * many) + 8 / (2835 * many**2)
    return known(inside, jnp.where(m <= 64, exact, expansion))


def _halved(steps: int, low: Array, high: Array, is_low: Any) -> tuple[Array, Array]:
    """A bracket after so many halvings; ``is_low`` says whether a point belongs to its lower end."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        below = is_low(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jax.lax.fori_loop(0, steps, halve, (low, high))


@jax.custom_jvp
@jax.jit
def _kl_inverse(q: Array, budget: Array) -> Array:
    # Pinsker's inequality closes the bracket: kl(q || p) >= 2 (p - q)^2. Sixty halvings leave less than rounding.
    top = jnp.minimum(q + jnp.sqrt(jnp.maximum(budget, 0) / 2), 1.0)
    low, _ = _halved(60, q, top, lambda p: _binary_kl(q, p) <= budget)
    # A budget that is not spent at the top of the bracket leaves the top, p = 1, itself.
    return jnp.where(q >= 1, 1.0, jnp.where(_binary_kl(q, top) <= budget, top, low))


@_kl_inverse.defjvp
def _kl_inverse_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    q, budget = primals
    q_dot, budget_dot = tangents
    p = _kl_inverse(q, budget)
    tiny = jnp.finfo(p.dtype).tiny
    gap = p - q
    open_gap = gap > 4 * jnp.finfo(p.dtype).eps
    by_budget = p * (1 - p) / jnp.where(open_gap, gap, jnp.sqrt(tiny))

    def log(value: Array) -> Array:
        return jnp.log(jnp.maximum(value, tiny))

    odds = log(p) - log(q) + log(1 - q) - log(1 - p)
    # Where nothing but rounding lies between p and q, either the budget is spent at once (p follows q) or p has
    # reached 1, where it stays.
    by_q = jnp.where(open_gap, odds * by_budget, jnp.where((budget > 0) & (p >= 1), 0.0, 1.0))
    return p, by_q * q_dot + by_budget * budget_dot


@jax.custom_jvp
@jax.jit
def worst_pair(disagreement: Array, joint_error: Array, budget: Array) -> tuple[Array, Array, tuple[Array, ...], Array]:
    """The largest C-bound of a pair within the budget of the sample's; 1 if one reaches a Gibbs risk of 1/2.

    This is a convex problem. With s = 1 - 2e - d and v = 1 - 2d, the C-bound is 1 - s^2 / v. A vote can have (d, e) iff
    s^2 <= v, that is iff the C-bound is not negative; as the sample's own pair is among them, that condition never
    binds at the worst pair. What remains is to minimise s^2 / v, convex, over a convex set, the ball in kl. As

    s^2 / v = max_a 2 a s - a^2 v,

    minimum and maximum change places: for each slope a a linear function is minimised over the ball, or <l, p> with
    l = (2 - 2a, 4, 0) maximised over p = (d, e, 1 - d - e), and at the best slope s = a v. The linear problem has the
    solution p_i = scale p_S,i / (nu - l_i), where nu > 4 spends the budget. Both nu and a are found by halving.

    At the solution, the derivative of the value is that of the Lagrangian alone (envelope theorem):

    d bound = a scale (d budget - sum_i log(p_S,i / p_i) d p_S,i),

    and p_S,i / p_i = (nu - l_i) / scale. It is monotone as the theory says: in the Gibbs risk at a fixed d_S by
    nu > nu - 4, in d_S at a fixed Gibbs risk by (nu - 2 + 2a)^2 > nu (nu - 4).

    Returns: the worst C-bound, its slope a, the gaps nu - l_i of (d, e, the rest), and the scale.
    """
    sample = disagreement, joint_error, jnp.maximum(1 - disagreement - joint_error, 0.0)
    # Exponents of nu - 4 between which the budget is always spent, to the limits of the dtype.
    lowest = jnp.full_like(budget, jnp.log(jnp.finfo(budget.dtype).tiny) / 2)
    highest = jnp.full_like(budget, -jnp.log(jnp.finfo(budget.dtype).eps))

    def gaps_at(exponent: Array, slope: Array) -> tuple[Array, ...]:
        w_e = jnp.exp(exponent)
        return w_e + 2 + 2 * slope, w_e, w_e + 4

    def spent(gaps: tuple[Array, ...]) -> Array:
        # sum p_S log w + log sum p_S / w, written around the mean of w so that it keeps its digits where w is large.
        mean = sum(p * w for p, w in zip(sample, gaps))
        ratios = [w / mean for w in gaps]
        logs = sum(p * (jnp.log(r) if k == 1 else jnp.log1p(r - 1)) for k, (p, r) in enumerate(zip(sample, ratios)))
        return logs + jnp.log1p(sum(p * (r - 1) ** 2 / r for p, r in zip(sample, ratios)))

    def inner(slope: Array) -> tuple[tuple[Array, ...], Array, Array, Array]:
        """Gaps, scale, s and v of the worst pair at a slope."""
        _, exponent = _halved(56, lowest, highest, lambda middle: spent(gaps_at(middle, slope)) > budget)
        gaps = gaps_at(exponent, slope)
        # This form of the scale spends the budget exactly, also where e_S = 0 and no nu does: then nu = 4, and the
        # mass that is left goes to the joint error.
        logs = sample[0] * jnp.log(gaps[0]) + sample[1] * exponent + sample[2] * jnp.log(gaps[2])
        scale = jnp.exp(logs - budget)
        d, correct = scale * sample[0] / gaps[0], scale * sample[2] / gaps[2]
        # s = 1 - 2e - d = (1 - d - e) - e and e = 1 - d - (1 - d - e).
        return gaps, scale, 2 * correct + d - 1, 1 - 2 * d

    def rising(slope: Array) -> Array:
        _, _, first, second = inner(slope)
        return first > slope * second

    # Above slope 1 the worst d is below d_S, so there a = s / v <= v^(-1/2) <= (1 - 2 d_S)^(-1/2).
    steepest = 1 / jnp.sqrt(jnp.maximum(1 - 2 * disagreement, jnp.finfo(budget.dtype).eps))
    low, high = _halved(56, jnp.zeros_like(budget), jnp.maximum(steepest, 1.0), rising)
    slope = (low + high) / 2
    gaps, scale, first, second = inner(slope)
    usable = (first > 0) & (second > 0)
    ratio = jnp.where(usable, first, 0.0) / jnp.sqrt(jnp.where(usable, second, 1.0))
    return jnp.clip(1 - ratio**2, 0.0, 1.0), slope, gaps, scale


@worst_pair.defjvp
def _worst_pair_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Any, Any]:
    disagreement_dot, joint_dot, budget_dot = tangents
    out = value, slope, (w_d, w_e, w_0), scale = worst_pair(*primals)
    # log(p_S,i / p_i) up to a constant, which the tangents' sum of 0 cancels.
    spent = (jnp.log(w_d) - jnp.log(w_0)) * disagreement_dot + (jnp.log(w_e) - jnp.log(w_0)) * joint_dot
    rate = jnp.where(value < 1, slope * scale, 0.0)
    # Of the rest, halving has no derivative, nor has the value a second one; a NaN says so where a zero would lie.
    unknown = sum(tangents) * jnp.nan
    others = jax.tree.map(lambda leaf: jnp.broadcast_to(unknown, leaf.shape), out[1:])
    return out, (rate * (budget_dot - spent), *others)
