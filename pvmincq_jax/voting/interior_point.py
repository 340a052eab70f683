"""A primal-dual interior-point method for the program of `qp`: its Newton systems and its loop.

A step solves its Newton system by the rank of F, in O(n r^2), or, where F has about as many rows as columns, densely,
by a Cholesky factor of F'F + D.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.qp import BoxQPSolution, ScaledQP, inner

__all__: list[str] = []

# Mehrotra's predictor-corrector needs 10 to 30 steps; 45 were seen next to mu_max with 1 000 voters.
_MAX_STEPS = 100
# Steps without progress after which rounding has the last word. More at a point that is not good enough: next to
# mu_max, with voters that are copies of each other, it was seen to stay above 1e-7 for ten steps and then to fall.
_PATIENCE, _MOST_PATIENCE = 8, 30
# The relative duality gap at which it stops, in float32 and in float64.
_STOP = 1e-5, 1e-10
# The share of its way to the boundary that a step stops short of it, at least, while the residual is above this.
_BLOCKED = 1e-6
# Next to mu_max is where so small a share of q'q is left that digits are lost.
_NEAR = 1e-3

# Numbers of voters and rows.
Sizes = tuple[tuple[int, int], ...]
# From g ``[n]``, and whether it is the corrector's (1) or not (0), to du ``[n]`` and (d zeta, dy) ``[r + 1]``.
Newton = Callable[[Array, Array], tuple[Array, Array]]


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
    iterations: Array
    done: Array


def _newton_factor(F: Array, free: Array, dense: bool, sizes: Sizes) -> Callable[[Array], Array]:
    """The function from D ``[n]`` to L of a Newton system: LL' = F'F + D, or I + F D^-1 F' by rank.

    Of a problem that was padded, with voters that are not free and rows of zeros at the end, only a leading block
    differs from the identity. It is computed at the first of the sizes that holds it.

    Args:
      F: ``[r, n]``, 0 for voters that are not free.
      free: ``[n]``; D is 1 elsewhere.
      dense: which system.
      sizes: of voters and rows, from small to large.
    """
    rank, voters = F.shape
    size = voters if dense else rank
    last_row, last_voter = (
        jnp.max(jnp.where(used, jnp.arange(len(used)), -1)) for used in (jnp.any(F != 0, axis=1), free)
    )

    def factor(voters: int, rank: int) -> Callable[[Array], Array]:
        part = F[:rank, :voters]
        gram = part.T @ part if dense else None
        identity = jnp.eye(voters if dense else rank, dtype=F.dtype)

        def lower(D: Array) -> Array:
            D = D[:voters]
            system = identity + (part / D) @ part.T if gram is None else gram + D * identity
            leading = jnp.linalg.cholesky(system, symmetrize_input=False)
            return jax.lax.dynamic_update_slice(jnp.eye(size, dtype=F.dtype), leading, (0, 0))

        return lower

    factors = [factor(*each) for each in (*sizes, (voters, rank))]
    if not sizes:
        return factors[0]
    small = jnp.stack([(n <= last_voter) | (r <= last_row) for n, r in sizes])
    return lambda D: jax.lax.switch(jnp.sum(small), factors, D)


def _newton_by_rank(
    rows: Array, q: Array, a: Array, binding: Array, D_inverse: Array, lower: Array, residuals: Array, refined: bool
) -> Newton:
    """The system in (d zeta, d y), after du = D^-1 (g - F' d zeta + e dy).

    With K = I + F D^-1 F', and a = F'q + e, it is

        K d zeta + h dy = F D^-1 g - r_z,   h = q - F D^-1 e,
        h' d zeta + (q'q + e' D^-1 e) dy = r_b - e' D^-1 g - q' r_z.

    Here K = LL'. With l = L^-1 h (``along``) the second equation less h' K^-1 times the first has the factor
    c = q'q + e' D^-1 e - l'l in front of dy. Next to mu_max that cancels, as K is all but I and h all but q. There,
    with K t = h and K v = F D^-1 a, which is K (q - t), it is taken as

        c dy = r_b - (e + F't)' D^-1 g - v' r_z,   c = q'v + (e + F't)' D^-1 e.

    Refined, the corrector solves once more for what it leaves of the last two of the three equations; the first is met
    by du itself.

    Args:
      rows: [F; -e'] ``[r + 1, n]``.
      q: (q, -1) ``[r + 1]``.
      a: ``[n]``.
      binding: as in `ScaledQP`; where nothing binds, c is 1 and the multiplier stays at 0.
      D_inverse: ``[n]``.
      lower: L ``[r, r]``.
      residuals: of the last two equations, (-r_z, -r_b) ``[r + 1]``.
      refined: see above.
    """
    half = functools.partial(jax.scipy.linalg.solve_triangular, lower, lower=True)
    other_half = functools.partial(half, trans=1)
    # [F; -e'] D^-1 times e and a.
    of_e, of_a = (rows @ (D_inverse * jnp.stack([-rows[-1], a])).T).T
    target = q[:-1]
    halves = half(jnp.stack([target - of_e[:-1], of_a[:-1]], axis=1))
    t, v = other_half(halves).T
    along = halves[:, 0]
    length, along_length, by_target, by_e = inner([target, along, target, t], [target, along, v, of_e[:-1]])
    near = length - along_length < _NEAR * length
    c = jnp.where(near, by_target + by_e, length - along_length) - of_e[-1] + (1 - binding)
    # What the second equation takes of r_z, of F D^-1 g and of L^-1 times the first's right side.
    taken = [jnp.where(near, v, target), jnp.where(near, -t, 0.0), jnp.where(near, 0.0, -along)]

    def solve(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """From du so far, what it leaves of -r_z and -r_b, and (d zeta, dy) so far, to all three one step further."""
        du, left, dual = state
        product = rows @ du
        first = half((product + left)[:-1, None])[:, 0]
        dy = (product[-1] - left[-1] + jnp.sum(inner(taken, [left[:-1], product[:-1], first]))) / c
        more = jnp.append(other_half((first - along * dy)[:, None])[:, 0], dy)
        return du - D_inverse * (more @ rows), left - more - q * dy, dual + more

    def newton(g: Array, corrector: Array) -> tuple[Array, Array]:
        state = D_inverse * g, residuals, jnp.zeros_like(residuals)
        state = jax.lax.fori_loop(0, 1 + corrector, solve, state) if refined else solve(corrector, state)
        return state[0], state[2]

    return newton


def _newton_dense(F: Array, across: Array, q: Array, lower: Array, free: Array, residuals: Array) -> Newton:
    """The system in (du, dy), after d zeta = F du - q dy - r_z: (F'F + D) du - a dy = g + F' r_z, a' du = r_b.

    Nothing is refined: that would gain digits at tiny margins only.

    Args:
      F: ``[r, n]``.
      across: [F', a] ``[n, r + 1]``.
      q: (q, -1) ``[r + 1]``.
      lower: L ``[n, n]``, with LL' = F'F + D for the voters that are free.
      free: ``[n]``.
      residuals: (-r_z, -r_b) ``[r + 1]``.
    """
    a = jnp.where(free, across[:, -1], 0.0)
    pulled = jnp.where(free, residuals[:-1] @ F, 0.0)

    def newton(g: Array, corrector: Array) -> tuple[Array, Array]:
        del corrector
        # Two right sides at once take as long as one: it is the triangle that has to be read.
        toward, du = jax.scipy.linalg.cho_solve((lower, True), jnp.stack([a, g - pulled], axis=1)).T
        # The multiplier for which a' du = r_b.
        reach = a @ toward
        dy = jnp.where(reach > 0, -(residuals[-1] + a @ du) / jnp.where(reach > 0, reach, 1.0), 0.0)
        du = du + dy * toward
        # The last of these is dy, as a' du = r_b.
        return du, du @ across + residuals - q * dy

    return newton


def solve_interior_point(
    scaled: ScaledQP, skip: Array, rows: int | None = None, dense: bool = False, sizes: Sizes = ()
) -> BoxQPSolution:
    """Mehrotra's predictor-corrector method, with three changes for MinCq, in the scale of `ScaledQP`.

    Start: the analytic centre of the feasible set, with the multipliers of a point on the central path. Close to
    mu_max that set is tiny, and from sign(a), all but in its corner, complementarity vanishes long before the dual
    equations hold: most voters are then at the wrong bound, and no step can free them.

    Correction: where the predictor goes less than a tenth of the way, its second-order term says little of the path; it
    then counts by the length of that step only.

    Dual variables: stationarity is F'z - a y = lower - upper with z = F u. Where the box is slack both terms are large
    and cancel, and dividing their rounding error by a vanishing barrier weight destroys the step. With zeta = z - q y
    the left side is F' zeta - e y, which is itself small. A Newton step (du, d zeta, dy) meets

        D du + F' d zeta - e dy = g,   F du - d zeta - q dy = r_z,   a' du = r_b,   D = lower / s_l + upper / s_u.

    By rank, with a refined corrector, it keeps its digits at any margin. Densely, or with some rows alone, nothing is
    refined: that is cheaper, densely from r = n / 2 on, and keeps them at margins from a hundredth of mu_max on.

    Args:
      scaled: of `scaled`.
      skip: True when there is nothing to solve.
      rows: how many of the factor's rows to use, the first ones; all when None.
      dense: how to solve for a step.
      sizes: of smaller problems, which may come padded to this one's shape; see `_newton_factor`.

    Returns: a `BoxQPSolution`: the best point met. How good it is, is for the caller to measure.
    """
    problem, unscaled, (factor_scale, normal_scale), bounds, binding, box, start, multiplier = scaled
    F, target, a = problem.factor[:rows], problem.dual_target[:rows], problem.normal
    tau, free = problem.tau, problem.free
    rank, dtype = len(F), F.dtype
    epsilon, accuracy = jnp.finfo(dtype).eps, _STOP[dtype == jnp.float64]
    e = a - target @ F
    dual_rows = jnp.concatenate([F, -e[None]])
    # [F; a'] transposed in memory, too: sums over many voters are then up to twenty times faster.
    across = jax.lax.optimization_barrier(jnp.concatenate([F, a[None]]).T)
    q = jnp.append(target, -1.0)
    last = jnp.arange(rank + 1) == rank
    newton_factor = _newton_factor(jnp.where(free, F, 0.0), free, dense, sizes)
    # Made by an operation of JAX: `shard_map` takes a constant array as equal on all devices, and fails in batches.
    side = 1 - 2 * jnp.arange(2, dtype=dtype)[:, None]
    ones = jnp.ones_like(a)

    def slacks(u: Array) -> Array:
        # A coordinate may round onto its bound, where the slack must not be 0: the barrier weight divides by it.
        return jnp.where(free, jnp.maximum(box + side * u, epsilon / 4 * box), 1.0)

    def dual_votes(dual: Array) -> Array:
        """(z, 0), with z = zeta + q y."""
        return dual + q * dual[-1]

    def step(state: _State) -> _State:
        at, reduced = state.iterate, state.reduced
        multipliers = at.primal[1:]
        slack = slacks(at.primal[0])
        product = slack * multipliers
        D = jnp.where(free, jnp.sum(multipliers / slack, axis=0), 1.0)
        residuals = state.votes - dual_votes(at.dual) - jnp.where(last, binding, 0.0)
        lower = newton_factor(D)
        if dense:
            newton = _newton_dense(F, across, q, lower, free, residuals)
        else:
            D_inverse = jnp.where(free, 1 / D, 0.0)
            newton = _newton_by_rank(dual_rows, q, a, binding, D_inverse, lower, residuals, refined=rows is None)
        gap = jnp.sum(product @ ones) / bounds

        def toward(phase: Array, before: tuple[Array, ...]) -> tuple[Array, ...]:
            """The step towards slack * multiplier = aim, how long it can be, and what the next one should aim at."""
            aim = before[-1]
            du, d_dual = newton(jnp.where(free, jnp.sum(side * aim / slack, axis=0) - reduced, 0.0), phase)
            # By how much it changes the slacks, relative to what they are.
            change = side * du / slack
            # The largest step for which slacks and multipliers stay non-negative, by their relative changes.
            longest = 1 / jnp.max(jnp.where(free, jnp.maximum(-change, 1 + change - aim / product), 0.0))
            reached = jnp.minimum(1.0, longest)
            # Minus the term of the product after a predictor's step that is quadratic in the length of the step.
            curved = product * change * (1 + change)
            bent = jnp.sum(curved @ ones) / bounds
            centre = ((1 - reached) - reached**2 * bent / gap) ** 3 * gap
            return du, d_dual, longest, aim, centre + jnp.where(reached < 0.1, reached, 1.0) * curved

        # The predictor aims at 0, the corrector at the central path.
        nothing = jax.tree.map(jnp.zeros_like, (reduced, residuals, gap, product, product))
        du, d_dual, longest, aim, _ = jax.lax.fori_loop(0, 2, toward, nothing)
        # Close to the end the steps may go all but to the boundary: that is what makes the last ones quadratic. At tiny
        # margins complementarity is small long before, and a product that is all but 0 then blocks every further step.
        short = jnp.maximum(gap, jnp.minimum(state.best_residual, _BLOCKED))
        length = jnp.minimum(1.0, jnp.clip(1 - short, 0.99, 1 - 1000 * epsilon) * longest)
        d_multipliers = jnp.where(free, aim / slack - multipliers * (1 + side * du / slack), 0.0)
        after = _Iterate(at.primal + length * jnp.concatenate([du[None], d_multipliers]), at.dual + length * d_dual)

        votes, reduced = after.primal[0] @ across, after.dual @ dual_rows
        # Relative duality gap, and error in the equality: zero only at a solution.
        both = [jnp.where(last, 0.0, votes), dual_votes(after.dual)]
        primal, dual = inner(both, both) / 2
        least = reduced @ jnp.where(free, -box * jnp.sign(reduced), after.primal[0])
        relative_gap = jnp.abs(primal + dual - after.dual[-1] * binding - least) / primal
        error = jnp.maximum(relative_gap, jnp.abs(binding - votes[-1]))
        usable = jnp.isfinite(error)
        better = usable & (error < state.best_residual)
        best_residual = jnp.where(better, error, state.best_residual)
        without_progress = jnp.where(better, 0, state.without_progress + 1)
        patience = jnp.where(best_residual < 100 * accuracy, _PATIENCE, _MOST_PATIENCE)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), after, state.best)
        done = ~usable | (error < accuracy) | (without_progress >= patience)
        return _State(after, votes, reduced, best, best_residual, without_progress, state.iterations + 1, done)

    # Complementarity that adds up to the scale of the objective.
    barrier = 1 / bounds
    y = multiplier * barrier
    multipliers = jnp.where(free, barrier / slacks(start), 0.0)
    votes = start @ across
    first = _Iterate(jnp.concatenate([start[None], multipliers]), jnp.where(last, y, votes - q * y))
    zero = jnp.zeros((), jnp.int32)
    state = _State(first, votes, first.dual @ dual_rows, first, jnp.full((), jnp.inf, dtype), zero, zero, skip)
    # This changes no value: it marks all leaves as different between devices, as `shard_map` wants a loop's state.
    state = jax.tree.map(lambda leaf: jnp.where(skip, leaf, leaf), state)
    state = jax.lax.while_loop(lambda s: ~s.done & (s.iterations < _MAX_STEPS), step, state)
    x = jnp.where(free, jnp.clip(state.best.primal[0] * tau, -1.0, 1.0), problem.fixed)
    zeta, y = state.best.dual[:-1] * (factor_scale * tau), state.best.dual[-1] * (factor_scale**2 * tau / normal_scale)
    # Where rows are left out, z = zeta + q y is 0.
    zeta = jnp.concatenate([zeta, -y * unscaled.dual_target[rank:]])
    return BoxQPSolution(x * problem.bound, zeta * problem.bound, y * problem.bound, state.iterations)
