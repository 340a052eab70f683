"""MinCq over Gaussian voters for the comparison methods, by the engine of all grids."""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import Status
from pvmincq_jax.adaptation.grid import Problems, VoteBlocks, solve_grid
from pvmincq_jax.baselines._form import KernelModel
from pvmincq_jax.voting.families import GaussianVoters

__all__ = ["VoteProblem", "vote_models"]


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
        own = Problems(labels, weights, np.broadcast_to(every, labels.shape))
        figures = solve_grid(lambda _: blocks, own, np.array(margins))
        for number, rows in enumerate(group):
            for place, row in enumerate(rows):
                models[row] = _model(family, figures.weights[number, place]), int(figures.status[number, place])
    return [models[row] for row in range(len(problems))]


def _model(family: GaussianVoters, weights: np.ndarray, bias: float = 0.0) -> KernelModel:
    return KernelModel(np.asarray(family.centers), weights, np.asarray(bias), np.asarray(family.gamma))
