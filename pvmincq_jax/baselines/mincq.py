"""MinCq on the source alone: the majority vote of least C-bound, without adaptation.

Voters are Gaussian kernels centred on the source points, as in the paper's experiments. The margin is a fraction of
mu_max, the largest feasible one, so that it means the same on every sample.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import KernelModel, by_gamma, decision, make_grid, read_grid
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
GRID = make_grid(MinCqParams, margin=(0.9, 0.5, 0.2, 0.1, 0.03, 0.01), gamma=(0.5, 1.0, 2.0, 4.0, 8.0))
VALIDATION = "cross"


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[MinCqParams | dict], seed: int = 0
) -> list[MinCqModel]:
    """Trains the whole grid, gamma by gamma (section 4).

    Args: source, source_labels, target, grid (`MinCqParams`s), seed (not used); see `pvmincq_jax.baselines`.

    Returns: list of `MinCqModel` ``[g]``.

    Example:
      >>> [int(one.status) for one in fit_grid(np.array([[0.0], [1.0]]), [-1, 1], np.array([[0.0], [1.0]]), GRID[:2])]
      [0, 0]
    """
    read, samples = read_grid(MinCqParams, source, source_labels, target, grid)

    def fit_rows(rows: list[int]) -> list[MinCqModel]:
        ones = np.ones(len(samples[0].labels))
        problems = [VoteProblem(samples[row].labels, ones, read[row].margin) for row in rows]
        votes = vote_models(samples[rows[0]].source, float(read[rows[0]].gamma), problems)
        return [MinCqModel(vote, np.asarray(status)) for vote, status in votes]

    return by_gamma(read, fit_rows)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: MinCqParams | dict, seed: int = 0
) -> MinCqModel:
    """Minimises the C-bound on the labelled source (Algorithm 1, section 4).

    Args: source, source_labels, target, params (`MinCqParams`), seed (not used); see `pvmincq_jax.baselines`.

    Returns: `MinCqModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, source, MinCqParams(1.0, 0.5))
      >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
      [-1.  1.]
    """
    return fit_grid(source, source_labels, target, [params], seed)[0]
