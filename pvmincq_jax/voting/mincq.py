"""MinCq (Algorithm 1): the majority vote of least C-bound at a given margin.

With w_j = 2 Q_j - 1/n the linear terms of the paper's program cancel, and it becomes

    minimise w' M w   subject to   m' w = mu,   |w_j| <= 1/n      (equations 5, 6 and 7),

where M is the voters' second-moment matrix and m their margins. ``votes @ w`` is the expected vote under the
posterior over the voters and their complements (h_j with mass Q_j, -h_j with mass 1/n - Q_j).
"""

from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._checks import is_traced
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import AnyArray, Array, ArrayLike, Status
from pvmincq_jax.voting.batch import Problem, Settings, solve_problems
from pvmincq_jax.voting.factor import (
    SmallSample,
    VoteFactor,
    constant,
    floating_dtype,
    is_compiling,
    leading_rank,
    sample_basis,
    vote_factor,
)
from pvmincq_jax.voting.program import (
    ROUNDING,
    SMALL_MARGIN,
    MinCqSolution,
    Solver,
    accuracy,
    prepare,
    prepare_traced,
    solve_prepared,
    voter_margins,
)
from pvmincq_jax.voting.rounding import margin_rounding, unit_scale

__all__ = ["MinCqSolution", "max_margin", "mincq"]


def max_margin(
    votes: ArrayLike, labels: ArrayLike, *, sample_weights: ArrayLike | None = None, voter_mask: ArrayLike | None = None
) -> Array:
    """The largest margin that MinCq (Algorithm 1) can be asked for. Not in the paper, which asks for mu > 0.

    mu_max = 1/n sum_j |E_{(x,y)} y h_j(x)|, reached by w = sign(m) / n alone.

    Args: votes ``[m, n]``, labels ``[m]``, sample_weights ``[m]`` or None, voter_mask ``[n]`` or None, as of `mincq`.

    Returns: a scalar.

    Example:
      >>> print(max_margin(np.array([[1.0, -0.5], [-1.0, 0.5]]), np.array([1.0, -1.0])))
      0.75
    """
    V, y = _check(votes, labels, sample_weights, voter_mask)
    xp: Any = jnp if is_traced(V, y, sample_weights, voter_mask) else np
    margins = xp.abs(voter_margins(V, y, normalised(sample_weights, V.shape[0], V.dtype, xp)))
    return jnp.asarray(xp.mean(margins, where=True if voter_mask is None else xp.asarray(voter_mask, bool)))


def _check(
    votes: ArrayLike, labels: ArrayLike, sample_weights: ArrayLike | None, voter_mask: ArrayLike | None
) -> tuple[AnyArray, ...]:
    """Raises on what can be seen before tracing; returns votes and labels in one floating dtype."""
    check_process()
    _checks.check_points("votes", votes)
    count, voters = np.shape(votes)
    dtype = floating_dtype(votes)
    _checks.check_sample_weights("sample_weights", sample_weights, count, dtype)
    _checks.check_labels("labels", labels, count, soft=True, sample_weights=sample_weights)
    if voter_mask is not None:
        _checks.check_weights("voter_mask", voter_mask, voters)
        if not is_traced(voter_mask) and not np.any(np.asarray(voter_mask)):
            raise ValueError("voter_mask leaves out every voter")
    # What is concrete stays with NumPy: inside jit, JAX would make it traced, and the votes' rank unknown.
    with np.errstate(over="ignore"):
        checked = tuple((jnp if is_traced(part) else np).asarray(part, dtype) for part in (votes, labels))
    if not _checks.on_device(votes):
        # A cast to float32 may overflow.
        _checks.check_finite(f"votes as {dtype}", checked[0])
    return checked


def normalised(sample_weights: ArrayLike | None, count: int, dtype: Any, xp: Any = jnp) -> Array:
    """Sample weights that add up to 1; NaN, with derivative 0, if one is negative or all are 0."""
    if sample_weights is None:
        return xp.full(count, 1 / count, dtype)
    sample_weights = xp.asarray(sample_weights, dtype)
    total = xp.sum(sample_weights)
    good = (xp.min(sample_weights) >= 0) & (total > 0) & xp.isfinite(total)
    safe = xp.where(good, sample_weights, 1.0)
    return xp.where(good, safe / xp.sum(safe), xp.nan)


def mincq(
    votes: ArrayLike,
    labels: ArrayLike,
    margin: ArrayLike,
    *,
    sample_weights: ArrayLike | None = None,
    voter_mask: ArrayLike | None = None,
    solver: Solver = "interior_point",
    factor: VoteFactor | None = None,
    rank: int | None = None,
) -> MinCqSolution:
    """Learns the weights of the majority vote of least C-bound at a given first moment (Algorithm 1).

    min_w w' M w  s.t.  m' w = mu, |w_j| <= 1/n, with M = E_x h(x) h(x)' and m = E_{(x,y)} y h(x).

    Works under jit, vmap and grad, in both modes and to any order: derivatives with respect to votes, labels, sample
    weights and margin follow from the implicit function theorem. They are exact while the set of voters at their bounds
    does not change. Where a voter just reaches or leaves its bound, they are those of one side, or NaN beyond the
    first. At mu_max the weights are held at sign(m) / n, with derivative 0. Where the votes of the voters inside the
    box are linearly dependent (more voters than rank), weights and votes at new points are not determined, and their
    derivative is that of least norm. Votes on the sample, moments and C-bounds are determined there, unless a change of
    the votes ends the dependence. A problem that is not SOLVED has derivative 0. Taking derivatives refines the
    weights, which may differ from those without in the fifth digit.

    In float64 the result is within 1e-8 of optimal as a rule, and SOLVED means 1e-7. In float32 it is within 1e-5 as a
    rule, for margins from 0.05 mu_max on, SOLVED means 1e-4, and derivatives beyond the first, which would have no
    right digit, are NaN: Gaussian Gram matrices want float64.

    Args:
      votes: h_j(x_i), ``[m, n]``.
      labels: in {-1, +1}, or soft in [-1, 1], ``[m]``.
      margin: mu in (0, mu_max], see `max_margin`; a scalar (vmap over it for several).
      sample_weights: non-negative ``[m]``, or None. A point of weight 0 does not count.
      voter_mask: which voters take part ``[n]``, or None for all. The n of the box counts these only.
      solver: "interior_point", or "jaxopt" for BoxOSQP, which is slower and often stops short; it then says so.
      factor: the votes' `vote_factor`, to share between calls. When None, it is computed here: on the host for concrete
        votes, those that a jitted function captures included.
      rank: of that factor, for traced votes, whose rank cannot be measured; min(m, n) when None, which is slow. Take
        ``vote_factor(example).right.shape[0]`` of one vote matrix; where it is too small, the status is not SOLVED.

    Returns: a `MinCqSolution`.

    Example:
      >>> from pvmincq_jax import Status
      >>> votes = np.array([[1.0, 0.2], [0.3, 1.0], [-1.0, 0.1]])
      >>> solution = mincq(votes, np.array([1.0, 1.0, -1.0]), 0.3)
      >>> Status(int(solution.status)).sentence
      'solved to the stated accuracy'
      >>> [f"{weight:.3f}" for weight in solution.weights]
      ['0.293', '0.205']
    """
    V, y = _check(votes, labels, sample_weights, voter_mask)
    _checks.check_rank("margin", margin, 0)
    _checks.check_finite("margin", margin)
    _checks.check_one_of("solver", solver, get_args(Solver))
    _check_factor(factor, rank, *V.shape)
    shares = normalised(sample_weights, V.shape[0], V.dtype, jnp if is_traced(sample_weights) else np)
    mask: Any = np.ones(V.shape[1], bool) if voter_mask is None else voter_mask
    mask = mask if is_traced(mask) else np.asarray(mask, bool)
    unknown = is_traced(V, y, margin, shares, mask)
    if not unknown:
        _check_margin(V, y, float(margin), shares, mask)
    # Of a factor only the directions count, so that it serves scaled votes as it is.
    scale = unit_scale(V, mask)
    V, margin = V * scale, margin * scale
    if unknown or is_traced(factor) or is_compiling():
        solution = _learn_in_jax(V, y, margin, shares, mask, solver, factor, rank)
    else:
        factor = vote_factor(np.where(mask, V, 0.0), sample_weights=shares, rank=rank) if factor is None else factor
        solution = _learn_on_host(V, y, float(margin), shares, mask, solver, factor)
    return solution._replace(mu_max=solution.mu_max / scale)


def _check_margin(votes: AnyArray, labels: AnyArray, margin: float, shares: AnyArray, mask: AnyArray) -> None:
    largest = float(np.mean(np.abs(voter_margins(votes, labels, shares)), where=mask))
    if not np.isfinite(largest):
        raise ValueError(f"votes, labels and sample_weights must be finite in {votes.dtype}; mu_max is {largest:g}")
    if not 0 < margin <= largest * (1 + ROUNDING * float(np.finfo(votes.dtype).eps)):
        raise ValueError(f"margin must be in (0, mu_max], with mu_max = {largest:.6g} here; it is {margin:g}")


def _check_factor(factor: VoteFactor | None, rank: int | None, points: int, voters: int) -> None:
    """A factor of votes ``[points, voters]``, or a rank for one, or neither."""
    if factor is None:
        return
    _checks.check_instance("factor", factor, VoteFactor, "pvmincq_jax.vote_factor")
    if rank is not None:
        raise ValueError(f"rank is of a factor to be computed, and one is given; it is {rank}")
    if factor.left.shape[0] != points or factor.right.shape[1] != voters:
        raise ValueError(
            f"factor is of other votes: it is for {factor.left.shape[0]} points and {factor.right.shape[1]} voters, "
            f"and the votes are {points} x {voters}"
        )


def _learn_in_jax(
    votes: AnyArray,
    labels: AnyArray,
    margin: ArrayLike,
    shares: AnyArray,
    mask: AnyArray,
    solver: Solver,
    factor: VoteFactor | None,
    rank: int | None,
) -> MinCqSolution:
    """`mincq` as a function of JAX, of which any part may be traced.

    Concrete parts are prepared on the host. Inside jit only the program itself is then compiled.
    """
    traced = is_traced(votes, labels, shares, mask, factor)
    if factor is None:
        xp: Any = jnp if is_traced(votes, mask) else np
        active = xp.where(mask, votes, 0.0)
        factor = vote_factor(active, sample_weights=None if is_traced(shares) else shares, rank=rank)
    # Counted here: JAX makes the factor's numbers unknown inside jit.
    lead, turn = leading_rank(factor), is_traced(mask) or not np.all(mask)
    xp = jnp if traced else np
    factor = jax.tree.map(lambda part: constant(xp.asarray(part, votes.dtype)), factor)
    make = prepare_traced if traced else prepare
    sample, bad = make(votes, labels, xp.asarray(shares), xp.asarray(mask), factor, turn, lead)
    return solve_prepared(sample, bad, jnp.asarray(margin, votes.dtype), solver, "both")


def _learn_on_host(
    votes: AnyArray,
    labels: AnyArray,
    margin: float,
    shares: AnyArray,
    mask: AnyArray,
    solver: Solver,
    factor: VoteFactor,
) -> MinCqSolution:
    """`mincq` on concrete input, by the programs that grids use: few, whatever the sizes."""
    dtype, voters, root = votes.dtype, np.flatnonzero(mask), np.sqrt(shares)
    factor = jax.tree.map(lambda part: np.asarray(part, dtype), factor)
    basis = sample_basis(votes, shares, mask, factor, turn=voters.size < mask.size)
    # What the basis lacks of the labels is one more direction, so that the margins of the voters are exact.
    whole = np.linalg.qr(np.column_stack([basis, root * labels]))[0]
    small = SmallSample(whole.T @ (root[:, None] * votes[:, voters]), whole.T @ (root * labels))
    mu_max = float(np.mean(np.abs(voter_margins(votes, labels, shares)[voters])))

    def prepare(_: int, sure: bool) -> Problem:
        sure = sure or margin < SMALL_MARGIN * mu_max
        return Problem(small, voters, np.array([margin]), mu_max, "sure" if sure else "quick")

    ((_, found),) = solve_problems(prepare, 1, Settings(voters.size, dtype, solver))
    assert found is not None
    weights = np.zeros(votes.shape[1], dtype)
    weights[voters] = found.weights[0]
    vote = votes @ weights
    moment = shares @ vote**2
    residual, solved = found.kkt_residual[0], found.status[0] == Status.SOLVED
    if solved:
        # The small sample may lack a part of the votes. Whatever that adds to the second moment adds to the gap.
        residual = residual + np.maximum(moment - np.sum((small.rows @ weights[voters]) ** 2), 0) / moment
        residual = np.maximum(residual, margin_rounding(votes, labels, shares, weights, margin))
    short = solved and not residual <= accuracy(dtype)
    solved = solved and not short
    weights = weights if solved else np.full_like(weights, np.nan)
    fields = {
        "weights": weights,
        "posterior": np.where(mask, (weights + 1 / voters.size) / 2, 0.0 if solved else np.nan),
        "kkt_residual": residual,
        "c_bound": 1 - (shares @ (labels * vote)) ** 2 / moment if solved else np.nan,
        "mu_max": mu_max,
    }
    return MinCqSolution(
        # Unlike `jnp.asarray`, this compiles nothing for a new shape.
        **jax.device_put({name: np.asarray(field, dtype) for name, field in fields.items()}),
        status=jax.device_put(np.int32(Status.MAX_ITERATIONS if short else found.status[0])),
        iterations=jax.device_put(np.int32(found.iterations[0])),
    )
