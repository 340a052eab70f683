"""MinCq over Gaussian voters for the comparison methods: one factor per gamma, the rest of the grid vmapped."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._types import Array, Status
from pvmincq_jax.baselines._form import KernelModel, rbf_kernel
from pvmincq_jax.voting.factor import VoteFactor, vote_factor
from pvmincq_jax.voting.mincq import max_margin, solve_mincq

__all__ = ["VoteProblem", "vote_models"]

# Compiling takes longer than solving, so shapes are rounded up and folds, whole samples and most gammas share one
# program: points are padded with voters that are masked and examples of weight 0, the factor with zeros.
_POINTS = 100
_RANKS = 64
_LANES = 6
# The margins of these grids are not below 1e-2 mu_max, so fewer digits of the votes are needed than in general; see
# `pvmincq_jax.adaptation.sweeps.TOLERANCE`.
_FACTOR_TOLERANCE = 2e-7


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


@jax.jit
def _solve(
    votes: Array, factor: VoteFactor, mask: Array, labels: Array, sample_weights: Array, fractions: Array
) -> tuple[Array, Array]:
    def one(labels: Array, sample_weights: Array, fraction: Array) -> tuple[Array, Array]:
        margin = fraction * max_margin(votes, labels, sample_weights=sample_weights, voter_mask=mask)
        solution = solve_mincq(votes, labels, margin, sample_weights, mask, factor, "interior_point", False)
        return solution.weights, solution.status

    return jax.vmap(one)(labels, sample_weights, fractions)


def vote_models(points: np.ndarray, gamma: float, problems: list[VoteProblem]) -> list[tuple[KernelModel, int]]:
    """Votes of least C-bound over Gaussian voters centred on the sample itself, in float64.

    A sample with one label only has the constant of that label as its answer.

    Args:
      points: ``[m, d]``, sample and centres.
      gamma: of the voters.
      problems: what differs between the votes.

    Returns:
      For each problem, the vote and its `Status`; weights are NaN unless it is SOLVED.
    """
    models: list[tuple[KernelModel, int]] = []
    with jax.enable_x64(True):
        votes = rbf_kernel(points, points, gamma)
        factor = vote_factor(votes, tolerance=_FACTOR_TOLERANCE)
        count = len(points)
        more, deeper = -count % _POINTS, -factor.left.shape[1] % _RANKS
        padded_factor = VoteFactor(
            jnp.pad(jnp.asarray(factor.left), ((0, more), (0, deeper))),
            jnp.pad(jnp.asarray(factor.right), ((0, deeper), (0, more))),
        )
        for begin in range(0, len(problems), _LANES):
            batch = problems[begin : begin + _LANES]
            padded = batch + batch[-1:] * (_LANES - len(batch))
            weights, status = _solve(
                jnp.pad(jnp.asarray(votes), (0, more)),
                padded_factor,
                jnp.arange(count + more) < count,
                jnp.asarray([np.pad(problem.labels, (0, more), constant_values=1.0) for problem in padded]),
                jnp.asarray([np.pad(problem.sample_weights, (0, more)) for problem in padded]),
                jnp.asarray([float(problem.margin) for problem in padded]),
            )
            weights = weights[:, :count]
            for problem, own, code in zip(batch, np.asarray(weights), np.asarray(status)):
                counted = problem.labels[problem.sample_weights > 0]
                if np.all(counted == counted[0]):
                    model = KernelModel(points, np.zeros(len(points)), np.asarray(float(counted[0])), np.asarray(gamma))
                    models.append((model, int(Status.SOLVED)))
                else:
                    models.append((KernelModel(points, own, np.zeros(()), np.asarray(gamma)), int(code)))
    return models
