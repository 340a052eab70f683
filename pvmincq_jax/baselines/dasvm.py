"""DASVM: the domain adaptation support vector machine of Bruzzone and Marconcini (2010).

It starts as the SVM of the source and ends as an SVM of self-labelled target points, in rounds. In each round, of the
target points without a label that lie inside the margin band, the `SHARE` of the sample nearest to the upper bound
f = 1 and as many nearest to the lower bound f = -1 get the label of their side and join; target points whose label
the current SVM contradicts lose it; and the source points that the SVM is surest of leave, on each side as many as
target points joined there, or, where none joined at all, as many as could have. The target's cost rises and the
source's falls quadratically over the first `ROUNDS` rounds, between C / 10 and C. It stops when the source is used up
and no more than 3 % of the target points join or lose their label, and trains once more on the labelled target points
alone.

The article itself was not at hand: this follows a summary of it and a public port (twanvl/domain-adaptation), which
has 5 % per side, the 3 % and no cost schedule. What is ours: the schedule's shape and numbers (ten rounds, a factor of
ten); a cap of `MOST_ROUNDS` for label resets that never end; and, where the band never holds a target point, the
last SVM that had source points labels the whole target. A target with one label gives the constant classifier:
an empty band with stable labels too, so the published rule stops there.

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> model = fit(source, labels, np.array([[0.1], [0.9]]), DasvmParams(1.0, 10.0))
  >>> print(model.target_labels, model.kernel.centers.shape)
  [-1.  1.] (2, 1)
"""

from typing import NamedTuple

import numpy as np

from pvmincq_jax.baselines._form import KernelModel, Sample, decision, expand, make_fits, make_grid, on_kernels
from pvmincq_jax.baselines.svm import SvmParams, largest_rows, weighted_svc

__all__ = ["GRID", "VALIDATION", "DasvmModel", "DasvmParams", "decision", "fit", "fit_grid"]

SHARE = 0.05
ROUNDS = 10
MOST_ROUNDS = 60
STABLE = 0.03
COST_RATIO = 0.1


class DasvmParams(SvmParams):
    """Parameters of DASVM.

    Attributes:
      gamma: of the Gaussian kernel.
      cost: C, of a unit of slack: the source's in the first round and the target's in the last.
    """


class DasvmModel(NamedTuple):
    """The last SVM, with the way it came about.

    Attributes:
      kernel: the classifier, an expansion over the target points alone.
      target_labels: labels of the target in the end, 0 for points that were left out, in the caller's row order
        ``[m_t]``.
      source_left: source points in training, round by round ``[t]``.
      joined: target points that got a label ``[t]``.
      reset: target points that lost theirs ``[t]``.
    """

    kernel: KernelModel
    target_labels: np.ndarray
    source_left: np.ndarray
    joined: np.ndarray
    reset: np.ndarray


GRID = make_grid(DasvmParams, cost=(0.1, 1.0, 10.0, 100.0), gamma=(0.5, 2.0, 8.0))
VALIDATION = "reverse"


def _move(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: DasvmParams) -> DasvmModel:
    """All rounds, on the kernel matrix of the points of both domains."""
    cost = float(params.cost)
    m_s, m_t = len(sample.source), len(sample.target)
    per_side, few = int(np.ceil(SHARE * m_t)), int(np.ceil(STABLE * m_t))

    kept, target_labels, last_guess = np.ones(m_s, dtype=bool), np.zeros(m_t), np.zeros(m_t)
    rounds = []
    for number in range(MOST_ROUNDS):
        rise = (1 - COST_RATIO) * min(number / ROUNDS, 1.0) ** 2
        costs = cost * np.concatenate([(1 - rise) * kept, (COST_RATIO + rise) * (target_labels != 0)])
        if not np.any(costs > 0):
            break
        weights, bias = weighted_svc(kernel, np.concatenate([sample.labels, target_labels]), costs)
        at_source, at_target = np.split(kernel @ weights + bias, [m_s])
        if np.any(kept):
            last_guess = np.where(at_target >= 0, 1.0, -1.0)

        free = target_labels == 0
        up = largest_rows(at_target, free & (at_target >= 0) & (at_target <= 1), per_side)
        down = largest_rows(-at_target, free & (at_target < 0) & (at_target >= -1), per_side)
        flipped = ~free & (target_labels * at_target < 0)
        leaving_up, leaving_down = (up.size, down.size) if up.size + down.size else (per_side, per_side)
        surest_up = largest_rows(at_source, kept & (at_source >= 0), leaving_up)
        surest_down = largest_rows(-at_source, kept & (at_source < 0), leaving_down)
        joined, reset = up.size + down.size, int(np.sum(flipped))
        rounds.append((int(np.sum(kept)), joined, reset))

        done = not np.any(kept) and joined <= few and reset <= few
        # A point that has just lost its label may get one again from the next round on.
        target_labels[flipped] = 0
        target_labels[up], target_labels[down] = 1, -1
        kept[surest_up] = kept[surest_down] = False
        if done:
            break
    if not np.any(target_labels):
        target_labels = last_guess
    weights, bias = weighted_svc(kernel[m_s:, m_s:], target_labels, cost * (target_labels != 0))
    machine = expand(sample.target, params.gamma, weights, bias)
    return DasvmModel(machine, sample.as_given(target_labels), *map(np.array, zip(*rounds)))


fit, fit_grid = make_fits(DasvmParams, on_kernels(_move))
