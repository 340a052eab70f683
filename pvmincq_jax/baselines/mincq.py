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

from pvmincq_jax.baselines._form import KernelModel, Method, Sample, by_gamma, decision, make_grid
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


@by_gamma
def _fit_gamma(samples: list[Sample], grid: list[MinCqParams], seed: int) -> Iterator[MinCqModel]:
    """Votes of the same voters."""
    points, ones = samples[0].source, np.ones(len(samples[0].labels))
    problems = [VoteProblem(sample.labels, ones, params.margin) for sample, params in zip(samples, grid)]
    for vote, status in vote_models(points, float(grid[0].gamma), problems):
        yield MinCqModel(vote, np.asarray(status))


_METHOD = Method(MinCqParams, _fit_gamma)
fit, fit_grid = _METHOD.fit, _METHOD.fit_grid
