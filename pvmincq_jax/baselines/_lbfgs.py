"""SciPy's L-BFGS-B without the layers around it, which take longer than a step where a step takes microseconds."""

from collections.abc import Callable

import numpy as np
import scipy
from scipy.optimize import minimize

__all__ = ["minimise"]

# The compiled core is no public part of SciPy: it is called where its form is known, and `minimize` calls it elsewhere.
_KNOWN = ("1.15", "1.16", "1.17")
_CORRECTIONS, _LINE_STEPS, _STEEP = 10, 20, 1e-6
# What the core asks for.
_NEW_ITERATE, _EVALUATE, _STOP = 1, 3, 5

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


def minimise(value_and_gradient: Function, start: np.ndarray, tolerance: float, most: int) -> np.ndarray:
    """A local minimum of a smooth function, by L-BFGS-B without bounds; the same bits as `scipy.optimize.minimize`.

    Args:
      value_and_gradient: of ``[n]``, which it must neither keep nor change; the gradient is float64 and its own.
      start: ``[n]``.
      tolerance: it ends where an iteration lowers the value by less than this part.
      most: iterations; evaluations are at most twice as many, and a line search.

    Returns: ``[n]``.

    Example:
      >>> found = minimise(lambda x: (x @ x / 2, x.copy()), np.array([3.0, 4.0]), 1e-9, 100)
      >>> bool(np.max(np.abs(found)) < 1e-6)
      True
    """
    if scipy.__version__.rpartition(".")[0] in _KNOWN:
        return _call_core(value_and_gradient, start, tolerance, most)
    options = {"maxiter": most, "maxfun": 2 * most, "ftol": tolerance, "gtol": _STEEP}
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x


def _call_core(value_and_gradient: Function, start: np.ndarray, tolerance: float, most: int) -> np.ndarray:
    """The loop of SciPy's ``_minimize_lbfgsb``."""
    from scipy.optimize import _lbfgsb

    m, n = _CORRECTIONS, start.size
    x, value, gradient = np.array(start, dtype=float), 0.0, np.zeros(n)
    lower, upper, bounded = np.zeros(n), np.zeros(n), np.zeros(n, np.int32)
    work, whole_work = np.zeros(2 * m * n + 5 * n + 11 * m * m + 8 * m), np.zeros(3 * n, np.int32)
    task, line_task, flags, counts = (np.zeros(size, np.int32) for size in (2, 2, 4, 44))
    state = np.zeros(29)
    factor = tolerance / np.finfo(float).eps
    iterations = evaluations = 0
    while True:
        _lbfgsb.setulb(
            m, x, lower, upper, bounded, value, gradient, factor, _STEEP, work,
            whole_work, task, flags, counts, state, _LINE_STEPS, line_task,
        )  # fmt: skip
        if task[0] == _EVALUATE:
            before, (value, gradient) = value, value_and_gradient(x)
            evaluations += value != before  # a point that is asked for twice in a row counts once
        elif task[0] == _NEW_ITERATE:
            iterations += 1
            if iterations >= most or evaluations > 2 * most:
                task[0] = _STOP
        else:
            return x
