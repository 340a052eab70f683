"""PBDA's cost by hand, its gradient by finite differences, and its minimum by another optimiser."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from pvmincq_jax.baselines import pbda
from pvmincq_jax.baselines._form import rbf_kernel
from pvmincq_jax.datasets import moons_task


def test_cost_by_hand():
    # Two source points with labels + and -, one target point, K = 4 I: margins are 4 alpha / 2 = 2 alpha = (1, 1, 0.5).
    def phi(x):
        return (1 - math.erf(x / math.sqrt(2))) / 2

    risk = phi(1.0) + (0.5 + 1.0 / math.sqrt(2 * math.pi))
    gap = 2 * phi(0.5) * phi(-0.5) - 2 * (2 * phi(1.0) * phi(-1.0))
    norm = 4 * (0.25 + 0.25 + 0.0625) / 2
    expected = 3.0 * risk + 0.7 * abs(gap) + norm
    value = pbda.cost(np.array([0.5, 0.5, 0.25]), 4 * np.eye(3), np.array([1.0, -1.0]), 3.0, 0.7)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_by_finite_differences(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(9, 2))
    kernel, labels = rbf_kernel(points, points, 0.7), np.sign(rng.normal(size=5))
    alpha = rng.normal(size=9)

    def value(alpha):
        return pbda.cost(alpha, kernel, labels, 2.0, 3.0)

    gradient = jax.grad(value)(jnp.asarray(alpha))
    step = 1e-6
    other = [(value(alpha + step * e) - value(alpha - step * e)) / (2 * step) for e in np.eye(9)]
    np.testing.assert_allclose(gradient, other, rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 1, per_class=20, test_size=200)


def test_reaches_the_minimum_that_scipy_finds(task):
    params = pbda.PbdaParams(2.0, 1.0, 0.01)
    model = pbda.fit(task.source, task.source_labels, task.target, params, 0)
    order = np.lexsort(task.source.T[::-1])
    kernel = rbf_kernel(model.kernel.centers, model.kernel.centers, 2.0)
    labels = task.source_labels[order]
    value_and_grad = jax.jit(jax.value_and_grad(lambda a: pbda.cost(a, kernel, labels, 1.0, 0.01)))
    start = np.concatenate([labels, np.zeros(len(task.target))]) / len(kernel)
    other = minimize(
        lambda a: [np.asarray(v, dtype=float) for v in value_and_grad(a)], start, jac=True, method="L-BFGS-B"
    )
    np.testing.assert_allclose(model.cost, value_and_grad(model.kernel.weights)[0], rtol=1e-4)
    assert model.cost <= other.fun * (1 + 1e-3)


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
