"""The maps of a grid: nobody moves, own scales, even samples, given class ratios, and maps that cannot win."""

import numpy as np
import pytest
from scipy import stats
from sklearn.preprocessing import StandardScaler

import pvmincq_jax as pvm
from pvmincq_jax._samples import class_rows
from pvmincq_jax.adaptation.criteria import normalised_cut
from pvmincq_jax.adaptation.transport_criteria import class_distance, flip_penalty, matching_penalty
from pvmincq_jax.datasets import moons_task

FEW = {"gammas": [1.0], "margins": [0.2], "draws": 8, "seed": 2}


def blobs(rng, plus, minus, shift=0.0, dimensions=2, apart=2.0):
    """Two Gaussian classes ``[m, d]`` with labels."""
    labels = np.repeat([1.0, -1.0], [plus, minus])
    points = rng.normal(size=(plus + minus, dimensions)) * 0.4
    points[:, 0] += labels * apart / 2
    order = rng.permutation(len(labels))
    return points[order] + shift, labels[order]


def test_own_scale_is_standardising_each_domain():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(30, 3)), 5 * rng.normal(size=(40, 3)) + 7
    here, there = StandardScaler().fit(source), StandardScaler().fit(target)
    np.testing.assert_allclose(there.transform(pvm.match_moments(source, target)), here.transform(source), atol=1e-12)
    # A constant pixel, in either domain, is no reason for a division by 0.
    source[:, 1], target[:, 2] = 4.0, -1.0
    moved = pvm.match_moments(source, target)
    np.testing.assert_allclose(moved[:, 1], target[:, 1].mean())
    np.testing.assert_allclose(moved[:, 2], -1.0)
    rows = np.arange(10)
    np.testing.assert_allclose(pvm.match_moments(source, target, rows)[rows].mean(axis=0), target.mean(axis=0))


def test_class_rows():
    rng = np.random.default_rng(1)
    points, labels = blobs(rng, 20, 20)
    rows = class_rows(points, labels, 50, {1.0: 0.2, -1.0: 0.8}, seed=3)
    counts = np.bincount(rows, minlength=40)
    assert len(rows) == 50
    assert counts[labels > 0].sum() == 10
    assert set(counts[labels > 0]) == {0, 1}
    assert set(counts[labels < 0]) == {2}
    order = rng.permutation(40)
    again = class_rows(points[order], labels[order], 50, {1.0: 0.2, -1.0: 0.8}, seed=3)
    np.testing.assert_array_equal(np.bincount(again, minlength=40), counts[order])
    # Three classes, one of them with hardly a share: nobody is left out altogether.
    three = np.arange(40) % 3
    rows = class_rows(points, three, 30, {0: 0.01, 1: 0.49, 2: 0.5}, seed=3)
    assert np.bincount(three[rows]).tolist() == [1, 15, 14]
    with pytest.raises(ValueError, match="shares must give each class"):
        class_rows(points, labels, 50, {1.0: 0.2, -1.0: 0.7})


def test_the_default_grid_holds_the_identity_and_own_scales():
    task = moons_task("30", 4, per_class=20)
    found = pvm.transport_sweep(task.source, task.source_labels, task.target, **FEW)
    rest, scaled = np.flatnonzero(found.radii == 0)
    assert rest == 0
    np.testing.assert_array_equal(found.transports[0].moved, task.source)
    np.testing.assert_allclose(found.transports[scaled].moved, pvm.match_moments(task.source, task.target))
    assert np.all(found.pv[[rest, scaled]] == 1)
    # The identity's vote is MinCq on the source.
    votes = pvm.rbf_votes(task.source, task.source, 1.0)
    alone = pvm.mincq(votes, task.source_labels, 0.2 * pvm.max_margin(votes, task.source_labels))
    assert found.c_bound[0, 0, 0] == pytest.approx(float(alone.c_bound), abs=1e-6)
    # Levels of PV first, and beyond the bottleneck only while not nearly all pairs are in reach.
    bottleneck = pvm.bottleneck_radius(task.source, task.target)
    own = found.radii[1:scaled]
    np.testing.assert_allclose(own[:6], pvm.grid_radii(task.source, task.target, (0.6, 0.4, 0.2, 0.1, 0.05, 0), "pv"))
    lengths = np.linalg.norm(task.source[:, None] - task.target[None], axis=-1)
    assert own[-1] > 1.2 * bottleneck
    assert np.mean(lengths <= own[-1]) <= 0.9
    only = pvm.transport_sweep(
        task.source, task.source_labels, task.target, **FEW, match_moments=False, include_identity=False
    )
    np.testing.assert_allclose(only.radii, own)


def test_in_many_dimensions_no_radius_reaches_everybody():
    rng = np.random.default_rng(5)
    source, labels = blobs(rng, 20, 20, dimensions=200)
    target, _ = blobs(rng, 20, 20, dimensions=200)
    found = pvm.transport_sweep(source, labels, target, **FEW, match_moments=False)
    lengths = np.linalg.norm(source[:, None] - target[None], axis=-1)
    beyond = found.radii[found.radii > pvm.bottleneck_radius(source, target) * 1.0001]
    assert all(np.mean(lengths <= radius) <= 0.9 for radius in beyond)
    assert np.mean(lengths <= 1.3 * pvm.bottleneck_radius(source, target)) == 1


def test_samples_are_made_even():
    rng = np.random.default_rng(6)
    source, labels = blobs(rng, 30, 30)
    target, _ = blobs(rng, 10, 10, shift=0.3)
    given = {**FEW, "radii": [0.0], "radius_unit": "pv"}
    even = pvm.transport_sweep(source, labels, target, **given)
    assert even.pv[0] == 0
    np.testing.assert_allclose(even.transports[0].weights, 1)
    # Each target point is matched three times over, by source points as they were given.
    pairs = even.transports[0].pairs
    np.testing.assert_allclose(np.bincount(pairs.target, pairs.weights), 3)
    np.testing.assert_allclose(np.bincount(pairs.source, pairs.weights), 1)
    as_they_are = pvm.transport_sweep(source, labels, target, **given, equal_sizes=False)
    assert as_they_are.pv[0] == pytest.approx(1 / 3)
    assert np.sum(as_they_are.transports[0].weights) == pytest.approx(20)


def test_a_given_ratio_weighs_the_source():
    rng = np.random.default_rng(7)
    source, labels = blobs(rng, 25, 25)
    target, truth = blobs(rng, 10, 40, shift=3.0)
    even, given = (
        pvm.transport_sweep(source, labels, target, **FEW, radii=[0.0], radius_unit="pv", ratio=ratio)
        for ratio in (None, 0.2)
    )
    weights = given.transports[0].weights
    assert np.sum(weights[labels > 0]) == pytest.approx(0.2 * np.sum(weights))
    right = [np.mean(one.target_values[0, 0, 0] * truth > 0) for one in (even, given)]
    # Fifteen of the surplus have to go to the other class, unless they stay at home.
    assert right[0] < 0.85
    assert right[1] == 1
    assert even.ratio == 0.5
    assert given.ratio == 0.2
    assert pvm.class_ratio_gap(given)[0, 0, 0] == pytest.approx(0, abs=1e-12)


def test_maps_that_leave_a_class_out_or_collapse_cannot_win():
    rng = np.random.default_rng(8)
    source, labels = blobs(rng, 20, 20)
    # The nearest part of the target is all of one class.
    target, _ = blobs(rng, 20, 20, shift=np.array([6.0, 0.0]))
    radii = [*pvm.grid_radii(source, target, [0.75, 0.0], "pv"), 100.0]
    found = pvm.transport_sweep(source, labels, target, **FEW | {"draws": 64}, radii=radii)
    weights = np.asarray(found.transports[0].weights)
    assert min(np.sum(weights[labels > 0]), np.sum(weights[labels < 0])) < 5
    assert np.max(np.std(found.transports[2].moved, axis=0)) < 0.25 * np.max(np.std(target, axis=0))
    price = matching_penalty(found)
    assert np.isinf(price[[0, 2]]).all()
    assert price[1] == 0
    assert pvm.choose(found, pvm.transport_criterion(found)).grid_index[0] == 1
    # With nothing else to choose from it is chosen all the same.
    alone = pvm.transport_sweep(source, labels, target, **FEW | {"draws": 64}, radii=[100.0])
    assert np.all(np.isfinite(pvm.transport_criterion(alone)))


def test_few_pairs_are_worth_their_price_among_more_classes():
    rng = np.random.default_rng(8)
    source, labels = blobs(rng, 20, 20)
    radii = pvm.grid_radii(source, source + 0.5, [0.6, 0.2, 0.0], "pv")
    found = pvm.transport_sweep(source, labels, source + 0.5, **FEW | {"draws": 64}, radii=radii)
    weights = np.stack([np.asarray(one.weights) for one in found.transports])
    matches = np.stack([weights[:, labels > 0].sum(axis=1), weights[:, labels < 0].sum(axis=1)])
    share = np.min(matches / matches.max(axis=1, keepdims=True), axis=0)
    for classes in (2, 3, 5, 10):
        paid = found.pv / (classes if classes > 2 else 1)
        expected = np.where(share >= 1 / classes, paid, np.inf)
        np.testing.assert_allclose(matching_penalty(found._replace(classes=classes)), expected, atol=1e-12)
    assert share[0] < 0.5
    assert np.isfinite(matching_penalty(found._replace(classes=10))).all()


def test_class_distance_is_made_of_scipy_s():
    rng = np.random.default_rng(9)
    source, labels = blobs(rng, 25, 35, dimensions=1)
    target, _ = blobs(rng, 30, 20, dimensions=1, shift=0.4)
    found = pvm.transport_sweep(source, labels, target, **FEW, ratio=0.3)
    within = np.mean(np.abs(target - target.T))
    for r, one in enumerate(found.transports):
        expected = 0.0
        for sign in (1, -1):
            own, called = labels == sign, sign * found.target_values[r, 0, 0] > 0
            moved, weights = np.asarray(one.moved)[own, 0], np.asarray(one.weights)[own]
            # SciPy's is the root of the same quantity.
            expected += np.mean(called) * stats.energy_distance(moved, target[called, 0], weights) ** 2 / within
        assert class_distance(found)[r, 0, 0] == pytest.approx(expected)


def test_a_vote_that_turns_all_around():
    rng = np.random.default_rng(11)
    source, labels = blobs(rng, 20, 20)
    found = pvm.transport_sweep(source, labels, source + 1.0, **FEW)
    scaled = np.flatnonzero(found.radii == 0)[1]
    cut = normalised_cut(found)
    assert np.all(flip_penalty(found, cut)[scaled] == 0)
    turned = found._replace(target_values=found.target_values.copy())
    turned.target_values[-1] = -found.target_values[scaled]
    assert np.all(flip_penalty(turned, cut)[-1] == 1)
    plain, doubted = pvm.transport_criterion(found), pvm.transport_criterion(turned)
    assert np.all(doubted[-1] > np.exp(8) * plain[scaled])
    # Nothing to compare with.
    alone = pvm.transport_sweep(source, labels, source + 1.0, **FEW, match_moments=False)
    assert np.all(flip_penalty(alone, normalised_cut(alone)) == 0)


def test_not_adapting_is_a_choice():
    rng = np.random.default_rng(10)
    source, labels = blobs(rng, 30, 10)
    target, truth = blobs(rng, 10, 30)
    given = {"gammas": [0.5, 2.0], "draws": 8, "seed": 2, "progress": False}
    found = pvm.fit_transport_validated(source, labels, target, **given)
    assert not found.adapted
    assert found.choice.radius == 0
    assert np.flatnonzero(found.sweep.unmoved).tolist() == [0]
    # The classes may be as frequent as they like where nobody moves, and not where they are matched.
    squares = found.sweep.self_risk**2 + matching_penalty(found.sweep)[:, None, None] ** 2
    squares[1:] += pvm.class_ratio_gap(found.sweep)[1:] ** 2
    parts = (normalised_cut(found.sweep) + 0.01) * np.exp(8 * squares + 0.3 * class_distance(found.sweep))
    swap = flip_penalty(found.sweep, parts)
    np.testing.assert_allclose(found.choice.scores, parts * np.exp(8 * swap**2))
    assert np.mean(pvm.predict(found.model, target) == truth) > 0.97
    far = pvm.fit_transport_validated(
        source, labels, target[truth < 0] + 4.0, **given, include_identity=False, match_moments=False
    )
    assert far.adapted
