"""L-BFGS-B by its core is L-BFGS-B by SciPy's own call, to the last bit."""

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from pvmincq_jax.baselines import _lbfgs


def rosenbrock(x):
    return rosen(x), rosen_der(x)


SLOPES, OFFSETS = np.random.default_rng(3).normal(size=(4, 2)), np.random.default_rng(4).normal(size=4)


def kinked(x):
    """Not smooth: line searches fail, and on the way to 12 iterations a point is asked for again."""
    inside = SLOPES @ x - OFFSETS
    return np.sum(np.abs(inside)) + x @ x / 2, SLOPES.T @ np.sign(inside) + x


@pytest.mark.parametrize(("function", "size"), [(rosenbrock, 15), (kinked, 2)])
@pytest.mark.parametrize("most", [1, 7, 12, 2000])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-12])
def test_the_same_bits_as_scipy(function, size, most, tolerance, monkeypatch):
    start = np.linspace(-1.3, 2.1, size)
    options = {"maxiter": most, "maxfun": 2 * most, "ftol": tolerance, "gtol": 1e-6}
    expected = minimize(function, start, jac=True, method="L-BFGS-B", options=options).x
    np.testing.assert_array_equal(_lbfgs.minimise(function, start, tolerance, most), expected)
    assert np.any(expected != start)
    # Of a SciPy whose core is not known, the public call.
    monkeypatch.setattr(_lbfgs, "_KNOWN", ())
    monkeypatch.setattr(_lbfgs, "_call_core", None)
    np.testing.assert_array_equal(_lbfgs.minimise(function, start, tolerance, most), expected)


def test_the_start_stays_as_it_is():
    start = np.linspace(-1.3, 2.1, 12)
    _lbfgs.minimise(rosenbrock, start, 1e-9, 100)
    np.testing.assert_array_equal(start, np.linspace(-1.3, 2.1, 12))
