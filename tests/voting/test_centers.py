"""Where kernels sit when they are fewer than the points: spread, seeded, blind to the order, never nowhere."""

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus

import pvmincq_jax as pvm
from pvmincq_jax._samples import spread_rows
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.voting.centers import draw_centers

SMALL = {"radii": [0.3, 0.7], "margins": [0.1, 0.4], "gammas": [2.0], "folds": 2, "draws": 3}


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 0, per_class=40, test_size=100)


def _left(points, rows):
    """What k-means++ makes small: squared distances to the nearest seat."""
    return np.mean(np.min(np.sum((points[:, None] - points[rows][None]) ** 2, axis=-1), axis=1))


def test_spread_as_scikit_learn_spreads():
    points = np.random.default_rng(0).normal(size=(400, 3)) * [5, 1, 1]
    ours = [_left(points, spread_rows(points, 12, seed)) for seed in range(40)]
    theirs = [_left(points, kmeans_plusplus(points, 12, random_state=seed, n_local_trials=1)[1]) for seed in range(40)]
    error = np.hypot(np.std(ours), np.std(theirs)) / np.sqrt(40)
    assert abs(np.mean(ours) - np.mean(theirs)) < 4 * error


def test_the_law_of_the_second_seat():
    """Three points on a line: the chances of each pair, by hand."""
    points = np.array([[0.0], [1.0], [3.0]])
    pairs = [tuple(spread_rows(points, 2, seed)) for seed in range(3000)]
    chances = {(0, 1): 1 / 30, (0, 2): 9 / 30, (1, 0): 1 / 15, (1, 2): 4 / 15, (2, 0): 9 / 39, (2, 1): 4 / 39}
    for pair, chance in chances.items():
        assert pairs.count(pair) / 3000 == pytest.approx(chance, abs=4 * np.sqrt(chance / 3000))


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_seats_are_distinct_nested_and_blind_to_the_order(offset):
    rng = np.random.default_rng(1)
    points = np.repeat(np.round(rng.normal(size=(60, 2)), 2), 2, axis=0) + offset
    rows, order = spread_rows(points, 30, 5), rng.permutation(120)
    assert len(np.unique(points[rows], axis=0)) == 30
    np.testing.assert_array_equal(points[order][spread_rows(points[order], 30, 5)], points[rows])
    np.testing.assert_array_equal(spread_rows(points, 12, 5), rows[:12])
    # As many as there are places.
    assert len(spread_rows(points, 100, 5)) == len(np.unique(points, axis=0))


@pytest.mark.parametrize("centers", ["target", "source", "both"])
def test_up_to_the_bound_nothing_changes(task, centers):
    data = task.source, task.source_labels, task.target
    places = 160 if centers == "both" else 80
    many, few = (pvm.sweep(*data, **SMALL, centers=centers, most_voters=most) for most in (1000, places))
    for ours, theirs in zip(many, few):
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("form", ["target", "source", "both", "transport"])
def test_blind_to_the_order_of_rows(task, form):
    rng = np.random.default_rng(2)
    rows, columns = rng.permutation(80), rng.permutation(80)

    def learn(source, labels, target):
        if form == "transport":
            given = {name: value for name, value in SMALL.items() if name != "folds"}
            return pvm.transport_sweep(source, labels, target, **given, most_voters=20)
        return pvm.sweep(source, labels, target, **SMALL, centers=form, most_voters=20)

    one = learn(task.source, task.source_labels, task.target)
    other = learn(task.source[rows], task.source_labels[rows], task.target[columns])
    assert one.weights.shape[-1] == 20
    np.testing.assert_allclose(pvm.values_at(one, task.test), pvm.values_at(other, task.test), rtol=1e-5, atol=1e-9)


def test_few_matched_points_keep_a_voter(task):
    """At the smallest radius a handful of points is matched, and who stands for them votes."""
    distances = np.linalg.norm(task.source[:, None] - task.target[None], axis=-1)
    radius = float(np.sort(np.min(distances, axis=0))[3])
    for most in (3, 20):
        model = pvm.pv_mincq(
            task.source, task.source_labels, task.target, radius=radius, margin=0.5, gamma=2.0, most_voters=most
        )
        matched = task.target[np.asarray(model.label_weights) > 0]
        assert len(model.centers) == most
        nearest = np.argmin(np.sum((matched[:, None] - np.asarray(model.centers)[None]) ** 2, axis=-1), axis=1)
        np.testing.assert_array_equal(np.flatnonzero(np.asarray(model.weights)), np.unique(nearest))


def test_a_fold_leaves_its_own_source_points_out(task):
    seats = draw_centers(task.source, task.target, "source", 30, 0)
    learning = np.random.default_rng(0).random(80) < 0.7
    mask = seats.mask(np.ones(80, bool), learning)
    kept = {tuple(point) for point in task.source[learning]}
    assert [tuple(point) in kept for point in seats.points] == mask.tolist()


def test_stumps_look_at_all_points(task):
    few = pvm.pv_mincq(
        task.source, task.source_labels, task.target, radius=0.6, margin=0.3, voters="stumps", most_voters=5
    )
    np.testing.assert_array_equal(few.voters.thresholds, pvm.stump_thresholds(task.target)[1])


def test_a_bad_number_is_named(task):
    data = task.source, task.source_labels, task.target
    with pytest.raises(ValueError, match="most_voters must be at least 1; it is 0"):
        pvm.sweep(*data, **SMALL, most_voters=0)
    with pytest.raises(ValueError, match="most_voters must be an integer"):
        pvm.pv_transport_mincq(*data, radius=0.6, margin=0.3, gamma=1.0, most_voters=2.5)
