"""Majority votes over several views: against the one-view functions, scikit-learn's kernels, and cross-validation."""

import jax
import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

import pvmincq_jax as pvm
from experiments import views as command
from pvmincq_jax.adaptation.views import stack_views, view_margins, view_scales
from pvmincq_jax.baselines import mincq as source_mincq
from pvmincq_jax.baselines import resampling
from pvmincq_jax.datasets import moons_task

# Kernels narrow enough for votes of full rank, and one radius: the tests then share their compiled programs.
NARROW = 16.0
GRID = {"levels": (0.1,), "margins": (0.1, 0.5), "folds": 2, "draws": 4, "seed": 3}


@pytest.fixture(scope="module")
def task():
    """Moons turned by 30 degrees, and a second view: their squares on another scale."""
    moons = moons_task("30", 11, per_class=30, test_size=100)
    second = [np.column_stack([x**2, x[:, :1] * x[:, 1:]]) * 20 for x in (moons.source, moons.target, moons.test)]
    views = [[x, other] for x, other in zip((moons.source, moons.target, moons.test), second)]
    return moons, *views


def test_votes_are_the_kernels_of_each_block(task):
    moons, source, target, _ = task
    given = {"radius": 1.0, "margin": 0.2}
    model = pvm.pv_mincq_views(source, moons.source_labels, target, gammas=[2.0, 0.01], **given)
    votes = model.voters.votes(source)
    expected = np.hstack([rbf_kernel(source[0], target[0], 2.0), rbf_kernel(source[1], target[1], 0.01)])
    np.testing.assert_allclose(votes, expected, rtol=1e-12)


def test_scales_and_stack(task):
    target = task[2]
    scales = view_scales(target)
    squares = [np.median(np.sum((v[:, None] - v[None]) ** 2, -1)[np.triu_indices(len(v), 1)]) for v in target]
    np.testing.assert_allclose(scales**2, squares, rtol=1e-12)
    stack = stack_views(target, scales)
    gaps = [np.sum((v[0] - v[1]) ** 2) / s**2 for v, s in zip(target, scales)]
    assert np.sum((stack[0] - stack[1]) ** 2) == pytest.approx(np.mean(gaps))


def test_one_view_is_pv_mincq(task):
    moons, source, target, test = task
    given = {"margin": 0.2, "draws": 4, "seed": 5, "margin_unit": "fraction"}
    scale = view_scales(target[1:])[0]
    gamma = NARROW / scale**2
    one = pvm.pv_mincq(source[1], moons.source_labels, target[1], radius=4.0, gamma=gamma, **given)
    for matching, radius in (("each", [4.0]), ("joint", 4.0 / scale)):
        model = pvm.pv_mincq_views(
            source[1:], moons.source_labels, target[1:], radius=radius, gammas=[gamma], matching=matching, **given
        )
        np.testing.assert_allclose(model.weights, one.weights, atol=1e-9)
        assert model.pv == one.pv
        np.testing.assert_allclose(pvm.decision(model, test[1:]), pvm.decision(one, test[1]), atol=1e-9)


def test_one_validated_view_is_the_sweep(task):
    moons, source, target, _ = task
    options = GRID | {"criterion": pvm.label_criterion}
    plain = {"radius_unit": "pv", **options}
    plain["radii"] = plain.pop("levels")
    found = pvm.fit_views_validated(
        source[:1], moons.source_labels, target[:1], matching="each", multiples=(NARROW,), **options
    )
    gammas = NARROW / view_scales(target[:1]) ** 2
    other = pvm.fit_validated(source[0], moons.source_labels, target[0], gammas=gammas, **plain)
    np.testing.assert_allclose(found.sweep.c_bound, other.sweep.c_bound, atol=1e-7)
    np.testing.assert_allclose(found.sweep.source_risk, other.sweep.source_risk)
    np.testing.assert_array_equal(found.sweep.pv, other.sweep.pv)
    assert found.choice.grid_index == other.choice.grid_index
    np.testing.assert_allclose(found.model.weights, other.model.weights, atol=1e-8)


def test_the_source_as_its_own_target_is_cross_validation(task):
    moons, source, _, _ = task
    margins = (0.1, 0.5)
    found = pvm.fit_views_validated(
        source[:1], moons.source_labels, source[:1], levels=[0.0], draws=1, criterion=pvm.rs, margins=margins,
        multiples=(NARROW,), folds=2, seed=4,
    )  # fmt: skip
    gamma = float(NARROW / view_scales(source[:1])[0] ** 2)
    grid = [source_mincq.MinCqParams(gamma, margin) for margin in margins]
    errors = resampling.cross_validation(
        source_mincq.fit, source_mincq.decision, source[0], moons.source_labels, source[0], grid, 2, 4
    )
    np.testing.assert_allclose(found.choice.scores[0, 0], errors, atol=1e-12)
    assert found.sweep.pv[0] == 0
    np.testing.assert_array_equal(found.model.labels, moons.source_labels)


@pytest.mark.parametrize("matching", ["joint", "each"])
def test_both_views_learn_and_ignore_the_order_of_rows(task, matching):
    moons, source, target, test = task
    given = {"matching": matching, "multiples": (NARROW,), **GRID}
    found = pvm.fit_views_validated(source, moons.source_labels, target, **given)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(source[0])), rng.permutation(len(target[0]))
    moved = pvm.fit_views_validated(
        [x[rows] for x in source], moons.source_labels[rows], [x[columns] for x in target], **given
    )
    values = np.asarray(pvm.decision(found.model, test))
    np.testing.assert_allclose(pvm.decision(moved.model, test), values, atol=1e-8)
    assert np.mean(values * moons.test_labels > 0) > 0.75
    parts = np.asarray(view_margins(found.model, test))
    assert parts.shape == (len(values), 2)
    assert np.all(np.std(parts, axis=0) > 0)
    np.testing.assert_allclose(parts.sum(axis=1), values, atol=1e-12)


def test_labels_of_each_view_are_pooled(task):
    moons, source, target, _ = task
    radius = [0.3, 4.0]
    model = pvm.pv_mincq_views(
        source, moons.source_labels, target, radius=radius, gammas=NARROW / view_scales(target) ** 2,
        margin=0.5, margin_unit="fraction", matching="each", draws=3, seed=2,
    )  # fmt: skip
    each = [pvm.self_label(s, moons.source_labels, t, r, draws=3, seed=2) for s, t, r in zip(source, target, radius)]
    weight = sum(one.weights for one in each)
    mean = sum(one.labels * one.weights for one in each) / np.maximum(weight, 1e-9)
    np.testing.assert_allclose(model.labels, mean, atol=1e-12)
    np.testing.assert_allclose(model.label_weights, weight / 2)
    assert model.pv == pytest.approx(np.mean([one.pv for one in each]))


def test_a_given_classifier_that_turns_on_the_target_is_turned_back(task):
    moons, source, target, _ = task
    rng = np.random.default_rng(1)
    # The first voter knows the labels of the source and says their opposite on the target; the second is noise.
    found = pvm.self_label(source[0], moons.source_labels, target[0], 0.5, draws=8)
    on_target = np.column_stack([-np.where(found.labels >= 0, 1.0, -1.0), rng.uniform(-1, 1, len(target[0]))])
    vote = pvm.adapt_votes(on_target, found, margin=0.5, margin_unit="fraction")
    assert vote.weights[0] < -10 * abs(vote.weights[1])
    on_source = np.column_stack([moons.source_labels, rng.uniform(-1, 1, len(source[0]))])
    fit = pvm.fit_votes_validated(source[0], moons.source_labels, target[0], on_source, on_target, **GRID)
    assert fit.model.weights[0] < 0
    assert fit.sweep.status.shape == (1, 1, 2)


def test_gradient_reaches_the_views(task):
    moons, source, target, test = task
    model = pvm.pv_mincq_views(
        source,
        moons.source_labels,
        target,
        radius=0.5,
        gammas=NARROW / view_scales(target) ** 2,
        margin=0.5,
        margin_unit="fraction",
    )

    def total(x):
        return pvm.decision(model, [x, test[1][:3]]).sum()

    slope = jax.grad(total)(test[0][:3])
    step = 1e-6 * np.eye(6)[2].reshape(3, 2)
    difference = (total(test[0][:3] + step) - total(test[0][:3] - step)) / 2e-6
    assert slope[1, 0] == pytest.approx(float(difference), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_views": np.zeros((4, 2))}, "source_views must be a list or tuple"),
        ({"source_views": []}, "source_views must be a list or tuple"),
        ({"target_views": [np.zeros((4, 1))]}, "target_views must hold 2 views; it holds 1"),
        (
            {"target_views": [np.zeros((4, 1)), np.zeros((5, 1))]},
            r"target_views\[1\] must have one row per object \(4\); it has 5",
        ),
        ({"target_views": [np.zeros((4, 1)), np.zeros((4, 2))]}, r"source_views\[1\] and target_views\[1\] must have"),
        ({"gammas": [1.0]}, "gammas must have one entry per view"),
        ({"gammas": [1.0, -1.0]}, "gammas must be finite and above 0"),
        ({"matching": "both"}, "matching must be 'joint' or 'each'"),
        ({"radius": [1.0, 1.0], "matching": "joint"}, "radius must hold 1 number"),
        ({"radius": [1e-9, 1e-9]}, "leaves every point unmatched: the smallest distance .* 0.5"),
        ({"source_labels": np.ones(4)}, "source_labels must hold both classes"),
    ],
)
def test_bad_input_is_named(change, message):
    points = np.arange(4.0)[:, None]
    given = {
        "source_views": [points, points],
        "source_labels": np.array([1, 1, -1, -1]),
        "target_views": [points + 0.5, points + 0.5],
        "radius": [1.0, 1.0],
        "margin": 0.5,
        "gammas": [1.0, 1.0],
        "matching": "each",
        "margin_unit": "fraction",
        **change,
    }
    with pytest.raises(ValueError, match=message):
        pvm.pv_mincq_views(given.pop("source_views"), given.pop("source_labels"), given.pop("target_views"), **given)


def test_bad_votes_are_named():
    points, labels = np.arange(4.0)[:, None], np.array([1, 1, -1, -1])
    with pytest.raises(ValueError, match=r"target_votes must have one row per point \(4\); it has 3"):
        pvm.fit_votes_validated(points, labels, points, np.zeros((4, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="source_votes and target_votes must have the same number"):
        pvm.fit_votes_validated(points, labels, points, np.zeros((4, 2)), np.zeros((4, 3)))


def test_edges_turn_with_the_image():
    image = np.random.default_rng(0).uniform(size=(1, 8, 8))
    upright, turned = (command.edges(x)[0].reshape(2, 2, 8) for x in (image, np.rot90(image, axes=(1, 2))))
    # A quarter turn anticlockwise moves the quarters and takes every direction two places back (rows count downwards).
    np.testing.assert_allclose(turned, np.roll(np.rot90(upright), -2, axis=2), atol=1e-12)
    assert np.linalg.norm(upright) == pytest.approx(1)


def test_domains_of_the_task_are_disjoint_and_shifted():
    task = command.views_task("lamp", 1000, 20)
    assert [len(part[0]) for part in (task.source, task.target, task.test)] == [20, 20, 1797 - 40]
    assert set(task.test_labels) == {-1.0, 1.0}
    # The lamp changes no order of grey levels within a column of the image, and lifts the last column by 0.6.
    assert np.min(task.target[0].reshape(-1, 8, 8)[:, :, -1]) >= 0.6
    moved = command.views_task("moved", 1000, 20)
    plain = task.pictures[0], moved.pictures[0]
    np.testing.assert_array_equal(*plain)
    assert np.all(moved.pictures[1][:, :, 0] == 0)
    unlit = (task.pictures[1] - 0.6 * np.linspace(0, 1, 8)) / 0.4
    np.testing.assert_allclose(moved.pictures[1][:, :, 1:], unlit[:, :, :-1], atol=1e-12)
    with pytest.raises(ValueError, match="shift must be one of lamp, moved; it is 'dark'"):
        command.views_task("dark", 1000)


def test_margins_of_views_are_checked_and_may_be_small(task):
    moons, source, target, _ = task
    arguments = source, moons.source_labels, target
    with pytest.raises(ValueError, match=r"margins must be in \(0, 1\].*1.5"):
        pvm.fit_views_validated(*arguments, **GRID | {"margins": [0.5, 1.5]})
    found = pvm.fit_views_validated(*arguments, **GRID | {"margins": [1e-5, 0.5]}, multiples=(NARROW,))
    assert np.all(found.sweep.status == pvm.Status.SOLVED)
    assert np.all(found.sweep.kkt_residual <= 1e-7)
