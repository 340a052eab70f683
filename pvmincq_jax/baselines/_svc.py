"""Weighted support vector machines on a kernel matrix, by scikit-learn's SVC."""

from typing import NamedTuple

import numpy as np

from pvmincq_jax.baselines._form import KernelModel

__all__ = ["TOLERANCE", "Expansion", "weighted_svc"]

# libsvm's stopping rule on the dual's optimality conditions, which is also the accuracy of a decision value near the
# margin. Its default, 1e-3, is too coarse to see that TSVM's objective falls at a swap.
TOLERANCE = 1e-5


class Expansion(NamedTuple):
    """f(x_i) = sum_j K_ij w_j + b over the points that the kernel matrix is about.

    Attributes:
      weights: ``[n]``, 0 off the support vectors.
      bias: scalar.
    """

    weights: np.ndarray
    bias: float

    def over(self, points: np.ndarray, gamma: float) -> KernelModel:
        """As a function of new points; the n points were these."""
        return KernelModel(points, self.weights, np.asarray(self.bias), np.asarray(float(gamma)))


def weighted_svc(kernel: np.ndarray, labels: np.ndarray, costs: np.ndarray) -> Expansion:
    """Trains an SVM with one cost per point; a point of cost 0 is out.

    min 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i f(x_i)).

    If the points of positive cost are of one class only, that class is the answer everywhere: the minimiser is then
    w = 0, b = y, which libsvm refuses to return.

    Args:
      kernel: ``[n, n]``.
      labels: ``[n]`` in {-1, +1} where the cost is positive, anything elsewhere.
      costs: ``[n]``, non-negative.

    Returns: an `Expansion` over the n points.
    """
    try:
        from sklearn import config_context
        from sklearn.svm import SVC
    except ImportError as error:
        raise ImportError(
            'this method trains scikit-learn\'s SVC, which is not installed: pip install "pvmincq-jax[sklearn]"'
        ) from error
    used = np.flatnonzero(costs > 0)
    weights = np.zeros(labels.shape[0])
    if np.unique(labels[used]).size < 2:
        return Expansion(weights, float(labels[used][0]))
    # SVC multiplies its C by the sample weights; the rest of it is on the scale of the largest cost.
    largest = float(np.max(costs))
    machine = SVC(C=largest, kernel="precomputed", tol=TOLERANCE, cache_size=50)
    own = kernel if used.size == labels.shape[0] else kernel[np.ix_(used, used)]
    # The methods train thousands of machines on checked input: looking at it again would take longer than training.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        machine.fit(own, labels[used], sample_weight=costs[used] / largest)
    weights[used[machine.support_]] = machine.dual_coef_[0]
    return Expansion(weights, float(machine.intercept_[0]))
