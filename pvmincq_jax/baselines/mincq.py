"""MinCq on the source alone: the majority vote of least C-bound, without adaptation.

Voters are Gaussian kernels centred on the source points, as in the paper's experiments. The margin is a fraction of
mu_max, the largest feasible one, so that it means the same on every sample (Algorithm 1, section 4).

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> print(np.sign(decision(fit(source, labels, source, MinCqParams(1.0, 0.5)), np.array([[0.2], [0.9]]))))
  [-1.  1.]
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import Status
from pvmincq_jax.adaptation.grid import Problems, VoteBlocks, solve_grid
from pvmincq_jax.baselines._form import KernelModel, Method, Sample, by_gamma, decision, expand, make_grid
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
    points: np.ndarray, gamma: float, labels: np.ndarray, sample_weights: np.ndarray, margins: np.ndarray
) -> Iterator[tuple[KernelModel, np.ndarray]]:
    """Votes of least C-bound over Gaussian voters centred on the sample itself, in float64.

    A sample with one label only has the constant of that label as its answer.

    Args:
      points: ``[m, d]``, sample and centres.
      gamma: of the voters.
      labels: of each problem ``[g, m]``.
      sample_weights: ``[g, m]``.
      margins: as fractions of mu_max ``[g]``.

    Returns: for each problem, the vote and its `Status`; weights are NaN unless it is SOLVED.
    """
    blocks = VoteBlocks(GaussianVoters(points, float(gamma)), points)
    weights, biases = np.zeros(labels.shape), np.zeros(len(margins))
    status = np.full(len(margins), int(Status.SOLVED))
    alike: dict[bytes, list[int]] = {}
    for row, counts in enumerate(sample_weights > 0):
        counted = labels[row, counts]
        if np.all(counted == counted[0]):
            biases[row] = counted[0]
        else:
            # Problems that differ in their margin alone are one: its margins go side by side.
            alike.setdefault(labels[row].tobytes() + sample_weights[row].tobytes(), []).append(row)
    together: dict[tuple[float, ...], list[list[int]]] = {}
    for rows in alike.values():
        together.setdefault(tuple(margins[rows]), []).append(rows)
    for shared_margins, group in together.items():
        first = [rows[0] for rows in group]
        problems = Problems(labels[first], sample_weights[first], np.ones((len(first), len(points)), bool))
        figures = solve_grid(lambda _: blocks, problems, np.array(shared_margins))
        weights[np.array(group)], status[np.array(group)] = figures.weights, figures.status
    for row, bias in enumerate(biases):
        yield expand(points, gamma, weights[row], bias), np.asarray(status[row])


@by_gamma
def _fit_gamma(samples: list[Sample], grid: list[MinCqParams], seed: int) -> Iterator[MinCqModel]:
    """Votes of the same voters."""
    labels, margins = np.stack([sample.labels for sample in samples]), np.array([params.margin for params in grid])
    votes = vote_models(samples[0].source, grid[0].gamma, labels, np.ones(labels.shape), margins)
    return itertools.starmap(MinCqModel, votes)


_METHOD = Method(MinCqParams, _fit_gamma)
fit, fit_grid = _METHOD.fit, _METHOD.fit_grid
