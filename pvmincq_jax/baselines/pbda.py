"""PBDA: the PAC-Bayesian domain adaptation of Germain, Habrard, Laviolette and Morvant (2013), in kernel form.

A Gaussian posterior over linear classifiers in the kernel's feature space, centred on sum_i alpha_i k(x_i, .), trades
its Gibbs risk on the source against how differently its classifiers disagree on the two domains. The cost is the one
of the publication, start at alpha = y / N (0 on the target) included, with L-BFGS as the optimiser.

What is ours: the optimiser works in coordinates beta = F' alpha with K = F F', F an eigenvector factor without the
directions below `SMALLEST` of the largest eigenvalue. The cost at beta is the cost at alpha, its regulariser becomes
1/2 |beta|^2, and an evaluation costs N r instead of N^2. The disagreement makes the cost non-convex; the published
start is the only one, so what is found is a minimum near it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import erf

from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.baselines._form import KernelModel, Sample, kernel_decision, prepare, rbf_kernel, read_params

__all__ = ["GRID", "VALIDATION", "PbdaModel", "PbdaParams", "cost", "decision", "fit", "fit_grid"]

MOST_STEPS = 50
SHORTEST_STEP = 1e-4
SMALLEST = 1e-6
# Shapes are rounded up, so that folds and grids of nearly one size share a compiled program.
_RANKS = 64
_LANES = 9


class PbdaParams(NamedTuple):
    """Parameters of PBDA.

    Attributes:
      gamma: of the Gaussian kernel.
      risk: C, the weight of the source risk.
      disagreement: A, the weight of the domain disagreement.
    """

    gamma: float
    risk: float
    disagreement: float


class PbdaModel(NamedTuple):
    """PBDA's expansion, with the cost that it reached.

    Attributes:
      kernel: the classifier, an expansion over source and target.
      cost: scalar.
    """

    kernel: KernelModel
    cost: np.ndarray


GRID = [
    PbdaParams(gamma, risk, disagreement)
    for risk in (0.01, 1.0, 10.0)
    for gamma in (0.5, 2.0, 8.0)
    for disagreement in (0.01, 1.0, 10.0)
]
VALIDATION = "reverse"


def _phi(margin: Array) -> Array:
    return (1 - erf(margin / jnp.sqrt(2.0))) / 2


def _objective(
    at_source: Array, at_target: Array, squared_norm: Array, labels: Array, risk: Array, disagreement: Array
) -> Array:
    """The cost, given the margins without labels on both domains."""
    on_source, on_target = _phi(at_source), _phi(at_target)
    margin = labels * at_source
    # Where Phi is convex, on the right of 0, it is itself; on the left, its tangent at 0. Phi(-x) is 1 - Phi(x), which
    # saves most of the work: the error function is what costs.
    convex = jnp.where(
        margin >= 0, jnp.where(labels > 0, on_source, 1 - on_source), 0.5 - margin / jnp.sqrt(2 * jnp.pi)
    )
    gap = jnp.sum(2 * on_target * (1 - on_target)) - jnp.sum(2 * on_source * (1 - on_source))
    return risk * jnp.sum(convex) + disagreement * jnp.abs(gap) + squared_norm / 2


def cost(alpha: ArrayLike, kernel: ArrayLike, labels: ArrayLike, risk: ArrayLike, disagreement: ArrayLike) -> Array:
    """PBDA's cost of the expansion's coefficients.

    C sum_S Phi_cvx(y_i K_i alpha / sqrt K_ii) + A |sum_T Phi_dis - sum_S Phi_dis| + 1/2 alpha' K alpha, with
    Phi(x) = 1/2 (1 - erf(x / sqrt 2)), Phi_cvx(x) = max(Phi(x), 1/2 - x / sqrt(2 pi)), and the disagreements
    Phi_dis(x) = 2 Phi(x) Phi(-x) at K_i alpha / sqrt K_ii.

    Args:
      alpha: ``[m_s + m_t]``, source points first.
      kernel: K ``[m_s + m_t, m_s + m_t]``.
      labels: ``[m_s]`` in {-1, +1}.
      risk: C.
      disagreement: A.

    Returns:
      A scalar.

    Example:
      >>> print(cost(jnp.zeros(2), jnp.eye(2), jnp.ones(1), 3.0, 1.0))
      1.5
    """
    alpha, kernel, labels = jnp.asarray(alpha), jnp.asarray(kernel), jnp.asarray(labels)
    at = kernel @ alpha
    margins = at / jnp.sqrt(jnp.diagonal(kernel))
    m_s = labels.shape[0]
    return _objective(margins[:m_s], margins[m_s:], alpha @ at, labels, jnp.asarray(risk), jnp.asarray(disagreement))


def _minimise(factor: Array, labels: Array, risk: Array, disagreement: Array, start: Array) -> tuple[Array, Array]:
    """L-BFGS from one start; returns beta ``[r]`` and its cost."""
    m_s = labels.shape[0]

    def value(beta: Array) -> Array:
        margins = factor @ beta
        return _objective(margins[:m_s], margins[m_s:], beta @ beta, labels, risk, disagreement)

    solver = optax.lbfgs(
        linesearch=optax.scale_by_backtracking_linesearch(
            max_backtracking_steps=5, decrease_factor=0.25, store_grad=True
        )
    )
    value_and_gradient = optax.value_and_grad_from_state(value)

    def step(carry: tuple) -> tuple:
        beta, state, number, _ = carry
        level, gradient = value_and_gradient(beta, state=state)
        updates, state = solver.update(gradient, state, beta, value=level, grad=gradient, value_fn=value)
        moved = optax.apply_updates(beta, updates)
        return moved, state, number + 1, jnp.max(jnp.abs(updates))

    def going(carry: tuple) -> Array:
        return (carry[2] < MOST_STEPS) & (carry[3] > SHORTEST_STEP)

    beta, *_ = jax.lax.while_loop(going, step, (start, solver.init(start), 0, jnp.asarray(jnp.inf, start.dtype)))
    return beta, value(beta)


@jax.jit
def _minimise_grid(
    factor: Array, labels: Array, risks: Array, disagreements: Array, starts: Array
) -> tuple[Array, Array]:
    """Over the grid ``[g]``, each from its start ``[g, r]``: betas ``[g, r]``, costs ``[g]``."""
    return jax.vmap(_minimise, (None, 0, 0, 0, 0))(factor, labels, risks, disagreements, starts)


def _factor(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F ``[N, r]`` with F F' = K up to `SMALLEST`, and its left inverse's transpose ``[N, r]``: alpha from beta."""
    values, vectors = np.linalg.eigh(kernel)
    large = np.flatnonzero(values > SMALLEST * values[-1])
    rank = -(-large.size // _RANKS) * _RANKS
    factor, back = np.zeros((2, kernel.shape[0], rank))
    factor[:, : large.size] = vectors[:, large] * np.sqrt(values[large])
    back[:, : large.size] = vectors[:, large] / np.sqrt(values[large])
    return factor, back


def _fit_gamma(sample: Sample, labels: np.ndarray, grid: Sequence[PbdaParams]) -> list[PbdaModel]:
    """All points of the grid with one gamma; `labels` are in canonical order, ``[g, m_s]``."""
    points = np.concatenate([sample.source, sample.target])
    kernel = rbf_kernel(points, points, grid[0].gamma)
    factor, back = _factor(kernel)
    starts = labels @ factor[: labels.shape[1]] / points.shape[0]
    models = []
    lanes = _LANES if len(grid) > 1 else 1
    for begin in range(0, len(grid), lanes):
        rows = np.minimum(np.arange(begin, begin + lanes), len(grid) - 1)
        betas, costs = _minimise_grid(
            jnp.asarray(factor),
            jnp.asarray(labels[rows]),
            jnp.asarray([float(grid[row].risk) for row in rows]),
            jnp.asarray([float(grid[row].disagreement) for row in rows]),
            jnp.asarray(starts[rows]),
        )
        for beta, reached in list(zip(np.asarray(betas), np.asarray(costs)))[: len(grid) - begin]:
            expansion = KernelModel(points, back @ beta, np.zeros(()), np.asarray(float(grid[0].gamma)))
            models.append(PbdaModel(expansion, np.asarray(reached)))
    return models


def fit_grid(
    source: ArrayLike, labels: ArrayLike, target: ArrayLike, grid: Sequence[PbdaParams | dict], seed: int = 0
) -> list[PbdaModel]:
    """Trains the whole grid at once, vmapped over its points.

    Args:
      source: ``[m_s, d]``.
      labels: ``[m_s]``, or ``[g, m_s]`` with the labels of each point of the grid.
      target: ``[m_t, d]``.
      grid: g parameters.
      seed: not used; nothing is random.

    Returns:
      g models.
    """
    read = [read_params(PbdaParams, params) for params in grid]
    # Equal points with different labels could come in either order; theirs is the order of the labels, grid point by
    # grid point, which only matters between equal points and so changes nothing.
    each = np.broadcast_to(np.asarray(labels, dtype=float), (len(read), np.shape(labels)[-1]))
    samples = [prepare(source, own, target) for own in each]
    models: dict[int, PbdaModel] = {}
    with jax.enable_x64(True):
        for gamma in dict.fromkeys(params.gamma for params in read):
            rows = [row for row, params in enumerate(read) if params.gamma == gamma]
            own = np.stack([samples[row].labels for row in rows])
            fitted = _fit_gamma(samples[rows[0]], own, [read[row] for row in rows])
            models.update(zip(rows, fitted))
    return [models[row] for row in range(len(read))]


def fit(source: ArrayLike, labels: ArrayLike, target: ArrayLike, params: PbdaParams | dict, seed: int = 0) -> PbdaModel:
    """Minimises `cost` over alpha.

    Args:
      source: ``[m_s, d]``.
      labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``.
      params: `PbdaParams`.
      seed: not used; nothing is random.

    Returns:
      A `PbdaModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, np.array([[0.1], [0.9]]), PbdaParams(1.0, 1.0, 1.0))
      >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
      [-1.  1.]
    """
    return fit_grid(source, labels, target, [params], seed)[0]


def decision(model: PbdaModel, x: ArrayLike) -> np.ndarray:
    """PBDA's values at points ``[m, d]``, whose sign is the class ``[m]``."""
    return kernel_decision(model.kernel, x)
