"""Votes: closed forms, extreme input, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm

POINTS, VOTERS, FEATURES = 6, 4, 3
on_many = settings(max_examples=60, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
jitted_rbf = jax.jit(pvm.rbf_votes)


@on_many
@given(seeds, st.floats(-2, 3))
def test_rbf_votes_are_gaussian_kernels(seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    x, centers = rng.normal(size=(POINTS, FEATURES)), rng.normal(size=(VOTERS, FEATURES))
    gamma = 10.0**exponent
    expected = np.exp(-gamma * cdist(x, centers, "sqeuclidean"))
    votes = jitted_rbf(x, centers, gamma)
    assert votes.shape == (POINTS, VOTERS)
    # The relative error of exp is the absolute one of its argument.
    near = expected > 1e-100
    np.testing.assert_allclose(votes[near], expected[near], rtol=1e-12)
    np.testing.assert_allclose(votes, expected, atol=1e-90)


def test_rbf_votes_take_one_width_per_voter() -> None:
    rng = np.random.default_rng(0)
    x, centers = rng.normal(size=(POINTS, FEATURES)), rng.normal(size=(VOTERS, FEATURES))
    gammas = np.array([0.01, 1.0, 3.0, 1000.0])
    together = pvm.rbf_votes(x, centers, gammas)
    for voter, gamma in enumerate(gammas):
        np.testing.assert_allclose(together[:, voter], pvm.rbf_votes(x, centers, gamma)[:, voter], rtol=1e-14)


def test_rbf_votes_lose_no_digits_far_from_the_origin() -> None:
    # All numbers are exact in binary, so the shift must not change a bit.
    x, centers = np.array([[0.5, -0.25], [1.0, 2.0]]), np.array([[0.25, 0.0]])
    shift = 2.0**30
    np.testing.assert_array_equal(pvm.rbf_votes(x + shift, centers + shift, 1.0), pvm.rbf_votes(x, centers, 1.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("distance", "gamma"), [(1e3, 1e3), (1e15, 1e30), (1.0, 1e38), (1e30, 1e-3), (1e38, 1e38)])
def test_far_points_vote_zero_with_derivative_zero(dtype: type, distance: float, gamma: float) -> None:
    x, centers = np.array([[distance, -distance]], dtype), np.array([[0.0, 0.0], [-distance, distance]], dtype)
    gamma = dtype(gamma)

    def total(x, centers, gamma):
        return jnp.sum(pvm.rbf_votes(x, centers, gamma))

    votes = pvm.rbf_votes(x, centers, gamma)
    assert votes.dtype == dtype
    np.testing.assert_array_equal(votes, 0)
    for gradient in jax.grad(total, argnums=(0, 1, 2))(x, centers, gamma):
        np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("gamma", [1e-300, 1.0, 1e12, 1e300])
def test_a_point_on_its_centre_votes_one_with_finite_derivatives(gamma: float) -> None:
    x = np.array([[0.3, -2.0]])
    np.testing.assert_array_equal(pvm.rbf_votes(x, x, gamma), 1)
    for gradient in jax.jit(jax.grad(lambda *a: jnp.sum(pvm.rbf_votes(*a)), argnums=(0, 1, 2)))(x, x, gamma):
        np.testing.assert_array_equal(gradient, 0)


def test_derivatives_of_rbf_votes_are_the_closed_forms() -> None:
    rng = np.random.default_rng(1)
    x, centers, gamma = rng.normal(size=(POINTS, 2)), rng.normal(size=(VOTERS, 2)), 0.7
    difference = x[:, None] - centers[None]
    votes = np.exp(-gamma * (difference**2).sum(-1))
    by_x, by_centers, by_gamma = jax.jit(jax.jacobian(pvm.rbf_votes, argnums=(0, 1, 2)))(x, centers, gamma)
    expected = -2 * gamma * difference * votes[..., None]
    np.testing.assert_allclose(by_gamma, -(difference**2).sum(-1) * votes, rtol=1e-12)
    for i in range(POINTS):
        for j in range(VOTERS):
            np.testing.assert_allclose(by_x[i, j], np.eye(POINTS)[i][:, None] * expected[i, j], rtol=1e-12)
            np.testing.assert_allclose(by_centers[i, j], -np.eye(VOTERS)[j][:, None] * expected[i, j], rtol=1e-12)


def test_traced_nan_stays_nan() -> None:
    x, centers = np.array([[np.nan, 0.0], [1.0, 0.0]]), np.zeros((1, 2))
    np.testing.assert_array_equal(np.isnan(jitted_rbf(x, centers, 1.0)), [[True], [False]])
    assert np.all(np.isnan(jitted_rbf(np.ones((1, 2)), centers, -1.0)))


def test_rbf_votes_follow_the_dtype() -> None:
    x = np.array([[0], [2]])
    assert pvm.rbf_votes(x.astype(np.float32), x.astype(np.float32), 1.0).dtype == np.float32
    assert pvm.rbf_votes(x.astype(np.float32), x, np.float64(1)).dtype == np.float32
    np.testing.assert_allclose(pvm.rbf_votes(x, x, 1), [[1, np.exp(-4)], [np.exp(-4), 1]])


def test_rbf_votes_vmap_over_gamma() -> None:
    x = np.random.default_rng(0).normal(size=(POINTS, 2))
    gammas = np.array([0.1, 1.0, 10.0])
    batch = jax.vmap(pvm.rbf_votes, in_axes=(None, None, 0))(x, x, gammas)
    for votes, gamma in zip(batch, gammas):
        np.testing.assert_allclose(votes, np.exp(-gamma * cdist(x, x, "sqeuclidean")), rtol=1e-12)


def test_stump_votes_split_at_the_threshold() -> None:
    x = np.array([[0.0, 5.0], [1.0, 3.0], [2.0, 4.0]])
    features, thresholds = np.array([0, 1, 0]), np.array([1.0, 3.5, -1.0])
    expected = [[-1, 1, 1], [-1, -1, 1], [1, 1, 1]]  # the value at the threshold is not above it
    np.testing.assert_array_equal(pvm.stump_votes(x, features, thresholds), expected)
    np.testing.assert_array_equal(jax.jit(pvm.stump_votes)(x, features, thresholds), expected)
    assert pvm.stump_votes(x.astype(np.float32), features, thresholds).dtype == np.float32
    assert pvm.stump_votes(x.astype(int), features, thresholds).dtype == np.float64
    derivative = jax.grad(lambda t: jnp.sum(pvm.stump_votes(x, features, t)))(thresholds)
    np.testing.assert_array_equal(derivative, 0)


@on_many
@given(seeds, st.integers(1, 12))
def test_every_placed_stump_splits_its_sample(seed: int, per_feature: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.stack([rng.normal(size=9), rng.integers(0, 3, 9), np.full(9, 7.0)], axis=1)
    features, thresholds = pvm.stump_thresholds(x, per_feature)
    votes = np.where(x[:, features] > thresholds, 1, -1)
    assert np.all(np.abs(votes.sum(0)) < 9)
    assert np.unique(votes[:, features == 0], axis=1).shape[1] == np.sum(features == 0)  # no two alike
    assert np.sum(features == 0) == min(per_feature, 8)
    assert np.sum(features == 1) == min(per_feature, np.unique(x[:, 1]).size - 1)
    assert not np.any(features == 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_between_neighbouring_floats_still_split(dtype: type) -> None:
    top = np.finfo(dtype).max
    for low in (dtype(1), dtype(1) + np.finfo(dtype).eps, -np.finfo(dtype).smallest_subnormal, dtype(top / 2)):
        x = np.array([[low], [np.nextafter(low, dtype(np.inf))]], dtype)
        features, thresholds = pvm.stump_thresholds(x)
        assert thresholds.dtype == dtype
        # NumPy, not JAX: XLA flushes subnormal numbers to zero.
        np.testing.assert_array_equal(x[:, features] > thresholds, [[False], [True]])
    _, thresholds = pvm.stump_thresholds(np.array([[-top], [top]], dtype))
    np.testing.assert_array_equal(thresholds, [0])


def test_thresholds_are_spread_evenly_in_rank() -> None:
    x = np.arange(101.0)[:, None] ** 3
    _, thresholds = pvm.stump_thresholds(x, 4)
    np.testing.assert_array_equal((x < thresholds).sum(0), [13, 38, 63, 88])


def test_classifier_votes_pass_bounded_outputs() -> None:
    outputs = np.array([[1.0, -0.5], [-1.0, 0.25]])
    np.testing.assert_array_equal(pvm.classifier_votes(outputs), outputs)
    np.testing.assert_array_equal(pvm.classifier_votes(3 * outputs, bound=3.0), 3 * outputs)
    assert pvm.classifier_votes(np.array([[1, -1]])).dtype == np.float64
    assert pvm.classifier_votes(outputs.astype(np.float32)).dtype == np.float32


X = np.zeros((3, 2))
HOLED = np.array([[0.0, np.nan]])


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("x", lambda: pvm.rbf_votes(HOLED, X, 1.0)),
        ("x", lambda: pvm.rbf_votes(np.zeros(3), X, 1.0)),
        ("x", lambda: pvm.rbf_votes(np.zeros((0, 2)), X, 1.0)),
        ("x", lambda: pvm.rbf_votes(np.array([["a", "b"]]), X, 1.0)),
        ("centers", lambda: pvm.rbf_votes(X, HOLED, 1.0)),
        ("centers", lambda: pvm.rbf_votes(X, np.zeros((3, 1)), 1.0)),
        ("gamma", lambda: pvm.rbf_votes(X, X, 0.0)),
        ("gamma", lambda: pvm.rbf_votes(X, X, -1.0)),
        ("gamma", lambda: pvm.rbf_votes(X, X, np.nan)),
        ("gamma", lambda: pvm.rbf_votes(X, X, np.inf)),
        ("gamma", lambda: pvm.rbf_votes(X, X, np.ones(2))),
        ("gamma", lambda: pvm.rbf_votes(X, X, np.ones((3, 1)))),
        ("x", lambda: pvm.stump_votes(HOLED, np.array([0]), np.array([0.0]))),
        ("features", lambda: pvm.stump_votes(X, np.array([2]), np.array([0.0]))),
        ("features", lambda: pvm.stump_votes(X, np.array([-1]), np.array([0.0]))),
        ("features", lambda: pvm.stump_votes(X, np.array([0.0]), np.array([0.0]))),
        ("features", lambda: pvm.stump_votes(X, np.array([0, 1]), np.array([0.0]))),
        ("features", lambda: pvm.stump_votes(X, np.array([[0]]), np.array([0.0]))),
        ("thresholds", lambda: pvm.stump_votes(X, np.array([0]), np.array([np.nan]))),
        ("thresholds", lambda: pvm.stump_votes(X, np.array([0]), np.array(0.0))),
        ("x", lambda: pvm.stump_thresholds(HOLED)),
        ("x", lambda: pvm.stump_thresholds(X)),
        ("per_feature", lambda: pvm.stump_thresholds(np.eye(2), 0)),
        ("outputs", lambda: pvm.classifier_votes(np.array([[1.5]]))),
        ("outputs", lambda: pvm.classifier_votes(HOLED)),
        ("outputs", lambda: pvm.classifier_votes(np.zeros(3))),
        ("bound", lambda: pvm.classifier_votes(X, bound=0.0)),
    ],
)
def test_bad_input_is_named(argument: str, call) -> None:
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        call()


def test_shapes_are_refused_under_jit_too() -> None:
    with pytest.raises(ValueError, match="centers"):
        jitted_rbf(X, np.zeros((3, 1)), 1.0)
