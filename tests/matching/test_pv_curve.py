"""The perturbed variation and its curve: exact at every radius, ties included."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import pvmincq_jax as pvm
from pvmincq_jax.datasets import draw_moons
from pvmincq_jax.matching import growth
from pvmincq_jax.matching.growth import radii_of_all_pairs, radii_of_pairs
from pvmincq_jax.matching.space import make_space


def _samples(seed, sizes, grid):
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(sizes[0], 2)), rng.normal(size=(sizes[1], 2)) + 0.5
    # Rounded points coincide and have many equal distances.
    return (np.round(source * 2), np.round(target * 2)) if grid else (source, target)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 25), st.integers(1, 25)),
    grid=st.booleans(),
    metric=st.sampled_from(["euclidean", "cityblock", 3.0]),
)
def test_curve_agrees_with_single_matchings(seed, sizes, grid, metric):
    source, target = _samples(seed, sizes, grid)
    curve = pvm.pv_curve(source, target, metric=metric)
    radii, pv = curve
    assert np.all(np.diff(radii) > 0)
    assert np.all(np.diff(pv) < 0)
    before = 1.0
    for radius, value in zip(radii, pv):
        assert pvm.perturbed_variation(source, target, radius, metric=metric) == value == curve.at(radius)
        below = np.nextafter(radius, 0)
        if radius > 1e-300:
            assert pvm.perturbed_variation(source, target, below, metric=metric) == before == curve.at(below)
        else:
            # Points that coincide: the first step is at the bottom of all radii.
            assert before == 1
            assert np.any(np.all(source[:, None] == target[None], axis=2))
            assert pvm.perturbed_variation(source, target, below, metric=metric) == value == curve.at(below)
        assert pvm.bottleneck_radius(source, target, value, metric=metric) == radius
        before = value
    assert pv[-1] == pytest.approx((1 - min(sizes) / max(sizes)) / 2, abs=1e-15)
    assert pvm.bottleneck_radius(source, target, metric=metric) == radii[-1]
    # Between steps, and far out.
    np.testing.assert_array_equal(curve.at((radii[:-1] + radii[1:]) / 2), pv[:-1])
    assert curve.at(1e9) == pv[-1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)), grid=st.booleans())
def test_symmetric_and_monotone(seed, sizes, grid):
    source, target = _samples(seed, sizes, grid)
    values = [pvm.perturbed_variation(source, target, radius) for radius in (0.2, 0.5, 1.0, 2.0, 5.0)]
    assert all(a >= b for a, b in itertools.pairwise(values))
    assert values == [pvm.perturbed_variation(target, source, radius) for radius in (0.2, 0.5, 1.0, 2.0, 5.0)]
    there, back = pvm.pv_curve(source, target), pvm.pv_curve(target, source)
    np.testing.assert_array_equal(there.radii, back.radii)
    np.testing.assert_array_equal(there.pv, back.pv)


def test_identical_samples_and_samples_out_of_reach():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 3))
    shuffled = rng.permutation(points)
    assert pvm.perturbed_variation(points, shuffled, 1e-12) == 0
    assert pvm.perturbed_variation(points, shuffled + 100, 1.0) == 1
    radius = pvm.bottleneck_radius(points, shuffled)
    assert 0 < radius < 1e-300
    assert pvm.match(points, shuffled, radius).pv == 0


def test_falls_with_the_size_of_samples_of_one_distribution():
    def mean(size):
        rng = np.random.default_rng(1)
        pairs = [(rng.uniform(size=(size, 2)), rng.uniform(size=(size, 2))) for _ in range(8)]
        return np.mean([pvm.perturbed_variation(s, t, 0.1) for s, t in pairs])

    values = [mean(size) for size in (20, 80, 320, 1280)]
    assert values[0] > 0.4
    assert all(a > 1.5 * b for a, b in itertools.pairwise(values))
    assert values[-1] < 0.02


def test_translation_has_its_length_as_bottleneck():
    source = np.random.default_rng(2).normal(size=(40, 2))
    # Moved copies: the translation matches everyone, and no matching has a shorter longest edge for a far move.
    assert pvm.bottleneck_radius(source, source + np.array([30.0, 0.0])) == pytest.approx(30.0, rel=0.05)


def test_precomputed_and_function():
    source, target = _samples(3, (20, 30), False)
    distances = np.abs(source[:, None] - target[None]).sum(axis=2)
    plain = pvm.pv_curve(source, target, metric="cityblock")
    given_matrix = pvm.pv_curve(None, None, metric=pvm.Precomputed(distances))
    np.testing.assert_array_equal(plain.pv, given_matrix.pv)
    np.testing.assert_allclose(plain.radii, given_matrix.radii, rtol=1e-14)
    function = pvm.bottleneck_radius(source, target, metric=lambda x, y: float(np.abs(x - y).sum()))
    assert function == pytest.approx(plain.radii[-1], rel=1e-14)


def _size(distances, radius):
    """The size of a maximum matching of the pairs up to the radius, by SciPy's maximum flow."""
    sources, targets = distances.shape
    rows, columns = np.nonzero(distances <= radius)
    begin, end = sources + targets, sources + targets + 1
    tail = np.concatenate([rows, np.full(sources, begin), sources + np.arange(targets)])
    head = np.concatenate([sources + columns, np.arange(sources), np.full(targets, end)])
    network = csr_array((np.ones(tail.size, np.int32), (tail, head)), shape=(end + 1, end + 1))
    return int(maximum_flow(network, begin, end, method="dinic").flow_value)


def _by_all_lengths(distances):
    """The radius of 1, 2, .. pairs, by a matching at every distance that occurs."""
    lengths = np.unique(distances)
    sizes = np.array([_size(distances, length) for length in lengths])
    return np.array([lengths[np.argmax(sizes >= pairs)] for pairs in range(1, min(distances.shape) + 1)])


_METRICS = ["euclidean", "cityblock", "chebyshev", 3.0, np.array([[2.0, 0.5], [0.5, 1.0]]), "precomputed", "function"]


@pytest.mark.parametrize("size", ["small", "tiny"])
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    grid=st.booleans(),
    metric=st.sampled_from(range(len(_METRICS))),
    data=st.data(),
)
def test_radii_by_a_matching_at_every_distance(size, seed, sizes, grid, metric, data):
    source, target = _samples(seed, sizes, grid)
    metric = _METRICS[metric]
    if isinstance(metric, str) and metric == "precomputed":
        metric = pvm.Precomputed(np.random.default_rng(seed).integers(0, 9, sizes) / 4)
    elif isinstance(metric, str) and metric == "function":
        metric = _minimum
    space = make_space(source, target, metric)
    expected = _by_all_lengths(space.block(0, sizes[0]))
    every = np.arange(min(sizes)) + 1
    needed = np.array(sorted(data.draw(st.sets(st.sampled_from(every.tolist()), min_size=1))))
    # Guesses from two points, graphs that are far too small at first, and many strides lead to the same radii.
    with pytest.MonkeyPatch.context() as patch:
        if size == "tiny":
            for name, value in {"_PART": 2, "_EDGES": 1, "_FIRST": 1, "_FEW": 2}.items():
                patch.setattr(growth, name, value)
        np.testing.assert_array_equal(radii_of_all_pairs(space), expected)
        np.testing.assert_array_equal(radii_of_pairs(space, every), expected)
        np.testing.assert_array_equal(radii_of_pairs(space, needed), expected[needed - 1])


def _minimum(x, y):
    return float(np.abs(x - y).min())


@pytest.mark.parametrize("size", [320, pytest.param(700, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["moons", "one law", "far outliers", "grid", "many features", "unequal"])
def test_radii_of_larger_samples(kind, size):
    """Of so many points that strides are long; at 700 the first graph is one that a part of the samples suggests."""
    rng = np.random.default_rng(8)
    shape, last = (size, 2), size // 50
    source, target = {
        "moons": lambda: (draw_moons(size // 2, rng)[0], draw_moons(size // 2, rng, angle=30)[0]),
        "one law": lambda: (rng.uniform(size=shape), rng.uniform(size=shape)),
        "far outliers": lambda: (rng.standard_cauchy(shape), rng.standard_cauchy(shape)),
        "grid": lambda: (rng.integers(0, last, shape).astype(float), rng.integers(0, last + 2, shape).astype(float)),
        "many features": lambda: (rng.normal(size=(size, 30)), rng.normal(size=(size, 30)) + 0.5),
        "unequal": lambda: (rng.normal(size=(3 * size, 2)), rng.normal(size=shape) + 1),
    }[kind]()
    space = make_space(source, target)
    distances = space.block(0, len(source))
    rows = min(distances.shape)
    needed = np.unique((np.array([0.01, 0.3, 0.5, 0.7, 0.71, 0.9, 0.98, 1.0]) * rows).astype(int))
    for pairs, radius in zip(needed, radii_of_pairs(space, needed)):
        assert np.any(distances == radius)
        assert _size(distances, radius) >= pairs > _size(distances, np.nextafter(radius, -1))
    assert pvm.bottleneck_radius(target, source) == radius
    levels = np.array([0.5, 0.1, 0.0])
    curve = pvm.pv_curve(source, target)
    at = [curve.radii[np.argmax((curve.pv - curve.pv[-1]) / (1 - curve.pv[-1]) <= level + 1e-12)] for level in levels]
    np.testing.assert_array_equal(pvm.grid_radii(source, target, levels, "pv"), at)
    np.testing.assert_array_equal(pvm.grid_radii(source, target, [0.5, 2], "bottleneck"), [radius / 2, 2 * radius])
    order = rng.permutation(len(source)), rng.permutation(len(target))
    np.testing.assert_array_equal(pvm.grid_radii(source[order[0]], target[order[1]], levels, "pv"), at)


def test_unequal_sizes():
    source, target = _samples(7, (10, 40), False)
    radius = pvm.bottleneck_radius(source, target)
    assert pvm.match(source, target, radius).source.size == 10
    assert pvm.match(source, target, np.nextafter(radius, 0)).source.size == 9
    assert pvm.bottleneck_radius(source, target, 0.375) == radius
    with pytest.raises(ValueError, match=r"pv must be at least 0\.375"):
        pvm.bottleneck_radius(source, target, 0.2)


@pytest.mark.parametrize("pv", [-0.1, 1.0, np.nan])
def test_bad_pv(pv):
    with pytest.raises(ValueError, match=r"pv must be one number in \[0, 1\)"):
        pvm.bottleneck_radius(np.zeros((2, 1)), np.ones((2, 1)), pv)


def test_bad_samples():
    with pytest.raises(ValueError, match="source holds"):
        pvm.pv_curve(np.array([[np.nan]]), np.ones((2, 1)))
    with pytest.raises(ValueError, match="same number of features"):
        pvm.bottleneck_radius(np.ones((2, 2)), np.ones((2, 1)))
