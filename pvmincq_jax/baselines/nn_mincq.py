"""NN-MinCq: MinCq on target points that carry the label of their k nearest source points.

Voters are Gaussian kernels centred on the target points, as for PV-MinCq. Where all target points get one label, as on
a far translation, there is nothing to learn: the model is the constant of that label and says so in `self_labels`;
the paper prints no result for that case.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import KernelModel, by_gamma, decision, make_grid, read_grid
from pvmincq_jax.baselines._votes import VoteProblem, vote_models
from pvmincq_jax.matching.selflabel import SelfLabels, nn_self_label

__all__ = ["GRID", "VALIDATION", "NNMinCqModel", "NNMinCqParams", "decision", "fit", "fit_grid"]


class NNMinCqParams(NamedTuple):
    """Parameters of NN-MinCq.

    Attributes:
      gamma: of the voters.
      margin: mu / mu_max, in (0, 1].
      neighbours: k; at most the size of the source is used.
    """

    gamma: float
    margin: float
    neighbours: int


class NNMinCqModel(NamedTuple):
    """A vote, with the labels that it was learnt from.

    Attributes:
      kernel: the vote, over the target points.
      status: a `pvmincq_jax.Status`; the weights are NaN unless it is SOLVED.
      self_labels: in the caller's row order ``[m_t]``; 0 where the neighbours are divided, which leaves the point out.
    """

    kernel: KernelModel
    status: np.ndarray
    self_labels: np.ndarray


# The smoothest first: a large margin leaves the weights little freedom, and many neighbours the labels.
GRID = make_grid(NNMinCqParams, margin=(0.5, 0.05), neighbours=(15, 5, 1), gamma=(0.5, 2.0, 8.0))
VALIDATION = "reverse"


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[NNMinCqParams | dict], seed: int = 0
) -> list[NNMinCqModel]:
    """Trains the whole grid, gamma by gamma (section 4).

    Args: source, source_labels, target, grid (`NNMinCqParams`s), seed (not used); see `pvmincq_jax.baselines`.

    Returns: list of `NNMinCqModel` ``[g]``.

    Example:
      >>> [int(one.status) for one in fit_grid(np.array([[0.0], [1.0]]), [-1, 1], np.array([[0.0], [1.0]]), GRID[6:8])]
      [0, 0]
    """
    read, samples = read_grid(NNMinCqParams, source, source_labels, target, grid)
    found: dict[tuple[int, int], SelfLabels] = {}
    given = []
    for sample, params in zip(samples, read):
        # Points of the grid with equal labels share their sample.
        task = id(sample), min(int(params.neighbours), len(sample.labels))
        if task not in found:
            found[task] = nn_self_label(sample.source, sample.labels, sample.target, task[1])
        if not np.any(found[task].weights > 0):
            raise ValueError(f"params.neighbours ({params.neighbours}) leave every target point undecided")
        given.append(found[task])

    def fit_rows(rows: list[int]) -> Iterator[NNMinCqModel]:
        problems = [VoteProblem(given[row].labels, given[row].weights, read[row].margin) for row in rows]
        votes = vote_models(samples[rows[0]].target, float(read[rows[0]].gamma), problems)
        for row, (vote, status) in zip(rows, votes):
            yield NNMinCqModel(vote, np.asarray(status), samples[row].as_given(given[row].labels))

    return by_gamma(read, fit_rows)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: NNMinCqParams | dict, seed: int = 0
) -> NNMinCqModel:
    """Labels the target by its nearest source points and minimises the C-bound on these labels (section 4).

    Args: source, source_labels, target, params (`NNMinCqParams`), seed (not used); see `pvmincq_jax.baselines`.

    Returns: `NNMinCqModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
      >>> model = fit(source, labels, np.array([[0.9], [0.1]]), NNMinCqParams(1.0, 0.5, 1))
      >>> print(model.self_labels, np.sign(decision(model, np.array([[0.2], [0.9]]))))
      [ 1. -1.] [-1.  1.]
    """
    return fit_grid(source, source_labels, target, [params], seed)[0]
