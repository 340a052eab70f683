"""The divergence of two coins and its inverses, differentiable: what the PAC-Bayes bounds are made of."""

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_finite, is_traced
from pvmincq_jax._types import Array, ArrayLike

__all__ = ["binary_kl", "kl_inverse_lower", "kl_inverse_upper"]


def floating(*values: ArrayLike) -> tuple[Array, ...]:
    """The values in one floating dtype: theirs, or the default one for integers and Python numbers."""
    dtype = jnp.result_type(*values, float)
    return tuple(jnp.asarray(value, dtype) for value in values)


def check_between(name: str, value: ArrayLike, low: float, high: float, *, open_ends: bool = False) -> None:
    """A concrete value in [low, high], or in (low, high)."""
    check_finite(name, value)
    if is_traced(value):
        return
    array = np.asarray(value)
    inside = (array > low) & (array < high) if open_ends else (array >= low) & (array <= high)
    if not np.all(inside):
        interval = f"({low:g}, {high:g})" if open_ends else f"[{low:g}, {high:g}]"
        raise ValueError(f"{name} must lie in {interval}; it holds {value}")


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
    check_between("q", q, 0, 1)
    check_between("p", p, 0, 1)
    q, p = floating(q, p)
    inside = (q >= 0) & (q <= 1) & (p >= 0) & (p <= 1)
    return known(inside, _half_kl(q, p) + _half_kl(1 - q, 1 - p))


def _half_kl(q: Array, p: Array) -> Array:
    """q log(q / p), infinite for p = 0 < q."""
    tiny = jnp.finfo(q.dtype).tiny
    safe = jnp.where(p > 0, p, 1.0)
    # The logarithm of 1 + (q - p) / p keeps its digits where q and p are close; far apart it would lose a small q. At
    # q = 0 the slope is minus infinity, for which the logarithm of the smallest number stands. The inner `where` keeps
    # the branch that is not taken from sending NaN into the gradient.
    close = q > safe / 2
    ratio = jnp.log1p(jnp.where(close, (q - safe) / safe, 0.0))
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
    check_between("q", q, 0, 1)
    check_between("budget", budget, 0, np.inf)
    q, budget = jnp.broadcast_arrays(*floating(q, budget))
    return known((q >= 0) & (q <= 1) & (budget >= 0), _kl_inverse(q, budget))


def kl_inverse_lower(q: ArrayLike, budget: ArrayLike) -> Array:
    """The smallest probability that an observed rate q leaves possible. Not in the paper.

    min {p in [0, q] : kl(q || p) <= budget} = 1 - max {p in [1 - q, 1] : kl(1 - q || p) <= budget}.

    Args: q and budget as of `kl_inverse_upper`; so are the derivatives.

    Returns: probabilities in [0, q]; 0 at q = 0, and exp(-budget) at q = 1.

    Example:
      >>> print(*(f"{p:.4f}" for p in kl_inverse_lower(np.array([0.0, 0.2, 1.0]), 0.1)))
      0.0000 0.0650 0.9048
    """
    check_between("q", q, 0, 1)
    q, budget = floating(q, budget)
    return 1 - kl_inverse_upper(1 - q, budget)


@jax.custom_jvp
@jax.jit
def _kl_inverse(q: Array, budget: Array) -> Array:
    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        below = _half_kl(q, middle) + _half_kl(1 - q, 1 - middle) <= budget
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    # Pinsker's inequality closes the bracket: kl(q || p) >= 2 (p - q)^2. Sixty halvings leave less than rounding.
    top = jnp.minimum(q + jnp.sqrt(jnp.maximum(budget, 0) / 2), 1.0)
    low, _ = jax.lax.fori_loop(0, 60, halve, (q, top))
    # A budget that is not spent at the top of the bracket leaves the top, p = 1, itself.
    return jnp.where(q >= 1, 1.0, jnp.where(_half_kl(q, top) + _half_kl(1 - q, 1 - top) <= budget, top, low))


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
