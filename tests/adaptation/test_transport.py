"""The matching as a map: barycentres, their law, new points, the vote on moved points, and the bounds on it."""

import jax
import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import chisquare

import pvmincq_jax as pvm
from pvmincq_jax.bounds.deviation import (
    moved_disagreement_bound,
    moved_gibbs_bound,
    moved_vote_bound,
    rbf_smoothness,
)
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.matching.selflabel import matched_spread

GIVEN = {"margin": 0.1, "gamma": 2.0, "margin_unit": "fraction"}


@pytest.fixture(scope="module")
def task():
    return moons_task("60", 1001, per_class=60, test_size=600)


@pytest.fixture(scope="module")
def radius(task):
    return 1.45 * pvm.bottleneck_radius(task.source, task.target)


@pytest.fixture(scope="module")
def transport(task, radius):
    return pvm.pv_transport(task.source, task.target, radius, draws=64, seed=5)


@pytest.fixture(scope="module")
def model(task, radius):
    return pvm.pv_transport_mincq(task.source, task.source_labels, task.target, radius=radius, seed=5, **GIVEN)


def accuracy(model, task):
    return np.mean(np.asarray(pvm.predict(model, task.test)) == task.test_labels)


def dense(transport, task):
    plan = np.zeros((len(task.source), len(task.target)))
    plan[transport.pairs.source, transport.pairs.target] = transport.pairs.weights
    return plan


def test_barycentres_by_their_definition(transport, task, radius):
    plan = dense(transport, task)
    distance = np.linalg.norm(task.source[:, None] - task.target[None], axis=-1)
    assert np.all(distance[plan > 0] <= radius)
    np.testing.assert_allclose(plan.sum(axis=0), 1.0)
    np.testing.assert_allclose(plan.sum(axis=1), transport.weights)
    np.testing.assert_allclose(transport.moved, plan @ task.target, atol=1e-12)
    gap = np.linalg.norm(transport.moved[:, None] - task.target[None], axis=-1)
    np.testing.assert_allclose(transport.mean_distance, np.sum(plan * gap, axis=1), atol=1e-12)
    np.testing.assert_allclose(transport.variance, np.sum(plan * gap**2, axis=1), atol=1e-12)
    assert np.all(np.linalg.norm(transport.moved - task.source, axis=1) <= radius + 1e-12)
    # The traced form says the same.
    spread = matched_spread(task.target, plan)
    for ours, theirs in zip(transport.spread, spread, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_one_draw_is_the_matching(task):
    radius = 0.5 * pvm.bottleneck_radius(task.source, task.target)
    one = pvm.pv_transport(task.source, task.target, radius, draws=1, seed=3)
    matching = pvm.match(task.source, task.target, radius, seed=3)
    assert one.pv == matching.pv > 0
    matched = np.isin(np.arange(len(task.source)), matching.source)
    np.testing.assert_array_equal(one.weights, matched)
    np.testing.assert_array_equal(one.moved[matching.source], task.target[matching.target])
    np.testing.assert_array_equal(one.moved[~matched], task.source[~matched])
    assert np.all(one.variance == 0)


def test_a_translation_is_found():
    rng = np.random.default_rng(0)
    # Points on a ring, so far apart that the smallest radius allows the translation alone.
    angle = np.arange(12) / 12 * 2 * np.pi
    source = 10 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    move = np.array([3.0, -1.0])
    target = (source + move)[rng.permutation(12)]
    transport = pvm.pv_transport(source, target, np.linalg.norm(move) + 1e-9)
    np.testing.assert_allclose(transport.moved, source + move, atol=1e-12)
    np.testing.assert_allclose(pvm.move(transport, source[:3] + 0.1), source[:3] + 0.1 + move, atol=1e-12)


def test_blind_to_the_order_of_the_rows(transport, model, task, radius):
    rng = np.random.default_rng(2)
    here, there = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    other = pvm.pv_transport(task.source[here], task.target[there], radius, draws=64, seed=5)
    np.testing.assert_allclose(other.moved, transport.moved[here], atol=1e-12)
    fitted = pvm.pv_transport_mincq(
        task.source[here], task.source_labels[here], task.target[there], radius=radius, seed=5, **GIVEN
    )
    values = np.asarray(pvm.decision(model, task.test))
    np.testing.assert_allclose(pvm.decision(fitted, task.test), values, atol=1e-7 * np.max(np.abs(values)))
    # Another seed is another draw.
    assert np.any(pvm.pv_transport(task.source, task.target, radius, seed=6).moved != transport.moved)


def test_labels_tell_coinciding_points_apart():
    source = np.array([[0.0], [0.0], [1.0]])
    target, labels = np.array([[0.1], [0.9], [-0.1]]), np.array([1, -1, 1])
    swapped = [1, 0, 2]
    for seed in range(5):
        first = pvm.pv_transport(source, target, 2.0, draws=3, seed=seed, source_labels=labels)
        other = pvm.pv_transport(source[swapped], target, 2.0, draws=3, seed=seed, source_labels=labels[swapped])
        np.testing.assert_allclose(other.moved, first.moved[swapped], atol=1e-15)


def test_interchangeable_points_are_treated_alike():
    """Source points 0 to 3 see the same five targets, 4 sees two of them: each of the four is as likely anywhere."""
    target = np.arange(5.0)[:, None]
    source = np.array([[2.0], [2.0], [2.0], [2.0], [-1.5]])
    draws = 4000
    plan = np.zeros((5, 5))
    pairs = pvm.pv_transport(source, target, 2.5, draws=draws, seed=1).pairs
    plan[pairs.source, pairs.target] = np.round(pairs.weights * draws)
    assert np.all(plan[4, 2:] == 0)
    # At a level of 1e-4 for each of the comparisons, all of them counts over independent draws.
    for t in range(5):
        assert chisquare(plan[:4, t]).pvalue > 1e-4
    # Targets 0 and 1 are interchangeable, and so are 2, 3 and 4.
    assert chisquare(plan[4, :2]).pvalue > 1e-4
    assert chisquare(plan[:4, 2:].sum(axis=0)).pvalue > 1e-4 or np.ptp(plan[:4, 2:].sum(axis=0)) == 0
    for s in range(4):
        assert chisquare(plan[s, 2:]).pvalue > 1e-4


def test_on_a_complete_graph_all_points_go_to_the_middle():
    rng = np.random.default_rng(4)
    source, target = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    error = [
        np.mean((pvm.pv_transport(source, target, 99.0, draws=draws).moved - target.mean(axis=0)) ** 2)
        for draws in (16, 256)
    ]
    # Independent draws: the mean square error is the variance of one target point over the draws.
    expected = np.mean(np.var(target, axis=0)) / np.array([16, 256])
    np.testing.assert_allclose(error, expected, rtol=0.5)


def test_new_points(transport, task):
    np.testing.assert_allclose(pvm.move(transport, task.source), transport.moved, atol=1e-12)
    x = task.source + 0.01
    _, nearest = cKDTree(task.source).query(x)
    expected = x + (transport.moved - task.source)[nearest]
    np.testing.assert_allclose(pvm.move(transport, x, neighbours=1), expected, atol=1e-12)
    distance, near = cKDTree(task.source).query(x, 3)
    weight = distance**-2 * transport.weights[near]
    shift = np.sum(weight[..., None] * (transport.moved - task.source)[near], axis=1) / weight.sum(axis=1)[:, None]
    np.testing.assert_allclose(pvm.move(transport, x, neighbours=3), x + shift, atol=1e-10)
    # Points that were never matched move nobody.
    half = transport._replace(weights=np.where(np.arange(len(x)) < 60, transport.weights, 0.0))
    _, nearest = cKDTree(task.source[:60]).query(x)
    expected = x + (transport.moved - task.source)[:60][nearest]
    np.testing.assert_allclose(pvm.move(half, x, neighbours=1), expected, atol=1e-12)


def test_move_is_a_jax_function(transport, task):
    x = task.source[:4] + 0.013
    move = jax.jit(pvm.move)
    out = move(transport, x)
    np.testing.assert_allclose(out, pvm.move(transport, x), atol=1e-12)
    tangent = np.random.default_rng(0).normal(size=x.shape)
    pushed = jax.jit(lambda x: jax.jvp(lambda z: pvm.move(transport, z), (x,), (tangent,))[1])
    slope = pushed(x)
    step = 1e-6
    numeric = (move(transport, x + step * tangent) - move(transport, x - step * tangent)) / (2 * step)
    np.testing.assert_allclose(slope, numeric, atol=1e-6)
    assert np.all(np.isfinite(pushed(task.source[:4])))


def test_the_vote_on_moved_points(model, transport, task):
    np.testing.assert_array_equal(model.centers, transport.moved)
    np.testing.assert_array_equal(model.labels, task.source_labels)
    np.testing.assert_array_equal(model.label_weights, transport.weights)
    assert model.kkt_residual < 1e-7
    votes = np.exp(-GIVEN["gamma"] * np.sum((transport.moved[:, None] - transport.moved[None]) ** 2, axis=-1))
    vote = votes @ model.weights
    first, second = np.mean(task.source_labels * vote), np.mean(vote**2)
    np.testing.assert_allclose(first, model.margin, rtol=1e-7)
    np.testing.assert_allclose(1 - first**2 / second, model.c_bound, atol=1e-9)
    np.testing.assert_allclose(model.margin, 0.1 * model.mu_max, rtol=1e-12)


def test_beats_carried_labels_at_a_large_shift(model, task, radius):
    carried = pvm.pv_mincq(task.source, task.source_labels, task.target, radius=radius, draws=64, seed=5, **GIVEN)
    assert accuracy(model, task) > 0.85
    assert accuracy(model, task) > accuracy(carried, task) + 0.1


def test_the_bounds_hold_for_the_vote_on_moved_points(model, transport, task, radius):
    spread = transport.spread
    smooth = rbf_smoothness(model.gamma, model.weights)
    plan = dense(transport, task)
    on_moved = np.asarray(pvm.decision(model, transport.moved))
    on_target = np.asarray(pvm.decision(model, task.target))
    bound = np.asarray(moved_vote_bound(spread, smooth))
    gap = np.abs(on_moved - plan @ on_target)
    assert np.all(gap <= bound)
    # What the matched target points would say with the carried labels, against the moved ones with the true labels.
    target_votes = pvm.rbf_votes(task.target, model.centers, model.gamma)
    moved_votes = pvm.rbf_votes(transport.moved, model.centers, model.gamma)
    carried = plan.T @ task.source_labels
    risks = (
        pvm.gibbs_risk(moved_votes, task.source_labels, model.weights, sample_weights=transport.weights),
        pvm.gibbs_risk(target_votes, carried, model.weights),
    )
    assert 0 < abs(risks[0] - risks[1]) <= moved_gibbs_bound(spread, smooth)
    apart = pvm.domain_disagreement(moved_votes, target_votes, model.weights, source_sample_weights=transport.weights)
    assert 0 < apart <= moved_disagreement_bound(spread, moved_votes, model.weights, smooth)
    # The move itself is within the radius, so no voter changes by more than the radius allows.
    kept = pvm.rbf_votes(task.source, model.centers, model.gamma)
    assert pvm.eps_h(kept, moved_votes) <= radius * rbf_smoothness(model.gamma).lipschitz


def test_unmatched_source_points_neither_count_nor_vote(task):
    radius = 0.4 * pvm.bottleneck_radius(task.source, task.target)
    model = pvm.pv_transport_mincq(
        task.source, task.source_labels, task.target, radius=radius, draws=8, **GIVEN | {"gamma": 1.0}
    )
    never = np.asarray(model.label_weights) == 0
    assert 0 < np.sum(never) < len(never)
    assert np.all(model.weights[never] == 0)
    assert np.all(model.weights[~never] != 0)


def test_saved_and_loaded(model, task, tmp_path):
    pvm.save_model(model, tmp_path / "model")
    loaded = pvm.load_model(tmp_path / "model")
    np.testing.assert_array_equal(pvm.decision(loaded, task.test), pvm.decision(model, task.test))


def test_follows_the_precision_of_the_samples(task, radius):
    source, target = task.source.astype(np.float32), task.target.astype(np.float32)
    transport = pvm.pv_transport(source, target, radius, draws=4)
    assert transport.moved.dtype == np.float32


ONES, LABELS = np.ones((4, 2)), np.array([1, 1, -1, -1])
FIT = {"radius": 1.0, "margin": 0.1, "gamma": 1.0}


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("source holds", lambda: pvm.pv_transport(np.full((2, 2), np.nan), ONES, 1.0)),
        ("target is empty", lambda: pvm.pv_transport(ONES, np.ones((0, 2)), 1.0)),
        ("same number of features", lambda: pvm.pv_transport(ONES, np.ones((4, 3)), 1.0)),
        ("radius must be", lambda: pvm.pv_transport(ONES, ONES, 0.0)),
        ("smallest distance.* is 7", lambda: pvm.pv_transport(ONES, ONES + np.array([7, 0]), 1.0)),
        ("draws must be at least 1", lambda: pvm.pv_transport(ONES, ONES, 1.0, draws=0)),
        ("seed must be", lambda: pvm.pv_transport(ONES, ONES, 1.0, seed=-1)),
        ("source_labels must be", lambda: pvm.pv_transport(ONES, ONES, 1.0, source_labels=[0, 1, 1, 1])),
        ("neighbours must be", lambda: pvm.move(pvm.pv_transport(ONES, ONES, 1.0), ONES, neighbours=0)),
        ("same number of features", lambda: pvm.move(pvm.pv_transport(ONES, ONES, 1.0), np.ones((1, 1)))),
        ("both classes", lambda: pvm.pv_transport_mincq(ONES, np.ones(4), ONES, **FIT)),
        ("gamma must be", lambda: pvm.pv_transport_mincq(ONES, LABELS, ONES, **FIT | {"gamma": 0.0})),
        ("mu_max", lambda: pvm.pv_transport_mincq(ONES * [[1], [2], [3], [4]], LABELS, ONES, **FIT | {"margin": 2.0})),
        ("margin_unit", lambda: pvm.pv_transport_mincq(ONES, LABELS, ONES, **FIT, margin_unit="share")),
    ],
)  # fmt: skip
def test_bad_input_is_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()
