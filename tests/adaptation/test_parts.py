"""Large samples: parts of them are matched, and the chosen votes are learnt on all points."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax._samples import part_rows
from pvmincq_jax.adaptation.transport import move_all, nearest_means
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import PVTransportClassifier

GRID = {"gammas": [2.0], "margins": [0.1, 0.4], "draws": 4, "radii": [0.2, 0.0], "radius_unit": "pv"}
FITS = {"label": pvm.fit_validated, "transport": pvm.fit_transport_validated}


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 3, per_class=80, test_size=300)


def kernel(x, centers, gamma):
    return np.exp(-gamma * cdist(x, centers, "sqeuclidean"))


def test_a_part_has_the_classes_in_their_shares_whatever_the_order_of_the_rows():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(1000, 2)), np.repeat([0, 1, 2], [700, 250, 50])
    rows, order = part_rows(points, 100, 4, labels), rng.permutation(1000)
    np.testing.assert_allclose(np.bincount(labels[rows]), [70, 25, 5], atol=1)
    again = part_rows(points[order], 100, 4, labels[order])
    assert {*map(tuple, points[order][again])} == {*map(tuple, points[rows])}
    assert {*rows} != {*part_rows(points, 100, 5, labels)}
    np.testing.assert_array_equal(part_rows(points, 1000, 0), np.arange(1000))


@pytest.mark.parametrize("features", [2, 20])
def test_values_are_carried_over_by_the_nearest_points(features):
    """By a tree, or by all distances: the same sums as written out."""
    rng = np.random.default_rng(1)
    points, x, values = rng.normal(size=(40, features)), rng.normal(size=(30, features)), rng.normal(size=(40, 3))
    x[0], weights = points[7], rng.random(40)
    weights[::5] = 0
    other = np.ones(40), values[:, :1]
    (means, nearest), beside = nearest_means(points, [(weights, values), other], x)
    for shared, alone in zip(beside, nearest_means(points, [other], x)[0]):
        np.testing.assert_array_equal(shared, alone)
    square = cdist(x, points, "sqeuclidean")
    for i in range(1, 30):
        able = [j for j in np.argsort(square[i]) if weights[j] > 0][:5]
        share = weights[able] / square[i, able]
        np.testing.assert_allclose(means[i], share @ values[able] / np.sum(share), rtol=1e-9)
        assert nearest[i] == pytest.approx(np.sqrt(square[i, able[0]]))
    np.testing.assert_allclose(means[0], values[7])


def test_points_that_are_not_matched_move_as_move_says(task):
    rows = part_rows(task.source, 60, 0, task.source_labels)
    part = pvm.pv_transport(task.source[rows], task.target[:60], 1.5, draws=4)
    (whole,) = move_all([part], task.source, task.target)
    np.testing.assert_allclose(whole.moved, pvm.move(part, task.source), atol=1e-9)
    np.testing.assert_allclose(np.asarray(whole.moved)[rows], part.moved, atol=1e-12)


@pytest.mark.parametrize("form", FITS)
def test_the_vote_is_learnt_on_all_points(form, task):
    """Its figures are those of its own weights on all points, and the grid is that of the parts."""
    one_point = {"gammas": [2.0], "margins": [0.3], "draws": 4, "radii": [0.0], "radius_unit": "pv"}
    options = {} if form == "label" else {"top_fraction": None, "match_moments": False}
    fit = FITS[form](*task[:3], **one_point, **options, most_points=60)
    model, part = fit.model, fit.sweep
    assert model.labels.shape == (160,)
    assert len(part.target) <= 60
    share = model.label_weights / np.sum(model.label_weights)
    points = task.target
    if form == "transport":
        points = np.asarray(move_all(part.transports[:1], task.source, task.target)[0].moved)
        np.testing.assert_array_equal(model.labels, task.source_labels)
    values = kernel(points, model.centers, 2.0) @ model.weights
    first, second = np.sum(share * model.labels * values), np.sum(share * values**2)
    assert float(model.margin) == pytest.approx(first, rel=1e-6)
    assert float(model.c_bound) == pytest.approx(1 - first**2 / second, abs=1e-7)
    assert float(model.kkt_residual) < 1e-7
    # Pairs are of points within the radius, by the rows of the whole samples.
    lengths = np.linalg.norm(task.source[model.pairs.source] - task.target[model.pairs.target], axis=1)
    assert np.max(lengths) <= fit.choice.radius * (1 + 1e-12)


@pytest.mark.parametrize("form", FITS)
def test_parts_are_nearly_as_good_and_blind_to_the_order(form, task):
    fit = FITS[form](*task[:3], **GRID, most_points=80)
    exact = FITS[form](*task[:3], **GRID, most_points=None)
    right = [np.mean(pvm.predict(one.model, task.test) == task.test_labels) for one in (fit, exact)]
    assert right[0] > right[1] - 0.03
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(160), rng.permutation(160)
    again = FITS[form](task.source[rows], task.source_labels[rows], task.target[columns], **GRID, most_points=80)
    np.testing.assert_allclose(pvm.decision(again.model, task.test), pvm.decision(fit.model, task.test), atol=1e-6)


def test_up_to_so_many_points_nothing_changes(task):
    fit, exact = (pvm.fit_validated(*task[:3], **GRID, most_points=most) for most in (160, None))
    np.testing.assert_array_equal(fit.model.weights, exact.model.weights)
    with pytest.raises(ValueError, match="most_points must be"):
        pvm.fit_validated(*task[:3], **GRID, most_points=0)


def test_the_classifier_of_three_classes_takes_parts():
    rng = np.random.default_rng(2)
    numbers = np.arange(120) % 3
    source = rng.normal(size=(120, 2)) * 0.4 + 3 * np.eye(3)[numbers][:, :2]
    model = PVTransportClassifier(radius=1.5, gamma=0.5, draws=4, margin=[0.2, 0.4], most_points=60)
    model.fit_domains(source, numbers, source + 0.4)
    assert model.score(source + 0.4, numbers) > 0.95
    assert model.self_labels_.shape == (3, 120)
    assert model.predict_proba(source).shape == (120, 3)


@pytest.mark.parametrize("form", FITS)
def test_weights_of_source_points_count_in_the_vote_on_all_points(form):
    """Three classes, one of them ten times as heavy: its side of the learning sample is, too."""
    rng = np.random.default_rng(2)
    numbers = np.arange(120) % 3
    source = rng.normal(size=(120, 2)) + 1.5 * np.eye(3)[numbers][:, :2]
    grid = {"radii": [1.5], "gammas": [0.5], "margins": [0.2], "draws": 4, "most_points": 60}
    target = source + 0.2
    plain, weighed = (
        FITS[form](source, numbers, target, **grid, source_weights=weights)
        for weights in (None, np.where(numbers == 0, 10.0, 1.0))
    )
    counts = [np.mean(pvm.predict(one.model, target) == 0) for one in (plain, weighed)]
    assert counts[1] > counts[0] + 0.05
