"""The program of Algorithm 1 on checked arrays: from votes to a `BoxQP`, its solution, derivatives and certificate."""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._types import Array, ArrayLike, Status
from pvmincq_jax.voting import qp
from pvmincq_jax.voting.cbound import c_bound
from pvmincq_jax.voting.factor import VoteFactor, leading_rows_do
from pvmincq_jax.voting.jaxopt_qp import solve_jaxopt
from pvmincq_jax.voting.linalg import orthonormal_columns, thin_svd

__all__: list[str] = []

Solver = Literal["interior_point", "jaxopt"]

# A margin this close to mu_max, relative, is mu_max: the sum that gives mu_max is itself rounded.
ROUNDING = 256


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
    """The largest `MinCqSolution.kkt_residual` that counts as SOLVED: 1e-7 in float64, 1e-2 in float32."""
    return 1e-7 if dtype == jnp.float64 else 1e-2


def normalised(sample_weights: ArrayLike | None, count: int, dtype: Any) -> Array:
    """Sample weights that add up to 1."""
    if sample_weights is None:
        return jnp.full(count, 1 / count, dtype)
    sample_weights = jnp.asarray(sample_weights, dtype)
    return sample_weights / jnp.sum(sample_weights)


def voter_margins(votes: Array, labels: Array, shares: Array) -> Array:
    """m_j = E_{(x,y)} y h_j(x), ``[n]``."""
    return (shares * labels) @ votes


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _solve(
    solver: Solver,
    lead: int,
    votes: Array,
    shares: Array,
    margins: Array,
    margin: Array,
    bound: Array,
    problem: qp.BoxQP,
) -> qp.BoxQPSolution:
    """The program in w: a `qp.BoxQPSolution` scaled to the box of size ``bound``; votes and margin carry tangents.

    A loop that is skipped takes no step, and under vmap none if all lanes skip it: margins that need the leading rows
    alone never pay for the others.
    """
    del votes, shares, margins
    back_end = qp.solve_interior_point if solver == "interior_point" else solve_jaxopt
    F, q = problem.factor, problem.dual_target
    if lead < F.shape[0]:
        enough = leading_rows_do(F[lead:], 1 / bound, margin)
        short = back_end(problem._replace(factor=F[:lead], dual_target=q[:lead], skip=problem.skip | ~enough))
        # Where rows are left out, z = zeta + q y is 0.
        short = short._replace(zeta=jnp.concatenate([short.zeta, -short.multiplier * q[lead:]]))
        whole = back_end(problem._replace(skip=problem.skip | enough))
        found = jax.tree.map(lambda first, second: jnp.where(enough, first, second), short, whole)
    else:
        found = back_end(problem)
    x, zeta, multiplier, iterations = found
    return qp.BoxQPSolution(x * bound, zeta * bound, multiplier * bound, iterations)


@_solve.defjvp
def _solve_jvp(solver: Solver, lead: int, primals: tuple, tangents: tuple) -> tuple[qp.BoxQPSolution, qp.BoxQPSolution]:
    """The implicit function theorem; see `qp.solution_tangent` for the choices at degenerate points."""
    votes, shares, margins, margin, bound, problem = primals
    votes_dot, shares_dot, margins_dot, margin_dot, _, _ = tangents
    solution = _solve(solver, lead, votes, shares, margins, margin, bound, problem)
    weights, zeta, multiplier, iterations = solution
    vote = votes @ weights
    gradient = problem.factor.T @ (zeta + multiplier * problem.dual_target) - multiplier * margins
    # Off the box is where the slack exceeds the multiplier, both relative: their product is all but zero, so one of
    # them is. A coordinate at which both vanish counts as on the box, where its derivative is 0.
    slack = 1 - jnp.abs(weights) / bound
    inside = problem.free & (slack > jnp.abs(gradient) / (shares @ vote**2))
    gradient_dot = (shares * vote) @ votes_dot + (shares_dot * vote + shares * (votes_dot @ weights)) @ votes
    weights_dot = qp.solution_tangent(
        problem.factor, margins, inside, margins_dot * multiplier - gradient_dot, margin_dot - margins_dot @ weights
    )
    return solution, qp.BoxQPSolution(
        x=jnp.where(problem.skip, 0.0, weights_dot),
        zeta=jnp.zeros_like(zeta),
        multiplier=jnp.zeros_like(multiplier),
        iterations=np.zeros(iterations.shape, jax.dtypes.float0),  # type: ignore[arg-type]
    )


@functools.partial(jax.jit, static_argnames=("solver", "turn", "lead"))
def solve_mincq(
    votes: Array,
    labels: Array,
    margin: Array,
    sample_weights: Array | None,
    voter_mask: Array,
    factor: VoteFactor,
    solver: Solver,
    turn: bool,
    lead: int | None = None,
) -> MinCqSolution:
    """`mincq` on checked arrays of one dtype.

    With voters masked out, the rows of F are no longer orthogonal, which costs digits below 1e-3 mu_max; ``turn`` makes
    them so again, at the price of an SVD. At margins for which the first ``lead`` rows of the factor are enough, the
    others are left alone; all count when None.
    """
    dtype = votes.dtype
    bad = ~(jnp.isfinite(jnp.sum(jnp.abs(votes))) & jnp.any(voter_mask))
    # Comparisons with NaN are False, so these catch NaN labels and sample weights as well.
    bad |= ~(jnp.max(jnp.abs(labels)) <= 1)
    bad |= ~(jnp.all(jnp.isfinite(factor.left)) & jnp.all(jnp.isfinite(factor.right)))
    if sample_weights is not None:
        total = jnp.sum(sample_weights)
        bad |= ~(jnp.min(sample_weights) >= 0) | ~(total > 0) | ~jnp.isfinite(total)
    # A bad lane goes on with ones in place of its input: its derivatives are then 0, and what it shares with other
    # lanes gets no NaN from it. The margin is looked at apart, so that a vmap over margins shares all the rest.
    votes, labels, sample_weights, voter_mask, factor = jax.tree.map(
        lambda part: jnp.where(bad, jnp.ones_like(part), part), (votes, labels, sample_weights, voter_mask, factor)
    )
    unknown = ~jnp.isfinite(margin)
    margin = jnp.where(bad | unknown, 1.0, margin)
    bad |= unknown
    shares = normalised(sample_weights, votes.shape[0], dtype)
    margins = jnp.where(voter_mask, voter_margins(votes, labels, shares), 0.0)
    bound = 1 / jnp.sum(voter_mask).astype(dtype)
    mu_max = jnp.sum(jnp.abs(margins)) * bound
    rounding = ROUNDING * jnp.finfo(dtype).eps
    feasible = (margin > 0) & (margin <= mu_max * (1 + rounding))
    at_most = margin >= mu_max * (1 - rounding)

    # At mu_max every voter with a margin is at its bound, and only those without one are left to choose.
    idle = jnp.abs(margins) <= rounding * mu_max
    free = voter_mask & (idle | ~at_most)
    skip = bad | ~feasible
    # What the factor leaves out of the votes is projected away under these sample weights, so that it changes the
    # second moment by its square only: F = Q' V, with V the votes scaled by the roots of the shares.
    root = jnp.sqrt(jax.lax.stop_gradient(shares))
    orthogonal = orthonormal_columns(root[:, None] * factor.left)
    rows = (root[:, None] * orthogonal).T @ votes
    if turn:
        # A factor of more voters spans directions in which those left can only cancel: turned so that F's rows there
        # are zero, they cost no digits.
        rotation, singular, right = thin_svd(jnp.where(voter_mask, rows, 0.0))
        orthogonal, rows = orthogonal @ rotation, singular[:, None] * right
    problem = qp.BoxQP(
        factor=rows,
        dual_target=orthogonal.T @ (root * labels),
        normal=jnp.where(at_most & idle, 0.0, margins),
        tau=jnp.clip(jnp.where(skip, 0.5, margin / mu_max), jnp.finfo(dtype).tiny, 1.0),
        free=free,
        fixed=jnp.where(free | ~voter_mask, 0.0, jnp.sign(margins)),
        skip=skip | ~jnp.any(free),
    )
    lead = rows.shape[0] if lead is None else lead
    solution = _solve(solver, lead, votes, shares, margins, margin, bound, jax.lax.stop_gradient(problem))
    weights = solution.x
    residual = _kkt_residual(
        *jax.lax.stop_gradient((votes, labels, shares, margins, margin, bound, free, orthogonal, solution)),
        dual_target=jax.lax.stop_gradient(problem.dual_target),
    )
    status = jnp.where(residual <= accuracy(dtype), Status.SOLVED, Status.MAX_ITERATIONS)
    status = jnp.where(bad, Status.BAD_INPUT, jnp.where(feasible, status, Status.INFEASIBLE)).astype(jnp.int32)
    solved = status == Status.SOLVED
    weights = jnp.where(solved, jnp.where(voter_mask, weights, 0.0), jnp.nan)
    # The bound is computed from safe weights, so that a failed lane sends no NaN into the gradients of the others.
    bound_value = c_bound(votes, labels, jnp.where(solved, weights, 0.0), sample_weights=shares)
    return MinCqSolution(
        weights=weights,
        posterior=jnp.where(voter_mask, (weights + bound) / 2, jnp.where(solved, 0.0, jnp.nan)),
        status=status,
        kkt_residual=jnp.where(bad | ~feasible, jnp.nan, residual),
        iterations=solution.iterations,
        c_bound=jnp.where(solved, bound_value, jnp.nan),
        mu_max=jnp.where(bad, jnp.nan, mu_max),
    )


def _kkt_residual(
    votes: Array,
    labels: Array,
    shares: Array,
    margins: Array,
    margin: Array,
    bound: Array,
    free: Array,
    orthogonal: Array,
    solution: qp.BoxQPSolution,
    *,
    dual_target: Array,
) -> Array:
    """How far the weights are from optimal, on the votes themselves and not on their factor.

    For any z over the sample and any y, y mu - |z|^2 / 2 - 1/n sum_j |(V' z - y m)_j| is a lower bound on w'Mw / 2,
    with V the votes scaled by the roots of the shares. The solver's dual vector z = Q (zeta + y q) is such a z, and
    splitting the labels into Q q and the rest keeps V' z - y m from cancelling.
    """
    weights, zeta, multiplier, _ = solution
    root = jnp.sqrt(shares)
    fitted = orthogonal @ dual_target
    gradient = (root * (orthogonal @ zeta + multiplier * (fitted - root * labels))) @ votes
    z = zeta + multiplier * dual_target
    primal = shares @ (votes @ weights) ** 2 / 2
    least = jnp.sum(jnp.where(free, -bound * jnp.abs(gradient), gradient * weights))
    gap = jnp.abs(primal - (multiplier * margin - z @ z / 2 + least)) / primal
    equality = jnp.abs(margins @ weights - margin) / margin
    excess = jnp.max(jnp.abs(weights)) / bound - 1
    return jnp.maximum(jnp.maximum(gap, equality), excess)
