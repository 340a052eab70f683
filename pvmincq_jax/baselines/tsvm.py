"""TSVM: the transductive support vector machine of Joachims (1999), learning from both domains.

What is followed: an SVM on the source labels the target, as many points positive as the source's class ratio says,
those of the largest values; then target costs start at 1e-5 and double up to C*, and at each level a positive and a
negative target point swap labels, followed by a new training, while both have slack and their slacks sum to more than
2. A swap keeps the class ratio and lowers the objective: for a fixed f the slacks xi and zeta of the pair become
max(0, 2 - xi) < zeta and max(0, 2 - zeta) < xi, under the same two costs, and training lowers it further.

What is ours: the pair that swaps is the one of the largest slacks, and up to `PAIRS` disjoint pairs, each of which
meets the condition, swap before the next training (the multiple switching of Sindhwani and Keerthi 2006; the argument
above holds for each of them); the last level, C* itself, is trained too; C* is the source's C, its usual choice.

min over f and target labels of 1/2 |w|^2 + C sum_S xi_i + C*_+ sum_{T, +} xi_j + C*_- sum_{T, -} xi_j, with the number
of positive target labels fixed: a local minimum by swaps, annealed in C*. The target must hold at least two points.

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> print(fit(source, labels, np.array([[0.3], [1.3]]), TsvmParams(1.0, 10.0)).target_labels)
  [-1.  1.]
"""

import itertools
from typing import NamedTuple

import numpy as np

from pvmincq_jax.baselines._form import KernelModel, Sample, decision, expand, make_fits, make_grid, on_kernels
from pvmincq_jax.baselines.svm import TOLERANCE, SvmParams, largest_rows, weighted_svc

__all__ = ["GRID", "VALIDATION", "TsvmModel", "TsvmParams", "decision", "fit", "fit_grid"]

FIRST_COST = 1e-5
PAIRS = 1000
# Training is exact up to libsvm's tolerance, which could make a swap look good in both directions; a pair must win by
# more than that. The number of trainings is finite by the objective's fall, and capped against what rounding may do.
_GAIN = 10 * TOLERANCE
_MOST_TRAININGS = 1000


class TsvmParams(SvmParams):
    """Parameters of the TSVM.

    Attributes:
      gamma: of the Gaussian kernel.
      cost: C, of a unit of slack on the source, and in the end on the target.
    """


class TsvmModel(NamedTuple):
    """A TSVM with the way it came about.

    Attributes:
      kernel: the classifier.
      target_labels: the labels given to the target in the end, in the caller's row order ``[m_t]``.
      levels: the cost level of each training ``[t]``; trainings at one level follow each other by swaps.
      objectives: what each training minimised, its least value ``[t]``.
      positives: how many target points were positive at each training ``[t]``.
    """

    kernel: KernelModel
    target_labels: np.ndarray
    levels: np.ndarray
    objectives: np.ndarray
    positives: np.ndarray


GRID = make_grid(TsvmParams, cost=(0.1, 1.0, 10.0, 100.0), gamma=(0.5, 2.0, 8.0))
VALIDATION = "cross"


def _swaps(labels: np.ndarray, slacks: np.ndarray) -> np.ndarray:
    """The rows to flip: disjoint pairs of a positive and a negative point with both slacks > 0 and a sum > 2."""
    positive, negative = (largest_rows(slacks, side, PAIRS) for side in (labels > 0, labels < 0))
    length = min(positive.size, negative.size)
    positive, negative = positive[:length], negative[:length]
    good = (slacks[positive] > 0) & (slacks[negative] > 0) & (slacks[positive] + slacks[negative] > 2 + _GAIN)
    return np.concatenate([positive[good], negative[good]])


def _anneal(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: TsvmParams) -> TsvmModel:
    """All cost levels, on the kernel matrix of the points of both domains."""
    cost = float(params.cost)
    m_s, m_t = len(sample.source), len(sample.target)
    if m_t < 2:
        raise ValueError(f"target must hold at least two points, one for each class; it holds {m_t}")
    positives = int(np.clip(round(m_t * float(np.mean(sample.labels > 0))), 1, m_t - 1))

    costs = np.concatenate([np.full(m_s, cost), np.zeros(m_t)])
    labels = np.concatenate([sample.labels, np.zeros(m_t)])
    weights, bias = weighted_svc(kernel, labels, costs)
    at_target = kernel[m_s:] @ weights + bias
    labels[m_s:] = -1.0
    labels[m_s + np.argsort(-at_target, kind="stable")[:positives]] = 1.0

    first_costs, trained = FIRST_COST * np.array([1, positives / (m_t - positives)]), []
    for level in itertools.count():
        negative_cost, positive_cost = np.minimum(first_costs * 2.0**level, cost)
        for _ in range(_MOST_TRAININGS):
            costs[m_s:] = np.where(labels[m_s:] > 0, positive_cost, negative_cost)
            weights, bias = weighted_svc(kernel, labels, costs)
            product = kernel @ weights
            slacks = np.maximum(0.0, 1 - labels * (product + bias))
            trained.append((level, weights @ product / 2 + costs @ slacks, np.sum(labels[m_s:] > 0)))
            flips = _swaps(labels[m_s:], slacks[m_s:])
            if not flips.size:
                break
            labels[m_s + flips] *= -1
        if negative_cost >= cost and positive_cost >= cost:
            break
    machine, target_labels = expand(points, params.gamma, weights, bias), sample.as_given(labels[m_s:])
    return TsvmModel(machine, target_labels, *map(np.array, zip(*trained)))


fit, fit_grid = make_fits(TsvmParams, on_kernels(_anneal))
