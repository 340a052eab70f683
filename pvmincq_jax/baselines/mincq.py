"""MinCq on the source alone: the majority vote of least C-bound, without adaptation.

Voters are Gaussian kernels centred on the source points, as in the paper's experiments. The margin is given as a
fraction of mu_max, the largest feasible one, because that is what it means the same for on every sample.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import KernelModel, by_gamma, each_sample, kernel_decision, read_params
from pvmincq_jax.baselines._votes import VoteProblem, vote_models

__all__ = ["GRID", "VALIDATION", "MinCqModel", "MinCqParams", "decision", "fit", "fit_grid"]


class MinCqParams(NamedTuple):
    """Parameters of MinCq.

    Attributes:
      gamma: of the voters.
      margin: mu / mu_max, in (0, 1].
    """

    gamma: float
    margin: float


class MinCqModel(NamedTuple):
    """A vote, with the way its solver ended.

    Attributes:
      kernel: the vote, over the source points.
      status: a `pvmincq_jax.Status`; the weights are NaN unless it is SOLVED.
    """

    kernel: KernelModel
    status: np.ndarray


# The largest margins leave the weights the least freedom, so they come first.
GRID = [
    MinCqParams(gamma, margin) for margin in (0.9, 0.5, 0.2, 0.1, 0.03, 0.01) for gamma in (0.5, 1.0, 2.0, 4.0, 8.0)
]
VALIDATION = "cross"


def check_fraction(margin: float) -> None:
    """A fraction of mu_max, at most 1."""
    if margin > 1:
        raise ValueError(f"params.margin is a fraction of mu_max and must be in (0, 1]; it is {margin:g}")


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[MinCqParams | dict], seed: int = 0
) -> list[MinCqModel]:
    """Trains the whole grid, vmapped over the margins of each gamma.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]``, or ``[g, m_s]`` with the labels of each point of the grid.
      target: ``[m_t, d]``, checked and not used.
      grid: g parameters.
      seed: not used; nothing is random.

    Returns:
      g models.
    """
    read = [read_params(MinCqParams, params) for params in grid]
    for params in read:
        check_fraction(params.margin)
    samples = each_sample(source, source_labels, target, len(read))

    def fit_rows(rows: list[int]) -> list[MinCqModel]:
        ones = np.ones(len(samples[0].labels))
        problems = [VoteProblem(samples[row].labels, ones, read[row].margin) for row in rows]
        votes = vote_models(samples[rows[0]].source, float(read[rows[0]].gamma), problems)
        return [MinCqModel(vote, np.asarray(status)) for vote, status in votes]

    return by_gamma(read, fit_rows)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: MinCqParams | dict, seed: int = 0
) -> MinCqModel:
    """Minimises the C-bound on the labelled source.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``, checked and not used.
      params: `MinCqParams`.
      seed: not used; nothing is random.

    Returns:
      A `MinCqModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, source, MinCqParams(1.0, 0.5))
      >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
      [-1.  1.]
    """
    return fit_grid(source, source_labels, target, [params], seed)[0]


def decision(model: MinCqModel, x: ArrayLike) -> np.ndarray:
    """The vote at points ``[m, d]``, whose sign is the class ``[m]``."""
    return kernel_decision(model.kernel, x)
