"""A primal-dual interior-point method for the program of `qp`: its loop.

Quick steps solve their Newton system by conjugate gradients, sure ones factor it, see `newton`. Where conjugate
gradients are slow, the steps that follow are sure ones, or, in programs that have quick ones alone, precondition by all
of F'F.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.newton import (
    MOST_GRADIENTS,
    Newton,
    When,
    cholesky_columns,
    inner_factor,
    least_diagonal,
    newton_by_gradients,
    newton_by_rank,
    preconditioner,
)
from pvmincq_jax.voting.qp import BoxQP, BoxQPSolution, ScaledRows, inner, start

__all__: list[str] = []

# "quick" steps take conjugate gradients, "sure" ones factor all rows; "both" are quick first, and sure where these are
# slow or their certificate is not good enough.
Steps = Literal["quick", "sure", "both"]

# Mehrotra's predictor-corrector needs 10 to 30 steps; 45 were seen next to mu_max with 1 000 voters.
_MAX_STEPS = 100
# Steps without progress after which rounding has the last word. More at a point that is not good enough: next to
# mu_max, with voters that are copies of each other, it was seen to stay above 1e-7 for ten steps and then to fall.
_PATIENCE, _MOST_PATIENCE = 8, 30
# The relative duality gap at which it stops, in float32 and in float64.
_STOP = 1e-5, 1e-10
# Above this residual a step stops at least this share of its way short of the boundary.
_BLOCKED = 1e-6
# What the second-order term of the predictor counts, by the length of its step: all of it from a half on.
_CURVED = 2.0
# Slow is a direction of more than n / 16 conjugate gradients where sure steps follow, of more than p / 24 where all p
# rows precondition then, and one that took as many as it may.
_SLOW = {"both": 16, "quick": 24}


class _Iterate(NamedTuple):
    """A point. What belongs together is one array: XLA compiles a kernel for each array that a step computes."""

    primal: Array  # u, and the multipliers of u >= -box and of u <= box, [3, n]
    dual: Array  # zeta, which is F u - q y at a solution, and y, the multiplier of the equality, [r + 1]


class _State(NamedTuple):
    iterate: _Iterate
    votes: Array  # (F u, a' u), [r + 1]
    reduced: Array  # F' zeta - e y, [n]
    best: _Iterate
    best_residual: Array
    without_progress: Array
    gradients: Array  # the most conjugate gradients of a direction so far
    iterations: Array
    done: Array


def _only_if(condition: Array, like: Array, function: Callable[[], Any]) -> Any:
    """What a function returns, or zeros in its place, which differ between devices as ``like`` does."""

    def zeros() -> Any:
        return jax.tree.map(lambda part: jnp.zeros_like(like, shape=part.shape), jax.eval_shape(function))

    return jax.lax.cond(condition, function, zeros)


def solve_interior_point(problem: BoxQP, rows: ScaledRows, steps: Steps, sure: Array) -> BoxQPSolution:
    """Mehrotra's predictor-corrector method, with three changes for MinCq, in the scale of `ScaledRows`.

    Start: the analytic centre of the feasible set, with the multipliers of a point on the central path. Close to
    mu_max that set is tiny, and from sign(a), all but in its corner, complementarity vanishes long before the dual
    equations hold: most voters are then at the wrong bound, and no step can free them.

    Correction: where the predictor goes but a short way, its second-order term says little of the path; it then counts
    by twice the length of that step only, and not at all after a step without progress. Else stumps, or voters in
    pairs, at 0.995 mu_max went round in circles of four steps.

    Dual variables: stationarity is F'z - a y = lower - upper with z = F u. Where the box is slack both terms are large
    and cancel, and dividing their rounding error by a vanishing barrier weight destroys the step. With zeta = z - q y
    the left side is F' zeta - e y, which is itself small. A Newton step (du, d zeta, dy) meets

        D du + F' d zeta - e dy = g,   F du - d zeta - q dy = r_z,   a' du = r_b,   D = lower / s_l + upper / s_u.

    Sure steps keep their digits at any margin. Quick ones take zeta = F u - q y after each step, so that r_z is 0, and
    keep them at margins from a hundredth of mu_max on.

    Args:
      problem: with all rows of F.
      rows: these, or some of the first ones.
      steps: which ones the program has.
      sure: where it has both, whether they are all to be sure ones.

    Returns: a `BoxQPSolution`: the best point met. How good it is, is for the caller to measure.
    """
    free, F, q, dtype = problem.free, rows.factor, rows.target, rows.factor.dtype
    rank = len(F)
    epsilon, accuracy = jnp.finfo(dtype).eps, _STOP[dtype == jnp.float64]
    u, multiplier, box, binding, bounds = start(problem, rows.normal)
    last = jnp.arange(rank + 1) == rank
    # Made by an operation of JAX: `shard_map` takes a constant array as equal on all devices, and fails in batches.
    side = 1 - 2 * jnp.arange(2, dtype=dtype)[:, None]
    ones = jnp.ones_like(u)

    def slacks(u: Array) -> Array:
        # A coordinate may round onto its bound, where the slack must not be 0: the barrier weight divides by it.
        return jnp.where(free, jnp.maximum(box + side * u, epsilon / 4 * box), 1.0)

    def votes_of(u: Array) -> Array:
        """(F u, a' u)."""
        return jnp.append(F @ u, rows.normal @ u)

    def gradient_of(dual: Array) -> Array:
        """F' zeta - e y. Of F alone, which many steps read, so that it stays in the processor's cache."""
        return dual[:-1] @ F + dual[-1] * rows.down[-1]

    def dual_votes(dual: Array) -> Array:
        """(z, 0), with z = zeta + q y."""
        return dual + q * dual[-1]

    def dual_variables(votes: Array, y: Array) -> Array:
        """Those for which z = F u."""
        return jnp.where(last, y, votes - q * y)

    def barrier_weights(iterate: _Iterate) -> tuple[Array, Array, Array]:
        """Slacks, multipliers and D."""
        multipliers, slack = iterate.primal[1:], slacks(iterate.primal[0])
        return slack, multipliers, jnp.where(free, jnp.sum(multipliers / slack, axis=0), 1.0)

    def step(whole: Array | None, hard: Array, state: _State) -> _State:
        at, reduced = state.iterate, state.reduced
        slack, multipliers, D = barrier_weights(at)
        product = slack * multipliers
        complementarity = jnp.sum(product @ ones)
        gap = complementarity / bounds
        level = binding * (1 - state.votes[-1])
        zero = jnp.zeros_like(state.gradients)

        def by_rank() -> Newton:
            # Much work, where the step may be one by conjugate gradients; what those need is little.
            when: When = functools.partial(_only_if, hard, D) if steps == "both" else lambda function: function()
            residuals = jnp.where(last, -level, state.votes - dual_votes(at.dual))
            columns = factored(D) if whole is None else whole
            return newton_by_rank(rows, binding, jnp.where(free, 1 / D, 0.0), columns, residuals, zero, when)

        def by_gradients() -> Newton:
            invert = preconditioner(rows, D, free, whole if steps == "quick" else None, hard)
            a = jnp.where(free, binding * rows.normal, 0.0)
            least_slack = jnp.where(free, jnp.min(slack, axis=0), 0.0)
            return newton_by_gradients(rows, invert, a, D, level, least_slack, complementarity, zero)

        newton: Newton
        if steps == "both":
            newton = functools.partial(jax.lax.cond, hard, by_rank(), by_gradients())
        else:
            newton = by_rank() if steps == "sure" else by_gradients()

        def toward(phase: Array, before: tuple[Array, ...]) -> tuple[Array, ...]:
            """The step towards slack * multiplier = aim, how long it can be, and what the next one should aim at."""
            aim = before[-1]
            du, d_dual, gradients = newton(jnp.where(free, jnp.sum(side * aim / slack, axis=0) - reduced, 0.0), phase)
            # By how much it changes the slacks, relative to what they are.
            change = side * du / slack
            # The largest step for which slacks and multipliers stay non-negative, by their relative changes.
            longest = 1 / jnp.max(jnp.where(free, jnp.maximum(-change, 1 + change - aim / product), 0.0))
            reached = jnp.minimum(1.0, longest)
            # Minus the term of the product after a predictor's step that is quadratic in the length of the step.
            curved = product * change * (1 + change)
            bent = jnp.sum(curved @ ones) / bounds
            centre = ((1 - reached) - reached**2 * bent / gap) ** 3 * gap
            share = jnp.where(state.without_progress > 0, 0.0, jnp.minimum(_CURVED * reached, 1.0))
            return du, d_dual, jnp.maximum(before[2], gradients), longest, aim, centre + share * curved

        # The predictor, 1, aims at 0, and the corrector, 2, at the central path.
        nothing = jax.tree.map(jnp.zeros_like, (reduced, at.dual, zero, gap, product, product))
        du, d_dual, count, longest, aim, _ = jax.lax.fori_loop(1, 3, toward, nothing)
        # Close to the end the steps may go all but to the boundary: that is what makes the last ones quadratic. At tiny
        # margins complementarity is small long before, and a product that is all but 0 then blocks every further step.
        short = jnp.maximum(gap, jnp.minimum(state.best_residual, _BLOCKED))
        length = jnp.minimum(1.0, jnp.clip(1 - short, 0.99, 1 - 1000 * epsilon) * longest)
        d_multipliers = jnp.where(free, aim / slack - multipliers * (1 + side * du / slack), 0.0)
        primal = at.primal + length * jnp.concatenate([du[None], d_multipliers])
        votes = votes_of(primal[0])
        dual = at.dual + length * d_dual
        if steps != "sure":
            dual = jnp.where(hard & (steps == "both"), dual, dual_variables(votes, dual[-1]))
        after, reduced = _Iterate(primal, dual), gradient_of(dual)

        # Relative duality gap, and error in the equality: zero only at a solution.
        both = [jnp.where(last, 0.0, votes), dual_votes(dual)]
        objective, dual_objective = inner(both, both) / 2
        least = reduced @ jnp.where(free, -box * jnp.sign(reduced), primal[0])
        relative_gap = jnp.abs(objective + dual_objective - dual[-1] - least) / objective
        error = jnp.maximum(relative_gap, binding * jnp.abs(1 - votes[-1]))
        usable = jnp.isfinite(error)
        better = usable & (error < state.best_residual)
        best_residual = jnp.where(better, error, state.best_residual)
        without_progress = jnp.where(better, 0, state.without_progress + 1)
        patience = jnp.where(best_residual < 100 * accuracy, _PATIENCE, _MOST_PATIENCE)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), after, state.best)
        done = ~usable | (error < accuracy) | (without_progress >= patience)
        gradients = jnp.maximum(state.gradients, count)
        return _State(
            after, votes, reduced, best, best_residual, without_progress, gradients, state.iterations + 1, done
        )

    def goes_on(state: _State) -> Array:
        return ~state.done & (state.iterations < _MAX_STEPS)

    def is_hard(state: _State) -> Array:
        size = len(rows.quick) if steps == "quick" else len(u)
        return sure | (state.gradients * _SLOW[steps] > size) | (state.gradients >= MOST_GRADIENTS)

    def factored(D: Array) -> Array:
        """The columns of L of I + F D^-1 F', or of F'F + D where quick steps have that."""
        if steps != "quick":
            return inner_factor(rows.factor, jnp.where(free, 1 / D, 0.0))
        D = D + least_diagonal(rows, free)
        if rows.hessian is None:
            return inner_factor(rows.quick, jnp.where(free, 1 / D, 0.0))
        return cholesky_columns(jnp.where(free[:, None] & free, rows.hessian, 0.0) + jnp.diag(D))

    def many_steps(state: _State) -> _State:
        """Quick steps as long as they are easy, or one of the others."""
        hard, D = is_hard(state), barrier_weights(state.iterate)[2]
        whole = _only_if(hard, D, lambda: factored(D))

        def is_easy(after: _State) -> Array:
            return goes_on(after) & (~is_hard(after) | (after.iterations == state.iterations))

        return jax.lax.while_loop(is_easy, functools.partial(step, whole, hard), state)

    # Complementarity that adds up to the scale of the objective.
    barrier = 1 / bounds
    votes = votes_of(u)
    multipliers = jnp.where(free, barrier / slacks(u), 0.0)
    first = _Iterate(jnp.concatenate([u[None], multipliers]), dual_variables(votes, multiplier * barrier))
    zero = jnp.zeros((), jnp.int32)
    reduced = gradient_of(first.dual)
    state = _State(first, votes, reduced, first, jnp.full((), jnp.inf, dtype), zero, zero, zero, problem.skip)
    # This changes no value: it marks all leaves as different between devices, as `shard_map` wants a loop's state.
    state = jax.tree.map(lambda leaf: jnp.where(problem.skip, leaf, leaf), state)
    # Sure steps alone need not be told which kind they are.
    body = many_steps if steps != "sure" else functools.partial(step, None, sure)
    state = jax.lax.while_loop(goes_on, body, state)
    tau, (factor_scale, normal_scale) = problem.tau, rows.scales
    x = jnp.where(free, jnp.clip(state.best.primal[0] * tau, -1.0, 1.0), problem.fixed)
    zeta, y = state.best.dual[:-1] * (factor_scale * tau), state.best.dual[-1] * (factor_scale**2 * tau / normal_scale)
    # Where rows are left out, z = zeta + q y is 0.
    zeta = jnp.concatenate([zeta, -y * problem.dual_target[rank:]])
    return BoxQPSolution(x * problem.bound, zeta * problem.bound, y * problem.bound, state.iterations)
