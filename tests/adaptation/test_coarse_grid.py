"""Large grids: a coarse solution is near the exact one, the chosen vote is exact, and blocks change nothing."""

import tracemalloc

import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.adaptation import coarse_grid
from pvmincq_jax.adaptation.coarse_grid import VoteBlocks, compressed, is_large
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import PVMinCqClassifier, PVTransportClassifier

GRID = {"radii": [0.3, 0.8], "margins": [0.05, 0.2, 0.6], "gammas": [0.5, 4.0], "draws": 3, "seed": 1}


@pytest.fixture(scope="module")
def task():
    return moons_task("40", 1, per_class=60, test_size=200)


def _sweeps(task, form, **options):
    data = task.source, task.source_labels, task.target
    if form == "transport":
        return [pvm.transport_sweep(*data, **GRID, exact=exact, **options) for exact in (True, False)]
    return [pvm.sweep(*data, **GRID, folds=3, exact=exact, **options) for exact in (True, False)]


@pytest.mark.parametrize("form", ["label", "transport"])
def test_near_the_exact_grid(task, form):
    exact, coarse = _sweeps(task, form)
    assert (exact.accuracy, coarse.accuracy) == (1e-7, 1e-3)
    np.testing.assert_array_equal(coarse.status, exact.status)
    np.testing.assert_array_equal(coarse.voter_mask, exact.voter_mask)
    np.testing.assert_allclose(coarse.mu_max, exact.mu_max, rtol=1e-12)
    np.testing.assert_allclose(coarse.c_bound, exact.c_bound, atol=2e-3)
    assert np.all((coarse.kkt_residual <= 1e-3) & (exact.kkt_residual <= 1e-7))
    signs = [np.sign(one.target_values) for one in (exact, coarse)]
    assert np.mean(signs[0] != signs[1]) < 0.01
    if form == "label":
        np.testing.assert_allclose(coarse.source_risk, exact.source_risk, atol=0.05)
        np.testing.assert_array_equal(coarse.fold_status, exact.fold_status)


@pytest.mark.parametrize("form", ["label", "transport"])
def test_the_chosen_vote_is_exact(task, form, monkeypatch):
    """Also where its many points are compressed to few."""
    monkeypatch.setattr(coarse_grid, "EXACT_POINTS", 10)
    exact, coarse = _sweeps(task, form, most_voters=25)
    for index in [(0, 1, 0), (1, 0, 2)]:
        first, second = (pvm.model_at(one, index) for one in (exact, coarse))
        rough = pvm.model_at(coarse, index, exact=False)
        assert second.kkt_residual <= 1e-7
        for name in ("c_bound", "margin", "mu_max"):
            np.testing.assert_allclose(getattr(second, name), getattr(first, name), rtol=1e-7)
        np.testing.assert_array_equal(second.labels, first.labels)
        np.testing.assert_array_equal(second.label_weights, first.label_weights)
        np.testing.assert_array_equal(rough.weights, coarse.weights[index])
        values = [pvm.decision(one, task.test) for one in (first, second)]
        np.testing.assert_allclose(values[1], values[0], atol=1e-4 * np.max(np.abs(values[0])))


def test_infeasible_and_unmatched_points_are_marked(task):
    data = task.source, task.source_labels, task.target
    given = GRID | {"radii": [1e-9, 0.8], "margins": [1e-3, 0.9], "gammas": [1.0]}
    for exact in (True, False):
        found = pvm.sweep(*data, **given, folds=2, margin_unit="absolute", exact=exact)
        assert found.status[0, 0].tolist() == [pvm.Status.BAD_INPUT] * 2
        assert found.status[1, 0].tolist() == [pvm.Status.SOLVED, pvm.Status.INFEASIBLE]
        assert np.isnan(found.c_bound).tolist() == [[[True, True]], [[False, True]]]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_compressed_points_have_the_same_moments(offset):
    """Beside plain sums, and beside MinCq on all the points; also far from the origin."""
    rng = np.random.default_rng(0)
    points, labels, weights = rng.normal(size=(500, 3)) + offset, rng.uniform(-1, 1, 500), rng.random(500)
    family = pvm.GaussianVoters(points[:20], 0.7)
    votes, shares = family.votes(points), weights / weights.sum()
    small, own, even = compressed(family, points, labels, weights)
    assert small.shape == (21, 20)
    np.testing.assert_allclose(small.T @ small / 21, votes.T @ (shares[:, None] * votes), atol=1e-14)
    np.testing.assert_allclose(small.T @ own / 21, votes.T @ (shares * labels), atol=1e-15)
    np.testing.assert_array_equal(even, 1.0)
    mu = 0.3 * float(pvm.max_margin(votes, labels, sample_weights=weights))
    whole, few = pvm.mincq(votes, labels, mu, sample_weights=weights), pvm.mincq(small, own, mu)
    np.testing.assert_allclose(few.c_bound, whole.c_bound, rtol=1e-9)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    points, labels, weights = rng.normal(size=(101, 2)), rng.choice([-1.0, 1.0], 101), rng.random((2, 101))
    family = pvm.GaussianVoters(points[:9], 1.0)
    lanes = coarse_grid.Lanes(np.stack([labels] * 2), weights, rng.random((2, 9)) < 0.8)
    whole = VoteBlocks(family, points)
    expected, _ = coarse_grid.solve_coarsely(lambda lane: whole, lanes, np.array([0.1, 0.5]))
    assert len(list(whole)) == 1
    monkeypatch.setattr(coarse_grid, "_BLOCK", 90)
    monkeypatch.setattr(coarse_grid, "_KEPT", 500)
    parts = VoteBlocks(family, points)
    assert [len(votes) for _, votes in parts] == [10] * 10 + [1]
    found, values = coarse_grid.solve_coarsely(lambda lane: parts, lanes, np.array([0.1, 0.5]))
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(values, found.weights @ family.votes(points).T, atol=1e-15)
    small, own, _ = compressed(family, points, labels, weights[0])
    again = np.column_stack([small, own]).T @ np.column_stack([small, own]) / 10
    both = np.column_stack([family.votes(points), labels]) * np.sqrt(weights[0] / weights[0].sum())[:, None]
    np.testing.assert_allclose(again, both.T @ both, atol=1e-14)


def test_which_grids_are_large():
    """Small samples, and larger ones of low rank, are solved exactly."""
    rng = np.random.default_rng(0)
    plane, wide = rng.normal(size=(320, 2)), rng.normal(size=(200, 30))

    def large(points, gamma):
        return is_large(len(points), lambda: pvm.GaussianVoters(points, gamma).votes(points))

    assert not large(plane, 0.5)
    assert is_large(321, lambda: pytest.fail("not asked for"))
    assert not large(wide[:160], 1.0)
    assert large(wide, 1.0)
    labels = np.sign(wide[:, 0])
    given = {"radii": [1.0], "radius_unit": "bottleneck", "margins": [0.5], "gammas": [1.0], "folds": 2}
    assert pvm.sweep(wide, labels, wide + 0.1, **given).accuracy == 1e-3


@pytest.mark.parametrize("classifier", [PVMinCqClassifier, PVTransportClassifier])
def test_a_whole_fit_takes_no_memory_for_all_differences(classifier):
    """Distances, radii, matchings, maps, medians, votes and the committee, in many features."""
    rng = np.random.default_rng(0)
    labels = np.tile([-1.0, 1.0], 100)
    source, target = rng.normal(size=(2, 200, 1000))
    source[:, 0] += 6 * labels
    target[:, 0] += 6 * labels
    tracemalloc.start()
    model = classifier().fit_domains(source, labels, target)
    model.predict(target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The samples are 1.6 MB each, and maps keep them as often as there are radii; all differences would be 320 MB.
    assert peak < 60e6
