"""Distances and spreads of traced arrays: SciPy's values, far from the origin too, and no array of all differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax.matching.selflabel import host_spread, matched_spread


def _points(sizes, features, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    # On a grid of 2^-12, so that the points keep all their digits at an offset of 2^20.
    return [np.round(rng.normal(size=(size, features)) * 4096) / 4096 + offset for size in sizes]


@pytest.mark.parametrize("features", [1, 2, 20, 24, 25, 300])
def test_values_are_those_of_scipy_wherever_the_origin_is(features):
    x, y = _points((7, 9), features)
    x[0] = y[0]
    found = np.asarray(squared_distances(x, y))
    np.testing.assert_allclose(found, cdist(x, y, "sqeuclidean"), rtol=1e-13)
    assert found[0, 0] == 0
    far = squared_distances(x + 2.0**20, y + 2.0**20)
    # Around a mean that is rounded, a product of matrices is off in the last digits.
    np.testing.assert_allclose(far, found, rtol=0 if features < 32 else 1e-13)
    # Integers become floats.
    np.testing.assert_array_equal(squared_distances(np.array([[1, 2]]), np.array([[4, 6]])), [[25.0]])


@pytest.mark.parametrize("distance", [1e-3, 1.0, 1e3, 1e8])
def test_points_that_are_close_beside_others_far_away_keep_their_digits(distance):
    """Of a product of matrices what is small is left over from what is large; differences step in."""
    x, y = _points((40, 50), 60)
    x[:20] += distance
    y[:10] = x[:10] + np.linspace(0, 1e-6, 10)[:, None]
    np.testing.assert_allclose(squared_distances(x, y), cdist(x, y, "sqeuclidean"), rtol=1e-10)
    np.testing.assert_allclose(squared_distances(x[:, :1] * np.ones(60), x), cdist(x[:, :1] * np.ones(60), x) ** 2)


def test_numbers_that_are_none_stay_so():
    x, y = _points((9, 9), 40)
    x[0, 0], x[1, 1], y[2, 2] = np.nan, np.inf, 1e200
    found = squared_distances(x, y)
    np.testing.assert_array_equal(found, cdist(x, y, "sqeuclidean"))


@pytest.mark.parametrize("features", [2, 60])
@pytest.mark.parametrize("offset", [0.0, 2.0**20])
def test_derivatives_are_those_of_the_definition(features, offset):
    x, y = _points((5, 6), features, offset)
    x[0] = y[0]

    def value(distances, x, y):
        return jnp.sum(jnp.sin(distances(x, y) / features))

    def plain(x, y):
        return jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)

    steps = _points((5, 6), features, seed=1)
    for number in (0, 1):
        ours, theirs = (
            jax.jit(jax.grad(lambda *z, f=f: value(f, *z), number))(x, y) for f in (squared_distances, plain)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-13)

    def second(f):
        gradient = jax.grad(lambda *z: value(f, *z), (0, 1))
        return jax.jit(lambda *z: jax.jvp(gradient, z, tuple(steps))[1])(x, y)

    for ours, theirs in zip(second(squared_distances), second(plain)):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    if not offset:
        check_grads(jax.jit(squared_distances), (x, y), 2, ["fwd", "rev"], rtol=1e-6)


def test_arrays_of_jax_stay_on_their_device():
    """Values are looked at in NumPy arrays only; in JAX arrays what is not a number shows in the result."""
    x, y = _points((5, 6), 3)
    assert isinstance(squared_distances(x, y), np.ndarray)
    ours = squared_distances(jnp.asarray(x), y)
    assert isinstance(ours, jax.Array)
    np.testing.assert_allclose(ours, cdist(x, y, "sqeuclidean"), rtol=1e-13)
    x[0, 0] = np.nan
    assert np.isnan(pvm.soft_pv(jnp.asarray(x), y, 1.0, 0.1))
    with pytest.raises(ValueError, match="source holds 1 entries that are NaN"):
        pvm.soft_pv(x, y, 1.0, 0.1)


def test_root_has_a_derivative_at_zero():
    np.testing.assert_array_equal(jax.vmap(jax.grad(root))(jnp.array([0.0, 4.0])), [0.0, 0.25])


def _temporary_bytes(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def test_no_array_of_all_differences():
    x, y = _points((120, 150), 400)
    plan = np.random.default_rng(0).uniform(size=(120, 150))

    def total(tree):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))

    functions = {
        "distances": lambda x, y: total(root(squared_distances(x, y))),
        "soft": lambda x, y: total(pvm.soft_matching(x, y, 30.0, 0.1, iterations=3)),
        "scaled": lambda x, y: total(pvm.sinkhorn_transport(x, y, 30.0, softness=0.1, iterations=3)),
        "plan": lambda x, y: total(matched_spread(y, plan)),
    }
    for name, function in functions.items():
        # All differences would be 400 times the pairs.
        assert _temporary_bytes(jax.grad(function, (0, 1)), x, y) < 60 * plan.nbytes, name


@pytest.mark.parametrize("features", [1, 3, 40])
@pytest.mark.parametrize("offset", [0.0, 2.0**20])
def test_two_forms_of_one_spread(features, offset):
    (target,) = _points((9,), features, offset)
    rng = np.random.default_rng(1)
    plan = rng.uniform(size=(7, 9)) * (rng.uniform(size=(7, 9)) < 0.5)
    plan[2] = 0
    rows, columns = np.nonzero(plan)
    pairs = rows, columns, plan[rows, columns]
    for found in (matched_spread(target, plan), host_spread(target, *pairs, 7)):
        np.testing.assert_allclose(found.weights, plan.sum(axis=1), rtol=1e-14)
        for row in np.flatnonzero(plan.sum(axis=1)):
            mean = np.average(target, axis=0, weights=plan[row])
            gap = np.linalg.norm(target - mean, axis=1)
            np.testing.assert_allclose(found.moved[row], mean, rtol=1e-14, atol=1e-14)
            atol = 1e-14 + 1e-14 * offset
            assert found.mean_distance[row] == pytest.approx(np.average(gap, weights=plan[row]), rel=1e-12, abs=atol)
            assert found.variance[row] == pytest.approx(np.average(gap**2, weights=plan[row]), rel=1e-9, abs=atol)
        assert np.all(np.asarray(found.moved)[2] == 0)
        assert found.weights[2] == found.mean_distance[2] == found.variance[2] == 0


def test_soft_functions_far_from_the_origin():
    source, target = _points((12, 14), 3)
    far = source + 2.0**20, target + 2.0**20

    def soft(source, target):
        return jax.value_and_grad(lambda s, t: pvm.soft_pv(s, t, 1.0, 0.1), (0, 1))(source, target)

    def scaled(source, target):
        return pvm.sinkhorn_transport(source, target, 1.5, softness=0.1).matching.plan

    for function in (soft, scaled):
        for near, moved in zip(jax.tree.leaves(function(source, target)), jax.tree.leaves(function(*far))):
            np.testing.assert_allclose(near, moved, atol=1e-12)
