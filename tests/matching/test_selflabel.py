"""Self-labels: carried by matchings or neighbours, and by nothing else."""

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax.datasets import draw_moons
from pvmincq_jax.matching.graph import radius_graph


def _moons(seed, per_class=60, angle=30.0):
    rng = np.random.default_rng(seed)
    source, labels = draw_moons(per_class, rng)
    target, truth = draw_moons(per_class, rng, angle=angle)
    return source, labels, target, truth


def test_one_draw_is_the_matching():
    source, labels, target, _ = _moons(0)
    found, matching = pvm.self_label(source, labels, target, 0.3, seed=4), pvm.match(source, target, 0.3, seed=4)
    expected = np.zeros(120)
    expected[matching.target] = labels[matching.source]
    np.testing.assert_array_equal(found.labels, expected)
    np.testing.assert_array_equal(found.weights, np.abs(expected))
    assert 0 < found.pv == matching.pv < 1
    assert set(zip(found.pairs.source, found.pairs.target)) == set(zip(matching.source, matching.target))
    np.testing.assert_array_equal(found.pairs.weights, 1.0)


def test_mean_over_draws():
    source, labels, target, _ = _moons(1)
    found = pvm.self_label(source, labels, target, 0.3, draws=32, seed=2)
    partners = pvm.draw_matchings(radius_graph(source, target, 0.3), 32, seed=2).partners
    for t in range(120):
        drawn = partners[:, t][partners[:, t] >= 0]
        assert found.weights[t] == drawn.size / 32
        assert found.labels[t] == pytest.approx(labels[drawn].mean() if drawn.size else 0.0)
    # Labels and weights follow from the pairs, which are the explanation of the result.
    total = np.bincount(found.pairs.target, found.pairs.weights * labels[found.pairs.source], minlength=120)
    np.testing.assert_allclose(total, found.labels * found.weights, atol=1e-12)
    assert np.any((np.abs(found.labels) > 0) & (np.abs(found.labels) < 1))
    assert np.any((found.weights > 0) & (found.weights < 1))


@pytest.mark.parametrize("draws", [1, 8])
def test_class_sorted_rows_leak_nothing(draws):
    # At a radius that joins all, only chance decides; rows in the order of the classes must not.
    right, points = 0.0, 0
    for seed in range(10):
        source, labels, target, truth = _moons(seed, angle=80.0)
        s, t = np.argsort(labels), np.argsort(truth)
        found = pvm.self_label(source[s], labels[s], target[t], 50.0, draws=draws, seed=seed)
        assert found.pv == 0
        right += np.sum((1 + found.labels * truth[t]) / 2)
        points += 120
    # Each run's share has a standard deviation of about 1 / (2 sqrt(119)) = .046; ten runs .0145, less with draws.
    assert abs(right / points - 0.5) < 4 * 0.0145


@pytest.mark.parametrize("draws", [1, 5])
def test_blind_to_the_order_of_rows(draws):
    source, labels, target, _ = _moons(2)
    # Coinciding points of both classes: their labels tell them apart.
    source[:30] = source[30:60]
    plain = pvm.self_label(source, labels, target, 0.4, draws=draws)
    rng = np.random.default_rng(0)
    for _ in range(5):
        s, t = rng.permutation(120), rng.permutation(120)
        moved = pvm.self_label(source[s], labels[s], target[t], 0.4, draws=draws)
        np.testing.assert_array_equal(moved.labels, plain.labels[t])
        np.testing.assert_array_equal(moved.weights, plain.weights[t])


def test_right_labels_for_a_small_shift():
    source, labels, target, truth = _moons(3, per_class=150, angle=20.0)
    found = pvm.self_label(source, labels, target, 0.2, draws=16)
    matched = found.weights > 0
    assert matched.mean() > 0.8
    assert np.mean(np.sign(found.labels[matched]) == truth[matched]) > 0.97


def test_no_pair_in_reach_says_the_smallest_distance():
    source, target = np.array([[0.0], [1.0]]), np.array([[3.5], [4.0]])
    with pytest.raises(ValueError, match=r"radius 1 leaves .* is 2\.5"):
        pvm.self_label(source, np.array([1, -1]), target, 1.0)
    with pytest.raises(ValueError, match=r"is 7\. Give a larger radius$"):
        pvm.self_label(None, np.array([1, -1]), None, 1.0, metric=pvm.Precomputed(np.array([[8.0], [7.0]])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_labels": np.array([1, 0])}, "source_labels must be -1 or"),
        ({"source_labels": np.array([1.0])}, "source_labels must have one entry"),
        ({"source_labels": np.array([1.0, np.nan])}, "source_labels holds"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"draws": 1.5}, "draws must be an integer"),
        ({"radius": 0}, "radius must be finite and above 0"),
        ({"source": None}, "source and target may be None"),
        ({"source": np.array([[np.nan], [0.0]])}, "source holds"),
        ({"target": np.ones((2, 2))}, "same number of features"),
    ],
)
def test_bad_input(change, message):
    good = {"source": np.array([[0.0], [1.0]]), "source_labels": np.array([1, -1]), "target": np.zeros((2, 1))}
    with pytest.raises(ValueError, match=message):
        pvm.self_label(**{**good, "radius": 1.0, **change})


@pytest.mark.parametrize("k", [1, 4, 7])
def test_neighbours_by_brute_force(k):
    source, labels, target, _ = _moons(5)
    nearest = np.argsort(cdist(target, source), axis=1)[:, :k]
    mean = labels[nearest].mean(axis=1)
    found = pvm.nn_self_label(source, labels, target, k)
    np.testing.assert_array_equal(found.labels, np.sign(mean))
    np.testing.assert_array_equal(found.weights, np.abs(np.sign(mean)))
    assert np.isnan(found.pv)
    np.testing.assert_array_equal(found.pairs.target, np.repeat(np.arange(120), k))
    np.testing.assert_array_equal(found.pairs.source, np.sort(nearest, axis=1).ravel())
    np.testing.assert_allclose(found.pairs.weights, 1 / k)


def test_neighbours_that_tie_share_the_last_places():
    source, labels = np.array([[0.0], [2.0], [2.0], [-2.0]]), np.array([-1, 1, 1, -1])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        found = pvm.nn_self_label(source[order], labels[order], np.array([[0.0]]), 2)
        # One place for the point at 0, a third of the other for each of the three at distance 2.
        mean = found.pairs.weights @ labels[order][found.pairs.source]
        assert mean == pytest.approx((-1 + 1 / 3) / 2)
        assert found.labels[0] == np.sign(mean)
        assert found.pairs.weights.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="k must be at most the number of source points, 4"):
        pvm.nn_self_label(source, labels, np.array([[0.0]]), 5)
    with pytest.raises(ValueError, match="k must be at least 1"):
        pvm.nn_self_label(source, labels, np.array([[0.0]]), 0)


def test_results_are_pytrees():
    source, labels, target, _ = _moons(6)
    found = pvm.self_label(source, labels, target, 0.3, draws=3)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, found)
    np.testing.assert_array_equal(doubled.labels, 2 * found.labels)
    assert doubled.pv == 2 * found.pv
