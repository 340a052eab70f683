"""What all comparison methods promise: one form, clear errors, equal results for equal seeds and for permuted rows."""

import importlib

import jax
import numpy as np
import pytest

from pvmincq_jax import _samples
from pvmincq_jax.adaptation import resampling
from pvmincq_jax.datasets import moons_task

METHODS = {
    "svm": {"gamma": 2.0, "cost": 1.0},
    "tsvm": {"gamma": 2.0, "cost": 1.0},
    "dasvm": {"gamma": 4.0, "cost": 1.0},
    "dasf": {"gamma": 2.0, "sparsity": 0.01, "pairs": 0.001},
    "pbda": {"gamma": 2.0, "risk": 1.0, "disagreement": 1.0},
    "mincq": {"gamma": 2.0, "margin": 0.1},
    "nn_mincq": {"gamma": 2.0, "margin": 0.1, "neighbours": 5},
    "pv_svm": {"gamma": 2.0, "cost": 1.0, "radius": 0.7},
}
PAPER = {
    "cross": ("svm", "mincq", "tsvm"),
    "reverse": ("dasvm", "dasf", "pbda", "nn_mincq"),
    "rs_pv": ("pv_svm",),
}


@pytest.fixture(params=list(METHODS))
def method(request):
    return importlib.import_module(f"pvmincq_jax.baselines.{request.param}"), METHODS[request.param], request.param


@pytest.fixture(scope="module")
def task():
    return moons_task("40", 5, per_class=30, test_size=200)


def test_deterministic_and_blind_to_row_order(method, task):
    module, params, _ = method
    rng = np.random.default_rng(0)
    here, there = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    first = module.fit(task.source, task.source_labels, task.target, params, 3)
    again = module.fit(task.source, task.source_labels, task.target, params, 3)
    moved = module.fit(task.source[here], task.source_labels[here], task.target[there], params, 3)
    values = module.decision(first, task.test)
    assert values.shape == (len(task.test),)
    np.testing.assert_array_equal(module.decision(again, task.test), values)
    np.testing.assert_array_equal(module.decision(moved, task.test), values)
    for name in {"target_labels", "self_labels"} & set(first._fields):
        np.testing.assert_array_equal(getattr(first, name)[there], getattr(moved, name))
    # Class-sorted rows are a permutation too, and the one that leaks.
    by_class = np.argsort(task.source_labels, kind="stable")
    sorted_rows = module.fit(task.source[by_class], task.source_labels[by_class], task.target, params, 3)
    np.testing.assert_array_equal(module.decision(sorted_rows, task.test), values)


def test_models_are_pytrees_of_arrays(method, task):
    module, params, _ = method
    model = module.fit(task.source, task.source_labels, task.target, params, 0)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(model))


def test_grid_and_validation(method):
    module, params, name = method
    assert name in PAPER[module.VALIDATION]
    assert len(set(module.GRID)) == len(module.GRID) >= 10
    assert all(set(point._asdict()) == set(params) for point in module.GRID)


def test_bad_input_is_named(method, task):
    module, params, _ = method
    source, labels, target = task.source, task.source_labels, task.target
    holed = source.copy()
    holed[0, 0] = np.nan
    cases = [
        ((holed, labels, target, params), "source"),
        ((source, labels, target[:, :1], params), "features"),
        ((source, labels[1:], target, params), "labels"),
        ((source, 2 * labels, target, params), "labels"),
        ((source, np.ones_like(labels), target, params), "both classes"),
        ((source, labels, target[:0], params), "target"),
        ((source, labels, target, params | {"gamma": -1.0}), "gamma"),
        ((source, labels, target, (1.0, 2.0)), "params"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            module.fit(*arguments, 0)
    model = module.fit(source, labels, target, params, 0)
    with pytest.raises(ValueError, match="features"):
        module.decision(model, source[:, :1])


def test_better_than_chance_where_it_should_be(method):
    module, params, _ = method
    task = moons_task("20", 0, per_class=60, test_size=400)
    model = module.fit(task.source, task.source_labels, task.target, params, 0)
    assert np.mean(module.decision(model, task.test) * task.test_labels > 0) > 0.9


def test_not_imported_by_the_package():
    import subprocess
    import sys

    names = "('sklearn', 'pvmincq_jax.baselines')"
    code = f"import sys, pvmincq_jax; sys.exit(any(name.startswith({names}) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


# Validation, with a method simple enough to follow by hand: the label of the nearest labelled point.


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
    for (here, there), (back_here, back_there) in zip(seen[::2], seen[1::2]):
        assert len(here) == 16
        assert len(there) == 12
        # The way back starts from the same target points and goes to the same source points.
        assert (back_here, back_there) == (there, here)


def test_cross_validation_by_hand():
    source, labels = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([-1.0, -1.0, 1.0, 1.0])
    scores = resampling.cross_validation(nearest_fit, nearest_decision, source, labels, source, [1.0, -1.0], 2, 0)
    np.testing.assert_allclose(scores, [0.0, 1.0])


@pytest.mark.parametrize("validation", [resampling.cross_validation, resampling.reverse_validation])
def test_validation_is_blind_to_row_order(validation, task):
    from pvmincq_jax.baselines import svm

    rng = np.random.default_rng(0)
    here, there = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    grid = svm.GRID[::7]
    first = validation(svm.fit, svm.decision, task.source, task.source_labels, task.target, grid, 5, 2)
    moved = validation(
        svm.fit, svm.decision, task.source[here], task.source_labels[here], task.target[there], grid, 5, 2
    )
    np.testing.assert_array_equal(first, moved)
    with pytest.raises(ValueError, match="folds"):
        validation(svm.fit, svm.decision, task.source, task.source_labels, task.target, grid, 1, 2)


def test_ties_go_to_the_first():
    assert resampling.first_best(np.array([np.nan, 0.2, 0.1, 0.1])) == 2
    with pytest.raises(ValueError, match="finite"):
        resampling.first_best(np.array([np.nan]))


def test_rs_pv_adds_the_variation_of_the_whole_samples(task):
    from pvmincq_jax import perturbed_variation
    from pvmincq_jax.baselines import pv_svm

    grid = pv_svm.GRID[:9]
    arguments = (pv_svm.fit, pv_svm.decision, task.source, task.source_labels, task.target, grid, 5, 1)
    risks = resampling.cross_validation(*arguments)
    scores = resampling.rs_pv_validation(*arguments, fit_grid=pv_svm.fit_grid)
    models = pv_svm.fit_grid(task.source, task.source_labels, task.target, grid, 1)
    pv = [perturbed_variation(task.source, task.target, float(model.radius)) for model in models]
    np.testing.assert_allclose(scores, risks + pv, atol=1e-12)
    # Without a training: the same.
    np.testing.assert_array_equal(pv_svm.pv_grid(task.source, task.source_labels, task.target, grid, 1), pv)
    known = resampling.rs_pv_validation(*arguments, fit_grid=pv_svm.fit_grid, pv_grid=pv_svm.pv_grid)
    np.testing.assert_array_equal(known, scores)


def test_a_vote_that_is_not_a_number_is_wrong():
    assert resampling._error(np.array([np.nan, 1.0, 0.0, -1.0]), np.ones(4)) == 0.75


def test_mincq_is_the_package_s_own(task):
    import pvmincq_jax as pvm
    from pvmincq_jax.baselines import mincq

    model = mincq.fit(task.source, task.source_labels, task.target, {"gamma": 2.0, "margin": 0.2}, 0)
    votes = pvm.rbf_votes(task.source, task.source, 2.0)
    margin = 0.2 * pvm.max_margin(votes, task.source_labels)
    weights = pvm.mincq(votes, task.source_labels, margin).weights
    own = mincq.decision(model, task.test)
    other = np.asarray(pvm.rbf_votes(task.test, task.source, 2.0) @ weights)
    np.testing.assert_allclose(own, other, atol=1e-5 * np.max(np.abs(other)))
    with pytest.raises(ValueError, match="mu_max"):
        mincq.fit(task.source, task.source_labels, task.target, {"gamma": 2.0, "margin": 1.2}, 0)


@pytest.mark.parametrize("name", ["mincq", "nn_mincq"])
def test_votes_of_a_grid_are_those_of_single_fits_to_what_a_validation_sees(name, task):
    module = importlib.import_module(f"pvmincq_jax.baselines.{name}")
    given, seen = (task.source, task.source_labels, task.target), task.source if name == "mincq" else task.target
    for params, model in list(zip(module.GRID, module.fit_grid(*given, module.GRID, 0)))[::4]:
        alone = module.fit(*given, params, 0)
        assert model.status == alone.status == 0
        own, exact = (module.decision(one, seen) for one in (model, alone))
        np.testing.assert_allclose(own, exact, atol=0.01 * np.max(np.abs(exact)))
        own, exact = (np.sign(module.decision(one, task.test)) for one in (model, alone))
        assert np.mean(own == exact) >= 0.98


def test_nn_mincq_says_when_all_labels_are_one(task):
    from pvmincq_jax.baselines import nn_mincq

    model = nn_mincq.fit(task.source, task.source_labels, task.target - 50.0, METHODS["nn_mincq"], 0)
    assert np.unique(model.self_labels).size == 1
    np.testing.assert_array_equal(nn_mincq.decision(model, task.test), np.full(len(task.test), model.self_labels[0]))
