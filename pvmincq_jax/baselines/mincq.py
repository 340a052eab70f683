"""MinCq on the source alone: the majority vote of least C-bound, without adaptation.

Voters are Gaussian kernels centred on the source points, as in the paper's experiments. The margin is a fraction of
mu_max, the largest feasible one, so that it means the same on every sample (Algorithm 1, section 4).

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> print(np.sign(decision(fit(source, labels, source, MinCqParams(1.0, 0.5)), np.array([[0.2], [0.9]]))))
  [-1.  1.]
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import Status
from pvmincq_jax.adaptation.grid import Problems, VoteBlocks, solve_grid
from pvmincq_jax.baselines._form import KernelModel, Method, Sample, by_gamma, decision, make_grid
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


class VoteProblem(NamedTuple):
    """One MinCq problem of a batch.

    Attributes:
      labels: ``[m]``.
      sample_weights: ``[m]``.
      margin: as a fraction of mu_max.
    """

    labels: np.ndarray
    sample_weights: np.ndarray
    margin: float


def vote_models(points: np.ndarray, gamma: float, problems: list[VoteProblem]) -> list[tuple[KernelModel, int]]:
    """Votes of least C-bound over Gaussian voters centred on the sample itself, in float64.

    A sample with one label only has the constant of that label as its answer.

    Args:
      points: ``[m, d]``, sample and centres.
      gamma: of the voters.
      problems: what differs between the votes.

    Returns: for each problem, the vote and its `Status`; weights are NaN unless it is SOLVED.
    """
    family, every = GaussianVoters(points, gamma), np.ones(len(points), bool)
    models: dict[int, tuple[KernelModel, int]] = {}
    alike: dict[bytes, list[int]] = {}
    for row, (labels, weights, _) in enumerate(problems):
        counted = labels[weights > 0]
        if np.all(counted == counted[0]):
            models[row] = _model(family, np.zeros(len(points)), float(counted[0])), int(Status.SOLVED)
        else:
            # Problems that differ in their margin alone are one: its margins go side by side.
            alike.setdefault(labels.tobytes() + weights.tobytes(), []).append(row)
    together: dict[tuple[float, ...], list[list[int]]] = {}
    for rows in alike.values():
        together.setdefault(tuple(problems[row].margin for row in rows), []).append(rows)
    blocks = VoteBlocks(family, points)
    for margins, group in together.items():
        labels, weights = (np.stack([problems[rows[0]][field] for rows in group]) for field in (0, 1))
        batch = Problems(labels, weights, np.broadcast_to(every, labels.shape))
        figures = solve_grid(lambda _: blocks, batch, np.array(margins))
        for number, rows in enumerate(group):
            for place, row in enumerate(rows):
                models[row] = _model(family, figures.weights[number, place]), int(figures.status[number, place])
    return [models[row] for row in range(len(problems))]


def _model(family: GaussianVoters, weights: np.ndarray, bias: float = 0.0) -> KernelModel:
    return KernelModel(np.asarray(family.centers), weights, np.asarray(bias), np.asarray(family.gamma))


@by_gamma
def _fit_gamma(samples: list[Sample], grid: list[MinCqParams], seed: int) -> Iterator[MinCqModel]:
    """Votes of the same voters."""
    points, ones = samples[0].source, np.ones(len(samples[0].labels))
    problems = [VoteProblem(sample.labels, ones, params.margin) for sample, params in zip(samples, grid)]
    for vote, status in vote_models(points, float(grid[0].gamma), problems):
        yield MinCqModel(vote, np.asarray(status))


_METHOD = Method(MinCqParams, _fit_gamma)
fit, fit_grid = _METHOD.fit, _METHOD.fit_grid
