"""DASF's linear program against its dual by another solver, and its pairs against brute force."""

import itertools

import clarabel
import numpy as np
import pytest
from scipy import sparse

from pvmincq_jax.baselines import dasf
from pvmincq_jax.baselines._form import rbf_kernel
from pvmincq_jax.datasets import moons_task


def _value(a, features, labels, penalties):
    return np.mean(np.maximum(0, 1 - labels * (features @ a))) + penalties @ np.abs(a)


@pytest.fixture(scope="module")
def program():
    task = moons_task("30", 1, per_class=30, test_size=200)
    at_source = rbf_kernel(task.source, task.source, 2.0)
    at_target = rbf_kernel(task.target, task.source, 2.0)
    rows, columns = dasf.match_pairs(at_source, at_target, np.random.default_rng(0))
    penalties = 0.01 + 0.001 * np.sum(np.abs(at_source[rows] - at_target[columns]), axis=0)
    return at_source, task.source_labels, penalties


def _lower_bound(features, labels, penalties):
    """The dual, max sum_i u_i with |sum_i u_i y_i phi_ij| <= p_j and 0 <= u_i <= 1/m, by Clarabel's interior point.

    Any feasible u bounds the program from below, so equal values prove that a is optimal.
    """
    m, n = features.shape
    pull = (labels[:, None] * features).T
    rows = sparse.csc_matrix(np.concatenate([pull, -pull, np.eye(m), -np.eye(m)]))
    limits = np.concatenate([penalties, penalties, np.full(m, 1 / m), np.zeros(m)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(2 * n + 2 * m)]
    answer = clarabel.DefaultSolver(sparse.csc_matrix((m, m)), -np.ones(m), rows, limits, cones, settings).solve()
    u = np.clip(np.array(answer.x), 0, 1 / m)
    return np.sum(u / max(1.0, np.max(np.abs(pull @ u) / penalties)))


def test_program_has_no_gap_to_its_dual_by_another_solver(program):
    reached = _value(dasf.solve_program(*program), *program)
    np.testing.assert_allclose(_lower_bound(*program), reached, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_degenerate_programs(seed):
    """Equal points, equal features and features of few values: degenerate vertices."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 3, size=(12, 5)).astype(float)
    features = np.concatenate([features, features[:6]])[:, [0, 1, 2, 3, 4, 0, 1]]
    labels = np.where(rng.random(18) < 0.5, 1.0, -1.0)
    program = features, labels, np.full(7, 10.0 ** -(seed + 1))
    np.testing.assert_allclose(_value(dasf.solve_program(*program), *program), _lower_bound(*program), rtol=1e-6)


def test_program_by_hand():
    # One feature phi = (1, 1) with labels (1, 1): mean hinge max(0, 1 - a) + p |a|, so a = 1 if p < 1, else 0.
    features, labels = np.ones((2, 1)), np.ones(2)
    np.testing.assert_allclose(dasf.solve_program(features, labels, np.array([0.9])), [1.0])
    np.testing.assert_allclose(dasf.solve_program(features, labels, np.array([1.1])), [0.0])


def test_result_is_sparse(program):
    features, labels, penalties = program
    a = dasf.solve_program(features, labels, penalties)
    assert 0 < np.sum(a != 0) <= features.shape[0] // 3
    task = moons_task("30", 1, per_class=60, test_size=400)
    model = dasf.fit(task.source, task.source_labels, task.target, dasf.DasfParams(4.0, 0.01, 0.001), 0)
    assert model.landmarks == np.sum(model.kernel.weights != 0)
    assert 0 < model.landmarks <= 25
    assert np.mean(dasf.decision(model, task.test) * task.test_labels > 0) > 0.9


def test_pairs_are_the_assignment_of_least_distance():
    rng = np.random.default_rng(4)
    source, target = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    rows, columns = dasf.match_pairs(source, target, np.random.default_rng(0), share=1.0)
    least = min(
        sum(np.sum((source[i] - target[j]) ** 2) for i, j in enumerate(order))
        for order in itertools.permutations(range(5))
    )
    np.testing.assert_allclose(np.sum((source[rows] - target[columns]) ** 2), least)


@pytest.mark.parametrize("params", dasf.GRID[::5])
def test_every_round_is_optimal_and_the_best_is_kept(params, monkeypatch):
    """Replays the recorded programs: none has a gap to its dual, and rounds go on while the reverse error falls."""
    task = moons_task("30", 2, per_class=40, test_size=200)
    solved = []

    def record(features, labels, penalties):
        solved.append((features, labels, penalties, solve(features, labels, penalties)))
        return solved[-1][-1]

    solve = dasf.solve_program
    monkeypatch.setattr(dasf, "solve_program", record)
    model = dasf.fit(task.source, task.source_labels, task.target, params, 0)
    for *program, a in solved:
        np.testing.assert_allclose(_value(a, *program), _lower_bound(*program), rtol=1e-5)

    errors, weights = [], []
    for (features, labels, _, forward), (at_target, target_labels, _, reverse) in zip(solved[::2], solved[1::2]):
        np.testing.assert_array_equal(target_labels, np.where(at_target @ forward >= 0, 1.0, -1.0))
        errors.append(np.mean(np.sign(features @ reverse) != labels))
        # Similarities are at most 1, and 1 at the landmark itself: the largest of a column is its scale.
        weights.append(forward * np.sign(np.sum(features, axis=0)) * np.max(np.abs(features), axis=0))
    np.testing.assert_allclose(model.reverse_errors, errors)
    assert np.all(np.diff(errors)[:-1] < 0)
    assert len(errors) == dasf.MOST_ROUNDS or errors[-1] >= errors[-2] or not np.any(solved[-1][-1])
    best = weights[int(np.argmin(errors))]
    np.testing.assert_allclose(model.kernel.weights[model.kernel.weights != 0], best[best != 0])
