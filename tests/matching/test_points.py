"""Shared points: against networkx's maximum matchings, closed forms, and the order of the rows."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from experiments import shared_points as command

_points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=7).map(
    lambda rows: np.array(rows, float)
)


def _pairs(distances, radius, left_out=None):
    """The size of networkx's maximum matching, with one source point left out if asked."""
    rows = [row for row in range(distances.shape[0]) if row != left_out]
    graph = nx.Graph()
    graph.add_nodes_from(("s", row) for row in rows)
    graph.add_edges_from(
        (("s", row), ("t", column)) for row in rows for column in np.flatnonzero(distances[row] <= radius)
    )
    matching = nx.bipartite.hopcroft_karp_matching(graph, [("s", row) for row in rows])
    return sum(side == "s" for side, _ in matching)


@settings(max_examples=40, deadline=None)
@given(_points, _points)
def test_frequencies_agree_with_networkx(source, target):
    distances = cdist(source, target)
    radii = [1.5, 3.0]
    found = pvm.shared_points(source, target, radii=radii, draws=20)
    np.testing.assert_allclose(found.nearest, distances.min(axis=1))
    for radius, frequency in zip(radii, found.frequency):
        most = _pairs(distances, radius)
        assert frequency.sum() == pytest.approx(most)
        needed = [_pairs(distances, radius, left_out=row) < most for row in range(len(source))]
        # A point that no maximum matching can do without is in all of them; one without a neighbour is in none.
        np.testing.assert_allclose(frequency[needed], 1.0)
        assert np.all(frequency[distances.min(axis=1) > radius] == 0)


def test_on_a_complete_graph_all_are_shared_alike():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(12, 2)), rng.normal(size=(3, 2))
    found = pvm.shared_points(source, target, radii=[100.0], draws=2000)
    # Three of twelve in each draw: 1/4, with a standard error of 0.01.
    np.testing.assert_allclose(found.score, 0.25, atol=0.045)
    assert found.pv[0] == pytest.approx((9 / 12) / 2)


def test_what_has_no_counterpart_comes_last_and_copies_share_one():
    target = np.linspace(0, 1, 10)[:, None]
    source = np.concatenate([target + 0.01, [[7.0]], np.repeat(target[3:4], 5, axis=0)])
    found = pvm.shared_points(source, target, radii=[0.02], draws=600)
    assert found.ranking[-1] == 10
    # Six points, five of them coinciding, ask for one partner; the distance to it does not tell.
    np.testing.assert_allclose(found.score[[3, *range(11, 16)]], 1 / 6, atol=0.07)
    assert np.all(found.score[[0, 1, 2, 4, 5, 6, 7, 8, 9]] == 1)


def test_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(30, 2)), rng.normal(size=(20, 2)) + 0.5
    rows, columns = rng.permutation(30), rng.permutation(20)
    found = pvm.shared_points(source, target, draws=8, seed=2)
    moved = pvm.shared_points(source[rows], target[columns], draws=8, seed=2)
    np.testing.assert_array_equal(moved.frequency, found.frequency[:, rows])
    np.testing.assert_array_equal(rows[moved.ranking], found.ranking)
    assert np.all(np.diff(found.score[found.ranking]) <= 0)
    np.testing.assert_allclose(found.pv, pvm.pv_curve(source, target).at(found.radii))
    metric = pvm.Precomputed(cdist(source, target))
    given = pvm.shared_points(None, None, metric=metric, radii=found.radii)
    np.testing.assert_allclose(given.frequency.sum(axis=1), found.frequency.sum(axis=1))


def test_tasks_hold_what_they_say():
    stray, excess = (command.shared_task(scene, 1000) for scene in command.SCENES)
    for task in (stray, excess):
        assert task.source.shape == task.target.shape == (300, 2)
        assert task.odd.sum() == 100
        assert np.unique(task.odd[:30]).size == 2
    # The cluster is out of the moons' reach; the excess is as close to the target as the moons' own right end.
    assert cdist(stray.source[stray.odd], stray.target).min(axis=1).mean() > 0.5
    right = ~excess.odd & (excess.source[:, 0] > 0.6)
    gaps = [cdist(excess.source[rows], excess.target).min(axis=1).mean() for rows in (excess.odd, right)]
    assert gaps[0] == pytest.approx(gaps[1], rel=0.3)
    with pytest.raises(ValueError, match="scene must be one of stray, excess; it is 'far'"):
        command.shared_task("far", 1000)
