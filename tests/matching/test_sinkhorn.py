"""The doubly stochastic scaling of the radius graph: its limit, its symmetry, its derivatives."""

import itertools

import jax
import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

import pvmincq_jax as pvm
from pvmincq_jax.matching.soft import radius_affinity


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(3)
    return rng.normal(size=(12, 2)), rng.normal(size=(12, 2)) + 0.3


def largest_matching(affinity):
    graph = nx.Graph()
    graph.add_nodes_from(range(len(affinity)))
    graph.add_edges_from((s, ("t", t)) for s, t in np.argwhere(affinity > 0))
    return len(nx.bipartite.maximum_matching(graph, top_nodes=range(len(affinity)))) // 2


@pytest.mark.parametrize("share", [0.5, 1.0, 1.7])
def test_row_column_and_total_sums(points, share):
    source, target = points
    radius = share * pvm.bottleneck_radius(source, target)
    affinity = np.asarray(radius_affinity(source, target, radius))
    distance = np.linalg.norm(source[:, None] - target[None], axis=-1)
    np.testing.assert_array_equal(affinity, distance <= radius)
    pairs = largest_matching(affinity)
    assert (pairs == 12) == (share >= 1)
    scaled = pvm.sinkhorn_matching(affinity, pairs, iterations=3000)
    plan = np.asarray(scaled.plan)
    assert np.all(plan[affinity == 0] == 0)
    assert np.all(plan.sum(axis=1) <= 1 + 1e-12)
    assert np.all(plan.sum(axis=0) <= 1 + float(scaled.error) + 1e-12)
    assert plan.sum() == pytest.approx(pairs, rel=1e-3)
    assert scaled.error < 2e-3
    np.testing.assert_allclose(scaled.weights, plan.sum(axis=1), atol=1e-12)


def test_largest_entropy_by_another_solver(points):
    source, target = points[0][:4], points[1][:4]
    affinity = np.asarray(radius_affinity(source, target, 1.5, 0.3))

    def distance(flat):
        plan = flat.reshape(4, 4)
        return np.sum(plan * np.log(plan / affinity))

    sums = [{"type": "eq", "fun": lambda flat, i=i: flat.reshape(4, 4)[i].sum() - 1} for i in range(4)]
    sums += [{"type": "eq", "fun": lambda flat, i=i: flat.reshape(4, 4)[:, i].sum() - 1} for i in range(3)]
    start, bounds = np.full(16, 0.25), [(1e-9, 1.0)] * 16
    other = minimize(distance, start, bounds=bounds, constraints=sums, options={"maxiter": 500, "ftol": 1e-13})
    scaled = pvm.sinkhorn_matching(affinity, 4)
    np.testing.assert_allclose(scaled.plan, other.x.reshape(4, 4), atol=1e-4)
    assert scaled.error < 1e-9


def test_interchangeable_points_get_the_same_share():
    affinity = np.ones((5, 6))
    affinity[4, 2:] = 0
    plan = np.asarray(pvm.sinkhorn_matching(affinity, 5, iterations=2000).plan)
    assert np.ptp(plan[:4], axis=0).max() < 1e-12
    assert np.ptp(plan[:, 2:], axis=1).max() < 1e-12
    np.testing.assert_allclose(pvm.sinkhorn_matching(np.ones((3, 3)), 3).plan, np.full((3, 3), 1 / 3), atol=1e-12)


def uniform_mean(affinity):
    """The mean over all perfect matchings, one by one."""
    size = len(affinity)
    total, count = np.zeros((size, size)), 0
    for columns in itertools.permutations(range(size)):
        if np.all(affinity[range(size), columns] > 0):
            total[range(size), columns] += 1
            count += 1
    return total / count


def test_draws_and_scaling_are_near_the_mean_of_all_matchings():
    rng = np.random.default_rng(11)
    source, target = rng.uniform(size=(6, 2)), rng.uniform(size=(6, 2))
    radius = 1.3 * pvm.bottleneck_radius(source, target)
    affinity = np.asarray(radius_affinity(source, target, radius))
    exact = uniform_mean(affinity)
    assert np.any((exact > 0.05) & (exact < 0.95))
    drawn = np.zeros((6, 6))
    pairs = pvm.pv_transport(source, target, radius, draws=2000).pairs
    drawn[pairs.source, pairs.target] = pairs.weights
    scaled = np.asarray(pvm.sinkhorn_matching(affinity, 6, iterations=2000).plan)
    # In rows of sum 1, half the sum of differences is the share of a point's mass that goes elsewhere.
    assert np.mean(np.abs(drawn - exact).sum(axis=1) / 2) < 0.12
    assert np.mean(np.abs(scaled - exact).sum(axis=1) / 2) < 0.12
    # An edge that no maximum matching holds is never drawn, and fades from the scaling.
    assert np.all(drawn[exact == 0] == 0)
    assert np.all(scaled[exact == 0] < 0.01)


def test_sinkhorn_transport_is_differentiable(points):
    source, target = points

    def middle(source, target, radius):
        return (pvm.sinkhorn_transport(source, target, radius, softness=0.1, iterations=60).spread.moved ** 2).sum()

    slopes = jax.jit(jax.grad(middle, (0, 1, 2)))
    gradients = slopes(source, target, 1.5)
    rng = np.random.default_rng(0)
    steps = rng.normal(size=source.shape), rng.normal(size=target.shape), 0.7
    slope = sum(np.sum(gradient * step) for gradient, step in zip(gradients, steps))
    size = 1e-5
    ends = [middle(source + h * steps[0], target + h * steps[1], 1.5 + h * steps[2]) for h in (size, -size)]
    assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / (2 * size), rel=1e-6)
    # Coinciding points.
    assert all(np.all(np.isfinite(part)) for part in slopes(target, target, 1.5))


def test_sinkhorn_transport_moves_to_means(points):
    source, target = points
    spread, matching = pvm.sinkhorn_transport(source, target, 1.5)
    plan = np.asarray(matching.plan)
    np.testing.assert_allclose(plan.sum(axis=1), 1.0)
    np.testing.assert_allclose(spread.moved, plan @ target, atol=1e-12)
    gap = np.linalg.norm(np.asarray(spread.moved)[:, None] - target[None], axis=-1)
    np.testing.assert_allclose(spread.mean_distance, np.sum(plan * gap, axis=1), atol=1e-12)
    np.testing.assert_allclose(spread.variance, np.sum(plan * gap**2, axis=1), atol=1e-12)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("affinity must not be negative", lambda: pvm.sinkhorn_matching(-np.ones((2, 2)), 1)),
        ("pairs must be", lambda: pvm.sinkhorn_matching(np.ones((2, 2)), 0)),
        ("iterations must be", lambda: pvm.sinkhorn_matching(np.ones((2, 2)), 1, iterations=0)),
        ("radius must be", lambda: radius_affinity(np.ones((2, 2)), np.ones((2, 2)), 0.0)),
        ("softness must not be", lambda: radius_affinity(np.ones((2, 2)), np.ones((2, 2)), 1.0, -1.0)),
        ("same number of features", lambda: radius_affinity(np.ones((2, 2)), np.ones((2, 1)), 1.0)),
    ],
)
def test_bad_input_is_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()
