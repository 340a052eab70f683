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
from pvmincq_jax.baselines._svc import weighted_svc

__all__ = ["GRID", "VALIDATION", "DasvmModel", "DasvmParams", "decision", "fit", "fit_grid"]

SHARE = 0.05
ROUNDS = 10
MOST_ROUNDS = 60
STABLE = 0.03
COST_RATIO = 0.1


class DasvmParams(NamedTuple):
    """Parameters of DASVM.

    Attributes:
      gamma: of the Gaussian kernel.
      cost: C, of a unit of slack: the source's in the first round and the target's in the last.
    """

    gamma: float
    cost: float


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


def _largest(scores: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The `count` rows of the largest scores."""
    return rows[np.argsort(-scores[rows], kind="stable")[:count]]


def _move(sample: Sample, points: np.ndarray, kernel: np.ndarray, params: DasvmParams) -> DasvmModel:
    """The rounds, on a kernel matrix of source and target."""
    cost = float(params.cost)
    m_s, m_t = sample.source.shape[0], sample.target.shape[0]
    rho, few = int(np.ceil(SHARE * m_t)), int(np.ceil(STABLE * m_t))

    kept = np.ones(m_s, dtype=bool)
    given = np.zeros(m_t)
    last_guess = np.zeros(m_t)
    source_left, joined, reset = [], [], []
    for number in range(MOST_ROUNDS):
        rise = min(number / ROUNDS, 1.0) ** 2
        source_cost = cost * (1 - (1 - COST_RATIO) * rise)
        target_cost = cost * (COST_RATIO + (1 - COST_RATIO) * rise)
        costs = np.concatenate([source_cost * kept, target_cost * (given != 0)])
        if not np.any(costs > 0):
            break
        machine = weighted_svc(kernel, np.concatenate([sample.labels, given]), costs)
        values = kernel @ machine.weights + machine.bias
        at_source, at_target = values[:m_s], values[m_s:]
        if np.any(kept):
            last_guess = np.where(at_target >= 0, 1.0, -1.0)

        free = given == 0
        up = _largest(at_target, np.flatnonzero(free & (at_target >= 0) & (at_target <= 1)), rho)
        down = _largest(-at_target, np.flatnonzero(free & (at_target < 0) & (at_target >= -1)), rho)
        flipped = ~free & (given * at_target < 0)
        leaving_up, leaving_down = (up.size, down.size) if up.size + down.size else (rho, rho)
        leaving = np.concatenate(
            [
                _largest(at_source, np.flatnonzero(kept & (at_source >= 0)), leaving_up),
                _largest(-at_source, np.flatnonzero(kept & (at_source < 0)), leaving_down),
            ]
        )
        source_left.append(int(np.sum(kept)))
        joined.append(up.size + down.size)
        reset.append(int(np.sum(flipped)))

        done = not np.any(kept) and joined[-1] <= few and reset[-1] <= few
        # A point that has just lost its label may get one again from the next round on.
        given[flipped] = 0
        given[up], given[down] = 1, -1
        kept[leaving] = False
        if done:
            break
    if not np.any(given):
        given = last_guess
    machine = weighted_svc(kernel[m_s:, m_s:], given, cost * (given != 0))
    model = machine.over(sample.target, params.gamma)
    return DasvmModel(model, sample.as_given(given), np.array(source_left), np.array(joined), np.array(reset))


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[DasvmParams | dict], seed: int = 0
) -> list[DasvmModel]:
    """Trains the whole grid with one kernel matrix for each gamma (section 4).

    Args: source, source_labels, target, grid (`DasvmParams`s), seed (not used); see `pvmincq_jax.baselines`.

    Returns: list of `DasvmModel` ``[g]``.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> [int(model.source_left[0]) for model in fit_grid(source, labels, source, GRID[:2])]
      [2, 2]
    """
    read, samples = read_grid(DasvmParams, source, source_labels, target, grid)
    return on_kernels(read, samples, both_domains, _move)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: DasvmParams | dict, seed: int = 0
) -> DasvmModel:
    """Moves an SVM from the source to the target, a few points at a time (section 4).

    Args: source, source_labels, target, params (`DasvmParams`), seed (not used); see `pvmincq_jax.baselines`.

    Returns: `DasvmModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, np.array([[0.1], [0.9]]), DasvmParams(1.0, 10.0))
      >>> print(model.target_labels, model.kernel.centers.shape)
      [-1.  1.] (2, 1)
    """
    return fit_grid(source, source_labels, target, [params], seed)[0]
