"""The quadratic program of MinCq on jaxopt's BoxOSQP. This is the only file that imports jaxopt."""

import warnings

import jax.numpy as jnp

from pvmincq_jax.voting.factor import loop_on_cpu
from pvmincq_jax.voting.qp import BoxQP, BoxQPSolution

__all__: list[str] = []

# BoxOSQP's steps: so many, or as many as take a minute or two, since a step costs n^2.
_OSQP_STEPS = 20_000
_OSQP_WORK = 2_000_000_000


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
    F, a = problem.factor.astype(dtype), problem.normal.astype(dtype)
    fixed = problem.fixed.astype(dtype)
    hessian = F.T @ F
    hessian_scale, normal_scale = jnp.linalg.norm(hessian), jnp.linalg.norm(a)
    level = problem.tau.astype(dtype) * jnp.sum(jnp.abs(a)) / normal_scale
    low = jnp.concatenate([level[None], jnp.where(problem.free, -1.0, fixed)])
    high = jnp.concatenate([level[None], jnp.where(problem.free, 1.0, fixed)])
    rows = jnp.concatenate([(a / normal_scale)[None], jnp.eye(a.shape[0], dtype=dtype)])
    steps = max(1000, min(_OSQP_STEPS, _OSQP_WORK // a.shape[0] ** 2))
    solver = BoxOSQP(eq_qp_solve="lu", tol=1e-9 if dtype == jnp.float64 else 1e-5, maxiter=steps, implicit_diff=False)
    params, state = solver.run(
        params_obj=(hessian / hessian_scale, jnp.zeros_like(a)), params_eq=rows, params_ineq=(low, high)
    )
    x = jnp.where(problem.free, jnp.clip(params.primal[0], -1.0, 1.0), fixed)
    # BoxOSQP's multipliers y satisfy Q x + A' y = 0.
    multiplier = -params.dual_eq[0] * hessian_scale / normal_scale
    x = jnp.where(problem.skip, fixed, x)
    zeta = F @ x - problem.dual_target * multiplier
    kind = problem.factor.dtype
    iterations = jnp.where(problem.skip, 0, state.iter_num).astype(jnp.int32)
    return BoxQPSolution(x.astype(kind), zeta.astype(kind), multiplier.astype(kind), iterations)
