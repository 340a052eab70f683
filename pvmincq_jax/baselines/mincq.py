"""MinCq on the source alone: the majority vote of least C-bound, without adaptation.

Voters are Gaussian kernels centred on the source points, as in the paper's experiments. The margin is a fraction of
mu_max, the largest feasible one, so that it means the same on every sample (Algorithm 1, section 4).

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> print(np.sign(decision(fit(source, labels, source, MinCqParams(1.0, 0.5)), np.array([[0.2], [0.9]]))))
  [-1.  1.]
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_margins
from pvmincq_jax._types import Status
from pvmincq_jax.baselines._form import KernelModel, Sample, decision, expand, make_fits, make_grid
from pvmincq_jax.voting.grid import Problems, VoteBlocks, solve_grid
from pvmincq_jax.voting.voters import GaussianVoters

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


def vote_models(
    points: np.ndarray, labels: np.ndarray, sample_weights: np.ndarray, grid: Sequence[Any]
) -> Iterator[MinCqModel]:
    """Votes of least C-bound over Gaussian voters centred on the sample itself, in float64.

    A sample with one label only has the constant of that label as its answer.

    Args:
      points: ``[m, d]``, sample and centres.
      labels: of each problem ``[g, m]``.
      sample_weights: ``[g, m]``.
      grid: of each problem the gamma of its voters, and its margin as a fraction of mu_max ``[g]``.

    Returns: a vote for each problem.
    """
    margins = check_margins([params.margin for params in grid], "fraction", "params.margin")
    weights, biases = np.zeros(labels.shape), np.zeros(len(grid))
    status = np.full(len(grid), int(Status.SOLVED))
    alike: dict[tuple[float, bytes, bytes], list[int]] = {}
    for row, params in enumerate(grid):
        counted = labels[row, sample_weights[row] > 0]
        if np.all(counted == counted[0]):
            biases[row] = counted[0]
        else:
            # Problems that differ in their margin alone are one: its margins go side by side.
            alike.setdefault((params.gamma, labels[row].tobytes(), sample_weights[row].tobytes()), []).append(row)
    together: dict[tuple[float, tuple[float, ...]], list[list[int]]] = {}
    for (gamma, *_), rows in alike.items():
        together.setdefault((gamma, tuple(margins[rows])), []).append(rows)
    for (gamma, shared_margins), group in together.items():
        first = [rows[0] for rows in group]
        votes = [VoteBlocks(GaussianVoters(points, float(gamma)), points)] * len(group)
        problems = Problems(labels[first], sample_weights[first], np.ones((len(first), len(points)), bool))
        figures = solve_grid(votes.__getitem__, problems, np.array(shared_margins))
        weights[np.array(group)], status[np.array(group)] = figures.weights, figures.status
    for row, params in enumerate(grid):
        yield MinCqModel(expand(points, params.gamma, weights[row], biases[row]), np.asarray(status[row]))


def _fit_samples(samples: list[Sample], grid: list[MinCqParams], seed: int) -> Iterator[MinCqModel]:
    """Votes of voters on the source."""
    labels = np.stack([sample.labels for sample in samples])
    return vote_models(samples[0].source, labels, np.ones(labels.shape), grid)


fit, fit_grid = make_fits(MinCqParams, _fit_samples)
