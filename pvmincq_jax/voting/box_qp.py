"""The quadratic program that MinCq is, by itself: for any factor, normal and bounds. Not in the paper."""

import functools
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._checks import is_traced
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike, Status
from pvmincq_jax.voting import qp
from pvmincq_jax.voting.factor import constant, floating_dtype, thin_svd
from pvmincq_jax.voting.program import Sample, Solver, solve

__all__ = ["BoxQPResult", "solve_box_qp"]


class BoxQPResult(NamedTuple):
    """What `solve_box_qp` returns; a leading axis per vmapped axis.

    Attributes:
      x: the solution ``[n]``; NaN unless SOLVED.
      multiplier: y of the equality: the derivative of the objective |F x|^2 / 2 with respect to the level; NaN unless
        SOLVED.
      objective: |F x|^2 / 2.
      status: a `Status` code.
      kkt_residual: the largest of the relative duality gap, the relative error in the equality, and the relative excess
        over the box. The objective is within that fraction of the least one.
      iterations: steps of the solver.
    """

    x: Array
    multiplier: Array
    objective: Array
    status: Array
    kkt_residual: Array
    iterations: Array


def solve_box_qp(
    factor: ArrayLike,
    normal: ArrayLike,
    level: ArrayLike,
    bound: ArrayLike,
    *,
    start: ArrayLike | None = None,
    solver: Solver = "interior_point",
) -> BoxQPResult:
    """Solves a quadratic program with one equality, a box, and a Hessian that is known by a factor (not in the paper).

    minimise |F x|^2 / 2   subject to   a' x = level,   |x_j| <= bound_j.

    A step costs O(n r^2) at most, where r is the rank of F: it is made for Hessians F'F of low rank. MinCq is this
    program with the votes, scaled by the roots of the sample weights, as F; `mincq` solves it in the same way.

    Works under jit, vmap and grad. Derivatives of every order with respect to factor, normal, level and bound follow
    from the implicit function theorem: they are exact while the set of coordinates at their bounds does not change. A
    problem that is not SOLVED has derivative 0. For several levels, vmap over ``level``; the decomposition of F is then
    computed once.

    SOLVED means a `BoxQPResult.kkt_residual` of at most 1e-7 in float64 and 1e-4 in float32. The gap is relative to the
    objective. If a has a part outside of the row space of F that suffices to reach the level, the least objective is 0,
    nothing is small beside it, and the status is MAX_ITERATIONS.

    Args:
      factor: F ``[r, n]``.
      normal: a ``[n]``.
      level: a scalar with 0 < abs(level) <= sum_j abs(a_j) bound_j; anything else is INFEASIBLE.
      bound: above 0, a scalar or ``[n]``.
      start: a point near the solution, such as the x of a neighbouring level ``[n]``. It changes the number of steps
        and no digit that counts. An interior point gains little from it, about a tenth of its steps from one of 16
        levels to the next, so that a vmap over levels is faster than a sequence.
      solver: as of `mincq`.

    Returns: a `BoxQPResult`.

    Example:
      >>> result = solve_box_qp(np.diag([1.0, 2.0]), np.ones(2), 1.0, 1.0)
      >>> print(Status(int(result.status)).name, [f"{x:.2f}" for x in result.x], f"{result.objective:.2f}")
      SOLVED ['0.80', '0.20'] 0.40
    """
    check_process()
    _checks.check_points("factor", factor)
    _checks.check_length("normal", normal, np.shape(factor)[1], "column of factor")
    _checks.check_finite("normal", normal)
    _checks.check_rank("level", level, 0)
    _checks.check_finite("level", level)
    _checks.check_positive("bound", bound)
    if np.ndim(bound):
        _checks.check_length("bound", bound, np.shape(factor)[1], "column of factor")
    if start is not None:
        _checks.check_length("start", start, np.shape(factor)[1], "column of factor")
        _checks.check_finite("start", start)
    _checks.check_one_of("solver", solver, get_args(Solver))
    dtype = floating_dtype(factor)
    concrete = not is_traced(factor, normal, bound)
    xp: Any = np if concrete else jnp
    F, a, b = (xp.asarray(part, dtype) for part in (factor, normal, bound))
    with np.errstate(over="ignore"):
        finite = xp.isfinite(xp.sum(xp.abs(F))) & xp.isfinite(xp.sum(xp.abs(a))) & xp.all((b > 0) & xp.isfinite(b))
    if concrete and not finite:
        raise ValueError(f"factor, normal and bound must be finite in {dtype}, and bound above 0")
    sample = _sample(xp.where(finite, F * b, 1.0), xp.where(finite, a * b, 1.0))
    level = jnp.asarray(level, dtype)
    if start is not None:
        guess = jnp.where(level < 0, -1, 1) * jnp.asarray(start, dtype) / b
        sample = sample._replace(guess=jax.lax.stop_gradient(jnp.where(jnp.isfinite(guess), guess, 0.0)))
    return _solve(sample, jnp.asarray(finite), jnp.asarray(b), level, solver)


def _sample(factor: Array, normal: Array) -> Sample:
    """The program for a box of 1, in the terms of MinCq: F are the votes, a their margins."""
    xp = np if isinstance(factor, np.ndarray) else jnp
    fixed, a = constant(factor), constant(normal)
    basis, singular, right = thin_svd(fixed)
    rows, size = singular[:, None] * right, xp.abs(a)
    kept = singular > 4 * len(a) * xp.finfo(fixed.dtype).eps * singular[0]
    target = xp.where(kept, right @ a / xp.where(kept, singular, 1.0), 0.0)
    scaled = qp.scaled_rows(rows, target, a)
    return Sample(
        votes=factor,
        labels=basis @ target,
        shares=xp.ones_like(fixed[:, 0]),
        margins=normal,
        mask=xp.ones_like(a, bool),
        basis=basis,
        factor=rows,
        dual_target=target,
        offset=a - target @ rows,
        mu_max=xp.sum(size),
        bound=xp.ones_like(a[0]),
        quick=scaled,
        sure=scaled,
    )


@functools.partial(jax.jit, static_argnames="solver")
def _solve(sample: Sample, finite: Array, bound: Array, level: Array, solver: Solver) -> BoxQPResult:
    """For a level of either sign: by symmetry, -x solves the program of the level -level."""
    finite &= jnp.isfinite(level)
    sign = jnp.where(level < 0, -1.0, 1.0).astype(level.dtype)
    found = solve(sample, jnp.where(finite, sign * level, 0.0), solver, "both")
    solved = found.status == Status.SOLVED

    def known(value: Array) -> Array:
        return jnp.where(solved, value, jnp.nan)

    return BoxQPResult(
        x=known(sign * found.weights * bound),
        multiplier=known(sign * found.multiplier),
        objective=known(jnp.sum((sample.votes @ found.weights) ** 2) / 2),
        status=jnp.where(finite, found.status, int(Status.BAD_INPUT)).astype(jnp.int32),
        kkt_residual=found.kkt_residual,
        iterations=found.iterations,
    )
