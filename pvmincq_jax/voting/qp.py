"""The quadratic program of MinCq: a box, one equality, a Hessian that is known by a factor.

    minimise 1/2 |F x|^2   subject to   a' x = tau b sum|a|,   |x_j| <= b,

which is MinCq, equations 5 to 7 of the paper, for x = w, F'F = M, a = m and b = 1/n. F is ``[r, n]``, and a in (or very
near) the span of F's rows: a = F' q + e, with q known and e small or zero. The box and the level of the equality grow
with b, and so do the solution and its multipliers: solvers work with b = 1.

Here are the program, its scaling and jaxopt's solver. Ours is in `interior_point`.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array
from pvmincq_jax.voting.factor import array_module, loop_on_cpu

__all__: list[str] = []

# Halvings of the starting point's slope, as factors: to a part in a hundred, the first step sees to the rest.
_HALVINGS = 12
# Rows of F that precondition conjugate gradients: three eighths, but no fewer than the first number, which are all rows
# of wide Gaussian kernels, and no more than the second one. With 64 of 300 rows of narrow kernels, conjugate gradients
# are too slow at margins of 0.01 mu_max, and sure steps have to follow.
_LEADING = 64, 128
# How far the start goes from the analytic centre towards a guess. Its barrier is smaller by as much. From one of 16
# levels to the next this saves a tenth of the steps; a start closer to the guess, which is at its bounds, costs more.
_TRUST = 0.7
# BoxOSQP's steps: so many, or as many as take a minute or two, since a step costs n^2.
_OSQP_STEPS, _OSQP_WORK = 20_000, 2_000_000_000


class BoxQP(NamedTuple):
    """One problem.

    Attributes:
      factor: F ``[r, n]``.
      dual_target: q ``[r]``, with a = F' q + e.
      normal: a ``[n]``.
      tau: where in (0, 1] the equality stands.
      free: which coordinates may move ``[n]``; the others stay at `fixed`.
      fixed: in units of the bound ``[n]``.
      skip: True when there is nothing to solve; the answer is then `fixed`, at once.
      bound: b.
      guess: where the solution may be, in units of the bound ``[n]``; None for no idea.
    """

    factor: Array
    dual_target: Array
    normal: Array
    tau: Array
    free: Array
    fixed: Array
    skip: Array
    bound: Array
    guess: Array | None = None


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


def inner(one: list[Array], other: list[Array]) -> Array:
    """The inner products of vectors, pair by pair ``[k]``.

    As a product of matrices: XLA calls a library for it, where a sum over one vector is three kernels to compile.
    """
    products = jnp.stack(one) @ jnp.stack(other).T
    return jnp.stack([products[i, i] for i in range(len(one))])


class ScaledRows(NamedTuple):
    """What a step reads of F and a, at any margin, in the scale in which sum|a| = 1 and |F sign(a)| = 1.

    In u = x / (tau b) the equality then reads a' u = 1, which u = sign(a) meets, and the objective is of order one
    however small the margin.

    Attributes:
      factor: F ``[r, n]``.
      down: [F; -e'] ``[r + 1, n]``.
      target: (q, -1) ``[r + 1]``.
      normal: a ``[n]``.
      leading: the first rows of F, which precondition the others ``[k, n]``.
      rest: the diagonal of what they leave out of F'F ``[n]``.
      scales: those of F and a.
    """

    factor: Array
    down: Array
    target: Array
    normal: Array
    leading: Array
    rest: Array
    scales: tuple[Array, Array]


class Start(NamedTuple):
    """Where an interior-point method starts, on the central path.

    Attributes:
      u: the analytic centre of the feasible set, or a point between it and a guess ``[n]``.
      multiplier: y.
      box: 1 / tau, the bound of |u_j|.
      binding: 1, or 0 where the equality binds no coordinate that is free: it is then left out, with multiplier 0.
      bounds: how many there are, two for each coordinate that is free.
      barrier: the product of each slack and its multiplier.
    """

    u: Array
    multiplier: Array
    box: Array
    binding: Array
    bounds: Array
    barrier: Array


def _centred(slope: Array) -> Array:
    """The v in (-1, 1) with 1 / (1 - v) - 1 / (1 + v) = slope."""
    return slope / (1 + jnp.sqrt(1 + slope**2))


def _central_slope(a: Array, tau: Array) -> Array:
    """The k for which v = _centred(k a), the analytic centre of |v_j| <= 1 and a' v = tau, meets the latter.

    With sum|a| = 1 it lies between 2 tau, as a' v <= k |a|^2 / 2, and 2 n / (1 - tau), as 1 - |v_j| <= 2 / (k |a_j|).
    """
    high = 2 * a.shape[0] / jnp.maximum(1 - tau, jnp.finfo(a.dtype).eps)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        below = a @ _centred(middle * a) < tau
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jax.lax.fori_loop(0, _HALVINGS, halve, (2 * tau, high))[1]


def scaled_rows(factor: Array, dual_target: Array, normal: Array) -> ScaledRows:
    """F ``[r, n]``, q ``[r]`` and a ``[n]`` as steps read them."""
    xp = array_module(factor)
    factor_scale, normal_scale = xp.linalg.norm(factor @ xp.sign(normal)), xp.sum(xp.abs(normal))
    # Without any margin nothing is solved.
    factor_scale, normal_scale = (xp.where(scale > 0, scale, 1.0) for scale in (factor_scale, normal_scale))
    F, a, q = factor / factor_scale, normal / normal_scale, dual_target * (factor_scale / normal_scale)
    leading = min(max(3 * len(F) // 8, _LEADING[0]), _LEADING[1])
    return ScaledRows(
        factor=F,
        down=xp.concatenate([F, (q @ F - a)[None]]),
        target=xp.concatenate([q, -xp.ones_like(q[:1])]),
        normal=a,
        leading=F[:leading],
        rest=xp.sum(F[leading:] ** 2, axis=0),
        scales=(factor_scale, normal_scale),
    )


def as_varying(tree: Any, like: Array) -> Any:
    """The same values, marked as different between devices where ``like`` is.

    Inside `shard_map` a loop's state must be marked in the same way before and after each step.
    """
    return jax.tree.map(lambda leaf: jnp.where(jnp.any(like), leaf, leaf), tree)


def start(problem: BoxQP, a: Array) -> Start:
    """The analytic centre of the feasible set, or a point between it and a guess, and the multiplier there."""
    number, bound = jnp.stack([problem.free, problem.free & (problem.normal != 0)]) @ jnp.ones_like(a)
    binding, box = jnp.minimum(bound, 1.0), 1 / problem.tau
    slope = _central_slope(a, problem.tau)
    v, bounds = _centred(slope * a), 2 * jnp.maximum(number, 1.0)
    # Products of slack and multiplier that add up to the scale of the objective.
    barrier = 1 / bounds
    if problem.guess is not None:
        v += _TRUST * (jnp.clip(problem.guess, -1.0, 1.0) - v)
        barrier *= 1 - _TRUST
    u = jnp.where(problem.free, v, problem.fixed) * box
    return Start(u, binding * slope * problem.tau, box, binding, bounds, barrier)


@loop_on_cpu
def solve_jaxopt(problem: BoxQP) -> BoxQPSolution:
    """The same problem on jaxopt's BoxOSQP, scaled so that its absolute tolerance means something.

    The Hessian and the equality are divided by their norms. BoxOSQP is a first-order method: on ill-conditioned
    votes it stops at its step limit far from the answer, which the caller's own residual then tells.
    """
    with warnings.catch_warnings():
        # jaxopt is unmaintained, and says so on import.
        warnings.simplefilter("ignore", DeprecationWarning)
        from jaxopt import BoxOSQP

    # BoxOSQP mixes dtypes unless it is given the widest.
    dtype = jnp.result_type(float)
    F, a, fixed = (part.astype(dtype) for part in (problem.factor, problem.normal, problem.fixed))
    hessian = F.T @ F
    hessian_scale, normal_scale = jnp.linalg.norm(hessian), jnp.linalg.norm(a)
    level = problem.tau.astype(dtype) * jnp.sum(jnp.abs(a)) / normal_scale
    bounds = tuple(jnp.append(level, jnp.where(problem.free, side, fixed)) for side in (-1.0, 1.0))
    rows = jnp.concatenate([(a / normal_scale)[None], jnp.eye(a.shape[0], dtype=dtype)])
    steps = max(1000, min(_OSQP_STEPS, _OSQP_WORK // a.shape[0] ** 2))
    solver = BoxOSQP(eq_qp_solve="lu", tol=1e-9 if dtype == jnp.float64 else 1e-5, maxiter=steps, implicit_diff=False)
    params, state = solver.run(
        params_obj=(hessian / hessian_scale, jnp.zeros_like(a)), params_eq=rows, params_ineq=bounds
    )
    x = jnp.where(problem.free & ~problem.skip, jnp.clip(params.primal[0], -1.0, 1.0), fixed)
    # BoxOSQP's multipliers y satisfy Q x + A' y = 0.
    multiplier = -params.dual_eq[0] * hessian_scale / normal_scale
    zeta = F @ x - problem.dual_target * multiplier
    x, zeta, multiplier = (part.astype(problem.factor.dtype) * problem.bound for part in (x, zeta, multiplier))
    return BoxQPSolution(x, zeta, multiplier, jnp.where(problem.skip, 0, state.iter_num).astype(jnp.int32))
