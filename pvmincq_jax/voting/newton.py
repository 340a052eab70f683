"""Two ways to solve the Newton system of the interior point, with one interface.

At an iterate (u, zeta, y) a step (du, d zeta, dy) meets

    D du + F' d zeta - e dy = g,   F du - d zeta - q dy = r_z,   a' du = r_b,   with a = F' q + e.

`by_gradients` is fast: conjugate gradients, preconditioned by the leading rows of F. `by_rank` is sure: a Cholesky
factor of the size of F's rank, with one step of iterative refinement, which keeps its digits at any margin.

A way is a `Newton`. It takes the rows and a `Point`, and returns a function from g ``[n]`` to a `Direction`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.qp import ScaledRows, inner

__all__: list[str] = []

# Next to mu_max c = q'q + e' D^-1 e - l'l cancels. Below this share of q'q it is computed in another way.
_CANCELS = 1e-3
# Conjugate gradients stop at this share of the complementarity, or after so many iterations.
_INEXACT, MOST_GRADIENTS = 0.01, 50
# The preconditioner adds at least so many roundings of the largest second moment of a voter to D.
_FLOOR = 1e3


# Iterations so far, du, dy, what they leave of the equation, the last direction and its energy.
_Descent = tuple[Array, Array, Array, Array, Array, Array]


class Point(NamedTuple):
    """What the Newton system reads of an iterate.

    Attributes:
      free: which coordinates may move ``[n]``.
      binding: 1, or 0 where the equality binds no free coordinate.
      barrier: D, the sum of multiplier / slack over both bounds, 1 where a coordinate may not move ``[n]``.
      residuals: (-r_z, -r_b) ``[r + 1]``.
      slack: the smaller slack of each coordinate, 0 where it may not move ``[n]``.
      complementarity: slack times multiplier, summed over all bounds.
    """

    free: Array
    binding: Array
    barrier: Array
    residuals: Array
    slack: Array
    complementarity: Array


class Direction(NamedTuple):
    """The change of u ``[n]`` and of (zeta, y) ``[r + 1]``, and how many conjugate gradients it took."""

    u: Array
    dual: Array
    iterations: Array


class Newton(NamedTuple):
    """A way to solve the Newton system.

    Attributes:
      system: from rows and a `Point` to a function from g to a `Direction`.
      dual_follows: whether zeta is set to F u - q y after each step, so that r_z is 0. The direction's d zeta is then
        not read.
    """

    system: Callable[[ScaledRows, Point], Callable[[Array], Direction]]
    dual_follows: bool


def _cholesky(matrix: Array) -> Array:
    """L of a symmetric matrix LL'.

    LAPACK stores columns where JAX stores rows. The two transposes cancel that difference, so that nothing is copied.
    """
    return jnp.linalg.cholesky(matrix.T, symmetrize_input=False)


def _by_rank(rows: ScaledRows, point: Point) -> Callable[[Array], Direction]:
    """The system in (d zeta, dy), after du = D^-1 (g - F' d zeta + e dy).

    With K = I + F D^-1 F' = LL' it is

        K d zeta + h dy = F D^-1 g - r_z,   h = q - F D^-1 e,
        h' d zeta + (q'q + e' D^-1 e) dy = r_b - e' D^-1 g - q' r_z.

    With l = L^-1 h the second equation less h' K^-1 times the first has the factor c = q'q + e' D^-1 e - l'l in front
    of dy. Next to mu_max that cancels, as K is all but I and h all but q. There, with K t = h and K v = F D^-1 a, which
    is K (q - t), the same equation is

        c dy = r_b - (e + F't)' D^-1 g - v' r_z,   c = q'v + (e + F't)' D^-1 e.
    """
    F, down, q, a = rows.factor, rows.down, rows.target, rows.normal
    target, inverse = q[:-1], jnp.where(point.free, 1 / point.barrier, 0.0)
    L = _cholesky(jnp.eye(len(F), dtype=F.dtype) + (F * inverse) @ F.T)

    def half(right_side: Array, trans: int = 0) -> Array:
        return jax.scipy.linalg.solve_triangular(L, right_side, lower=True, trans=trans)

    # [F; -e'] D^-1 times e and a.
    of_e, of_a = (down @ (inverse * jnp.stack([-down[-1], a])).T).T
    halves = half(jnp.stack([target - of_e[:-1], of_a[:-1]], axis=1))
    t, v = half(halves, trans=1).T
    along = halves[:, 0]
    length, along_length, by_target, by_e = inner([target, along, target, t], [target, along, v, of_e[:-1]])
    cancels = length - along_length < _CANCELS * length
    c = jnp.where(cancels, by_target + by_e, length - along_length) - of_e[-1]
    c_inverse = point.binding / jnp.where(point.binding > 0, c, 1.0)
    # What the second equation takes of r_z, of F D^-1 g and of L^-1 times the first equation's right side.
    taken = [jnp.where(cancels, v, target), jnp.where(cancels, -t, 0.0), jnp.where(cancels, 0.0, -along)]

    def refine(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Solves for what du leaves of the last two equations; du itself meets the first one."""
        du, left, dual = state
        product = down @ du
        first = half((product + left)[:-1, None])[:, 0]
        dy = (product[-1] - left[-1] + jnp.sum(inner(taken, [left[:-1], product[:-1], first]))) * c_inverse
        more = jnp.append(half((first - along * dy)[:, None], trans=1)[:, 0], dy)
        return du - inverse * (more @ down), left - more - q * dy, dual + more

    def solve(g: Array) -> Direction:
        du, _, dual = jax.lax.fori_loop(0, 2, refine, (inverse * g, point.residuals, jnp.zeros_like(point.residuals)))
        return Direction(du, dual, jnp.zeros_like(dual[0], int))

    return solve


def _preconditioner(rows: ScaledRows, point: Point) -> Callable[[Array], Array]:
    """The function from v ``[n]`` to P^-1 v, with P = F_1'F_1 + D + E.

    F_1 are the leading rows of F. E is the diagonal of what they leave out of F'F, or a floor where it is below that.
    """
    F = rows.leading
    diagonal = jnp.where(point.free, rows.rest + jnp.sum(F**2, axis=0), 0.0)
    floor = _FLOOR * jnp.finfo(F.dtype).eps * jnp.max(diagonal)
    inverse = jnp.where(point.free, 1 / (point.barrier + jnp.maximum(rows.rest, floor)), 0.0)
    L = _cholesky(jnp.eye(len(F), dtype=F.dtype) + (F * inverse) @ F.T)

    def invert(vector: Array) -> Array:
        vector = inverse * vector
        return vector - inverse * (jax.scipy.linalg.cho_solve((L, True), F @ vector) @ F)

    return invert


def _by_gradients(rows: ScaledRows, point: Point) -> Callable[[Array], Direction]:
    """The system in (du, dy), (F'F + D) du - a dy = g and a' du = r_b, by preconditioned conjugate gradients.

    The preconditioner P comes with the equality, P z - a dy = residual and a' z = 0, so that all directions keep a' du.
    They end where sum_j |residual_j| slack_j, by which the duality gap may change, is a small share of the
    complementarity.
    """
    F, D = rows.factor, point.barrier
    invert = _preconditioner(rows, point)
    a = jnp.where(point.free, point.binding * rows.normal, 0.0)
    toward = invert(a)
    # Where a is 0, the equality binds no free coordinate.
    reach = jnp.where(a @ toward > 0, a @ toward, 1.0)

    def is_rough(state: _Descent) -> Array:
        iterations, _, _, residual, _, _ = state
        left = jnp.abs(residual) @ point.slack
        return (iterations < 1) | ((left > _INEXACT * point.complementarity) & (iterations < MOST_GRADIENTS))

    def descend(state: _Descent) -> _Descent:
        iterations, du, dy, residual, direction, before = state
        # The first iteration solves the preconditioner's own system, and meets the equality.
        first = iterations < 1
        z = invert(residual)
        more = (jnp.where(first, -point.residuals[-1], 0.0) - a @ z) / reach
        z, residual = z + more * toward, residual + more * a
        energy = residual @ z
        direction = z + energy / before * direction
        image = D * direction + (F @ direction) @ F
        length = jnp.where(first, 1.0, energy / (direction @ image))
        before = jnp.where(first, before, energy)
        return iterations + 1, du + length * direction, dy + more, residual - length * image, direction, before

    def solve(g: Array) -> Direction:
        zero = jnp.zeros_like(point.binding)
        nothing = jnp.zeros_like(g)
        state = zero.astype(int), nothing, zero, g, nothing, zero + jnp.inf
        iterations, du, dy, *_ = jax.lax.while_loop(is_rough, descend, state)
        return Direction(du, jnp.append(jnp.zeros_like(rows.target[:-1]), dy), iterations)

    return solve


by_gradients = Newton(_by_gradients, dual_follows=True)
by_rank = Newton(_by_rank, dual_follows=False)
