"""The Newton systems of the interior point, solved in one of two ways.

Quick ones take conjugate gradients, preconditioned by a few rows of F: most voters are at a bound, or on their way
there, and a few rows see to the others. Sure ones factor the whole system by the rank of F, and refine what they find;
they keep their digits at any margin.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.qp import ScaledRows, inner

__all__: list[str] = []

# Below this share of q'q, c has lost digits to cancellation: the margin is next to mu_max.
_NEAR = 1e-3
# Conjugate gradients end at this share of the complementarity, or at so many for a direction.
_INEXACT, MOST_GRADIENTS = 0.01, 100
# The least that the preconditioner adds to D, in roundings of the largest second moment of a voter.
_FLOOR = 1e3

# From g ``[n]``, and how often a system by rank is to be solved, to du ``[n]``, the change of the dual variables
# ``[r + 1]``, and the number of conjugate gradients.
Newton = Callable[[Array, Array], tuple[Array, Array, Array]]
# From a function without arguments to the arrays that it returns, or to zeros where nothing needs them.
When = Callable[[Callable[[], Any]], Any]
# From v ``[n]`` to P^-1 v, of a positive definite P.
Inverse = Callable[[Array], Array]
# How many conjugate gradients there were; du, dy, what they leave of the equation, the last direction and its energy.
_Descent = tuple[Array, Array, Array, Array, Array, Array]


def cholesky_columns(matrix: Array) -> Array:
    """The columns of L one after the other, of a symmetric matrix LL'.

    LAPACK has columns where JAX has rows. Transposed before and after, nothing is copied, and one long vector is handed
    through loops and branches as it is, where XLA would copy a matrix from rows to columns at every use.
    """
    return jnp.linalg.cholesky(matrix.T, symmetrize_input=False).T.ravel()


def _triangle(columns: Array, size: int) -> Array:
    """L ``[size, size]``."""
    return columns.reshape(size, size).T


def newton_by_rank(
    rows: ScaledRows, binding: Array, D_inverse: Array, columns: Array, residuals: Array, zero: Array, when: When
) -> Newton:
    """The system in (d zeta, d y), after du = D^-1 (g - F' d zeta + e dy).

    With K = I + F D^-1 F', and a = F'q + e, it is

        K d zeta + h dy = F D^-1 g - r_z,   h = q - F D^-1 e,
        h' d zeta + (q'q + e' D^-1 e) dy = r_b - e' D^-1 g - q' r_z.

    Here K = LL'. With l = L^-1 h (``along``) the second equation less h' K^-1 times the first has the factor
    c = q'q + e' D^-1 e - l'l in front of dy. Next to mu_max that cancels, as K is all but I and h all but q. There,
    with K t = h and K v = F D^-1 a, which is K (q - t), it is taken as

        c dy = r_b - (e + F't)' D^-1 g - v' r_z,   c = q'v + (e + F't)' D^-1 e.

    The corrector solves once more for what it leaves of the last two of the three equations; the first is met by du
    itself.

    Args:
      rows: all rows.
      binding: as in `Start`; where nothing binds, the multiplier stays at 0.
      D_inverse: ``[n]``, 0 for voters that are not free.
      columns: of L, as `cholesky_columns` has them.
      residuals: of the last two equations, (-r_z, -r_b) ``[r + 1]``.
      zero: conjugate gradients.
      when: whether this system will be solved.
    """
    F, down, q, a = rows.factor, rows.down, rows.target, rows.normal
    target = q[:-1]

    def half(right_side: Array, trans: int = 0) -> Array:
        return jax.scipy.linalg.solve_triangular(_triangle(columns, len(F)), right_side, lower=True, trans=trans)

    other_half = functools.partial(half, trans=1)

    def prepare() -> tuple[Array, Array, Array]:
        """l, 1 / c, and what the second equation takes of r_z, of F D^-1 g and of L^-1 times the first's right side."""
        # [F; -e'] D^-1 times e and a.
        of_e, of_a = (down @ (D_inverse * jnp.stack([-down[-1], a])).T).T
        halves = half(jnp.stack([target - of_e[:-1], of_a[:-1]], axis=1))
        t, v = other_half(halves).T
        along = halves[:, 0]
        length, along_length, by_target, by_e = inner([target, along, target, t], [target, along, v, of_e[:-1]])
        near = length - along_length < _NEAR * length
        c = jnp.where(near, by_target + by_e, length - along_length) - of_e[-1]
        taken = [jnp.where(near, v, target), jnp.where(near, -t, 0.0), jnp.where(near, 0.0, -along)]
        return along, binding / jnp.where(binding > 0, c, 1.0), jnp.stack(taken)

    along, c_inverse, taken = when(prepare)

    def solve(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """From du so far, what it leaves of -r_z and -r_b, and (d zeta, dy) so far, to all three one step further."""
        du, left, dual = state
        product = down @ du
        first = half((product + left)[:-1, None])[:, 0]
        dy = (product[-1] - left[-1] + jnp.sum(inner([*taken], [left[:-1], product[:-1], first]))) * c_inverse
        more = jnp.append(other_half((first - along * dy)[:, None])[:, 0], dy)
        return du - D_inverse * (more @ down), left - more - q * dy, dual + more

    def newton(g: Array, times: Array) -> tuple[Array, Array, Array]:
        state = D_inverse * g, residuals, jnp.zeros_like(residuals)
        du, _, dual = jax.lax.fori_loop(0, times, solve, state)
        return du, dual, zero

    return newton


def preconditioner(rows: ScaledRows, D: Array, free: Array, whole: Array | None, slow: Array) -> Inverse:
    """The function from v ``[n]`` to P^-1 v, with P = F_1'F_1 + D + E, or where that is slow P = F'F + D + `floor`.

    F_1 are the leading rows, and E is the diagonal of what they leave out of F'F, or the floor where it is below that.

    Args:
      whole: of the second one, the columns of L; None without any.
      slow: which of the two it is.
    """

    def inverse_of(diagonal: Array) -> Array:
        return jnp.where(free, 1 / (D + diagonal), 0.0)

    def by_rows(F: Array, inverse: Array, columns: Array, vector: Array) -> Array:
        vector = inverse * vector
        return vector - inverse * (jax.scipy.linalg.cho_solve((_triangle(columns, len(F)), True), F @ vector) @ F)

    def densely(columns: Array, vector: Array) -> Array:
        return jax.scipy.linalg.cho_solve((_triangle(columns, len(D)), True), jnp.where(free, vector, 0.0))

    floor = least_diagonal(rows, free)
    inverse = inverse_of(jnp.maximum(rows.rest, floor))
    by_leading = functools.partial(by_rows, rows.leading, inverse, inner_factor(rows.leading, inverse))
    if whole is None:
        return by_leading
    by_all = functools.partial(
        densely if rows.hessian is not None else functools.partial(by_rows, rows.quick, inverse_of(floor)), whole
    )
    return lambda vector: jax.lax.cond(slow, by_all, by_leading, vector)


def inner_factor(F: Array, inverse: Array) -> Array:
    """The columns of L of I + F D^-1 F'."""
    return cholesky_columns(jnp.eye(len(F), dtype=F.dtype) + (F * inverse) @ F.T)


def least_diagonal(rows: ScaledRows, free: Array) -> Array:
    """The least that is added to D."""
    diagonal = jnp.where(free, rows.rest + jnp.sum(rows.leading**2, axis=0), 0.0)
    return _FLOOR * jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal)


def newton_by_gradients(
    rows: ScaledRows,
    invert: Inverse,
    a: Array,
    D: Array,
    level: Array,
    slack: Array,
    complementarity: Array,
    zero: Array,
) -> Newton:
    """The system in (du, dy), (F'F + D) du - a dy = g and a' du = r_b, by preconditioned conjugate gradients.

    The preconditioner P comes with the equality, P z - a dy = residual and a' z = 0, so that all directions keep a' du.
    They end where sum_j |residual_j| slack_j, by which the duality gap may change, is a small share of the
    complementarity.

    Args:
      rows: of F.
      invert: from v to P^-1 v, which is 0 for voters that are not free.
      a: ``[n]``, 0 for voters that are not free.
      D: ``[n]``.
      level: r_b.
      slack: the smaller one of each coordinate ``[n]``, 0 for voters that are not free.
      complementarity: slack times multiplier, summed over all bounds.
      zero: where to count from.
    """
    F, hessian = rows.quick, rows.hessian
    toward = invert(a)
    # Where a is 0, the equality binds no coordinate that is free.
    reach = jnp.where(a @ toward > 0, a @ toward, 1.0)

    def is_rough(state: _Descent) -> Array:
        count, _, _, residual, _, _ = state
        left = jnp.abs(residual) @ slack
        return (count < 1) | ((left > _INEXACT * complementarity) & (count < MOST_GRADIENTS))

    def descend(state: _Descent) -> _Descent:
        count, du, dy, residual, direction, before = state
        # The first one solves the preconditioner's own system, and meets the equality.
        first = count < 1
        z = invert(residual)
        more = (jnp.where(first, level, 0.0) - a @ z) / reach
        z, residual = z + more * toward, residual + more * a
        energy = residual @ z
        direction = z + energy / before * direction
        image = D * direction + (direction @ hessian if hessian is not None else (F @ direction) @ F)
        length = jnp.where(first, 1.0, energy / (direction @ image))
        before = jnp.where(first, before, energy)
        return count + 1, du + length * direction, dy + more, residual - length * image, direction, before

    def newton(g: Array, times: Array) -> tuple[Array, Array, Array]:
        del times
        nothing = jnp.zeros_like(g)
        state = zero, nothing, 0 * level, g, nothing, jnp.inf + 0 * level
        count, du, dy, *_ = jax.lax.while_loop(is_rough, descend, state)
        # The other dual variables follow from F u.
        return du, jnp.append(jnp.zeros_like(rows.target[:-1]), dy), count

    return newton
