"""MinCq without compiling: a grid of many voters to the few digits that it is chosen by, and then the chosen vote.

A criterion counts points on the right side, and sees no more than three digits of a second moment. Both solutions here
are Mehrotra's and differ in how they keep M: `coarse_weights` has M itself, with half of the digits of the votes;
`exact_weights` has a factor of it, squares nothing, and ends where `pvmincq_jax.mincq` does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, qr
from scipy.linalg.lapack import dpotrf, dpotrs, dpstrf

__all__: list[str] = []

# The largest relative residual of a vote that is good enough to choose by; steps end a little below it.
COARSE = 1e-3
_AIM, _EXACT_AIM = 2e-4, 1e-9
# Four times as many as were ever needed from margins of 1e-3 to 0.999 mu_max.
_MAX_STEPS = 60
# Below this, relative to the largest, a Hessian's pivots count for nothing at a coarse accuracy.
_FLAT = 1e-10

Solve = Callable[[np.ndarray], np.ndarray]


class _Second(NamedTuple):
    """M, as far as the steps see it."""

    times: Solve
    inverse: Callable[[np.ndarray], Solve]  # from D > 0 to x -> (M + diag D)^-1 x
    ridge: float  # moves M away from singular ones by less than counts


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
    corner = np.sign(margins)
    second = second / (corner @ second @ corner)
    ridge = 1e-8 * np.trace(second) / len(second)
    return _weights(_Second(lambda u: second @ u, _shifted_inverse(second), ridge), margins, mus, _AIM)


def exact_weights(root: np.ndarray, margins: np.ndarray, mus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The votes of least second moment at several margins, to about nine digits where rounding allows it.

    The program of `coarse_weights` with M = R'R. A step's factor of M + D is the triangle of the QR factors of R on top
    of the root of D.

    Args:
      root: R ``[r, n]``.
      margins: m ``[n]``, not all 0.
      mus: ``[k]``, above 0 and at most mu_max = mean |m|.

    Returns: weights ``[k, n]`` and the residual of each ``[k]``, as `coarse_weights`.

    Example:
      >>> weights, residual = exact_weights(np.diag([1.0, 2.0]), np.array([1.0, 1.0]), np.array([0.5, 0.9]))
      >>> print(weights.round(6), residual < 1e-8)
      [[0.4 0.1]
       [0.5 0.4]] [ True  True]
    """
    root = root / np.linalg.norm(root @ np.sign(margins))

    def times(u: np.ndarray) -> np.ndarray:
        return root.T @ (root @ u)

    def inverse(D: np.ndarray) -> Solve:
        factor = qr(np.concatenate([root, np.diag(np.sqrt(D))]), mode="r", overwrite_a=True, check_finite=False)[0]
        triangle = factor[: len(D)], False

        def refined(x: np.ndarray) -> np.ndarray:
            found = cho_solve(triangle, x, check_finite=False)
            return found + cho_solve(triangle, x - times(found) - D * found, check_finite=False)

        return refined

    ridge = 1e-14 * np.sum(root**2) / root.shape[1]
    return _weights(_Second(times, inverse, ridge), margins, mus, _EXACT_AIM)


def _weights(second: _Second, margins: np.ndarray, mus: np.ndarray, aim: float) -> tuple[np.ndarray, np.ndarray]:
    total = np.sum(np.abs(margins))
    a = margins / total
    direction = second.inverse(np.full(len(a), second.ridge))(a)
    unbound = direction / (a @ direction)
    found, residuals = [], []
    for mu in mus:
        box = max(1.0, total / (margins.size * mu))
        u, residual = unbound, _residual(second, a, box, unbound, unbound @ second.times(unbound))
        if not residual <= aim:
            u, residual = _interior_point(second, a, box, aim)
        found.append(u * (mu / total))
        residuals.append(residual)
    return np.array(found), np.array(residuals)


def _residual(second: _Second, a: np.ndarray, box: float, u: np.ndarray, y: float) -> float:
    """The largest of the relative duality gap, the error in the equality, and the excess over the box.

    For any u and y, y - u'Mu / 2 - box sum |(M u - y a)_j| is a lower bound on the least v'Mv / 2.
    """
    hessian_u = second.times(u)
    primal = u @ hessian_u / 2
    least = y - primal - box * np.abs(hessian_u - y * a).sum()
    return float(max(abs(primal - least) / primal, abs(a @ u - 1), np.abs(u).max() / box - 1))


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    """The lower factor of a matrix in Fortran's order, in its place; steps are so short that SciPy's checks count."""
    factor, failed = dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("a step's matrix is not positive definite")
    return factor


def _shifted_inverse(second: np.ndarray) -> Callable[[np.ndarray], Solve]:
    """From D > 0 to x -> (M + diag D)^-1 x."""
    pivoted, order, rank, _ = dpstrf(second, tol=_FLAT * np.max(np.diag(second)))
    if 2 * rank >= len(second):

        def whole(D: np.ndarray) -> Solve:
            shifted = second.copy(order="F")
            np.einsum("ii->i", shifted)[:] += D
            factor = _cholesky(shifted)
            return lambda x: dpotrs(factor, x, lower=1)[0]

        return whole
    rows = np.empty((rank, len(second)))
    rows[:, order - 1] = np.triu(pivoted)[:rank]

    def by_rank(D: np.ndarray) -> Solve:
        # (D + F'F)^-1 = D^-1 - D^-1 F' (I + F D^-1 F')^-1 F D^-1.
        scaled = rows / D
        inner = rows @ scaled.T
        np.einsum("ii->i", inner)[:] += 1
        factor = _cholesky(inner.T)
        return lambda x: (x - rows.T @ dpotrs(factor, scaled @ x, lower=1)[0]) / D

    return by_rank


class _Iterate(NamedTuple):
    u: np.ndarray
    y: float  # multiplier of the equality
    lower: np.ndarray  # multipliers of u >= -box
    upper: np.ndarray  # multipliers of u <= box


def _interior_point(second: _Second, a: np.ndarray, box: float, aim: float) -> tuple[np.ndarray, float]:
    """min u'Mu / 2 s.t. a'u = 1, |u_j| <= box, by Mehrotra's method: the best u on the way, and its residual."""
    u = np.clip(np.sign(a), -0.9 * box, 0.9 * box)
    barrier = 1 / (2 * len(a))
    at = _Iterate(u, float(u @ second.times(u)), barrier / (box + u), barrier / (box - u))
    best = u, np.inf
    # A slack that rounds to 0 ends the steps by a residual that is not finite.
    with np.errstate(all="ignore"):
        for _ in range(_MAX_STEPS):
            residual = _residual(second, a, box, at.u, at.y)
            if not np.isfinite(residual):
                break
            best = min(best, (at.u, residual), key=lambda pair: pair[1])
            if residual <= aim:
                break
            at = _step(second, a, box, at)
    return best


def _step(second: _Second, a: np.ndarray, box: float, at: _Iterate) -> _Iterate:
    """Predictor, corrector, and as far as slacks and multipliers stay above 0."""
    u, y, lower, upper = at
    low, high = box + u, box - u
    inverse = second.inverse(lower / low + upper / high)
    toward, reduced = inverse(a), second.times(u) - y * a

    def direction(aim_lower: Any, aim_upper: Any) -> _Iterate:
        """Newton's, to lower (box + u) = aim_lower and upper (box - u) = aim_upper."""
        free = inverse(aim_lower / low - aim_upper / high - reduced)
        dy = (1 - a @ u - a @ free) / (a @ toward)
        du = free + dy * toward
        return _Iterate(du, dy, (aim_lower - lower * du) / low - lower, (aim_upper + upper * du) / high - upper)

    def longest(d: _Iterate) -> float:
        """Up to where one of the slacks and multipliers is 0."""
        falls = (-d.u / low).max(), (d.u / high).max(), -(d.lower / lower).min(), -(d.upper / upper).min()
        return 1 / max(1e-300, *map(float, falls))

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
