"""NN-MinCq: MinCq on target points that carry the label of their k nearest source points.

Voters are Gaussian kernels centred on the target points, as for PV-MinCq. Where all target points get one label, as on
a far translation, there is nothing to learn: the model is the constant of that label and says so in `self_labels`;
the paper prints no result for that case (section 4).

Example:
  >>> source, labels = np.array([[0.0], [1.0]]), np.array([-1, 1])
  >>> model = fit(source, labels, np.array([[0.9], [0.1]]), NNMinCqParams(1.0, 0.5, 1))
  >>> print(model.self_labels, np.sign(decision(model, np.array([[0.2], [0.9]]))))
  [ 1. -1.] [-1.  1.]
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pvmincq_jax.baselines._form import KernelModel, Sample, decision, make_fits, make_grid
from pvmincq_jax.baselines.mincq import vote_models
from pvmincq_jax.matching.selflabel import nn_self_label

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


def _fit_samples(samples: list[Sample], grid: list[NNMinCqParams], seed: int) -> Iterator[NNMinCqModel]:
    """Votes of voters on the target, whose labels are those of its neighbours."""
    labelled = []
    for sample, params in zip(samples, grid):
        neighbours = min(int(params.neighbours), len(sample.labels))
        labelled.append(nn_self_label(sample.source, sample.labels, sample.target, neighbours))
        if not np.any(labelled[-1].weights > 0):
            raise ValueError(f"params.neighbours ({params.neighbours}) leave every target point undecided")
    labels, weights = (np.stack([one[field] for one in labelled]) for field in (0, 1))
    for sample, self_labels, vote in zip(samples, labels, vote_models(samples[0].target, labels, weights, grid)):
        yield NNMinCqModel(*vote, sample.as_given(self_labels))


fit, fit_grid = make_fits(NNMinCqParams, _fit_samples)
