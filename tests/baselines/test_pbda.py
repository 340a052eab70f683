"""PBDA's cost by hand, its gradient by finite differences, and its minimum by another optimiser."""

import math

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr as norm_cdf
from threadpoolctl import threadpool_limits

from pvmincq_jax.baselines import pbda
from pvmincq_jax.baselines._form import rbf_kernel
from pvmincq_jax.datasets import moons_task


def test_cost_by_hand():
    # Two source points with labels + and -, one target point, K = I: margins are beta = (1, 1, 0.5).
    def phi(x):
        return (1 - math.erf(x / math.sqrt(2))) / 2

    risk = phi(1.0) + (0.5 + 1.0 / math.sqrt(2 * math.pi))
    gap = 2 * phi(0.5) * phi(-0.5) - 2 * (2 * phi(1.0) * phi(-1.0))
    norm = (1 + 1 + 0.25) / 2
    problem = pbda._Problem(np.diag([1.0, -1.0, 1.0]), np.array([-1, -1, 1]), 2, 3.0, 0.7)
    value = problem.cost(np.array([1.0, 1.0, 0.5]))
    np.testing.assert_allclose(value, (3.0 * risk + 0.7 * abs(gap) + norm, gap), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_by_finite_differences(seed):
    rng = np.random.default_rng(seed)
    factor, beta = rng.normal(size=(9, 4)), rng.normal(size=4)
    problem = pbda._Problem(factor, np.repeat([-1.0, 1.0], [5, 4]), 5, 2.0, 3.0)
    *_, pull, slopes = problem.parts(beta)
    step = 1e-6 * np.eye(4)
    other = [(np.array(problem.parts(beta + e)[:2]) - np.array(problem.parts(beta - e)[:2])) / 2e-6 for e in step]
    np.testing.assert_allclose(beta + pull @ factor[:5], np.array(other)[:, 0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(slopes @ factor, np.array(other)[:, 1], rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 1, per_class=20, test_size=200)


@pytest.fixture(scope="module", params=["30", pytest.param("50", marks=pytest.mark.long)])
def fitted(request):
    """Points of the grid with kinks and several minima, on a task in canonical order."""
    task = moons_task(request.param, 3, per_class=30, test_size=200)
    order = np.lexsort(task.source.T[::-1])
    grid = [params for params in pbda.GRID if params.risk >= 1 and params.disagreement >= 1 and params.gamma < 8]
    models = pbda.fit_grid(task.source, task.source_labels, task.target, grid, 0)
    return task.source_labels[order], grid, models


def _value_and_gradient(alpha, kernel, labels, risk, disagreement):
    """The published cost with its gradient in alpha, for a kernel of diagonal 1, written apart from the package's."""
    at = kernel @ alpha
    phi, m_s = norm_cdf(-labels * at[: len(labels)]), len(labels)
    density, both = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi), norm_cdf(at) * norm_cdf(-at)
    gap = 2 * np.sum(both[m_s:]) - 2 * np.sum(both[:m_s])
    pull = (
        2 * disagreement * np.sign(gap) * density * (1 - 2 * norm_cdf(at)) * np.where(np.arange(len(at)) < m_s, -1, 1)
    )
    left = labels * at[:m_s] < 0
    pull[:m_s] -= risk * labels * np.where(left, 1 / np.sqrt(2 * np.pi), density[:m_s])
    hinge = np.where(left, 0.5 - labels * at[:m_s] / np.sqrt(2 * np.pi), phi)
    return risk * np.sum(hinge) + disagreement * abs(gap) + alpha @ at / 2, kernel @ pull + at


def test_reaches_what_scipy_reaches_from_the_same_start(fitted):
    labels, grid, models = fitted
    better = 0
    for params, model in zip(grid, models):
        kernel = rbf_kernel(model.kernel.centers, model.kernel.centers, params.gamma)
        start = np.concatenate([labels, np.zeros(len(kernel) - len(labels))]) / len(kernel)
        problem = (kernel, labels, params.risk, params.disagreement)
        options = {"maxiter": 1000, "maxfun": 1000, "ftol": 1e-15, "gtol": 1e-10}
        with threadpool_limits(1):
            other = minimize(_value_and_gradient, start, problem, "L-BFGS-B", jac=True, options=options)
        assert model.cost <= 1.02 * other.fun, params
        better += model.cost < 0.98 * other.fun
        np.testing.assert_allclose(model.cost, _value_and_gradient(model.kernel.weights, *problem)[0], rtol=1e-9)
    # The kink is real: SciPy's optimiser gets stuck on it somewhere.
    assert better > 0


def test_result_is_stationary(fitted):
    """Either the gap is open and the gradient is 0, or it is closed and a multiplier within [-A, A] makes it 0."""
    labels, grid, models = fitted
    closed = 0
    for params, model in zip(grid, models):
        kernel = rbf_kernel(model.kernel.centers, model.kernel.centers, params.gamma)
        alpha = model.kernel.weights
        without = np.asarray(_value_and_gradient(alpha, kernel, labels, params.risk, 0.0)[1])
        pull = np.asarray(_value_and_gradient(alpha, kernel, labels, 0.0, 1.0)[1]) - kernel @ alpha
        gap = (model.cost - _value_and_gradient(alpha, kernel, labels, params.risk, 0.0)[0]) / params.disagreement
        if params.disagreement * gap < 1e-3 * model.cost:
            multiplier = np.clip(-(pull @ without) / (pull @ pull), -params.disagreement, params.disagreement)
            closed += 1
        else:
            multiplier = params.disagreement
        assert np.linalg.norm(without + multiplier * pull) < 0.02 * np.linalg.norm(without - kernel @ alpha), params
    assert 0 < closed < len(grid)


def test_grid_at_once_is_the_grid_one_by_one(task):
    grid = [pbda.PbdaParams(2.0, 1.0, 0.01), pbda.PbdaParams(0.5, 1.0, 0.01), pbda.PbdaParams(2.0, 10.0, 0.01)]
    together = pbda.fit_grid(task.source, task.source_labels, task.target, grid, 0)
    for params, model in zip(grid, together):
        alone = pbda.fit(task.source, task.source_labels, task.target, params, 0)
        assert float(model.kernel.gamma) == params.gamma
        np.testing.assert_allclose(model.cost, alone.cost, rtol=1e-3)
        agree = np.sign(pbda.decision(model, task.test)) == np.sign(pbda.decision(alone, task.test))
        assert np.mean(agree) > 0.98


def test_works_without_64_bit_floats(task):
    with jax.enable_x64(False):
        model = pbda.fit(task.source, task.source_labels, task.target, pbda.PbdaParams(2.0, 1.0, 1.0), 0)
        assert not jax.config.jax_enable_x64
    assert model.kernel.weights.dtype == np.float64
