"""Weighted support vector machines on a kernel matrix, by the libsvm that scikit-learn's SVC calls."""

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
    # The methods train thousands of machines on checked input: SVC would look at it for longer than libsvm trains.
    try:
        from sklearn.svm import _libsvm
    except ImportError as error:
        raise ImportError(
            'this method trains scikit-learn\'s SVC, which is not installed: pip install "pvmincq-jax[sklearn]"'
        ) from error
    used = np.flatnonzero(costs > 0)
    weights = np.zeros(labels.shape[0])
    if np.all(labels[used] == labels[used[0]]):
        return Expansion(weights, float(labels[used[0]]))
    # C is multiplied by the sample weights; the rest of libsvm is on the scale of the largest cost.
    largest = float(np.max(costs))
    own = kernel if used.size == labels.shape[0] else kernel.take(used, axis=0).take(used, axis=1)
    _libsvm.set_verbosity_wrap(0)
    support, _, _, dual, bias, *_ = _libsvm.fit(
        np.ascontiguousarray(own),
        labels[used],
        kernel="precomputed",
        C=largest,
        tol=TOLERANCE,
        cache_size=50.0,
        sample_weight=costs[used] / largest,
    )
    # libsvm's first class is -1, whose side it calls the positive one.
    weights[used[support]] = -dual[0]
    return Expansion(weights, -float(bias[0]))
