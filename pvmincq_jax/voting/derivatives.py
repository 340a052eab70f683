"""Derivatives of MinCq's solution, of every order, by the implicit function theorem.

Let f be the voters that are strictly inside the box. While f does not change, a solution w with multiplier y meets

    (M w - y m)_f = 0,   m' w = mu,   M = sum_i p_i h(x_i) h(x_i)',   m = sum_i p_i y_i h(x_i),

and the other voters stay at their bounds. Differentiated, this is a linear system in (dw, dy), `solve_tangent`. Its own
derivative is the same system with another right side, so that derivatives of any order follow.

Exact: while f does not change and F_f, the factor of M, has independent columns. The solver's w is first refined to
the equations (`refine`): an error in w is magnified in each further derivative.

One-sided: where f changes. The f that the solver's w and y show counts.

Not determined: w, and votes at new points, where the columns of F_f are dependent. `solve_tangent` returns the dw of
least norm. What the sample determines, V w, the moments, and risks on these points, does not depend on that choice,
except for changes of the votes that make the columns independent.

NaN: derivatives beyond the first in float32, and where the refined w leaves the box, so that f is in doubt.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.factor import thin_svd

__all__: list[str] = []


class FreeSpace(NamedTuple):
    """The voters that can move, constant to derivatives.

    Attributes:
      free: 1 for voters strictly inside the box, else 0 ``[n]``.
      left: left singular vectors of F_f ``[r, k]``.
      right: right singular vectors of F_f ``[k, n]``.
      inverse: 1 / s for its singular values, 0 where F_f is flat ``[k]``.
    """

    free: Array
    left: Array
    right: Array
    inverse: Array


def free_space(factor: Array, free: Array) -> FreeSpace:
    """From F ``[r, n]`` and a mask ``[n]``.

    A singular value below eps^0.45 of the largest counts as flat: its square is below the rounding of M.
    """
    left, singular, right = thin_svd(jnp.where(free, factor, 0.0))
    kept = singular > jnp.finfo(factor.dtype).eps ** 0.45 * singular[0]
    inverse = jnp.where(kept, 1 / jnp.where(kept, singular, 1.0), 0.0)
    return FreeSpace(free.astype(factor.dtype), left, right, inverse)


def refine(
    factor: Array,
    dual_target: Array,
    offset: Array,
    margins: Array,
    space: FreeSpace,
    margin: Array,
    weights: Array,
    multiplier: Array,
) -> tuple[Array, Array]:
    """w and y after a Newton step to the equations above, constant to derivatives.

    Where the objective is right to 1e-10, the weights may be right to 1e-5 only. Second derivatives rely on the
    equations, and divide that error by small singular values. With m = F'q + e the first one is
    F_f'(F w - y q) = y e_f. Where e is 0 it is solved without squaring a singular value.
    """

    def pseudo_inverse(of_rows: Array, of_voters: Array) -> Array:
        """M_f^+ (F' u + v)."""
        along = space.left.T @ of_rows + space.inverse * (space.right @ (space.free * of_voters))
        return space.free * (space.right.T @ (space.inverse * along))

    toward = pseudo_inverse(dual_target, offset)
    unbound = pseudo_inverse(multiplier * dual_target - factor @ weights, multiplier * offset)
    reach = margins @ toward
    missing = margin - margins @ (weights + unbound)
    step = jnp.where(reach > 0, missing / jnp.where(reach > 0, reach, 1.0), 0.0)
    return jax.lax.stop_gradient((weights + unbound + step * toward, multiplier + step))


def solve_tangent(
    votes: Array, shares: Array, margins: Array, space: FreeSpace, right_side: Array, change: Array
) -> tuple[Array, Array]:
    """Solves (M dw - m dy)_f = right_side_f and m' dw = change, with dw = 0 outside of f.

    `jax.lax.custom_linear_solve` gives its derivatives with respect to M and m, and its transpose: the system is
    symmetric.

    Args:
      votes, shares: of M, ``[m, n]`` and ``[m]``.
      margins: m ``[n]``.
      space: of these votes.
      right_side: ``[n]``.
      change: of m'w, a scalar.

    Returns: dw ``[n]`` and dy, linear in the last two arguments. Both are 0 if no voter is free.
    """
    free, _, right, inverse = space

    def system(step: Array) -> Array:
        dw, dy = free * step[:-1], step[-1]
        rows = free * ((shares * (votes @ dw)) @ votes - margins * dy) + (1 - free) * step[:-1]
        return jnp.append(rows, -(margins @ dw))

    def solve(_: object, sides: Array) -> Array:
        toward, unbound = (free * (right.T @ (inverse**2 * (right @ (free * part)))) for part in (fixed, sides[:-1]))
        reach = fixed @ toward
        dy = jnp.where(reach > 0, -(sides[-1] + fixed @ unbound) / jnp.where(reach > 0, reach, 1.0), 0.0)
        return jnp.append(unbound + toward * dy, dy)

    fixed = jax.lax.stop_gradient(margins)
    # One vector: JAX transposes a system only if all of its right side depends on the tangents.
    step = jax.lax.custom_linear_solve(system, jnp.append(free * right_side, -change), solve, symmetric=True)
    return step[:-1], step[-1]


def second_moment_tangent(votes: Array, shares: Array, votes_dot: Array, shares_dot: Array, vector: Array) -> Array:
    """dM v for M = votes' diag(shares) votes and a fixed v ``[n]``."""
    vote = votes @ vector
    return (shares * vote) @ votes_dot + (shares_dot * vote + shares * (votes_dot @ vector)) @ votes
