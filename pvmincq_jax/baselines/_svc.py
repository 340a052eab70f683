"""Support vector machines with a cost for each point, by scikit-learn's SVC."""

import numpy as np

__all__: list[str] = []

# The accuracy to which decision values near the margin are known. SVC's default, 1e-3, is too coarse to see that
# TSVM's objective falls at a swap.
TOLERANCE = 1e-5


def weighted_svc(kernel: np.ndarray, labels: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimises 1/2 |f|^2 + sum_i C_i max(0, 1 - y_i f(x_i)) over f(x_i) = sum_j K_ij w_j + b.

    Where all points of positive cost have one label y, the minimum is w = 0, b = y, which SVC refuses to return.

    Args:
      kernel: K ``[n, n]``.
      labels: y ``[n]`` in {-1, +1} where the cost is positive, anything elsewhere.
      costs: C ``[n]``, non-negative; a point of cost 0 is left out.

    Returns: w ``[n]``, 0 off the support vectors, and b.
    """
    try:
        from sklearn import config_context
        from sklearn.svm import SVC
    except ImportError as error:
        raise ImportError(
            'this method trains scikit-learn\'s SVC, which is not installed: pip install "pvmincq-jax[sklearn]"'
        ) from error
    used, weights = np.flatnonzero(costs > 0), np.zeros(len(labels))
    if np.all(labels[used] == labels[used[0]]):
        return weights, float(labels[used[0]])
    # SVC multiplies C by the sample weights; everything else in it is on the scale of the largest cost.
    largest = np.max(costs)
    kernel = kernel if used.size == len(labels) else kernel[np.ix_(used, used)]
    # The input has been checked; checking it again would take longer than training.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        machine = SVC(C=largest, kernel="precomputed", tol=TOLERANCE).fit(kernel, labels[used], costs[used] / largest)
    weights[used[machine.support_]] = machine.dual_coef_[0]
    return weights, float(machine.intercept_[0])
