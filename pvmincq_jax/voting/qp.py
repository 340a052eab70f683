"""The quadratic program of MinCq: a box, one equality, a Hessian of low rank.

    minimise 1/2 |F x|^2   subject to   a' x = tau sum|a|,   |x_j| <= 1,

with F ``[r, n]`` of few rows and a in (or very near) the span of F's rows: a = F' q + e, with q known and e small or
zero. It is solved by a primal-dual interior-point method that costs O(n r^2) a step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.linalg import cholesky, cholesky_solve, thin_svd

__all__: list[str] = []

# Mehrotra's predictor-corrector needs 10 to 30 steps; 45 were seen next to mu_max with 1 000 voters.
_MAX_STEPS = 100
# Steps without progress after which rounding has the last word. More at a point that is not good enough: next to
# mu_max, with voters that are copies of each other, it was seen to stay above 1e-7 for ten steps and then to fall.
_PATIENCE, _MOST_PATIENCE = 8, 30
# Rows of the symmetric product that are computed at a time: wide enough for a fast matrix product.
_BLOCK = 32
# Voters that a product takes at a time: its weighted copy of them then stays in the cache.
_VOTERS = 2048


class BoxQP(NamedTuple):
    """One problem.

    Attributes:
      factor: F ``[r, n]``.
      dual_target: q ``[r]``, with a = F' q + e.
      normal: a ``[n]``.
      tau: where in (0, 1] the equality stands.
      free: which coordinates may move ``[n]``; the others stay at `fixed`.
      fixed: ``[n]``.
      skip: True when there is nothing to solve; the answer is then `fixed`, at once.
    """

    factor: Array
    dual_target: Array
    normal: Array
    tau: Array
    free: Array
    fixed: Array
    skip: Array


class BoxQPSolution(NamedTuple):
    """A point and its certificate.

    Attributes:
      x: ``[n]``.
      zeta: the dual vector z less q times the multiplier, ``[r]``; z = F x at a solution. Kept apart because
        F' zeta - e y, the reduced gradient, is accurate where F' F x - a y cancels.
      multiplier: y, of the equality.
      iterations: steps taken.
    """

    x: Array
    zeta: Array
    multiplier: Array
    iterations: Array


class _Iterate(NamedTuple):
    u: Array  # x / tau, [n]
    zeta: Array  # F u - q y at a solution, [r]
    y: Array  # multiplier of the equality
    lower: Array  # multipliers of u >= -box, [n]
    upper: Array  # multipliers of u <= box, [n]


class _State(NamedTuple):
    iterate: _Iterate
    votes: Array  # F u, [r]
    reduced: Array  # F' zeta - e y, [n]
    best: _Iterate
    best_residual: Array
    without_progress: Array
    iterations: Array
    done: Array


def target_accuracy(dtype: jnp.dtype) -> float:
    """The relative duality gap at which the interior-point method stops."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


def _where(condition: Array, first: _Iterate, second: _Iterate) -> _Iterate:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _longest_step(value: Array, change: Array, free: Array) -> Array:
    """The largest step for which ``value + step * change`` stays non-negative."""
    falls = free & (change < 0)
    return jnp.min(jnp.where(falls, -value / jnp.where(falls, change, -1.0), jnp.inf))


def _lower_product(factor: Array, weights: Array) -> Array:
    """F diag(weights) F' ``[r, r]``, of which only the lower triangle is to be read: a part of the rest is left out."""
    rank, voters = factor.shape
    if voters >= 2 * _VOTERS:
        whole = voters // _VOTERS * _VOTERS

        def part(i: Array) -> Array:
            columns = jax.lax.dynamic_slice(factor, (0, i * _VOTERS), (rank, _VOTERS))
            return _lower_product(columns, jax.lax.dynamic_slice(weights, (i * _VOTERS,), (_VOTERS,)))

        rest = _lower_product(factor[:, whole:], weights[whole:])
        return jax.lax.fori_loop(0, whole // _VOTERS, lambda i, total: total + part(i), rest)
    weighted = factor * weights
    rows = []
    for start in range(0, rank, _BLOCK):
        stop = min(start + _BLOCK, rank)
        rows.append(jnp.pad(weighted[start:stop] @ factor[:stop].T, ((0, 0), (0, rank - stop))))
    return jnp.concatenate(rows)


def _centred(slope: Array) -> Array:
    """The v in (-1, 1) with 1 / (1 - v) - 1 / (1 + v) = slope."""
    return slope / (1 + jnp.sqrt(1 + slope**2))


def _central_slope(a: Array, tau: Array) -> Array:
    """The k for which v = _centred(k a), the analytic centre of |v_j| <= 1 and a' v = tau, meets the latter.

    With sum|a| = 1 it lies between 2 tau, as a' v <= k |a|^2 / 2, and 2 n / (1 - tau), as 1 - |v_j| <= 2 / (k |a_j|).
    Found by halving, in logarithms, to a part in a million: the first Newton step sees to the rest.
    """
    low = jnp.log(2 * tau)
    high = jnp.log(2 * a.shape[0] / jnp.maximum(1 - tau, jnp.finfo(a.dtype).eps))

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        below = a @ _centred(jnp.exp(middle) * a) < tau
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jnp.exp(jax.lax.fori_loop(0, 26, halve, (low, high))[1])


def solve_interior_point(problem: BoxQP) -> BoxQPSolution:
    """Mehrotra's predictor-corrector method, with four changes for MinCq.

    Scale: in u = x / tau, with a and F scaled so that sum|a| = 1 and |F sign(a)| = 1, the equality reads a' u = 1,
    which u = sign(a) meets, and the objective is of order one however small the margin. The box is 1 / tau wide.

    Start: the analytic centre of the feasible set, with the multipliers of a point on the central path. Close to
    mu_max that set is tiny, and from sign(a), all but in its corner, complementarity vanishes long before the dual
    equations hold: most voters are then at the wrong bound, and no step can free them.

    Correction: where the predictor goes less than a tenth of the way, its second-order term says little of the path; it
    then counts by the length of that step only.

    Dual variables: stationarity is F'z - a y = lower - upper with z = F u. Where the box is slack both terms are large
    and cancel, and dividing their rounding error by a vanishing barrier weight destroys the step. With zeta = z - q y
    the left side is F' zeta - e y, which is itself small. The Newton system for (d zeta, d y) is

        ([I; q'] [I, q] + [F; -e'] D^-1 [F; -e']') (d zeta, d y) = right side,   D = lower / s_l + upper / s_u,

    an (r+1) x (r+1) Cholesky after symmetric diagonal scaling, with one step of iterative refinement on all equations.

    Args:
      problem: a `BoxQP`.

    Returns: a `BoxQPSolution`: the best point met. How good it is, is for the caller to measure.
    """
    free, tau = problem.free, problem.tau
    dtype = problem.factor.dtype
    rank = problem.factor.shape[0]
    epsilon = jnp.finfo(dtype).eps
    box = 1 / tau
    normal_scale = jnp.sum(jnp.abs(problem.normal))
    corner = jnp.where(free, jnp.sign(problem.normal), problem.fixed * box)
    # At mu_max the equality may bind no coordinate that is free: it is then left out, with multiplier 0.
    binding = jnp.any(free & (problem.normal != 0)).astype(dtype)
    a = problem.normal / normal_scale * binding
    # F itself stays as it is, and unbatched under a vmap over margins: its products are scaled instead.
    F = problem.factor
    # A copy of its own, with columns side by side in memory: sums over many voters are then up to twenty times faster.
    F_transposed = jax.lax.optimization_barrier(F.T)
    factor_scale = jnp.linalg.norm(F @ corner)

    def to_rows(vector: Array) -> Array:
        return (vector @ F_transposed) / factor_scale

    def to_columns(vector: Array) -> Array:
        return (F.T @ vector) / factor_scale

    q = problem.dual_target * (factor_scale / normal_scale * binding)
    e = a - to_columns(q)
    b = binding
    number_free = jnp.sum(free)

    def slacks(u: Array) -> tuple[Array, Array]:
        # A coordinate may round onto its bound, where the slack must not be 0: the barrier weight divides by it.
        least = epsilon / 4 * box
        return jnp.where(free, jnp.maximum(u + box, least), 1.0), jnp.where(free, jnp.maximum(box - u, least), 1.0)

    def residual(iterate: _Iterate, votes: Array, reduced: Array) -> Array:
        """Relative duality gap, and error in the equality: zero only at a solution."""
        z = iterate.zeta + q * iterate.y
        primal = votes @ votes / 2
        least = jnp.where(free, -box * jnp.abs(reduced), reduced * iterate.u)
        dual = iterate.y * b - z @ z / 2 + jnp.sum(least)
        return jnp.maximum(jnp.abs(primal - dual) / primal, jnp.abs(b - a @ iterate.u))

    def complementarity(iterate: _Iterate) -> Array:
        s_l, s_u = slacks(iterate.u)
        return jnp.sum(jnp.where(free, iterate.lower * s_l + iterate.upper * s_u, 0.0)) / (2 * number_free)

    def products(iterate: _Iterate) -> tuple[Array, Array]:
        return to_rows(iterate.u), to_columns(iterate.zeta) - e * iterate.y

    def step(state: _State) -> _State:
        u, zeta, y, lower, upper = at = state.iterate
        s_l, s_u = slacks(u)
        to_votes = zeta + q * y - state.votes
        to_equality = b - a @ u
        reduced = state.reduced
        D = lower / s_l + upper / s_u
        D_inverse = jnp.where(free, 1 / jnp.where(free, D, 1.0), 0.0)

        cross = q - to_rows(D_inverse * e)
        last = q @ q + e @ (D_inverse * e) + 1 - binding
        block = jnp.eye(rank, dtype=dtype) + _lower_product(F, D_inverse) / factor_scale**2
        system = jnp.block([[block, jnp.zeros((rank, 1), dtype)], [cross[None], last[None, None]]])
        diagonal = jnp.diag(system)
        scale = 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
        scaled = system * scale[:, None] * scale + 4 * epsilon * jnp.eye(rank + 1, dtype=dtype)
        lower_factor = cholesky(scaled)

        def newton(g: Array, r_z: Array, r_b: Array) -> tuple[Array, Array, Array]:
            """Solves D du + F'dzeta - e dy = g, F du - dzeta - q dy = r_z, a'du = r_b."""
            weighted = D_inverse * g
            right = jnp.concatenate([to_rows(weighted) - r_z, (r_b - q @ r_z - e @ weighted)[None]])
            dual = scale * cholesky_solve(lower_factor, scale * right)
            d_zeta, d_y = dual[:-1], dual[-1]
            return D_inverse * (g - to_columns(d_zeta) + e * d_y), d_zeta, d_y

        def direction(aim_lower: Array, aim_upper: Array, refine: bool) -> _Iterate:
            """The Newton direction that aims at lower * s_l = aim_lower and upper * s_u = aim_upper."""
            g = jnp.where(free, aim_lower / s_l - aim_upper / s_u - reduced, 0.0)
            du, d_zeta, d_y = newton(g, to_votes, to_equality)
            if refine:
                left_g = jnp.where(free, g - (D * du + to_columns(d_zeta) - e * d_y), 0.0)
                more = newton(left_g, to_votes - (to_rows(du) - d_zeta - q * d_y), to_equality - a @ du)
                du, d_zeta, d_y = du + more[0], d_zeta + more[1], d_y + more[2]
            d_lower = jnp.where(free, (aim_lower - lower * du) / s_l - lower, 0.0)
            d_upper = jnp.where(free, (aim_upper + upper * du) / s_u - upper, 0.0)
            return _Iterate(du, d_zeta, d_y, d_lower, d_upper)

        def longest(d: _Iterate) -> Array:
            primal = jnp.minimum(_longest_step(s_l, d.u, free), _longest_step(s_u, -d.u, free))
            dual = jnp.minimum(_longest_step(lower, d.lower, free), _longest_step(upper, d.upper, free))
            return jnp.minimum(primal, dual)

        def move(length: Array, d: _Iterate) -> _Iterate:
            return jax.tree.map(lambda value, change: value + length * change, at, d)

        gap = complementarity(at)
        zeros = jnp.zeros_like(u)
        predictor = direction(zeros, zeros, refine=False)
        reached = jnp.minimum(1.0, longest(predictor))
        centre = (complementarity(move(reached, predictor)) / gap) ** 3 * gap
        bend = jnp.where(reached < 0.1, reached, 1.0) * predictor.u
        corrector = direction(centre - predictor.lower * bend, centre + predictor.upper * bend, refine=True)
        # Close to the end the steps may go all but to the boundary: that is what makes the last ones quadratic.
        reach = jnp.clip(1 - gap, 0.99, 1 - 1000 * epsilon)
        after = move(jnp.minimum(1.0, reach * longest(corrector)), corrector)

        votes, reduced_after = products(after)
        error = residual(after, votes, reduced_after)
        usable = jnp.isfinite(error)
        better = usable & (error < state.best_residual)
        without_progress = jnp.where(better, 0, state.without_progress + 1)
        best_residual = jnp.where(better, error, state.best_residual)
        patience = jnp.where(best_residual < 100 * target_accuracy(dtype), _PATIENCE, _MOST_PATIENCE)
        return _State(
            after,
            votes,
            reduced_after,
            _where(better, after, state.best),
            best_residual,
            without_progress,
            state.iterations + 1,
            ~usable | (error < target_accuracy(dtype)) | (without_progress >= patience),
        )

    # Complementarity that adds up to the scale of the objective.
    barrier = 1 / (2 * jnp.maximum(number_free, 1)).astype(dtype)
    slope = _central_slope(a, tau)
    start = jnp.where(free, _centred(slope * a) * box, corner)
    y = binding * barrier * slope * tau
    s_l, s_u = slacks(start)
    lower, upper = jnp.where(free, barrier / s_l, 0.0), jnp.where(free, barrier / s_u, 0.0)
    first = _Iterate(start, to_rows(start) - q * y, y, lower, upper)
    zero = jnp.zeros((), jnp.int32)
    state = _State(first, *products(first), first, jnp.full((), jnp.inf, dtype), zero, zero, problem.skip)
    # A loop's state keeps its type: under `shard_map` all of it differs between devices, as what it meets inside does.
    state = jax.tree.map(lambda leaf: jnp.where(problem.skip, leaf, leaf), state)
    state = jax.lax.while_loop(lambda s: ~s.done & (s.iterations < _MAX_STEPS), step, state)
    x = jnp.where(free, jnp.clip(state.best.u * tau, -1.0, 1.0), problem.fixed)
    size = factor_scale * tau
    return BoxQPSolution(x, state.best.zeta * size, state.best.y * size * factor_scale / normal_scale, state.iterations)


def solution_tangent(factor: Array, normal: Array, free: Array, right_side: Array, equality_change: Array) -> Array:
    """How the solution moves, by the implicit function theorem on the coordinates that are off the box.

    On the free coordinates f, differentiating stationarity and the equality gives

        M_ff dx_f - a_f dy = right_side_f,   a_f' dx_f = equality_change,   M = F'F,

    and the other coordinates stay. Directions in which F_f is flat (a singular value below eps^0.45 of the largest:
    its square would be below the rounding of M) are left out: along them the program does not determine x, and the
    derivative returned is the one of least norm. Votes, moments and C-bound do not depend on that choice. With no
    free coordinate the derivative is 0.

    Args:
      factor: F ``[r, n]``.
      normal: a ``[n]``.
      free: which coordinates are strictly inside the box ``[n]``.
      right_side: minus the change of the gradient at fixed x, plus y times the change of a, ``[n]``.
      equality_change: the change of the level minus (change of a)' x, a scalar.

    Returns: dx ``[n]``; linear in the last two arguments.
    """
    _, singular, right = thin_svd(jnp.where(free, factor, 0.0))
    kept = singular > jnp.finfo(factor.dtype).eps ** 0.45 * singular[0]
    inverse = jnp.where(kept, 1 / jnp.where(kept, singular, 1.0) ** 2, 0.0)

    def pseudo_inverse(vector: Array) -> Array:
        return right.T @ (inverse * (right @ vector))

    toward = pseudo_inverse(normal)
    reach = normal @ toward
    unbound = pseudo_inverse(right_side)
    change = jnp.where(reach > 0, (equality_change - normal @ unbound) / jnp.where(reach > 0, reach, 1.0), 0.0)
    return jnp.where(free, unbound + toward * change, 0.0)
