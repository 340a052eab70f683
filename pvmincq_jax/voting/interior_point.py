"""A primal-dual interior-point method for the program of `qp`.

The loop is Mehrotra's predictor-corrector method. How it solves its Newton systems is a value, `newton.by_gradients` or
`newton.by_rank`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.newton import MOST_GRADIENTS, Direction, Newton, Point
from pvmincq_jax.voting.qp import BoxQP, BoxQPSolution, ScaledRows, as_varying, inner, start

__all__: list[str] = []

# Most problems take 10 to 30 steps; 45 were seen next to mu_max with 1 000 voters.
_MAX_STEPS = 100
# The loop ends after so many steps without progress. It waits longer while the best point is not good enough: next to
# mu_max, with voters that are copies of each other, the residual was seen to stay above 1e-7 for ten steps and to fall
# afterwards.
_PATIENCE, _MOST_PATIENCE = 8, 30
# The relative duality gap at which the loop ends, in float32 and in float64.
_STOP = 1e-5, 1e-10
# While the residual is above this, a step stops at least this share of its way short of the boundary.
_BLOCKED = 1e-6
# The second-order term counts by this multiple of the length of the predictor's step, and in full from 1 on.
_CURVED = 2.0
# A product of slack and multiplier below this share of their mean is off the central path.
_OFF_PATH = 1e-2


class _Iterate(NamedTuple):
    primal: Array  # u, and the multipliers of u >= -box and of u <= box, [3, n]
    dual: Array  # zeta, which is F u - q y at a solution, and y, the multiplier of the equality, [r + 1]


class _State(NamedTuple):
    iterate: _Iterate
    votes: Array  # (F u, a' u), [r + 1]
    reduced: Array  # F' zeta - e y, [n]
    best: _Iterate
    best_residual: Array
    without_progress: Array  # steps since the best point
    iterations: Array
    done: Array


class _Towards(NamedTuple):
    """A step towards slack * multiplier = aim."""

    direction: Direction
    change: Array  # of the slacks, relative to what they are, [2, n]
    longest: Array  # the largest length for which slacks and multipliers stay non-negative
    aim: Array


def solve_interior_point(problem: BoxQP, rows: ScaledRows, newton: Newton) -> BoxQPSolution:
    """Mehrotra's predictor-corrector method, with four changes for MinCq, in the scale of `ScaledRows`.

    Start: the analytic centre of the feasible set, with the multipliers of a point on the central path. Close to
    mu_max that set is tiny. From sign(a), which is all but in its corner, complementarity vanishes long before the dual
    equations hold: most voters are then at the wrong bound, and no step can free them.

    Second-order term: where the predictor's step is short, the term says little about the path. It counts by twice the
    length of that step, and not at all after a step without progress. Otherwise stumps, or voters in pairs, went round
    in circles of four steps at 0.995 mu_max.

    Recentring: after a step without progress, if some product of slack and multiplier is far below the mean, the
    corrector aims at the mean itself. Otherwise two voters can swap bounds for ever next to mu_max.

    Dual variables: stationarity is F'z - a y = lower - upper with z = F u. Where the box is slack both terms are large
    and cancel, and dividing their rounding error by a vanishing barrier weight destroys the step. With zeta = z - q y
    the left side is F' zeta - e y, which is itself small.

    Args:
      problem: with all rows of F.
      rows: these, or some of the first ones.
      newton: how the Newton systems are solved. The loop gives up where conjugate gradients are too slow.

    Returns: a `BoxQPSolution`, the best point met. The caller measures how good it is.
    """
    free, F, q, dtype = problem.free, rows.factor, rows.target, rows.factor.dtype
    rank = len(F)
    epsilon, accuracy = jnp.finfo(dtype).eps, _STOP[dtype == jnp.float64]
    u, multiplier, box, binding, bounds, barrier = start(problem, rows.normal)
    last = jnp.arange(rank + 1) == rank
    # Computed, not written down: inside `shard_map` a constant array counts as equal on all devices, which a batch
    # does not allow.
    side = 1 - 2 * jnp.arange(2, dtype=dtype)[:, None]
    ones = jnp.ones_like(u)

    def slacks(u: Array) -> Array:
        # A coordinate may round onto its bound, where the slack must not be 0: the barrier divides by it.
        return jnp.where(free, jnp.maximum(box + side * u, epsilon / 4 * box), 1.0)

    def votes_of(u: Array) -> Array:
        return jnp.append(F @ u, rows.normal @ u)

    def gradient_of(dual: Array) -> Array:
        return dual[:-1] @ F + dual[-1] * rows.down[-1]

    def z_of(dual: Array) -> Array:
        """(z, 0), with z = zeta + q y."""
        return dual + q * dual[-1]

    def dual_of(votes: Array, y: Array) -> Array:
        """(zeta, y) for which z = F u."""
        return jnp.where(last, y, votes - q * y)

    def step(state: _State) -> _State:
        at = state.iterate
        slack, multipliers = slacks(at.primal[0]), at.primal[1:]
        product = slack * multipliers
        complementarity = jnp.sum(product @ ones)
        gap = complementarity / bounds
        point = Point(
            free=free,
            binding=binding,
            barrier=jnp.where(free, jnp.sum(multipliers / slack, axis=0), 1.0),
            residuals=jnp.where(last, binding * (state.votes - 1), state.votes - z_of(at.dual)),
            slack=jnp.where(free, jnp.min(slack, axis=0), 0.0),
            complementarity=complementarity,
        )
        solve = newton.system(rows, point)

        def towards(aim: Array) -> _Towards:
            direction = solve(jnp.where(free, jnp.sum(side * aim / slack, axis=0) - state.reduced, 0.0))
            change = side * direction.u / slack
            # One over the longest length, by the relative changes of slacks and multipliers.
            shortest = jnp.where(free, jnp.maximum(-change, 1 + change - aim / product), 0.0)
            return _Towards(direction, change, 1 / jnp.max(shortest), aim)

        def centred(predictor: _Towards) -> Array:
            """What the corrector aims at, after the predictor."""
            reached = jnp.minimum(1.0, predictor.longest)
            # Minus the term of the product after the predictor's step that is quadratic in the length of the step.
            curved = product * predictor.change * (1 + predictor.change)
            bent = jnp.sum(curved @ ones) / bounds
            centre = ((1 - reached) - reached**2 * bent / gap) ** 3 * gap
            stuck = state.without_progress > 0
            off_path = jnp.min(jnp.where(free, product, jnp.inf)) < _OFF_PATH * gap
            share = jnp.where(stuck, 0.0, jnp.minimum(_CURVED * reached, 1.0))
            return jnp.where(stuck & off_path, gap, centre + share * curved)

        # The predictor aims at 0 and the corrector at the central path. In a loop, the system is compiled once.
        nothing = as_varying(jax.tree.map(jnp.zeros_like, jax.eval_shape(towards, product)), problem.skip)
        direction, change, longest, aim = jax.lax.fori_loop(
            0, 2, lambda i, before: towards(jnp.where(i == 0, 0.0, centred(before))), nothing
        )
        # Close to the end a step may go all but to the boundary, which makes the last steps quadratic. At tiny margins
        # complementarity is small long before, and a product that is all but 0 then blocks every further step.
        short = jnp.maximum(gap, jnp.minimum(state.best_residual, _BLOCKED))
        length = jnp.minimum(1.0, jnp.clip(1 - short, 0.99, 1 - 1000 * epsilon) * longest)
        d_multipliers = jnp.where(free, aim / slack - multipliers * (1 + change), 0.0)
        primal = at.primal + length * jnp.concatenate([direction.u[None], d_multipliers])
        votes = votes_of(primal[0])
        dual = at.dual + length * direction.dual
        dual = dual_of(votes, dual[-1]) if newton.dual_follows else dual
        after, reduced = _Iterate(primal, dual), gradient_of(dual)

        # The relative duality gap, and the error in the equality: both are 0 only at a solution.
        both = [jnp.where(last, 0.0, votes), z_of(dual)]
        objective, dual_objective = inner(both, both) / 2
        least = reduced @ jnp.where(free, -box * jnp.sign(reduced), primal[0])
        relative_gap = jnp.abs(objective + dual_objective - dual[-1] - least) / objective
        error = jnp.maximum(relative_gap, binding * jnp.abs(1 - votes[-1]))
        usable = jnp.isfinite(error) & (direction.iterations < MOST_GRADIENTS)
        better = jnp.isfinite(error) & (error < state.best_residual)
        best_residual = jnp.where(better, error, state.best_residual)
        without_progress = jnp.where(better, 0, state.without_progress + 1)
        patience = jnp.where(best_residual < 100 * accuracy, _PATIENCE, _MOST_PATIENCE)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), after, state.best)
        done = ~usable | (error < accuracy) | (without_progress >= patience)
        return _State(after, votes, reduced, best, best_residual, without_progress, state.iterations + 1, done)

    votes = votes_of(u)
    multipliers = jnp.where(free, barrier / slacks(u), 0.0)
    first = _Iterate(jnp.concatenate([u[None], multipliers]), dual_of(votes, multiplier * barrier))
    zero = jnp.zeros((), int)
    infinite = jnp.full((), jnp.inf, dtype)
    state = _State(first, votes, gradient_of(first.dual), first, infinite, zero, zero, problem.skip)
    state = jax.lax.while_loop(
        lambda state: ~state.done & (state.iterations < _MAX_STEPS), step, as_varying(state, problem.skip)
    )
    tau, (factor_scale, normal_scale) = problem.tau, rows.scales
    x = jnp.where(free, jnp.clip(state.best.primal[0] * tau, -1.0, 1.0), problem.fixed)
    zeta, y = state.best.dual[:-1] * (factor_scale * tau), state.best.dual[-1] * (factor_scale**2 * tau / normal_scale)
    # For rows that are left out, z = zeta + q y is 0.
    zeta = jnp.concatenate([zeta, -y * problem.dual_target[rank:]])
    return BoxQPSolution(x * problem.bound, zeta * problem.bound, y * problem.bound, state.iterations.astype(jnp.int32))
