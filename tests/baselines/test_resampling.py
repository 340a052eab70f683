"""Cross-validation, reverse validation and R_S + PV of any method, by hand."""

import numpy as np
import pytest

from experiments.run.methods import first_best
from pvmincq_jax import _samples, perturbed_variation
from pvmincq_jax.baselines import pv_svm, resampling, svm
from pvmincq_jax.datasets import moons_task


@pytest.fixture(scope="module")
def task():
    return moons_task("40", 5, per_class=30, test_size=200)


# A method simple enough to follow by hand: the label of the nearest labelled point.


def nearest_fit(source, labels, target, params, seed):
    return source[:, 0], labels, params


def nearest_decision(model, x):
    centers, labels, sign = model
    return sign * labels[np.argmin(np.abs(x[:, :1] - centers[None, :]), axis=1)]


def test_folds_are_stratified_equal_and_follow_the_points():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(50, 2)), np.repeat([-1.0, 1.0], [20, 30])
    folds = _samples.fold_numbers(points, labels, 5, 1)
    for fold in range(5):
        assert np.sum(folds == fold) == 10
        assert np.sum(labels[folds == fold] < 0) == 4
    order = rng.permutation(50)
    np.testing.assert_array_equal(_samples.fold_numbers(points[order], labels[order], 5, 1), folds[order])
    assert np.any(_samples.fold_numbers(points, labels, 5, 2) != folds)


def test_reverse_validation_by_hand():
    """Source 0, 1 (-) and 10, 11 (+), two folds, target 0.4, 0.6, 10.4, 10.6 or the same moved by 10.

    Unmoved: whatever the folds, the source's training half has a point near 0 and one near 10, so the target's half is
    labelled right. If that half holds both groups, the held-out source is labelled right in turn: error 0. If it holds
    one group, its labels are constant, and half of the held-out source is wrong. With the sign turned (-1), labels
    turn on the way there and turn again on the way back, so the scores are the same. Moved by 10: all target points are
    nearest to the + points, labels are constant, error 1/2.
    """
    source, labels = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([-1.0, -1.0, 1.0, 1.0])
    target = np.array([[0.4], [0.6], [10.4], [10.6]])
    for seed in range(6):
        numbers = _samples.fold_numbers(target, None, 2, seed)
        mixed = [len({bool(t > 5) for t in target[numbers != fold, 0]}) == 2 for fold in (0, 1)]
        expected = np.mean([0.0 if both else 0.5 for both in mixed])
        scores = resampling.reverse_validation(
            nearest_fit, nearest_decision, source, labels, target, [1.0, -1.0], 2, seed
        )
        np.testing.assert_allclose(scores, [expected, expected])
        moved = resampling.reverse_validation(
            nearest_fit, nearest_decision, source, labels, target + 10, [1.0], 2, seed
        )
        np.testing.assert_allclose(moved, [0.5])


def test_reverse_validation_keeps_both_held_out_folds_out():
    seen = []

    def fit(source, labels, target, params, seed):
        seen.append((set(source[:, 0]), set(target[:, 0])))
        return nearest_fit(source, labels, target, 1.0, seed)

    rng = np.random.default_rng(1)
    source, target = rng.normal(size=(20, 1)), rng.normal(size=(15, 1))
    labels = np.where(np.arange(20) % 2 == 0, 1.0, -1.0)
    resampling.reverse_validation(fit, nearest_decision, source, labels, target, [1.0], 5, 0)
    assert len(seen) == 10
    for (source_rows, target_rows), (back_source, back_target) in zip(seen[::2], seen[1::2]):
        assert len(source_rows) == 16
        assert len(target_rows) == 12
        # The way back starts from the same target points and goes to the same source points.
        assert (back_source, back_target) == (target_rows, source_rows)


def test_cross_validation_by_hand():
    source, labels = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([-1.0, -1.0, 1.0, 1.0])
    scores = resampling.cross_validation(nearest_fit, nearest_decision, source, labels, source, [1.0, -1.0], 2, 0)
    np.testing.assert_allclose(scores, [0.0, 1.0])


@pytest.mark.parametrize("validation", [resampling.cross_validation, resampling.reverse_validation])
def test_validation_is_blind_to_row_order(validation, task):
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    grid = svm.GRID[::7]
    first = validation(svm.fit, svm.decision, task.source, task.source_labels, task.target, grid, 5, 2)
    moved = validation(
        svm.fit, svm.decision, task.source[rows], task.source_labels[rows], task.target[columns], grid, 5, 2
    )
    np.testing.assert_array_equal(first, moved)
    with pytest.raises(ValueError, match="folds"):
        validation(svm.fit, svm.decision, task.source, task.source_labels, task.target, grid, 1, 2)


def test_ties_go_to_the_first():
    assert first_best(np.array([np.nan, 0.2, 0.1 + 1e-16, 0.1])) == 2


def test_rs_pv_adds_the_variation_of_the_whole_samples(task):
    grid = pv_svm.GRID[:9]
    arguments = (pv_svm.fit, pv_svm.decision, task.source, task.source_labels, task.target, grid, 5, 1)
    risks = resampling.cross_validation(*arguments)
    scores = resampling.rs_pv_validation(*arguments, fit_grid=pv_svm.fit_grid)
    models = pv_svm.fit_grid(task.source, task.source_labels, task.target, grid, 1)
    pv = [perturbed_variation(task.source, task.target, float(model.radius)) for model in models]
    np.testing.assert_allclose(scores, risks + pv, atol=1e-12)


# Not a number: wrong. The method answers with the side of 0, or with the other one, or with NaN.


def side_fit(source, labels, target, params, seed):
    return params


def side_decision(params, x):
    return params * np.sign(x[:, 0])


def side_but_for_the_lowest(params, x):
    values = side_decision(params, x)
    values[np.argmin(x[:, 1])] = np.nan
    return values


@pytest.fixture
def sides():
    """Sixteen points on the left of 0 and ten on the right, in both domains."""
    rng, labels = np.random.default_rng(0), np.repeat([-1.0, 1.0], [16, 10])
    source, target = (np.column_stack([labels * rng.uniform(1, 2, 26), rng.normal(size=26)]) for _ in range(2))
    return source, labels, target


def test_a_prediction_that_is_not_a_number_is_an_error(sides):
    scores = resampling.cross_validation(side_fit, side_but_for_the_lowest, *sides, [1.0, -1.0], 2, 0)
    np.testing.assert_allclose(scores, [1 / 13, 1.0])


@pytest.mark.parametrize("validation", [resampling.cross_validation, resampling.reverse_validation])
def test_a_method_that_never_answers_is_always_wrong(validation, sides):
    """And not right on the larger class, as the constant -1 is."""
    scores = validation(side_fit, side_decision, *sides, [np.nan, 1.0], 2, 0)
    np.testing.assert_array_equal(scores, [1.0, 0.0])


def test_a_target_point_without_a_label_is_no_negative_one(sides):
    """Each forward model leaves one target point out: there is nothing to hand back, and no reverse model."""
    fitted = []

    def fit(source, labels, target, params, seed):
        fitted.append(labels)
        return params

    scores = resampling.reverse_validation(fit, side_but_for_the_lowest, *sides, [1.0], 2, 0)
    assert len(fitted) == 2
    assert scores[0] == 1.0


def test_the_largest_of_values_that_are_not_numbers_is_no_class():
    points, labels = np.arange(12.0)[:, None], np.repeat([0, 1, 2], 4)

    def decision(params, x):
        values = np.where(np.arange(3) == x // 4, 1.0, 0.0)
        values[x[:, 0] < 4] = np.nan
        return values

    scores = resampling.cross_validation(side_fit, decision, points, labels, points, [None], 2, 0)
    np.testing.assert_allclose(scores, [1 / 3])
