"""TSVM: the transductive support vector machine of Joachims (1999), learning from both domains.

What is followed: an SVM on the source labels the target, as many points positive as the source's class ratio says,
those of the largest values; then target costs start at 1e-5 and double up to C*, and at each level a positive and a
negative target point swap labels, followed by a new training, while both have slack and their slacks sum to more than
2. A swap keeps the class ratio and lowers the objective: for a fixed f the slacks xi and zeta of the pair become
max(0, 2 - xi) < zeta and max(0, 2 - zeta) < xi, under the same two costs, and training lowers it further.

What is ours: the pair that swaps is the one of the largest slacks, and up to `PAIRS` disjoint pairs, each of which
meets the condition, swap before the next training (the multiple switching of Sindhwani and Keerthi 2006; the argument
above holds for each of them); the last level, C* itself, is trained too; C* is the source's C, its usual choice.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import (
    KernelModel,
    Sample,
    both_domains,
    decision,
    make_grid,
    on_kernels,
    read_grid,
)
from pvmincq_jax.baselines._svc import TOLERANCE, weighted_svc

__all__ = ["GRID", "VALIDATION", "TsvmModel", "TsvmParams", "decision", "fit", "fit_grid"]

FIRST_COST = 1e-5
PAIRS = 1000
# Training is exact up to libsvm's tolerance, which could make a swap look good in both directions; a pair must win by
# more than that. The number of trainings is finite by the objective's fall, and capped against what rounding may do.
_GAIN = 10 * TOLERANCE
_MOST_TRAININGS = 1000


class TsvmParams(NamedTuple):
    """Parameters of the TSVM.

    Attributes:
      gamma: of the Gaussian kernel.
      cost: C, of a unit of slack on the source, and in the end on the target.
    """

    gamma: float
    cost: float


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
    positive, negative = np.flatnonzero(labels > 0), np.flatnonzero(labels < 0)
    positive = positive[np.argsort(-slacks[positive], kind="stable")]
    negative = negative[np.argsort(-slacks[negative], kind="stable")]
    length = min(positive.size, negative.size, PAIRS)
    positive, negative = positive[:length], negative[:length]
    good = (slacks[positive] > 0) & (slacks[negative] > 0) & (slacks[positive] + slacks[negative] > 2 + _GAIN)
    return np.concatenate([positive[good], negative[good]])


def _anneal(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: TsvmParams) -> TsvmModel:
    """The levels, on a kernel matrix of source and target."""
    cost = float(params.cost)
    m_s, m_t = sample.source.shape[0], sample.target.shape[0]
    positives = int(np.clip(round(m_t * float(np.mean(sample.labels > 0))), 1, m_t - 1))

    costs = np.concatenate([np.full(m_s, cost), np.zeros(m_t)])
    every = np.concatenate([sample.labels, np.zeros(m_t)])
    machine = weighted_svc(kernel, every, costs)
    values = kernel @ machine.weights + machine.bias
    every[m_s:] = -1.0
    every[m_s + np.argsort(-values[m_s:], kind="stable")[:positives]] = 1.0

    negative_cost = min(FIRST_COST, cost)
    positive_cost = min(FIRST_COST * positives / (m_t - positives), cost)
    levels, objectives, counts = [], [], []
    level = 0
    while True:
        for _ in range(_MOST_TRAININGS):
            costs[m_s:] = np.where(every[m_s:] > 0, positive_cost, negative_cost)
            machine = weighted_svc(kernel, every, costs)
            values = kernel @ machine.weights + machine.bias
            slacks = np.maximum(0.0, 1 - every * values)
            levels.append(level)
            objectives.append(machine.weights @ (values - machine.bias) / 2 + costs @ slacks)
            counts.append(np.sum(every[m_s:] > 0))
            flips = _swaps(every[m_s:], slacks[m_s:])
            if not flips.size:
                break
            every[m_s + flips] *= -1
        if negative_cost >= cost and positive_cost >= cost:
            break
        negative_cost, positive_cost = min(2 * negative_cost, cost), min(2 * positive_cost, cost)
        level += 1
    model, given = machine.over(points, params.gamma), sample.as_given(every[m_s:])
    return TsvmModel(model, given, np.array(levels), np.array(objectives), np.array(counts))


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[TsvmParams | dict], seed: int = 0
) -> list[TsvmModel]:
    """Trains the whole grid with one kernel matrix for each gamma (section 4).

    Args: source, source_labels, target, grid (`TsvmParams`s), seed (not used); see `pvmincq_jax.baselines`.

    Returns: list of `TsvmModel` ``[g]``.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> [int(model.positives.max()) for model in fit_grid(source, labels, source, GRID[:2])]
      [1, 1]
    """
    read, samples = read_grid(TsvmParams, source, source_labels, target, grid)
    if len(samples[0].target) < 2:
        raise ValueError(f"target must hold at least two points, one for each class; it holds {len(samples[0].target)}")
    return on_kernels(read, samples, both_domains, _anneal)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: TsvmParams | dict, seed: int = 0
) -> TsvmModel:
    """Trains on the labelled source and the unlabelled target, at least two points of it (section 4).

    min over f and target labels of 1/2 |w|^2 + C sum_S xi_i + C*_+ sum_{T, +} xi_j + C*_- sum_{T, -} xi_j, with the
    number of positive target labels fixed; a local minimum by swaps, annealed in C*.

    Args: source, source_labels, target, params (`TsvmParams`), seed (not used); see `pvmincq_jax.baselines`.

    Returns: `TsvmModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, np.array([[0.3], [1.3]]), TsvmParams(1.0, 10.0))
      >>> print(model.target_labels)
      [-1.  1.]
    """
    return fit_grid(source, source_labels, target, [params], seed)[0]
