"""The perturbed variation and its curve: exact at every radius, ties included."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pvmincq_jax as pvm
from pvmincq_jax.matching import curve as curve_module


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


@pytest.mark.parametrize("pv", [0.0, 0.3])
def test_bottleneck_without_all_pairs_in_memory(pv, monkeypatch):
    for seed, grid in ((4, False), (5, True), (6, False)):
        source, target = _samples(seed, (60, 60), grid)
        expected = pvm.bottleneck_radius(source, target, pv)
        with monkeypatch.context() as patch:
            patch.setattr(curve_module, "_DENSE_PAIRS", 0)
            assert pvm.bottleneck_radius(source, target, pv) == expected


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
