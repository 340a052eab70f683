"""Soft matching against exact matchings and other solvers; learned maps against what they must keep and find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial.distance import cdist, pdist

import pvmincq_jax as pvm
from pvmincq_jax.adaptation.distance import own_c_bound
from pvmincq_jax.matching.soft import soft_eps_h

STEPS = 60


def samples(seed, m_s=30, m_t=24, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m_s, d)), rng.normal(size=(m_t, d)) + 0.3


def exact_pv(source, target, radius):
    """By SciPy's matching."""
    graph = csr_matrix(cdist(source, target) <= radius)
    pairs = np.count_nonzero(maximum_bipartite_matching(graph) >= 0)
    return 1 - pairs * (1 / len(source) + 1 / len(target)) / 2


@pytest.mark.parametrize("radius", [0.2, 0.5, 1.0])
def test_soft_pv_tends_to_the_exact_one(radius):
    soft = jax.jit(pvm.soft_pv, static_argnums=4)
    gaps = []
    for seed in range(5):
        source, target = samples(seed)
        exact = exact_pv(source, target, radius)
        gaps.append([abs(float(soft(source, target, radius, t, 1000)) - exact) for t in (0.3, 0.05, 0.005)])
    worst = np.max(gaps, axis=0)
    assert worst[0] > worst[1] > worst[2]
    # Less than half a pair of the 24 that there can be.
    assert worst[2] < 0.02


def test_soft_matching_solves_its_program():
    # min over (p, q) of sum p + sum q + t sum exp((gain - p - q) / t) + t sum exp(-p / t) + t sum exp(-q / t) is the
    # dual of: max <P, gain> + t x entropies, with gain = t log K.
    source, target = samples(7, 6, 5)
    radius, t = 0.8, 0.3
    edges = 1 / (1 + np.exp(-(1 - cdist(source, target) ** 2 / radius**2) / t))
    gain = t * np.log(np.expm1(edges / t))

    def dual(z):
        p, q = z[:6], z[6:]
        plan, rows, columns = np.exp((gain - p[:, None] - q) / t), np.exp(-p / t), np.exp(-q / t)
        slope = np.concatenate([1 - plan.sum(1) - rows, 1 - plan.sum(0) - columns])
        return z.sum() + t * (plan.sum() + rows.sum() + columns.sum()), slope

    z = minimize(dual, np.zeros(11), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    found = pvm.soft_matching(source, target, radius, t, 500)
    np.testing.assert_allclose(found.edges, edges, rtol=1e-12)
    np.testing.assert_allclose(found.plan, np.exp((gain - z[:6, None] - z[6:]) / t), atol=1e-8)
    assert float(found.pv) == pytest.approx(1 - np.sum(found.plan * edges) * (1 / 6 + 1 / 5) / 2)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    radius=st.floats(0.05, 5),
    temperature=st.floats(0.02, 2),
    iterations=st.sampled_from([1, 3, 40]),
)
def test_plan_never_matches_a_point_more_than_once(seed, radius, temperature, iterations):
    source, target = samples(seed, 9, 6)
    found = pvm.soft_matching(source, target, radius, temperature, iterations)
    assert np.all(np.asarray(found.plan) >= 0)
    assert np.all(np.asarray(found.plan).sum(0) <= 1 + 1e-12)
    assert np.all(np.asarray(found.plan).sum(1) <= 1 + 1e-12)
    assert 0 <= float(found.pv) <= 1


def test_soft_pv_under_grad_vmap_and_swap():
    source, target = samples(3, 8, 7)
    soft, gradient = jax.jit(pvm.soft_pv), jax.jit(jax.grad(pvm.soft_pv))

    def of_source(flat):
        return float(soft(flat.reshape(8, 2), target, 0.6, 0.2))

    slope = gradient(source, target, 0.6, 0.2)
    np.testing.assert_allclose(np.ravel(slope), approx_fprime(source.ravel(), of_source, 1e-7), atol=1e-6)
    assert np.linalg.norm(slope) > 0.01
    # Also where points coincide and a distance has no derivative.
    assert np.all(np.isfinite(gradient(source, source, 0.6, 0.2)))
    radii = np.array([0.3, 0.6])
    many = jax.vmap(lambda r: pvm.soft_pv(source, target, r, 0.2))(radii)
    np.testing.assert_allclose(many, [pvm.soft_pv(source, target, r, 0.2) for r in radii], rtol=1e-12)
    swapped = pvm.soft_pv(target, source, 0.6, 0.2, 500)
    assert float(swapped) == pytest.approx(float(pvm.soft_pv(source, target, 0.6, 0.2, 500)), abs=1e-10)


def test_soft_eps_h_is_the_weighted_mean_move():
    rng = np.random.default_rng(0)
    source_votes, target_votes, weights = rng.uniform(size=(5, 3)), rng.uniform(size=(4, 3)), rng.uniform(size=(5, 4))
    weights[weights < 0.5] = 0
    moves = (source_votes[:, None] - target_votes[None]) ** 2
    wanted = np.sqrt(np.average(moves.mean(-1), weights=weights))
    found = soft_eps_h(source_votes, target_votes, weights)
    assert float(found) == pytest.approx(wanted)
    s, t = np.nonzero(weights)
    assert float(found) <= float(pvm.eps_h(source_votes[s], target_votes[t]))
    of_all = jax.value_and_grad(soft_eps_h, (0, 2))
    value, slopes = of_all(jnp.asarray(source_votes), target_votes, 0 * weights)
    assert value == 0
    assert all(np.all(np.asarray(slope) == 0) for slope in slopes)
    # The scale of the weights is no matter, down to where their sum has a square of 0.
    for scale in (1.0, 1e-200, 1e-290):
        value, slopes = of_all(jnp.asarray(source_votes), target_votes, scale * weights)
        assert float(value) == pytest.approx(wanted)
        by_hand = (moves.mean(-1) - wanted**2) / (2 * wanted * weights.sum())
        np.testing.assert_allclose(np.asarray(slopes[1]) * scale, by_hand, rtol=1e-9)


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float64, 1e-11), (np.float32, 1e-3)])
@pytest.mark.parametrize("temperature", [0.2, 0.23, 0.7])
def test_pairs_far_outside_the_radius_keep_their_digits(temperature, dtype, accuracy):
    # Edges of exp(-z). As nearly all stays unmatched, a = b = 1, and P = K is their limit, e / t.
    z = np.array([40.0, 50, 60, 70])
    target = 0.25 * np.sqrt(1 + temperature * z)[:, None]
    found = pvm.soft_matching(np.zeros((1, 1), dtype), target.astype(dtype), 0.25, temperature)
    np.testing.assert_allclose(found.plan[0], np.exp(-z) / temperature, rtol=accuracy)


def test_soft_eps_h_has_a_slope_between_domains_out_of_reach():
    source, target = (0.1 * points for points in samples(4, 8, 7))

    def weights(shift):
        return pvm.soft_matching(source, target + shift, 0.25, 0.2).pair_weights

    @jax.jit
    @jax.value_and_grad
    def of_shift(shift):
        votes = pvm.rbf_votes(source, source, 1.0), pvm.rbf_votes(target + shift, source, 1.0)
        return soft_eps_h(*votes, weights(shift))

    # Weights that sum to 1e-30, 1e-148 and 1e-195, and at last to 0.
    for shift in (0.65, 1.2, 1.35):
        ends = [float(of_shift(shift + step)[0]) for step in (-1e-6, 1e-6)]
        assert 0 < float(np.sum(weights(shift))) < 1e-20
        assert float(of_shift(shift)[1]) == pytest.approx((ends[1] - ends[0]) / 2e-6, rel=1e-5)
        assert ends[0] > 0.3
    assert [float(number) for number in of_shift(30.0)] == [0, 0]


def test_own_c_bound_judges_each_point_by_the_others():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(12, 2)), rng.choice([-1.0, 1.0], 12)
    margin = np.array(
        [sum(y[j] * np.exp(-3 * np.sum((x[i] - x[j]) ** 2)) for j in range(12) if j != i) for i in range(12)]
    )
    assert float(own_c_bound(x, y, 3.0)) == pytest.approx(
        1 - np.mean(y * margin) ** 2 / np.mean(margin**2) if np.mean(y * margin) > 0 else 1.0
    )


def test_mapped_points_have_the_mahalanobis_distances():
    source, target = samples(2, d=3)
    linear = pvm.LinearMap(np.random.default_rng(0).normal(size=(3, 3)))
    images = np.asarray(pvm.apply_map(linear, source)), np.asarray(pvm.apply_map(linear, target))
    np.testing.assert_allclose(cdist(*images), cdist(source, target, "mahalanobis", VI=linear.mahalanobis), rtol=1e-9)
    through_metric = pvm.perturbed_variation(source, target, 0.7, metric=linear.mahalanobis)
    assert through_metric == pytest.approx(exact_pv(*images, 0.7))
    assert jax.tree.structure(linear).num_leaves == 1


@pytest.fixture(scope="module")
def task():
    """Classes on either side of 0 in the first feature; the others are noise, the last one large."""
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.repeat([1.0, -1.0], 20))
    source = np.column_stack([labels + rng.normal(0, 0.4, 40), rng.normal(size=(40, 2)), rng.normal(0, 50, 40)])
    target_labels = rng.permutation(np.repeat([1.0, -1.0], 20))
    target = np.column_stack(
        [target_labels + rng.normal(0, 0.4, 40) + 0.3, rng.normal(size=(40, 2)), rng.normal(0, 50, 40)]
    )
    return source, labels, target


@pytest.fixture(scope="module")
def diagonal(task):
    return pvm.learn_map(*task, form="diagonal", steps=STEPS)


def mean_square(points):
    """Mean squared distance of two independent draws of the sample's points."""
    return 2 * np.sum(pdist(points, "sqeuclidean")) / len(points) ** 2


@pytest.mark.parametrize("form", ["diagonal", "full", "low_rank"])
def test_learning_keeps_the_scale_and_lowers_the_objective(task, form):
    source, labels, target = task
    weights = {"pv_weight": 0.3, "eps_h_weight": 0.3, "radius": 0.25, "temperature": 0.2}
    learned = pvm.learn_map(*task, form=form, steps=STEPS, rank=2 if form == "low_rank" else None, **weights)
    matrix = np.asarray(learned.map.matrix)
    assert matrix.shape == ((2, 4) if form == "low_rank" else (4, 4))
    for linear in (learned.map, learned.start):
        images = source @ linear.matrix.T, target @ linear.matrix.T
        assert np.mean([mean_square(image) for image in images]) == pytest.approx(1)
    history = learned.history
    assert all(values.shape == (STEPS + 1,) for values in history)
    np.testing.assert_allclose(history.loss, history.c_bound + 0.3 * history.pv + 0.3 * history.eps_h)
    assert history.loss[-1] < history.loss[0] - 0.3
    # What the history says of the end is true of the map, by the public functions and by the exact matching.
    images = source @ matrix.T, target @ matrix.T
    votes = [pvm.rbf_votes(image, images[0], 20.0) for image in images]
    soft = pvm.soft_matching(*images, learned.radius, 0.2, 15 if form == "low_rank" else 60)
    assert float(own_c_bound(images[0], labels, 20.0)) == pytest.approx(history.c_bound[-1])
    assert float(soft.pv) == pytest.approx(history.pv[-1])
    assert float(soft_eps_h(*votes, soft.pair_weights)) == pytest.approx(history.eps_h[-1])
    assert learned.pv == pytest.approx(exact_pv(*images, learned.radius))
    images = source @ learned.start.matrix.T, target @ learned.start.matrix.T
    assert learned.start_pv == pytest.approx(exact_pv(*images, learned.radius))
    assert learned.pv < learned.start_pv
    # Most of the distance is along the feature that tells the classes apart.
    spread = np.diag(learned.map.mahalanobis) * np.var(source, axis=0)
    assert spread[0] > 0.6 * spread.sum()


def turned_task(seed, features=2, points=120):
    """Classes that lie as in the source in one hidden direction, and elsewhere than in the source in all others."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(features, features)))
    samples = []
    for away in (0.0, 3.0):
        labels = rng.permutation(np.repeat([1.0, -1.0], points // 2))
        hidden = rng.normal(size=(points, features)) * 0.6 + away
        hidden[:, 0] = labels + 0.4 * rng.normal(size=points)
        # In the source, another direction tells the classes apart better still.
        hidden[:, 1] += 2 * labels * (away == 0)
        samples.append((hidden @ turn.T, labels))
    (source, labels), (target, truth) = samples
    return source, labels, target, truth, turn[:, 0]


MORE = [pytest.param(seed, 2, marks=pytest.mark.long) for seed in (0, 1, 2)]


@pytest.mark.parametrize(("seed", "features"), [(3, 4), *MORE])
def test_the_invariant_direction_is_found(seed, features):
    source, labels, target, truth, direction = turned_task(seed, features)
    learned = pvm.learn_map(source, labels, target, rank=1)
    found = np.asarray(learned.map.matrix)[0]
    # Not the least of all directions for the source, but the one that has not changed.
    assert abs(found @ direction) > 0.95 * np.linalg.norm(found)
    votes = np.exp(-20 * cdist(target @ found[:, None], source @ found[:, None]) ** 2) @ labels
    assert np.mean(votes * truth > 0) > 0.95


def test_starts_are_told_apart_by_risk_and_pv():
    source, labels, target, *_ = turned_task(0)
    learned = pvm.learn_map(source, labels, target, starts=4)
    assert len(learned.others) == 4
    sums = []
    for linear, risk, pv in learned.others:
        images = source @ linear.matrix.T, target @ linear.matrix.T
        votes = np.exp(-20 * cdist(images[0], images[0], "sqeuclidean"))
        np.fill_diagonal(votes, 0)
        assert risk == pytest.approx(np.mean(votes @ labels * labels <= 0))
        assert pv == pytest.approx(exact_pv(*images, learned.radius))
        sums.append(risk + pv)
    assert sums == sorted(sums)
    assert learned.risk + learned.pv == sums[0]
    # Rows may come in any order; of three features, both ranks are tried.
    order = np.random.default_rng(5).permutation(len(source))
    again = pvm.learn_map(source[order], labels[order], target, starts=4)
    np.testing.assert_allclose(again.map.matrix, learned.map.matrix, atol=1e-6)
    wide = pvm.learn_map(*turned_task(1, 3, 40)[:3], starts=3, steps=2)
    assert sorted(linear.matrix.shape[0] for linear, _, _ in wide.others) == [1, 1, 1, 2, 2, 2]


def test_units_origin_and_order_of_rows_do_not_matter(task, diagonal):
    source, labels, target = task
    scales, shift = np.array([3.0, 1e-3, 1.0, 40.0]), np.array([5.0, -2.0, 0.0, 7.0])
    rows, columns = np.random.default_rng(0).permutation(40), np.random.default_rng(1).permutation(40)
    given = (source * scales + shift)[rows], labels[rows], (target * scales + shift)[columns]
    moved = pvm.learn_map(*given, form="diagonal", steps=STEPS)
    np.testing.assert_allclose(np.abs(moved.map.matrix * scales), np.abs(diagonal.map.matrix), atol=1e-6)
    assert moved.pv == diagonal.pv


@pytest.mark.parametrize("form", ["diagonal", "full"])
@pytest.mark.parametrize("shift", [3.0, 5.0, 40.0])
def test_domains_out_of_reach_of_each_other(task, form, shift):
    source, labels, target = task
    learned = pvm.learn_map(source, labels, target + shift * target.std(axis=0), form=form, steps=STEPS)
    assert all(np.all(np.isfinite(values)) for values in learned.history)
    # The PV has no slope there, and the C-bound is still to be had.
    assert learned.history.c_bound[-1] < learned.history.c_bound[0] - 0.1
    assert learned.start_pv == 1


def test_turned_features_need_a_full_map(task):
    source, labels, target = task
    deviations = source.std(axis=0)
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))
    turned = source / deviations @ turn, labels, target / deviations @ turn
    losses = {form: pvm.learn_map(*turned, form=form, steps=STEPS).history.loss[-1] for form in ("diagonal", "full")}
    assert losses["full"] < losses["diagonal"] - 0.1


def test_float32_stays_float32(task, diagonal):
    source, labels, target = task
    narrow = source.astype(np.float32), labels, target.astype(np.float32)
    learned = pvm.learn_map(*narrow, form="diagonal", steps=STEPS)
    assert learned.map.matrix.dtype == learned.history.loss.dtype == np.float32
    assert learned.history.loss[-1] == pytest.approx(diagonal.history.loss[-1], abs=1e-2)


def test_weights_trade_the_terms_against_each_other(task, diagonal):
    alone = pvm.learn_map(*task, form="diagonal", steps=STEPS, pv_weight=0, eps_h_weight=0)
    heavy = pvm.learn_map(*task, form="diagonal", steps=STEPS, pv_weight=3)
    np.testing.assert_allclose(alone.history.loss, alone.history.c_bound, rtol=1e-14)
    assert alone.history.c_bound[-1] < diagonal.history.c_bound[-1] < heavy.history.c_bound[-1]
    assert heavy.history.pv[-1] < diagonal.history.pv[-1] - 0.05
    assert heavy.pv < diagonal.pv


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "diag"}, "form must be 'diagonal', 'full' or 'low_rank'; it is 'diag'"),
        ({"form": "low_rank", "rank": 5}, "rank must be at most the number of features, 4; it is 5"),
        ({"form": "low_rank", "rank": 0}, "rank must be at least 1"),
        ({"radius": 0.0}, "radius must be finite and above 0"),
        ({"temperature": -1.0}, "temperature must be finite and above 0"),
        ({"pv_weight": -0.1}, "pv_weight must not be negative; it is -0.1"),
        ({"steps": 1}, "steps must be at least 2"),
        ({"starts": 0}, "starts must be at least 1"),
    ],
)
def test_bad_options(task, options, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        pvm.learn_map(*task, **options)


def test_bad_samples(task):
    source, labels, target = task
    with pytest.raises(ValueError, match="source_labels must hold both classes"):
        pvm.learn_map(source, np.ones(40), target)
    with pytest.raises(ValueError, match="must have the same number of features"):
        pvm.learn_map(source, labels, target[:, :3])
    with pytest.raises(ValueError, match="constant in every feature"):
        pvm.learn_map(0 * source, labels, 0 * target)
    with pytest.raises(ValueError, match="pair_weights must have a row per source point"):
        soft_eps_h(source, target, np.ones((3, 3)))
    with pytest.raises(ValueError, match="temperature must be finite and above 0"):
        pvm.soft_pv(source, target, 1.0, 0.0)


def test_constant_features_get_no_say(task):
    source, labels, target = task
    flat = np.array([1.0, 1.0, 1.0, 0.0])
    learned = pvm.learn_map(source * flat, labels, target * flat, form="diagonal", steps=STEPS)
    assert np.all(np.isfinite(learned.map.matrix))
    images = (source * flat) @ learned.map.matrix.T, (target * flat) @ learned.map.matrix.T
    assert learned.pv == pytest.approx(exact_pv(*images, learned.radius))
    assert np.mean([mean_square(image) for image in images]) == pytest.approx(1)
