"""MinCq without compiling, to three digits and to nine: every kind of problem beside Clarabel, an honest residual."""

import numpy as np
import pytest

from pvmincq_jax.voting.coarse import COARSE, coarse_weights, exact_weights
from tests.problems import FRACTIONS, KINDS, clarabel_objective, moments, random_problem

SEEDS = range(6)


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_clarabel(kind: str) -> None:
    for seed in SEEDS:
        problem = random_problem(kind, seed)
        root, margins, _ = moments(problem)
        second, largest = root.T @ root, np.mean(np.abs(margins))
        fractions = [fraction for fraction in FRACTIONS if fraction >= 1e-2]
        weights, residual = coarse_weights(second, margins, largest * np.array(fractions))
        assert np.all(residual <= COARSE)
        assert np.all(np.abs(weights) <= (1 + residual[:, None]) / len(margins))
        np.testing.assert_allclose(weights @ margins, largest * np.array(fractions), rtol=COARSE)
        for own, fraction, error in zip(weights, fractions, residual):
            objective = np.sum((root @ own) ** 2) / (fraction * largest) ** 2
            least = clarabel_objective(root, margins, fraction)
            # An equality that is missed by the residual moves the objective by about twice that much, and by more next
            # to mu_max.
            assert abs(objective / least - 1) <= (4 * error + 1e-6 if fraction <= 0.9 else 2 * COARSE)


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_factor_it_is_exact(kind: str) -> None:
    """From small margins to mu_max itself. What is feasible, and how good it is, is computed here from the votes."""
    for seed in range(2):
        root, margins, _ = moments(random_problem(kind, seed))
        fractions = np.array([fraction for fraction in FRACTIONS if fraction >= 1e-4])
        mus = fractions * np.mean(np.abs(margins))
        weights, residual = exact_weights(root, margins, mus)
        assert np.all(residual <= 1e-7)
        assert np.all(np.abs(weights) <= (1 + 1e-7) / len(margins))
        np.testing.assert_allclose(weights @ margins, mus, rtol=1e-7)
        for own, fraction, mu in zip(weights, fractions, mus):
            if fraction >= 0.01:
                least = clarabel_objective(root, margins, fraction)
                assert np.sum((root @ own) ** 2) / mu**2 == pytest.approx(least, rel=2e-6)


def test_a_slack_box_is_left_alone() -> None:
    """Where the box holds the least vote of all, that is the answer, at every such margin."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(80, 12))
    margins = rng.uniform(0.5, 1.0, 12)
    free = np.linalg.solve(root.T @ root, margins)
    free /= margins @ free
    slack = 1 / (12 * np.max(np.abs(free)))
    mus = slack * np.array([0.1, 0.5, 0.99])
    weights, residual = coarse_weights(root.T @ root, margins, mus)
    np.testing.assert_allclose(weights, mus[:, None] * free, rtol=1e-5)
    assert np.all(residual < 1e-4)


@pytest.mark.parametrize("rank", [3, 150])
def test_the_rank_changes_the_way_and_not_the_answer(rank: int) -> None:
    """Below half of the voters steps are taken in the rank, above it in the voters."""
    rng = np.random.default_rng(rank)
    root = rng.normal(size=(rank, 200)) / 14
    margins = root.T @ rng.normal(size=rank) / np.sqrt(rank)
    mus = np.mean(np.abs(margins)) * np.array([0.3, 0.8])
    weights, residual = coarse_weights(root.T @ root, margins, mus)
    assert np.all(residual <= COARSE)
    for own, fraction, mu in zip(weights, (0.3, 0.8), mus):
        least = clarabel_objective(root, margins, fraction)
        assert np.sum((root @ own) ** 2) / mu**2 == pytest.approx(least, rel=2e-3)
