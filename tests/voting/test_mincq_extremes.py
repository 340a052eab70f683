"""Votes and margins at the edge of the floating-point range and precision."""

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from experiments.run.problems import HARD_KINDS, random_problem
from experiments.studies.solver_fuzz import verdicts
from pvmincq_jax.voting.batch import problem_of_parts
from pvmincq_jax.voting.rounding import unit_scale
from tests.problems import clarabel_objective, kernel


def stumps(seed: int, points: int, voters: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Of normal points, whose first feature tells the classes apart, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(points, features))
    labels = np.sign(x[:, 0] + rng.normal(size=points))
    chosen, thresholds = rng.integers(0, features, voters), rng.normal(size=voters)
    return np.where(x[:, chosen] > thresholds, 1.0, -1.0), labels


@pytest.mark.parametrize("seed", [23, 33, 1016, 1021])
def test_stumps_next_to_the_largest_margin_take_few_steps(seed: int) -> None:
    """Without recentring, the first two seeds go round in circles at .9995 mu_max."""
    for points, voters in ((120, 60), (60, 150)):
        votes, labels = stumps(seed, points, voters, 5)
        margins = votes.T @ labels / points
        for fraction in (0.999, 0.9995):
            found = pvm.mincq(votes, labels, fraction * np.mean(np.abs(margins)))
            assert found.status == pvm.Status.SOLVED
            assert found.iterations <= 40
            objective = np.mean((votes @ found.weights) ** 2) / (margins @ found.weights) ** 2
            assert objective == pytest.approx(clarabel_objective(votes / np.sqrt(points), margins, fraction), rel=1e-6)


def gaussian_sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(30, 2))
    return kernel(points, points[:20], 0.7), np.sign(points[:, 0] + 0.3)


@pytest.mark.parametrize("exponent", [-900, -600, 40, 990])
def test_the_size_of_votes_does_not_matter(exponent: int) -> None:
    """Powers of 2 are exact: the weights are the same bits."""
    votes, labels = gaussian_sample()
    size = np.ldexp(1.0, exponent)
    mu = 0.4 * float(pvm.max_margin(votes, labels))
    jitted = jax.jit(lambda votes, mu: pvm.mincq(votes, labels, mu))
    for learn in (lambda votes, mu: pvm.mincq(votes, labels, mu), jitted):
        expected, found = learn(votes, mu), learn(votes * size, mu * size)
        assert found.status == pvm.Status.SOLVED
        np.testing.assert_array_equal(found.weights, expected.weights)
        assert found.c_bound == expected.c_bound
        assert found.mu_max == expected.mu_max * size


def test_derivatives_scale_with_the_votes() -> None:
    votes, labels = gaussian_sample()
    size, mu = np.ldexp(1.0, -600), 0.4 * float(pvm.max_margin(votes, labels))

    def total(votes: jax.Array, mu: jax.Array) -> jax.Array:
        return pvm.mincq(votes, labels, mu).weights[:5].sum()

    for expected, found in zip(jax.grad(total, (0, 1))(votes, mu), jax.grad(total, (0, 1))(votes * size, mu * size)):
        np.testing.assert_allclose(found * size, expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))


def test_the_scale_is_a_power_of_two_of_the_voters_that_take_part() -> None:
    votes = np.array([[3e-200, -5e100], [1e-201, 0.0]])
    for mask, largest in (([True, True], 5e100), ([True, False], 3e-200)):
        for scale in (unit_scale(votes, np.array(mask)), jax.jit(unit_scale)(votes, np.array(mask))):
            assert np.frexp(float(scale))[0] == 0.5
            assert 0.5 <= float(scale) * largest < 1
    assert unit_scale(np.zeros((2, 2))) == unit_scale(np.full((2, 2), np.inf)) == 1


@pytest.mark.parametrize("size", [1e-180, 1e180])
def test_grids_take_votes_of_any_size(size: float) -> None:
    votes, labels = gaussian_sample()
    shares, voters, fractions = np.full(30, 1 / 30), np.arange(20), np.array([1e-4, 0.5])
    for sure in (False, True):
        one = problem_of_parts(lambda: [(votes, labels, shares)], voters, fractions, "fraction", sure)
        other = problem_of_parts(lambda: [(size * votes, labels, shares)], voters, fractions, "fraction", sure)
        assert other.mu_max == pytest.approx(size * one.mu_max)
        ratio = other.margins[0] / one.margins[0]
        second, first = (rows.T @ rows for rows in (one.sample.rows, other.sample.rows))
        np.testing.assert_allclose(first / ratio**2, second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fraction", [0.99999, 0.99998])
def test_single_precision_says_so_where_it_cannot_tell_a_margin_from_the_largest(fraction: float) -> None:
    """Of voters whose margins differ widely, the least second moment falls fast below mu_max."""
    for seed in range(12):
        votes, labels = (part.astype(np.float32) for part in random_problem("unequal", seed, 40, 60)[:2])
        margins = votes.astype(float).T @ labels / 40
        mu = np.float32(fraction * np.mean(np.abs(margins)))
        found = pvm.mincq(votes, labels, mu)
        if found.status == pvm.Status.SOLVED:
            least = clarabel_objective(votes.astype(float) / np.sqrt(40), margins, float(mu / np.mean(np.abs(margins))))
            assert np.mean((votes.astype(float) @ np.asarray(found.weights, float)) ** 2) <= least * mu**2 * (1 + 1e-3)


@pytest.mark.parametrize("kind", ["gaussian", "stumps", "signed"])
def test_single_precision_solves_ordinary_problems(kind: str) -> None:
    for seed in range(4):
        votes, labels = (part.astype(np.float32) for part in random_problem(kind, seed, 60, 40)[:2])
        for fraction in (0.05, 0.3, 0.9, 0.97, 1.0):
            assert pvm.mincq(votes, labels, fraction * pvm.max_margin(votes, labels)).status == pvm.Status.SOLVED


@pytest.mark.parametrize("door", ["traced", "eager", pytest.param("captured", marks=pytest.mark.long)])
def test_hard_problems_are_solved_and_proved_optimal(door: str) -> None:
    """Very wide kernels at 1e-4 mu_max; below, the votes' own rounding may matter."""
    fractions = np.array([1e-4, 0.01, 0.5, 0.97, 0.999, 1 - 1e-7, 1.0])
    problems = [random_problem(kind, seed, 30, 40) for kind in HARD_KINDS for seed in range(2)]
    found = verdicts(door, problems, fractions)
    assert [verdict for line in found for verdict, _ in line] == ["proved"] * (len(problems) * len(fractions))
