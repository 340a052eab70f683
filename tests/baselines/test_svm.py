"""SVM, TSVM and DASVM against scikit-learn's own SVC and what their publications promise."""

import sys

import numpy as np
import pytest
from sklearn.svm import SVC

from pvmincq_jax.baselines import dasvm, svm, tsvm
from pvmincq_jax.baselines.svm import weighted_svc
from pvmincq_jax.datasets import moons_task


@pytest.fixture(scope="module")
def task():
    return moons_task("40", 3, per_class=40, test_size=200)


@pytest.mark.parametrize("params", [svm.SvmParams(0.5, 1.0), svm.SvmParams(4.0, 100.0)])
def test_svm_is_the_svc_of_scikit_learn(task, params):
    model = svm.fit(task.source, task.source_labels, task.target, params, 0)
    other = SVC(C=params.cost, gamma=params.gamma, tol=1e-6).fit(task.source, task.source_labels)
    np.testing.assert_allclose(svm.decision(model, task.test), other.decision_function(task.test), atol=5e-3)
    clear = np.abs(other.decision_function(task.test)) > 0.01
    np.testing.assert_array_equal(np.sign(svm.decision(model, task.test))[clear], other.predict(task.test)[clear])


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_tsvm_falls_at_each_switch_and_keeps_the_class_ratio(task, share):
    positive = np.flatnonzero(task.source_labels > 0)
    negative = np.flatnonzero(task.source_labels < 0)
    rows = np.concatenate([positive[: int(len(negative) * share / (1 - share))], negative])
    switches = 0
    for params in (tsvm.TsvmParams(0.5, 10.0), tsvm.TsvmParams(2.0, 1.0)):
        model = tsvm.fit(task.source[rows], task.source_labels[rows], task.target, params, 0)
        same = np.diff(model.levels) == 0
        switches += np.sum(same)
        rise = np.diff(model.objectives)[same] / model.objectives[:-1][same]
        assert np.all(rise < 1e-5)
        count = round(len(task.target) * np.mean(task.source_labels[rows] > 0))
        assert np.all(model.positives == count)
        assert np.sum(model.target_labels > 0) == count
    assert switches > 0


def test_tsvm_costs_double_up_to_the_last(task):
    model = tsvm.fit(task.source, task.source_labels, task.target, tsvm.TsvmParams(2.0, 1.0), 0)
    # 1e-5 doubles 17 times before it reaches 1; every level is trained.
    np.testing.assert_array_equal(np.unique(model.levels), np.arange(18))


@pytest.mark.parametrize("params", [tsvm.TsvmParams(0.5, 10.0), tsvm.TsvmParams(2.0, 1.0), tsvm.TsvmParams(8.0, 0.1)])
def test_tsvm_leaves_no_pair_to_swap_at_any_level(task, params, monkeypatch):
    """Joachims's rule at the end of each level, with slacks of scikit-learn's own SVC under the recorded labels."""
    trained = []

    def record(kernel, labels, costs):
        trained.append((kernel, labels.copy(), costs.copy()))
        return weighted_svc(kernel, labels, costs)

    monkeypatch.setattr(tsvm, "weighted_svc", record)
    model = tsvm.fit(task.source, task.source_labels, task.target, params, 0)
    m_s, trained = len(task.source), trained[1:]  # the first machine is the source's
    assert len(trained) == len(model.levels)
    last = np.flatnonzero(np.append(np.diff(model.levels) > 0, True))
    for level, row in enumerate(last):
        kernel, labels, costs = trained[row]
        np.testing.assert_allclose(costs[m_s:], min(1e-5 * 2**level, params.cost))
        other = SVC(C=1.0, kernel="precomputed", tol=1e-6).fit(kernel, labels, sample_weight=costs)
        slacks = np.maximum(0, 1 - labels * other.decision_function(kernel))[m_s:]
        up, down = slacks[labels[m_s:] > 0][:, None], slacks[labels[m_s:] < 0][None, :]
        assert not np.any((up > 0) & (down > 0) & (up + down > 2 + 1e-3))
    np.testing.assert_allclose(trained[-1][2], params.cost)


def test_tsvm_swaps_only_pairs_that_gain():
    labels = np.array([1.0, 1.0, -1.0, -1.0])
    np.testing.assert_array_equal(tsvm._swaps(labels, np.array([1.5, 0.2, 0.9, 0.0])), [0, 2])
    assert tsvm._swaps(labels, np.array([1.5, 0.2, 0.4, 0.0])).size == 0
    assert tsvm._swaps(labels, np.array([3.0, 0.2, 0.0, 0.0])).size == 0


def test_dasvm_ends_on_target_points_only(task):
    model = dasvm.fit(task.source, task.source_labels, task.target, dasvm.DasvmParams(4.0, 1.0), 0)
    assert model.source_left[0] == len(task.source)
    assert model.source_left[-1] == 0
    assert np.all(np.diff(model.source_left) <= 0)
    # The centres are the target's rows, and the weights are an SVC's on the labels that were given.
    np.testing.assert_array_equal(np.unique(model.kernel.centers, axis=0), np.unique(task.target, axis=0))
    used = model.target_labels != 0
    other = SVC(C=1.0, gamma=4.0).fit(task.target[used], model.target_labels[used])
    np.testing.assert_allclose(dasvm.decision(model, task.test), other.decision_function(task.test), atol=5e-3)
    # The stopping rule.
    few = np.ceil(dasvm.STABLE * len(task.target))
    assert model.joined[-1] <= few
    assert model.reset[-1] <= few
    assert len(model.joined) < dasvm.MOST_ROUNDS


@pytest.mark.parametrize("name", ["30", "50", "translation"])
@pytest.mark.parametrize("params", dasvm.GRID[::5])
def test_dasvm_ends_with_an_empty_band_and_stable_labels(name, params):
    """The published rule, up to the stated share, for scikit-learn's own SVC on the labels that were given."""
    task = moons_task(name, 4, per_class=40, test_size=200)
    model = dasvm.fit(task.source, task.source_labels, task.target, params, 0)
    assert len(model.joined) < dasvm.MOST_ROUNDS
    assert model.source_left[-1] == 0
    used = model.target_labels != 0
    labels = model.target_labels[used]
    if np.all(labels == labels[0]):  # a constant: an SVC refuses one class
        values = np.full(len(task.target), labels[0])
    else:
        other = SVC(C=params.cost, gamma=params.gamma, tol=1e-6).fit(task.target[used], labels)
        values = other.decision_function(task.target)
    np.testing.assert_allclose(dasvm.decision(model, task.target), values, atol=5e-3)
    few = np.ceil(dasvm.STABLE * len(task.target))
    assert np.sum(~used & (np.abs(values) < 1 - 1e-3)) <= few
    assert np.sum(model.target_labels * values < -1e-3) <= few


def test_dasvm_takes_both_bounds_and_resets_labels(task):
    model = dasvm.fit(task.source, task.source_labels, task.target, dasvm.DasvmParams(0.5, 10.0), 0)
    rho = int(np.ceil(dasvm.SHARE * len(task.target)))
    assert np.max(model.joined) <= 2 * rho
    assert np.sum(model.reset) > 0
    assert set(np.unique(model.target_labels)) >= {-1.0, 1.0}


def test_dasvm_survives_a_target_out_of_reach(task):
    model = dasvm.fit(task.source, task.source_labels, task.target + 100.0, dasvm.DasvmParams(4.0, 1.0), 0)
    values = dasvm.decision(model, task.test + 100.0)
    assert np.all(np.isfinite(values))
    assert np.unique(np.sign(values)).size == 1


def test_what_is_missing_is_named(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    with pytest.raises(ImportError, match=r"sklearn is missing.*pip install -e '\.\[sklearn\]'"):
        svm.fit(task.source, task.source_labels, task.target, svm.SvmParams(1.0, 1.0), 0)
