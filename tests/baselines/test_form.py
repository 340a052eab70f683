"""What all comparison methods promise: one form, clear errors, equal results for equal seeds and for permuted rows."""

import importlib

import jax
import numpy as np
import pytest

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
    rows, columns = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    first = module.fit(task.source, task.source_labels, task.target, params, 3)
    again = module.fit(task.source, task.source_labels, task.target, params, 3)
    moved = module.fit(task.source[rows], task.source_labels[rows], task.target[columns], params, 3)
    values = module.decision(first, task.test)
    assert values.shape == (len(task.test),)
    np.testing.assert_array_equal(module.decision(again, task.test), values)
    np.testing.assert_array_equal(module.decision(moved, task.test), values)
    for name in {"target_labels", "self_labels"} & set(first._fields):
        np.testing.assert_array_equal(getattr(first, name)[columns], getattr(moved, name))
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


def test_mincq_is_the_package_s_own(task):
    import pvmincq_jax as pvm
    from pvmincq_jax.baselines import mincq

    model = mincq.fit(task.source, task.source_labels, task.target, {"gamma": 2.0, "margin": 0.2}, 0)
    votes = pvm.rbf_votes(task.source, task.source, 2.0)
    margin = 0.2 * pvm.max_margin(votes, task.source_labels)
    weights = pvm.mincq(votes, task.source_labels, margin).weights
    values = mincq.decision(model, task.test)
    other = np.asarray(pvm.rbf_votes(task.test, task.source, 2.0) @ weights)
    np.testing.assert_allclose(values, other, atol=1e-5 * np.max(np.abs(other)))
    with pytest.raises(ValueError, match="mu_max"):
        mincq.fit(task.source, task.source_labels, task.target, {"gamma": 2.0, "margin": 1.2}, 0)


@pytest.mark.parametrize("name", ["mincq", "nn_mincq"])
def test_votes_of_a_grid_are_those_of_single_fits_to_what_a_validation_sees(name, task):
    module = importlib.import_module(f"pvmincq_jax.baselines.{name}")
    samples, seen = (task.source, task.source_labels, task.target), task.source if name == "mincq" else task.target
    for params, model in list(zip(module.GRID, module.fit_grid(*samples, module.GRID, 0)))[::4]:
        alone = module.fit(*samples, params, 0)
        assert model.status == alone.status == 0
        values, exact = (module.decision(one, seen) for one in (model, alone))
        np.testing.assert_allclose(values, exact, atol=0.01 * np.max(np.abs(exact)))
        values, exact = (np.sign(module.decision(one, task.test)) for one in (model, alone))
        assert np.mean(values == exact) >= 0.98


def test_nn_mincq_says_when_all_labels_are_one(task):
    from pvmincq_jax.baselines import nn_mincq

    model = nn_mincq.fit(task.source, task.source_labels, task.target - 50.0, METHODS["nn_mincq"], 0)
    assert np.unique(model.self_labels).size == 1
    np.testing.assert_array_equal(nn_mincq.decision(model, task.test), np.full(len(task.test), model.self_labels[0]))
