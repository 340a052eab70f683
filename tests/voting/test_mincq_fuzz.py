"""Every feasible problem is solved: kinds of voters, sizes and margins up to mu_max itself, beside Clarabel."""

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from tests.problems import FRACTIONS, KINDS, clarabel_objective, moments, random_problem


@jax.jit
@jax.vmap
def solve(votes, labels, sample_weights, voter_mask, margins):
    """Problems in lanes, and for each its margins."""
    return jax.vmap(
        lambda margin: pvm.mincq(votes, labels, margin, sample_weights=sample_weights, voter_mask=voter_mask)
    )(margins)


def check(count: int, voters: int, seeds: range) -> None:
    for kind in KINDS:
        problems = [random_problem(kind, seed, count, voters) for seed in seeds]
        parts = [moments(problem) for problem in problems]
        solution = solve(
            np.stack([p.votes for p in problems]),
            np.stack([p.labels for p in problems]),
            np.stack([np.ones(count) if p.sample_weights is None else p.sample_weights for p in problems]),
            np.stack([np.ones(voters, bool) if p.voter_mask is None else p.voter_mask for p in problems]),
            np.stack([np.mean(np.abs(margins)) * np.array(FRACTIONS) for _, margins, _ in parts]),
        )
        np.testing.assert_array_equal(solution.status, pvm.Status.SOLVED, err_msg=kind)
        for problem, (root, margins, _), lanes in zip(problems, parts, np.asarray(solution.weights)):
            for fraction, weights in zip(FRACTIONS, lanes):
                mu = fraction * np.mean(np.abs(margins))
                active = weights if problem.voter_mask is None else weights[problem.voter_mask]
                assert abs(margins @ active - mu) <= 1e-7 * mu
                assert np.max(np.abs(active)) * len(active) <= 1 + 1e-8
                objective = np.sum((root @ active) ** 2) / mu**2
                other = clarabel_objective(root, margins, fraction)
                assert objective <= other * (1 + 1e-6), (kind, fraction)
                if fraction >= 0.1:  # below, it is Clarabel that is not exact
                    assert objective >= other * (1 - 1e-6), (kind, fraction)


def test_a_sample_of_every_kind_is_solved() -> None:
    check(40, 60, range(1))


@pytest.mark.long
@pytest.mark.parametrize("count", [40, 60, 120])
@pytest.mark.parametrize("voters", [40, 150])
def test_thousands_are_solved(count: int, voters: int) -> None:
    check(count, voters, range(100, 108))
