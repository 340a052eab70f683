"""The program of Algorithm 1 on checked arrays: from votes to a `BoxQP`, its solution, certificate and derivatives.

Every MinCq of the package is learnt here. What the program knows of a sample is V, the votes scaled by the roots of the
shares, and the labels scaled alike: M = V'V and m = V'(sqrt(p) y). A sample of other points with the same two moments
is the same program, and its shares need not add up to 1.
"""

import functools
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from pvmincq_jax._types import AnyArray, Array, Status
from pvmincq_jax.voting import qp
from pvmincq_jax.voting.derivatives import free_space, refine, second_moment_tangent, solve_tangent
from pvmincq_jax.voting.factor import VoteFactor, array_module, constant, loop_on_cpu, sample_basis
from pvmincq_jax.voting.interior_point import solve_interior_point
from pvmincq_jax.voting.newton import Newton, by_gradients, by_rank
from pvmincq_jax.voting.rounding import margin_rounding

__all__: list[str] = []

Solver = Literal["interior_point", "jaxopt"]

# A margin within so many roundings of mu_max, relative, is mu_max: the sum that gives mu_max is itself rounded.
ROUNDING = 256
# The margin that a caller computes as mu_max may differ from ours by so many roundings.
_SAME = 16
# Below this fraction of mu_max quick steps are not worth a try.
SMALL_MARGIN = 1e-2
# Sure steps follow quick ones unless the residual is below this fraction of what counts as SOLVED.
_GOOD = 1e-1


class MinCqSolution(NamedTuple):
    """What `mincq` returns; a leading axis per vmapped axis.

    Attributes:
      weights: signed weights of the vote, 2 Q - 1/n, ``[n]``; NaN unless SOLVED, 0 for masked voters.
      posterior: the paper's Q, in [0, 1/n], ``[n]``; NaN unless SOLVED.
      status: a `Status` code.
      kkt_residual: the largest of the relative duality gap, the relative error in the margin, and the relative excess
        over the box, measured on the votes themselves. The objective is within that fraction of the least one.
      iterations: steps of the solver.
      c_bound: of the weights, on the sample.
      mu_max: the largest feasible margin; NaN for bad input.
    """

    weights: Array
    posterior: Array
    status: Array
    kkt_residual: Array
    iterations: Array
    c_bound: Array
    mu_max: Array


def accuracy(dtype: Any) -> float:
    """The largest `MinCqSolution.kkt_residual` that counts as SOLVED: 1e-7 in float64, 1e-4 in float32."""
    return 1e-7 if dtype == jnp.float64 else 1e-4


def voter_margins(votes: AnyArray, labels: AnyArray, shares: AnyArray) -> AnyArray:
    """m_j = E_{(x,y)} y h_j(x), ``[n]``."""
    return (shares * labels) @ votes


class Sample(NamedTuple):
    """What a problem knows of a sample, whatever the margin. Derivatives of weights come through the first four alone.

    Attributes:
      votes, labels, shares: ``[m, n]``, ``[m]`` and ``[m]``.
      margins: m ``[n]``, 0 for masked voters.
      mask: which voters take part ``[n]``.
      basis: Q ``[m, r]`` of F = Q' V; None for F = V.
      factor: F ``[r, n]``.
      dual_target: q ``[r]``, with m = F'q.
      offset: m - F'q, 0 for voters ``[n]``.
      mu_max: the largest feasible margin.
      bound: 1/n.
      quick: some of F's first rows, scaled for quick steps.
      sure: all of F's rows, scaled for sure steps.
      guess: of the weights, in units of the bound ``[n]``, or None.
    """

    votes: Array
    labels: Array
    shares: Array
    margins: Array
    mask: Array
    basis: Array | None
    factor: Array
    dual_target: Array
    offset: Array
    mu_max: Array
    bound: Array
    quick: qp.ScaledRows
    sure: qp.ScaledRows
    guess: Array | None = None


def sample_of(
    votes: Array,
    labels: Array,
    shares: Array,
    voter_mask: Array,
    basis: Array | None,
    lead: int | None = None,
) -> Sample:
    """All that problems of a sample share, at whatever margin.

    Args:
      votes, labels, shares: the sample ``[m, n]``, ``[m]`` and ``[m]``, or one with the same moments.
      voter_mask: ``[n]``; without any voter nothing is feasible.
      basis: Q ``[m, r]`` of F = Q' V; None for F = V.
      lead: how many rows quick steps use; all when None.
    """
    xp = array_module(votes)
    margins = xp.where(voter_mask, voter_margins(votes, labels, shares), 0.0)
    bound = 1 / xp.maximum(xp.sum(voter_mask), 1).astype(votes.dtype)
    fixed_votes, fixed_labels, fixed_shares, fixed_margins = map(constant, (votes, labels, shares, margins))
    root = xp.sqrt(fixed_shares)
    factor, target = root[:, None] * fixed_votes, root * fixed_labels
    if basis is not None:
        factor, target = basis.T @ factor, basis.T @ target

    sure = qp.scaled_rows(factor, target, fixed_margins)
    quick = sure if lead is None else qp.scaled_rows(factor[:lead], target[:lead], fixed_margins)
    mu_max = xp.sum(xp.abs(margins)) * bound
    offset = xp.zeros_like(fixed_margins)
    return Sample(votes, labels, shares, margins, voter_mask, basis, factor, target, offset, mu_max, bound, quick, sure)


def _kkt_residual(sample: Sample, margin: Array, problem: qp.BoxQP, solution: qp.BoxQPSolution) -> Array:
    """How far the weights are from optimal, on the votes themselves and not on their factor.

    For any z over the sample and any y, y mu - |z|^2 / 2 - 1/n sum_j |(V' z - y m)_j| is a lower bound on w'Mw / 2. The
    solver's dual vector z = Q (zeta + y q) is such a z, and splitting the labels into Q q and the rest keeps V' z - y m
    from cancelling.
    """
    votes, labels, shares, margins, _, basis, *_ = sample
    weights, zeta, multiplier, _ = solution
    root = jnp.sqrt(shares)
    dual = zeta if basis is None else basis @ zeta + multiplier * (basis @ problem.dual_target - root * labels)
    gradient = (root * dual) @ votes - multiplier * sample.offset
    z = zeta + multiplier * problem.dual_target
    vote = votes @ weights
    primal = shares * vote @ vote / 2
    towards = jnp.where(problem.free, -problem.bound * jnp.sign(gradient), weights)
    least, reached = qp.inner([gradient, margins], [towards, weights])
    gap = jnp.abs(primal - (multiplier * margin - z @ z / 2 + least)) / primal
    # Next to mu_max both y mu and the sum are far larger than the primal value, and cancel. Each is known to a rounding
    # of its own size at best: so much the gap may be larger than it seems.
    sizes = jnp.abs(multiplier) * margin + z @ z / 2 + jnp.abs(gradient) @ jnp.abs(towards)
    epsilon = jnp.finfo(gap.dtype).eps
    gap += epsilon * sizes / primal
    # Weights of mu_max are off by y (mu_max - mu) at a margin just below, with the least y for which all g_j sign(m_j)
    # are at most y |m_j|.
    fixed = problem.fixed != 0
    steepest = jnp.max(jnp.where(fixed, gradient / jnp.where(fixed, margins, 1.0), 0.0))
    gap += steepest * jnp.maximum((1 - _SAME * epsilon) * sample.mu_max - margin, 0.0) / primal
    equality = jnp.abs(reached - margin) / margin + margin_rounding(votes, labels, shares, weights, margin)
    excess = jnp.max(jnp.abs(weights)) / problem.bound - 1
    return jnp.maximum(jnp.maximum(gap, equality), excess)


def _problem(sample: Sample, margin: Array) -> tuple[Array, Array, qp.BoxQP]:
    """Whether the margin is feasible, the margin or 1 in its place, and the program, which is then skipped."""
    margins, mask, mu_max, dtype = sample.margins, sample.mask, sample.mu_max, sample.votes.dtype
    rounding = ROUNDING * jnp.finfo(dtype).eps
    feasible = (margin > 0) & (margin <= mu_max * (1 + rounding))
    at_mu_max = margin >= mu_max * (1 - rounding)
    # At mu_max every voter with a margin is at its bound, and only those without one are left to choose.
    idle = jnp.abs(margins) <= rounding * mu_max
    free = mask & (idle | ~at_mu_max)
    problem = qp.BoxQP(
        factor=sample.factor,
        dual_target=sample.dual_target,
        normal=jnp.where(at_mu_max & idle, 0.0, margins),
        tau=jnp.clip(jnp.where(feasible, margin / mu_max, 0.5), jnp.finfo(dtype).tiny, 1.0),
        free=free,
        fixed=jnp.where(free | ~mask, 0.0, jnp.sign(margins)),
        skip=~feasible | ~jnp.any(free),
        bound=sample.bound,
        guess=sample.guess,
    )
    return feasible, jnp.where(feasible, margin, 1.0), problem


def _solve(newton: Newton, sample: Sample, margin: Array, skip: Any = False) -> tuple[qp.BoxQPSolution, Array]:
    """The interior point's solution, and its residual on the votes."""
    # The program is set up here and not by the caller: a loop over margins then has one number to hand in.
    _, margin, problem = _problem(sample, margin)
    sample, margin, problem = qp.as_varying((sample, margin, problem), problem.skip)
    problem = problem._replace(skip=problem.skip | skip)
    solution = solve_interior_point(problem, sample.quick if newton is by_gradients else sample.sure, newton)
    return solution, _kkt_residual(sample, margin, problem, solution)


_quick = functools.partial(_solve, by_gradients)
_sure = functools.partial(_solve, by_rank)


def _quick_then_sure(sample: Sample, margin: Array) -> tuple[qp.BoxQPSolution, Array]:
    """Quick steps, then sure ones if the residual of the quick ones is not good enough; the better result counts."""
    quick, residual = _quick(sample, margin, margin < SMALL_MARGIN * sample.mu_max)

    def again() -> tuple[qp.BoxQPSolution, Array]:
        sure, other = _sure(sample, margin)
        worse = other >= residual
        solution = jax.tree.map(lambda new, old: jnp.where(worse, old, new), sure, quick)
        iterations = quick.iterations + sure.iterations
        return solution._replace(iterations=iterations), jnp.where(worse, residual, other)

    return jax.lax.cond(residual <= _GOOD * accuracy(sample.votes.dtype), lambda: (quick, residual), again)


# "quick" steps solve their Newton systems by conjugate gradients, "sure" ones by factors; "both" is quick, then sure.
Steps = Literal["quick", "sure", "both"]
_ATTEMPTS: dict[Steps, Any] = {"quick": _quick, "sure": _sure, "both": _quick_then_sure}

# 1, whose derivative is 0 or NaN as the second argument is: beyond NaN, its factors can be differentiated no further.
_once = jax.custom_jvp(lambda weights, slope: jnp.ones((), weights.dtype))
_once.defjvps(lambda tangent, one, weights, slope: slope * jnp.sum(tangent), None)
# A refined solution is one if it meets the box and the equality to this accuracy, relative.
_REFINED = 1e-8


@jax.custom_jvp
def _differentiable(
    sample: Sample, margin: Array, problem: qp.BoxQP, solution: qp.BoxQPSolution
) -> tuple[Array, Array]:
    """The weights and the multiplier of a solution, with derivatives with respect to sample and margin."""
    return solution.x, solution.multiplier


@_differentiable.defjvp
def _differentiable_jvp(primals: tuple, tangents: tuple) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    sample, margin, problem, solution = primals
    votes, shares, margins = sample.votes, sample.shares, sample.margins
    dot, margin_dot = tangents[:2]
    weights, multiplier = _differentiable(*primals)
    gradient = problem.factor.T @ (solution.zeta + solution.multiplier * problem.dual_target)
    gradient = gradient - solution.multiplier * jax.lax.stop_gradient(margins)
    # A voter is inside the box where its slack exceeds its multiplier, both relative: their product is all but zero, so
    # one of them is. A voter for which both vanish counts as at its bound, where its derivative is 0.
    slack = 1 - jnp.abs(solution.x) / problem.bound
    second_moment = jax.lax.stop_gradient(shares) @ (jax.lax.stop_gradient(votes) @ solution.x) ** 2
    inside = slack > jnp.abs(gradient) / second_moment
    space = free_space(problem.factor, problem.free & inside)
    # The values are refined wherever derivatives are taken. Grids do without, and without this SVD.
    x = jnp.where(problem.free & ~inside, problem.bound * jnp.sign(solution.x), solution.x)
    x, y = refine(
        problem.factor, problem.dual_target, sample.offset, problem.normal, space, margin, x, solution.multiplier
    )
    # It leaves the box where tiny votes, or a voter on its bound, hide which voters are inside.
    fits = (jnp.max(jnp.abs(x)) <= (1 + _REFINED) * problem.bound) & (
        jnp.abs(margins @ x - margin) <= _REFINED * margin
    )
    weights += jax.lax.stop_gradient(jnp.where(fits & ~problem.skip, x - weights, 0.0))
    multiplier += jax.lax.stop_gradient(jnp.where(fits & ~problem.skip, y - multiplier, 0.0))
    moved = second_moment_tangent(votes, shares, dot.votes, dot.shares, weights)
    right_side, change = dot.margins * multiplier - moved, margin_dot - dot.margins @ weights
    tangent = solve_tangent(votes, shares, margins, space, right_side, change)
    known = (fits & (weights.dtype == jnp.float64)) | problem.skip
    once = _once(weights, jnp.where(known, 0.0, jnp.nan).astype(weights.dtype))
    tangent = jax.tree.map(lambda part: part * once, tangent)
    return (weights, multiplier), jax.tree.map(lambda part: jnp.where(problem.skip, 0.0, part), tangent)


class Solved(NamedTuple):
    """A solution of the program; all fields but the last three have derivatives.

    Attributes:
      weights: w ``[n]``; 0 unless solved, so that a failed problem sends no NaN into the gradients of others.
      multiplier: of the equality; 0 unless solved.
      status: SOLVED, INFEASIBLE or MAX_ITERATIONS.
      kkt_residual: as of `MinCqSolution`.
      iterations: steps of the solver.
    """

    weights: Array
    multiplier: Array
    status: Array
    kkt_residual: Array
    iterations: Array


def solve(sample: Sample, margin: Array, solver: Solver, steps: Steps) -> Solved:
    """The weights of least second moment at a margin, with their certificate, on finite numbers.

    Args:
      sample: of `sample_of`.
      margin: mu; what is not in (0, mu_max] is infeasible.
      solver: "interior_point" or "jaxopt".
      steps: of the interior point.
    """
    fixed_sample, fixed_margin = jax.lax.stop_gradient((sample, margin))
    feasible, safe_margin, problem = _problem(fixed_sample, fixed_margin)
    if solver == "jaxopt":
        solution = qp.solve_jaxopt(problem)
        residual = _kkt_residual(fixed_sample, safe_margin, problem, solution)
    else:
        # Side by side, conjugate gradients would go on for the slowest problem of a batch: there all steps are sure.
        solution, residual = loop_on_cpu(_ATTEMPTS[steps], _sure)(fixed_sample, fixed_margin)
    status = jnp.where(residual <= accuracy(sample.votes.dtype), Status.SOLVED, Status.MAX_ITERATIONS)
    status = jnp.where(feasible, status, Status.INFEASIBLE).astype(jnp.int32)
    solved = status == Status.SOLVED
    weights, multiplier = _differentiable(sample, margin, problem._replace(skip=problem.skip | ~solved), solution)
    return Solved(
        weights=jnp.where(solved & sample.mask, weights, 0.0),
        multiplier=jnp.where(solved, multiplier, 0.0),
        status=status,
        kkt_residual=jnp.where(feasible, residual, jnp.nan),
        iterations=solution.iterations,
    )


def learn(sample: Sample, margin: Array, solver: Solver, steps: Steps) -> MinCqSolution:
    """MinCq, equations 5 to 7, with the arguments of `solve`."""
    votes, labels, shares, _, voter_mask, *_ = sample
    weights, _, status, residual, iterations = solve(sample, margin, solver, steps)
    solved, vote = status == Status.SOLVED, votes @ weights
    c_bound = 1 - (shares @ (labels * vote)) ** 2 / jnp.where(solved, shares @ vote**2, 1.0)
    weights = jnp.where(solved, weights, jnp.nan)
    return MinCqSolution(
        weights=weights,
        posterior=jnp.where(voter_mask, (weights + sample.bound) / 2, jnp.where(solved, 0.0, jnp.nan)),
        status=status,
        kkt_residual=residual,
        iterations=iterations,
        c_bound=jnp.where(solved, c_bound, jnp.nan),
        mu_max=sample.mu_max,
    )


def prepare(
    votes: Array,
    labels: Array,
    shares: Array,
    voter_mask: Array,
    factor: VoteFactor | None,
    turn: bool = False,
    lead: int | None = None,
) -> tuple[Sample, Array]:
    """The sample of problems on checked arrays of one dtype, and whether it is bad input.

    Args:
      votes, labels, shares: the sample ``[m, n]``, ``[m]`` and ``[m]``.
      voter_mask: ``[n]``.
      factor: of the votes; None where F is to be the scaled votes themselves.
      turn: of the basis, see `sample_basis`.
      lead: as in `sample_of`.
    """
    chex.assert_rank([votes, labels, shares, voter_mask], [2, 1, 1, 1])
    xp = array_module(votes)
    # Comparisons with NaN are False, so these catch NaN labels and shares as well.
    bad = ~(xp.isfinite(xp.sum(xp.abs(votes))) & xp.any(voter_mask))
    bad |= ~(xp.max(xp.abs(labels)) <= 1) | ~(xp.min(shares) >= 0)
    if factor is not None:
        bad |= ~(xp.all(xp.isfinite(factor.left)) & xp.all(xp.isfinite(factor.right)))
    # A bad problem goes on with ones in place of its input: its derivatives are then 0, and what it shares with other
    # problems gets no NaN from it.
    if xp is jnp or bad:
        votes, labels, shares, voter_mask, factor = jax.tree.map(
            lambda part: xp.where(bad, xp.ones_like(part), part), (votes, labels, shares, voter_mask, factor)
        )
    basis = None if factor is None else sample_basis(votes, shares, voter_mask, factor, turn)
    return sample_of(votes, labels, shares, voter_mask, basis, lead), bad


# Where something of the sample is traced, it is compiled.
prepare_traced = jax.jit(prepare, static_argnames=("turn", "lead"))


@functools.partial(jax.jit, static_argnames=("solver", "steps"))
def solve_prepared(sample: Sample, bad: Array, margin: Array, solver: Solver, steps: Steps = "both") -> MinCqSolution:
    """`mincq` on what `prepare` returns; a bad problem says so and changes no other one of its batch."""
    chex.assert_rank(margin, 0)
    # The margin is looked at apart from the sample, so that a vmap over margins shares all the rest.
    unknown = ~jnp.isfinite(margin)
    solution = learn(sample, jnp.where(bad | unknown, 0.0, margin), solver, steps)
    bad |= unknown
    return solution._replace(
        status=jnp.where(bad, Status.BAD_INPUT, solution.status), mu_max=jnp.where(bad, jnp.nan, solution.mu_max)
    )
