"""Draws of maximum matchings: their law, and that a draw does not depend on what is drawn beside it."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax.datasets import draw_moons
from pvmincq_jax.matching import matching
from pvmincq_jax.matching.graph import radius_graph


@pytest.mark.parametrize("count", [1800, pytest.param(6000, marks=pytest.mark.long)])
def test_interchangeable_points_are_treated_alike(count):
    # 6 sources at one place, 4 targets at another: each pair is drawn with the same probability 4 / 6 * 1 / 4.
    draws = pvm.draw_matchings(radius_graph(np.zeros((6, 1)), np.ones((4, 1)), 1.0), count, seed=5)
    counts = np.zeros((6, 4))
    for target in range(4):
        counts[:, target] = np.bincount(draws.partners[:, target], minlength=6)
    assert np.abs(counts - count / 6).max() < 5 * np.sqrt(count * 1 / 6 * 5 / 6)  # standard deviations


@pytest.mark.parametrize("count", [2400, pytest.param(12000, marks=pytest.mark.long)])
def test_complete_graph_gives_every_permutation_alike(count):
    source, target = np.array([[0.0], [0.3], [0.9], [1.0]]), np.array([[0.1], [0.2], [0.5], [2.0]])
    partners = pvm.draw_matchings(radius_graph(source, target, 9.0), count, seed=6).partners
    found, times = np.unique(partners, axis=0, return_counts=True)
    assert found.shape[0] == 24
    # Chi-square with 23 degrees of freedom: 49.7 is exceeded once in a thousand.
    assert np.sum((times - count / 24) ** 2 / (count / 24)) < 49.7


@pytest.mark.parametrize("count", [2000, pytest.param(8000, marks=pytest.mark.long)])
def test_mirrored_points_are_treated_alike(count):
    # A path graph of 4 sources and 3 targets, symmetric about its middle; each source may be the one left out.
    source, target = np.arange(4.0)[:, None], np.arange(3.0)[:, None] + 0.5
    partners = pvm.draw_matchings(radius_graph(source, target, 0.5), count, seed=7).partners
    left_out = np.bincount(6 - partners.sum(axis=1), minlength=4)
    assert np.all(left_out > count / 20)
    assert abs(int(left_out[0]) - int(left_out[3])) < 5 * np.sqrt(left_out[0] + left_out[3])
    assert abs(int(left_out[1]) - int(left_out[2])) < 5 * np.sqrt(left_out[1] + left_out[2])


def test_draws_form_one_series():
    rng = np.random.default_rng(8)
    source, target = draw_moons(60, rng)[0], draw_moons(70, rng, angle=40)[0]
    graph = radius_graph(source, target, 0.4)
    draws = pvm.draw_matchings(graph, 40, seed=3)
    np.testing.assert_array_equal(pvm.draw_matchings(graph, 9, seed=3).partners, draws.partners[:9])
    single = pvm.match(source, target, 0.4, seed=3)
    np.testing.assert_array_equal(draws.partners[0][single.target], single.source)
    assert np.unique(draws.partners, axis=0).shape[0] == 40
    assert draws.pv == single.pv
    expected = draws.expected
    dense = np.zeros((120, 140))
    dense[expected.source, expected.target] = expected.weights
    mean = np.zeros((120, 140))
    for row in draws.partners:
        mean[row[row >= 0], np.flatnonzero(row >= 0)] += 1 / 40
    np.testing.assert_allclose(dense, mean, atol=1e-12)
    assert dense.sum(axis=0).max() <= 1 + 1e-12


@pytest.mark.parametrize("edges_per_point", [0, 32])
@pytest.mark.parametrize("radius", [1e-9, 0.1, 0.3, 0.8, 9.0])
def test_draws_are_maximum_on_whole_and_on_thin_graphs(radius, edges_per_point, monkeypatch):
    """From graphs without an edge to complete ones, sizes by SciPy's Hopcroft-Karp."""
    monkeypatch.setattr(matching, "_WHOLE", edges_per_point)
    rng = np.random.default_rng(12)
    for sizes in [(90, 110), (1, 40), (70, 30), (120, 1)]:
        source, target = rng.normal(size=(sizes[0], 2)), rng.normal(size=(sizes[1], 2))
        adjacency = csr_array(cdist(source, target) <= radius)
        size = np.count_nonzero(maximum_bipartite_matching(adjacency, perm_type="column") >= 0)
        draws = pvm.draw_matchings(radius_graph(source, target, radius), 4, seed=3)
        np.testing.assert_array_equal(np.sum(draws.partners >= 0, axis=1), size)
        assert draws.pv == pytest.approx(1 - size * (1 / sizes[0] + 1 / sizes[1]) / 2)
        assert draws.source_size == sizes[0]


@pytest.mark.parametrize("edges_per_point", [0, 32])
def test_thin_graphs_have_the_law_of_whole_ones_on_a_complete_graph(edges_per_point, monkeypatch):
    """Each of 30 x 30 pairs is drawn alike, also by draws that may fall back on the edges of the first."""
    monkeypatch.setattr(matching, "_WHOLE", edges_per_point)
    rng = np.random.default_rng(13)
    graph = radius_graph(rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), 99.0)
    partners = pvm.draw_matchings(graph, 3000, seed=2).partners
    counts = np.stack([np.bincount(column, minlength=30) for column in partners.T])
    # Standard deviation sqrt(3000 / 30 * 29 / 30) = 9.8; the largest of 900 is below 4.5 of these.
    assert np.abs(counts - 100).max() < 4.5 * 9.8
