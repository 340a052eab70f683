"""Pure functions give the same inside jit and outside, and what NumPy computes from their equations."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import pvmincq_jax as pvm

RNG = np.random.default_rng(3)
POINTS, LABELS = RNG.normal(size=(40, 2)), np.where(RNG.random(40) < 0.5, 1.0, -1.0)
CENTERS = RNG.normal(size=(12, 2))
VOTES = np.exp(-np.sum((POINTS[:, None] - CENTERS) ** 2, axis=-1))
WEIGHTS = RNG.uniform(-1, 1, 12) / 12
VALUES = VOTES @ WEIGHTS


class WithAndWithoutJit(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_votes(self):
        votes = self.variant(pvm.rbf_votes)(jnp.asarray(POINTS), jnp.asarray(CENTERS), 1.0)
        np.testing.assert_allclose(votes, VOTES, rtol=1e-12)

    @chex.variants(with_jit=True, without_jit=True)
    def test_moments_and_risks(self):
        expected = {
            pvm.gibbs_risk: (1 - np.mean(LABELS * VALUES)) / 2,
            pvm.vote_risk: np.mean(LABELS * VALUES <= 0),
            pvm.c_bound: 1 - max(np.mean(LABELS * VALUES), 0) ** 2 / np.mean(VALUES**2),
        }
        for function, value in expected.items():
            result = self.variant(function)(jnp.asarray(VOTES), jnp.asarray(LABELS), jnp.asarray(WEIGHTS))
            np.testing.assert_allclose(result, value, rtol=1e-12)

    @chex.variants(with_jit=True, without_jit=True)
    def test_mincq(self):
        """Feasible, certified, and as good as what SciPy finds."""
        mu_max = np.mean(np.abs(VOTES.T @ LABELS / 40))
        found = self.variant(pvm.mincq)(jnp.asarray(VOTES), jnp.asarray(LABELS), 0.3 * mu_max)
        weights = np.asarray(found.weights)
        assert int(found.status) == pvm.Status.SOLVED
        np.testing.assert_allclose(np.mean(LABELS * (VOTES @ weights)), 0.3 * mu_max, rtol=1e-7)
        assert np.all(np.abs(weights) <= (1 + 1e-9) / 12)
        margins, second = LABELS @ VOTES / 40, VOTES.T @ VOTES / 40
        other = minimize(
            lambda w: 1e4 * w @ second @ w,
            0.3 * np.sign(margins) / 12,
            jac=lambda w: 2e4 * second @ w,
            bounds=[(-1 / 12, 1 / 12)] * 12,
            constraints={"type": "eq", "fun": lambda w: margins @ w - 0.3 * mu_max, "jac": lambda w: margins},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert other.success
        np.testing.assert_allclose(weights @ second @ weights, other.fun / 1e4, rtol=1e-6)

    @chex.variants(with_jit=True, without_jit=True)
    def test_gradient_of_the_c_bound(self):
        first, second = LABELS @ VOTES / 40, VOTES.T @ VOTES / 40
        weights = first / 10  # of a margin above 0
        arguments = jnp.asarray(VOTES), jnp.asarray(LABELS), jnp.asarray(weights)
        gradient = self.variant(jax.grad(pvm.c_bound, argnums=2))(*arguments)
        mean, square = first @ weights, weights @ second @ weights
        expected = -2 * mean * first / square + 2 * mean**2 * (second @ weights) / square**2
        np.testing.assert_allclose(gradient, expected, rtol=1e-9)
