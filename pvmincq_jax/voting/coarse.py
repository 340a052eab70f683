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
    """M, as far as the steps see it; k margins are steps side by side."""

    times: Solve  # [k, n] -> [k, n]
    inverse: Callable[[np.ndarray], Solve]  # from D > 0 [n] to x -> (M + diag D)^-1 x, of columns [n, c]
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
    return _weights(_Second(lambda u: u @ second, _shifted_inverse(second), ridge), margins, mus, _AIM)


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
        return (u @ root.T) @ root

    def inverse(D: np.ndarray) -> Solve:
        factor = qr(np.concatenate([root, np.diag(np.sqrt(D))]), mode="r", overwrite_a=True, check_finite=False)[0]
        triangle = factor[: len(D)], False

        def refined(x: np.ndarray) -> np.ndarray:
            found = cho_solve(triangle, x, check_finite=False)
            return found + cho_solve(triangle, x - times(found.T).T - D[:, None] * found, check_finite=False)

        return refined

    ridge = 1e-14 * np.sum(root**2) / root.shape[1]
    return _weights(_Second(times, inverse, ridge), margins, mus, _EXACT_AIM)


def _weights(second: _Second, margins: np.ndarray, mus: np.ndarray, aim: float) -> tuple[np.ndarray, np.ndarray]:
    total = np.sum(np.abs(margins))
    a = margins / total
    direction = second.inverse(np.full(len(a), second.ridge))(a[:, None])[:, 0]
    boxes = np.maximum(1.0, total / (margins.size * mus))
    found = np.tile(direction / (a @ direction), (len(mus), 1))
    residuals = _residual(second, a, boxes, found, np.sum(found * second.times(found), axis=1))
    bound = np.flatnonzero(~(residuals <= aim))
    found[bound], residuals[bound] = _interior_point(second, a, boxes[bound], aim)
    return found * (mus / total)[:, None], residuals


def _residual(second: _Second, a: np.ndarray, boxes: np.ndarray, u: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The largest of the relative duality gap, the error in the equality, and the excess over the box ``[k]``.

    For any u and y, y - u'Mu / 2 - box sum |(M u - y a)_j| is a lower bound on the least v'Mv / 2.
    """
    hessian_u = second.times(u)
    primal = np.einsum("kn,kn->k", u, hessian_u) / 2
    least = y - primal - boxes * np.abs(hessian_u - y[:, None] * a).sum(axis=1)
    return np.maximum(np.maximum(np.abs(primal - least) / primal, np.abs(u @ a - 1)), np.abs(u).max(axis=1) / boxes - 1)


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    """The lower factor of a matrix in Fortran's order, in its place; NaN if there is none."""
    # Steps are so short that the checks of SciPy's own functions would count.
    factor, failed = dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    return np.full_like(factor, np.nan) if failed else factor


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
        return lambda x: (x - rows.T @ dpotrs(factor, scaled @ x, lower=1)[0]) / D[:, None]

    return by_rank


class _Iterate(NamedTuple):
    """One row for each margin."""

    u: np.ndarray  # [k, n]
    y: np.ndarray  # multipliers of the equality [k]
    lower: np.ndarray  # multipliers of u >= -box [k, n]
    upper: np.ndarray  # multipliers of u <= box [k, n]


def _interior_point(second: _Second, a: np.ndarray, boxes: np.ndarray, aim: float) -> tuple[np.ndarray, np.ndarray]:
    """min u'Mu / 2 s.t. a'u = 1, |u_j| <= box, by Mehrotra's method: the best u on the way, and its residual."""
    u = np.clip(np.sign(a), -0.9 * boxes[:, None], 0.9 * boxes[:, None])
    barrier = 1 / (2 * len(a))
    y = np.sum(u * second.times(u), axis=1)
    at = _Iterate(u, y, barrier / (boxes[:, None] + u), barrier / (boxes[:, None] - u))
    best, residuals = u.copy(), np.full(len(boxes), np.inf)
    going = np.arange(len(boxes))
    # A slack that rounds to 0 ends the steps by a residual that is not finite.
    with np.errstate(all="ignore"):
        for _ in range(_MAX_STEPS):
            residual = _residual(second, a, boxes[going], at.u, at.y)
            better = residual < residuals[going]
            best[going[better]], residuals[going[better]] = at.u[better], residual[better]
            on = np.isfinite(residual) & (residual > aim)
            if not np.any(on):
                break
            if not np.all(on):
                going, at = going[on], _Iterate(*(field[on] for field in at))
            at = _step(second, a, boxes[going][:, None], at)
    return best, residuals


def _step(second: _Second, a: np.ndarray, box: np.ndarray, at: _Iterate) -> _Iterate:
    """Predictor, corrector, and as far as slacks and multipliers stay above 0."""
    u, y, lower, upper = at
    low, high = box + u, box - u
    inverses = [second.inverse(D) for D in lower / low + upper / high]
    reduced = second.times(u) - y[:, None] * a

    def solve(right: np.ndarray) -> np.ndarray:
        """Of each margin's own columns ``[k, n, c]``."""
        return np.stack([inverse(columns) for inverse, columns in zip(inverses, right)])

    def direction(free: np.ndarray, toward: np.ndarray, aim_lower: Any, aim_upper: Any) -> _Iterate:
        """Newton's, to lower (box + u) = aim_lower and upper (box - u) = aim_upper."""
        dy = (1 - u @ a - free @ a) / (toward @ a)
        du = free + dy[:, None] * toward
        return _Iterate(du, dy, (aim_lower - lower * du) / low - lower, (aim_upper + upper * du) / high - upper)

    def longest(d: _Iterate) -> np.ndarray:
        """Up to where one of the slacks and multipliers is 0 ``[k]``."""
        falls = np.maximum(-d.u / low, d.u / high), np.maximum(-d.lower / lower, -d.upper / upper)
        return 1 / np.maximum(1e-300, np.maximum(*falls).max(axis=1))

    both = solve(np.stack([np.broadcast_to(a, u.shape), -reduced], axis=2))
    toward = both[:, :, 0]
    predictor = direction(both[:, :, 1], toward, 0.0, 0.0)
    step = np.minimum(1.0, longest(predictor))[:, None]
    gap = np.einsum("kn,kn->k", lower, low) + np.einsum("kn,kn->k", upper, high)
    after = np.einsum("kn,kn->k", lower + step * predictor.lower, low + step * predictor.u)
    after += np.einsum("kn,kn->k", upper + step * predictor.upper, high - step * predictor.u)
    centre = ((after / gap) ** 3 * gap / (2 * len(a)))[:, None]
    aims = centre - predictor.lower * predictor.u, centre + predictor.upper * predictor.u
    free = solve((aims[0] / low - aims[1] / high - reduced)[:, :, None])[:, :, 0]
    corrector = direction(free, toward, *aims)
    step = np.minimum(1.0, 0.99 * longest(corrector))
    steps = step[:, None], step, step[:, None], step[:, None]
    return _Iterate(*(value + own * change for value, own, change in zip(at, steps, corrector)))
