"""Matchings: exact, blind to the order of rows, random where the graph leaves a choice."""

import tracemalloc

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax.matching import graph, matching
from pvmincq_jax.matching import space as space_module
from pvmincq_jax.matching.graph import radius_graph
from pvmincq_jax.matching.space import make_space


def _reference_size(distances, radius):
    graph = nx.Graph()
    sources = range(distances.shape[0])
    graph.add_nodes_from(sources)
    graph.add_nodes_from(("t", j) for j in range(distances.shape[1]))
    graph.add_edges_from((int(i), ("t", int(j))) for i, j in zip(*np.nonzero(distances <= radius)))
    return len(nx.bipartite.hopcroft_karp_matching(graph, top_nodes=sources)) // 2


def _assert_matching(found, distances, radius):
    assert np.unique(found.source).size == found.source.size == found.target.size
    assert np.unique(found.target).size == found.target.size
    assert np.all(found.distances <= radius)
    np.testing.assert_allclose(found.distances, distances[found.source, found.target], rtol=1e-12, atol=1e-300)


def _samples(kind, rng, sizes):
    def one(size):
        if kind == "clustered":
            return rng.choice(rng.normal(size=(3, 2)) * 4, size) + rng.normal(0, 0.3, (size, 2))
        if kind == "duplicated":
            return rng.integers(0, 3, (size, 2)).astype(float)
        if kind == "collinear":
            return np.sort(rng.uniform(0, 10, size))[:, None] * np.array([[1.0, 2.0]])
        if kind == "high-dimensional":
            return rng.normal(size=(size, 40))
        return rng.normal(size=(size, 1))

    return one(sizes[0]), one(sizes[1])


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["clustered", "duplicated", "collinear", "high-dimensional", "line"]),
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    share=st.floats(0, 1),
    draw=st.integers(0, 5),
)
def test_cardinality_is_that_of_networkx(kind, seed, sizes, share, draw):
    source, target = _samples(kind, np.random.default_rng(seed), sizes)
    distances = cdist(source, target)
    # A little beyond a distance that occurs, so that cdist's own rounding decides no edge.
    lengths = np.unique(distances)
    radius = float(np.quantile(lengths, share, method="lower")) * (1 + 1e-9) + 1e-12
    found = pvm.match(source, target, radius, seed=draw)
    _assert_matching(found, distances, radius)
    size = _reference_size(distances, radius)
    assert found.source.size == size
    assert found.pv == ((sizes[0] - size) / sizes[0] + (sizes[1] - size) / sizes[1]) / 2


@pytest.mark.parametrize(
    "way", ["whole graph", "thin graph", "very thin graph", "search in blocks", "flow", "flow in a thin graph"]
)
def test_every_way_to_the_maximum(way, monkeypatch):
    changes = {
        "whole graph": {"_WHOLE": 1000},
        "thin graph": {"_WHOLE": 0},
        "very thin graph": {"_WHOLE": 0, "_SAMPLED": 1},
        "search in blocks": {"_WHOLE": 0, "_SAMPLED": 1, "_BLOCK": 100},
        "flow": {"_WHOLE": 1000, "_SHALLOW": 0},
        "flow in a thin graph": {"_WHOLE": 0, "_SAMPLED": 2, "_SHALLOW": 0},
    }[way]
    for name, value in changes.items():
        monkeypatch.setattr(matching, name, value)
    for seed in range(12):
        source, target = _samples(["clustered", "collinear"][seed % 2], np.random.default_rng(seed), (90, 110))
        distances = cdist(source, target)
        for radius in (0.3, 0.9, 2.5):
            graph = radius_graph(source, target, radius)
            partners = pvm.draw_matchings(graph, 6, seed=seed).partners
            size = _reference_size(distances, radius)
            for row in partners:
                used = row[row >= 0]
                assert used.size == np.unique(used).size == size
                assert np.all(distances[used, np.flatnonzero(row >= 0)] <= radius)


def test_long_thin_graph():
    # A chain in which each point reaches the next two only, and one path of thousands of edges has to be found.
    line = np.arange(3000.0)[:, None]
    rng = np.random.default_rng(0)
    found = pvm.match(rng.permutation(line), rng.permutation(line + 0.5), 0.5)
    assert found.pv == 0


def test_deep_graphs_are_not_left_to_hopcroft_and_karp(monkeypatch):
    # Two clusters on a line: in some draws SciPy's Hopcroft and Karp takes a hundred times as long.
    rng = np.random.default_rng(2)
    source, target = (rng.choice([-2.0, 2.0], (960, 1)) + 0.15 * rng.normal(size=(960, 1)) for _ in range(2))
    line = radius_graph(source, target, 0.03)
    task = pvm.datasets.moons_task("40", 0)
    called = []
    scipy = matching.maximum_bipartite_matching
    monkeypatch.setattr(matching, "maximum_bipartite_matching", lambda *a, **k: (called.append(1), scipy(*a, **k))[1])
    found = pvm.draw_matchings(line, 2)
    assert not called
    monkeypatch.setattr(matching, "_SHALLOW", 10**3)
    assert pvm.draw_matchings(line, 1).pv == found.pv
    assert len(called) == 1
    monkeypatch.undo()
    # Moons of the paper's size are no chain, and go the quick way.
    assert not matching._is_deep(radius_graph(task.source, task.target, 0.5), None)
    assert matching._is_deep(line, None)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_tree_and_all_pairs_agree(dimensions, monkeypatch):
    rng = np.random.default_rng(1)
    source, target = rng.normal(size=(300, dimensions)), rng.normal(size=(200, dimensions))
    # Points on a grid put many distances exactly on the radius.
    source[:100], target[:100] = np.round(source[:100] * 4) / 4, np.round(target[:100] * 4) / 4
    for metric in ("euclidean", "cityblock", "chebyshev", 3.0):
        monkeypatch.setattr(graph, "_tree_pays", lambda *_: False)
        plain = radius_graph(source, target, 0.25, metric=metric)
        monkeypatch.setattr(graph, "_tree_pays", lambda *_: True)
        tree = radius_graph(source, target, 0.25, metric=metric)
        assert plain.neighbours.size > 40
        for a, b in zip(plain[:-1], tree[:-1]):
            np.testing.assert_array_equal(a, b)


def test_metrics_against_scipy():
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(30, 3)), rng.normal(size=(35, 3))
    root = rng.normal(size=(3, 3))
    matrix = root @ root.T
    euclidean = pvm.match(source, target, 0.9, metric="euclidean")
    cases = {
        "cityblock": ("cityblock", cdist(source, target, "cityblock")),
        "chebyshev": ("chebyshev", cdist(source, target, "chebyshev")),
        "order": (3.5, cdist(source, target, "minkowski", p=3.5)),
        "mahalanobis": (matrix, cdist(source, target, "mahalanobis", VI=matrix)),
        "function": (lambda x, y: float(np.sum(np.abs(x - y)) ** 0.5), cdist(source, target, "cityblock") ** 0.5),
        "precomputed": (pvm.Precomputed(cdist(source, target, "canberra")), cdist(source, target, "canberra")),
    }
    for name, (metric, distances) in cases.items():
        found = pvm.match(source, target, 0.9, metric=metric)
        np.testing.assert_allclose(found.distances, distances[found.source, found.target], rtol=1e-9, err_msg=name)
        assert 0 < found.source.size == _reference_size(distances, 0.9), name
    again = pvm.match(source, target, 0.9, metric=np.eye(3))
    assert again.source.size == euclidean.source.size
    assert pvm.match(None, None, 0.9, metric=pvm.Precomputed(cdist(source, target))).pv == euclidean.pv


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", 2.5])
@pytest.mark.parametrize("features", [2, 300])
def test_every_way_to_a_distance_has_the_same_digits(metric, features, monkeypatch):
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(2, 60, features)) + 2.0**20
    kept = make_space(source, target, metric)
    # With many features all distances are kept.
    assert (kept.matrix is not None) == (features == 300)
    space = kept._replace(matrix=None)
    whole = space.block(0, 60)
    np.testing.assert_array_equal(kept.block(0, 60), whole)
    rows, columns = (part.ravel() for part in np.indices((60, 60)))
    np.testing.assert_array_equal(space.lengths(rows, columns).reshape(60, 60), whole)
    np.testing.assert_array_equal(space.flipped().block(0, 60).T, whole)
    np.testing.assert_array_equal(space.lengths(rows[:70:7, None], columns[:9]), whole[rows[:70:7]][:, columns[:9]])
    monkeypatch.setattr(space_module, "_TILE", 100)
    np.testing.assert_array_equal(space.block(7, 50), whole[7:50])
    options = {"p": metric} if isinstance(metric, float) else {}
    name = "minkowski" if isinstance(metric, float) else metric
    np.testing.assert_allclose(whole, cdist(source[space.source_rows], target[space.target_rows], name, **options))


def test_distances_of_many_features_take_no_memory_for_all_differences():
    source, target = np.random.default_rng(4).normal(size=(2, 200, 500))
    space = make_space(source, target)._replace(matrix=None)
    tracemalloc.start()
    space.block(0, 200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The samples once more, the distances, and a tile: all differences would be 160 MB.
    assert peak < 4e6


def _as_set(found, source_order, target_order):
    return {(int(source_order[s]), int(target_order[t])) for s, t in zip(found.source, found.target)}


@pytest.mark.parametrize("kind", ["points", "matrix", "function", "mahalanobis", "flow"])
def test_blind_to_the_order_of_rows(kind, monkeypatch):
    if kind == "flow":
        monkeypatch.setattr(matching, "_SHALLOW", 0)
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(60, 2)), rng.normal(size=(70, 2)) + 1
    distances = cdist(source, target)
    metric = {
        "points": lambda s, t: "euclidean",
        "flow": lambda s, t: "euclidean",
        "matrix": lambda s, t: pvm.Precomputed(distances[np.ix_(s, t)]),
        "function": lambda s, t: lambda x, y: float(np.abs(x - y).max()),
        "mahalanobis": lambda s, t: np.array([[2.0, 0.5], [0.5, 1.0]]),
    }[kind]
    everyone = np.arange(60), np.arange(70)
    seen = set()
    for seed in range(5):
        plain = pvm.match(source, target, 0.8, seed=seed, metric=metric(*everyone))
        pairs = _as_set(plain, *everyone)
        seen.add(frozenset(pairs))
        for _ in range(3):
            s, t = rng.permutation(60), rng.permutation(70)
            moved = pvm.match(source[s], target[t], 0.8, seed=seed, metric=metric(s, t))
            assert _as_set(moved, s, t) == pairs
            assert np.all(np.diff(moved.source) > 0)
    assert len(seen) == 5


def test_points_that_coincide():
    rng = np.random.default_rng(4)
    source, target = np.repeat(rng.normal(size=(8, 2)), 5, axis=0), np.repeat(rng.normal(size=(9, 2)), 4, axis=0)
    plain = pvm.match(source, target, 0.7, seed=1)
    assert plain.source.size == _reference_size(cdist(source, target), 0.7) > 10
    places = sorted((*source[s], *target[t]) for s, t in zip(plain.source, plain.target))
    for _ in range(5):
        s, t = rng.permutation(40), rng.permutation(36)
        moved = pvm.match(source[s], target[t], 0.7, seed=1)
        assert sorted((*source[s][i], *target[t][j]) for i, j in zip(moved.source, moved.target)) == places


def test_graph_cut_down_is_the_graph_of_the_part():
    rng = np.random.default_rng(9)
    source, target = rng.normal(size=(50, 2)), rng.normal(size=(60, 2))
    graph = radius_graph(source, target, 2.0)
    s = rng.permutation(50)[:30]
    part, fresh = graph.within(0.7, s), radius_graph(source[s], target, 0.7)
    for a, b in zip(part, fresh):
        np.testing.assert_array_equal(a, b)
    assert graph.within(1e-9).nearest == graph.distances.min()
    assert graph.within(1e-9, s).nearest == radius_graph(source[s], target, 1e-9).nearest
    assert graph.within(1e-9).within(1e-10).nearest == graph.distances.min()
    with pytest.raises(ValueError, match="radius must be at most"):
        graph.within(2.5)
    with pytest.raises(ValueError, match="source_rows must be different"):
        graph.within(1.0, np.array([1, 1]))
    with pytest.raises(ValueError, match="source_rows must be a vector"):
        graph.within(1.0, np.array([], dtype=int))


_GOOD = np.array([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": np.array([[0.0, np.nan]])}, "source holds 1 entries that are NaN"),
        ({"target": np.array([[np.inf, 0.0]])}, "target holds 1 entries that are NaN or infinite"),
        ({"target": np.ones((2, 3))}, "same number of features"),
        ({"source": np.ones((0, 2))}, "source is empty"),
        ({"target": np.ones(3)}, "target must be an array of rank 2"),
        ({"source": None}, "source and target may be None only"),
        ({"source": _GOOD * 1e200}, "source holds 1e\\+200"),
        ({"radius": 0.0}, "radius must be finite and above 0"),
        ({"radius": -1.0}, "radius must be finite and above 0"),
        ({"radius": np.nan}, "radius must be finite and above 0"),
        ({"radius": np.array([1.0, 2.0])}, "radius must be one number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 0.5}, "seed must be an integer"),
        ({"metric": "cosine"}, "metric must be one of cityblock"),
        ({"metric": 0.5}, "metric, as the order"),
        ({"metric": np.eye(3)}, "metric must be a matrix with a row per feature"),
        ({"metric": np.array([[1.0, 0.5], [0.0, 1.0]])}, "metric must be a symmetric"),
        ({"metric": np.diag([1.0, -1.0])}, "metric must be positive semi-definite"),
        ({"metric": lambda x, y: -1.0}, "metric must return finite"),
        ({"metric": pvm.Precomputed(-np.ones((2, 2)))}, "metric.distances must not be negative"),
        ({"metric": pvm.Precomputed(np.ones((3, 2)))}, "source has 2 rows"),
        ({"metric": pvm.Precomputed(np.full((2, 2), np.nan))}, "metric.distances holds 4"),
    ],
)
def test_bad_input(change, message):
    good = {"source": _GOOD, "target": _GOOD, "radius": 1.0}
    with pytest.raises(ValueError, match=message):
        pvm.match(**{**good, **change})


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("source", lambda x: pvm.match(x, _GOOD, 1.0).pv),
        ("target", lambda x: pvm.pv_curve(_GOOD, x).pv),
        ("radius", lambda x: pvm.perturbed_variation(_GOOD, _GOOD, x[0, 1])),
        ("metric.distances", lambda x: pvm.bottleneck_radius(None, None, metric=pvm.Precomputed(x))),
        ("source_labels", lambda x: pvm.self_label(_GOOD, x[0], _GOOD, 1.0).labels),
        ("source_labels", lambda x: pvm.nn_self_label(_GOOD, x[0], _GOOD, 1).labels),
        ("source", lambda x: pvm.sweep(x, np.array([1, -1]), _GOOD)),
    ],
)
def test_host_functions_refuse_traced_and_sparse_arrays(name, call):
    with pytest.raises(ValueError, match=f"{name} is traced, and this function runs on the host"):
        jax.jit(call)(_GOOD)
    if name in ("source", "target", "metric.distances"):
        with pytest.raises(ValueError, match=f"{name} is sparse, a csr_array"):
            call(csr_array(_GOOD))


def test_host_functions_look_into_arrays_of_jax():
    assert pvm.match(jnp.asarray(_GOOD), jnp.asarray(_GOOD), jnp.float32(0.5)).pv == 0
    with pytest.raises(ValueError, match="source holds 1 entries that are NaN"):
        pvm.match(jnp.array([[0.0, np.nan]]), _GOOD, 1.0)


def test_no_pair_in_reach():
    found = pvm.match(_GOOD, _GOOD + 50, 1.0)
    assert found.source.size == found.target.size == found.distances.size == 0
    assert found.pv == 1


def test_one_point_each_and_float32():
    assert pvm.match(np.array([[1.0]]), np.array([[2.0]]), 1.0).pv == 0
    assert pvm.match(np.array([[1.0]], dtype=np.float32), np.array([[2.5]], dtype=np.float32), 1.0).pv == 1


def test_benchmark_runs(capsys, one_call):
    import json

    from experiments import benchmark

    benchmark.main(["matching", "--quick", "--repeats", "1", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["row"] for row in rows} == {"versions", "dense", "sparse", "curve", "radii", "bottleneck", "draws"}
    dense = next(row for row in rows if row["row"] == "dense")
    assert dense["pairs"] == dense["dinic_pairs"] > 0
    radii, bottleneck = (next(row for row in rows if row["row"] == name) for name in ("radii", "bottleneck"))
    assert radii["equal"]
    assert bottleneck["pv"] == 0 < bottleneck["pv_below"]
