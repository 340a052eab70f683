"""MinCq to a few digits, without compiling: what a grid of many voters is chosen by.

A criterion counts points on the right side, and sees no more than three digits of a second moment. The chosen vote is
then solved to the last one by `pvmincq_jax.mincq`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

__all__: list[str] = []

# The largest relative residual of a vote that is good enough to choose by; steps end a little below it.
COARSE = 1e-3
_AIM = 2e-4
# Four times as many as were ever needed from margins of 1e-3 to 0.999 mu_max.
_MAX_STEPS = 60
# Below this, relative to the largest, a Hessian's pivots count for nothing at this accuracy.
_FLAT = 1e-10

Solve = Callable[[np.ndarray], np.ndarray]


def coarse_weights(second: np.ndarray, margins: np.ndarray, mus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The votes of least second moment at several margins, to about three digits.

    min_w w' M w  s.t.  m' w = mu, |w_j| <= 1/n. In u = w sum|m| / mu the equality is a' u = 1, with a = m / sum|m|, and
    the box is mu_max / mu wide: all margins share the program but for its box. Without the box the least one is
    u = M^-1 a / a' M^-1 a; it solves every margin whose box holds it. The others take Mehrotra's predictor-corrector
    steps, each a Cholesky factor of M + D, or of r x r numbers where M has a rank r below n / 2.

    Args:
      second: M ``[n, n]``.
      margins: m ``[n]``, not all 0.
      mus: ``[k]``, above 0 and at most mu_max = mean |m|.

    Returns: weights ``[k, n]`` and the residual of each ``[k]``, as `pvmincq_jax.MinCqSolution.kkt_residual`.

    Example:
      >>> weights, residual = coarse_weights(np.diag([1.0, 4.0]), np.array([1.0, 1.0]), np.array([0.5, 0.9]))
      >>> print(weights.round(2), residual < 1e-3)
      [[0.4 0.1]
       [0.5 0.4]] [ True  True]
    """
    total = np.sum(np.abs(margins))
    a = margins / total
    corner = np.sign(a)
    second = second / (corner @ second @ corner)
    unbound = _unbound(second, a)
    inverse_of = _shifted_inverse(second)
    found, residuals = [], []
    for mu in mus:
        box = max(1.0, total / (margins.size * mu))
        u, residual = unbound, _residual(second, a, box, unbound, unbound @ second @ unbound)
        if residual > _AIM:
            u, residual = _interior_point(second, a, box, corner, inverse_of)
        found.append(u * (mu / total))
        residuals.append(residual)
    return np.array(found), np.array(residuals)


def _residual(second: np.ndarray, a: np.ndarray, box: float, u: np.ndarray, y: float) -> float:
    """The largest of the relative duality gap, the error in the equality, and the excess over the box.

    For any u and y, y - u'Mu / 2 - box sum |(M u - y a)_j| is a lower bound on the least v'Mv / 2.
    """
    hessian_u = second @ u
    primal = u @ hessian_u / 2
    least = y - primal - box * np.sum(np.abs(hessian_u - y * a))
    return float(max(abs(primal - least) / primal, abs(a @ u - 1), np.max(np.abs(u)) / box - 1))


def _unbound(second: np.ndarray, a: np.ndarray) -> np.ndarray:
    """M^-1 a / a' M^-1 a, of an M that is moved away from singular ones by less than counts."""
    ridge = 1e-8 * np.trace(second) / len(a)
    direction = cho_solve(cho_factor(second + ridge * np.eye(len(a)), lower=True), a)
    return direction / (a @ direction)


def _shifted_inverse(second: np.ndarray) -> Callable[[np.ndarray], Solve]:
    """From D > 0 to x -> (M + diag D)^-1 x."""
    pivoted, order, rank, _ = dpstrf(second, tol=_FLAT * np.max(np.diag(second)))
    if 2 * rank >= len(second):

        def whole(D: np.ndarray) -> Solve:
            shifted = second.copy()
            shifted[np.diag_indices_from(shifted)] += D
            factor = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
            return lambda x: cho_solve(factor, x, check_finite=False)

        return whole
    rows = np.empty((rank, len(second)))
    rows[:, order - 1] = np.triu(pivoted)[:rank]

    def by_rank(D: np.ndarray) -> Solve:
        # (D + F'F)^-1 = D^-1 - D^-1 F' (I + F D^-1 F')^-1 F D^-1.
        scaled = rows / D
        factor = cho_factor(np.eye(rank) + scaled @ rows.T, lower=True, overwrite_a=True, check_finite=False)
        return lambda x: (x - rows.T @ cho_solve(factor, scaled @ x, check_finite=False)) / D

    return by_rank


class _Iterate(NamedTuple):
    u: np.ndarray
    y: float  # multiplier of the equality
    lower: np.ndarray  # multipliers of u >= -box
    upper: np.ndarray  # multipliers of u <= box


def _interior_point(
    second: np.ndarray, a: np.ndarray, box: float, corner: np.ndarray, inverse_of: Callable[[np.ndarray], Solve]
) -> tuple[np.ndarray, float]:
    """min u'Mu / 2 s.t. a'u = 1, |u_j| <= box, by Mehrotra's method: the best u on the way, and its residual."""
    u = np.clip(corner, -0.9 * box, 0.9 * box)
    barrier = 1 / (2 * len(a))
    at = _Iterate(u, float(u @ second @ u), barrier / (box + u), barrier / (box - u))
    best = u, np.inf
    for _ in range(_MAX_STEPS):
        residual = _residual(second, a, box, at.u, at.y)
        if not np.isfinite(residual):
            break
        best = min(best, (at.u, residual), key=lambda pair: pair[1])
        if residual <= _AIM:
            break
        at = _step(second, a, box, at, inverse_of)
    return best


def _step(
    second: np.ndarray, a: np.ndarray, box: float, at: _Iterate, inverse_of: Callable[[np.ndarray], Solve]
) -> _Iterate:
    """Predictor, corrector, and as far as slacks and multipliers stay above 0."""
    u, y, lower, upper = at
    low, high = box + u, box - u
    inverse = inverse_of(lower / low + upper / high)
    toward, reduced = inverse(a), second @ u - y * a

    def direction(aim_lower: Any, aim_upper: Any) -> _Iterate:
        """Newton's, to lower (box + u) = aim_lower and upper (box - u) = aim_upper."""
        free = inverse(aim_lower / low - aim_upper / high - reduced)
        dy = (1 - a @ u - a @ free) / (a @ toward)
        du = free + dy * toward
        return _Iterate(du, dy, (aim_lower - lower * du) / low - lower, (aim_upper + upper * du) / high - upper)

    def longest(d: _Iterate) -> float:
        pairs = (low, d.u), (high, -d.u), (lower, d.lower), (upper, d.upper)
        return 1 / max(1e-300, *(float(np.max(-change / value)) for value, change in pairs))

    predictor = direction(0.0, 0.0)
    step = min(1.0, longest(predictor))
    gap = lower @ low + upper @ high
    after = (lower + step * predictor.lower) @ (low + step * predictor.u)
    after += (upper + step * predictor.upper) @ (high - step * predictor.u)
    centre = (after / gap) ** 3 * gap / (2 * len(a))
    corrector = direction(centre - predictor.lower * predictor.u, centre + predictor.upper * predictor.u)
    step = min(1.0, 0.99 * longest(corrector))
    moved: Any = [value + step * change for value, change in zip(at, corrector)]  # type: ignore[operator]
    return _Iterate(*moved)
