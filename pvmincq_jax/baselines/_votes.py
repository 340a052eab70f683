"""MinCq over Gaussian voters for the comparison methods: one call of the engine per gamma."""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import Status
from pvmincq_jax.adaptation.grid import Lanes, solve_grid
from pvmincq_jax.baselines._form import KernelModel, rbf_kernel

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
    each = np.stack([np.concatenate(problem[:2]) for problem in problems])
    # Problems that differ in their margin alone are one lane: its margins go side by side.
    different, lane = np.unique(each, axis=0, return_inverse=True)
    place = np.array([int(np.sum(lane[:i] == own)) for i, own in enumerate(lane)])
    margins = np.ones((len(different), place.max() + 1))
    margins[lane, place] = [problem.margin for problem in problems]
    labels, weights = np.split(different, 2, axis=1)
    lanes = Lanes(labels, weights, np.ones(labels.shape, bool))
    figures = solve_grid(rbf_kernel(points, points, gamma), lanes, margins)
    models: list[tuple[KernelModel, int]] = []
    for problem, own, code in zip(problems, figures.weights[lane, place], figures.status[lane, place]):
        counted = problem.labels[problem.sample_weights > 0]
        constant = bool(np.all(counted == counted[0]))
        vote = np.zeros(len(points)) if constant else own
        bias = float(counted[0]) if constant else 0.0
        model = KernelModel(points, vote, np.asarray(bias), np.asarray(gamma))
        models.append((model, int(Status.SOLVED) if constant else int(code)))
    return models
