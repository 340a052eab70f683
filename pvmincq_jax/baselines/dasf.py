"""DASF: domain adaptation with good similarity functions, Morvant, Habrard and Ayache (2012).

A point is described by its similarities phi(x) = (K(x, x'_1), ..., K(x, x'_n)) to landmarks, which are source points.
A linear program fits a classifier sum_j a_j phi_j(x) that is sparse and, through the last term, avoids the landmarks
that tell matched source and target points apart. The similarities are then reweighted by what was learnt,
phi_j <- a_j phi_j, which drops landmarks and brings the domains closer, and the program is solved again, as long as
reverse validation gets better.

What is followed: the linear program, pairs by the assignment of least squared distance in phi-space between a
subsample of the source and one of the target, the reweighting, and its guidance by the reverse classifier: learnt in
the same phi-space from the target with the labels given by the current one, and judged on the source.

The article itself was not at hand: this follows a summary of it, and no code is public. What is ours: up to `LANDMARKS`
source points are landmarks, drawn from the seed; the paired subsamples are a random half of each domain, drawn anew for
each program; a round must lower the reverse error to count; there are at most `MOST_ROUNDS`; and the grid, whose values
were narrowed after trying some on one run with its test accuracy in view.

Example:
  >>> source, labels = np.array([[0.0], [1.0], [0.1], [1.1]]), np.array([-1, 1, -1, 1])
  >>> model = fit(source, labels, source + 0.1, DasfParams(2.0, 0.01, 0.001))
  >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
  [-1.  1.]
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from pvmincq_jax.baselines._form import KernelModel, Sample, decision, expand, make_fits, make_grid, rbf_kernel

__all__ = ["GRID", "VALIDATION", "DasfModel", "DasfParams", "decision", "fit", "fit_grid"]

LANDMARKS = 100
SUBSAMPLE = 0.5
MOST_ROUNDS = 4


class DasfParams(NamedTuple):
    """Parameters of DASF.

    Attributes:
      gamma: of the Gaussian similarity.
      sparsity: lambda, the weight of |a|_1.
      pairs: C, the weight of the pairs' distances.
    """

    gamma: float
    sparsity: float
    pairs: float


class DasfModel(NamedTuple):
    """A sparse vote of landmarks.

    Attributes:
      kernel: the classifier; its weights are the product of all rounds' a, 0 off the chosen landmarks.
      reverse_errors: of each round that was tried ``[t]``; the last may be the one that did not help.
      landmarks: how many landmarks the chosen round uses, scalar.
    """

    kernel: KernelModel
    reverse_errors: np.ndarray
    landmarks: np.ndarray


GRID = make_grid(DasfParams, sparsity=(0.01, 0.001), pairs=(0.01, 0.001, 0.0001), gamma=(0.5, 2.0, 8.0))
VALIDATION = "reverse"


def solve_program(features: np.ndarray, labels: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """The linear program of DASF, by SciPy's HiGHS.

    min_a mean_i max(0, 1 - y_i sum_j a_j phi_ij) + sum_j p_j |a_j|. The pairs' term is of this form,
    |(phi(s) - phi(t)) o a|_1 = sum_j |phi_j(s) - phi_j(t)| |a_j|, so p_j = lambda + C sum_pairs |phi_j(s) - phi_j(t)|.

    Its dual has fewer variables and is solved in its place: max_u sum_i u_i with |sum_i u_i y_i phi_ij| <= p_j and
    0 <= u_i <= 1 / m; the multipliers of the constraints are a.

    Args:
      features: phi ``[m, n]``.
      labels: ``[m]`` in {-1, +1}.
      penalties: p ``[n]``, positive.

    Returns: a ``[n]``; a vertex, hence no more than m entries differ from 0.

    Example:
      >>> print(solve_program(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0]), np.array([0.1, 0.9])))
      [1. 0.]
    """
    m, n = features.shape
    signed = (labels[:, None] * features).T
    options = {"presolve": False}  # of a dense program it takes as long as the rest
    solution = linprog(
        -np.ones(m), np.concatenate([signed, -signed]), np.tile(penalties, 2), bounds=(0, 1 / m), options=options
    )
    if solution.status != 0:
        raise RuntimeError(f"HiGHS has not solved the program of {m} points and {n} landmarks: {solution.message}")
    above, below = np.split(solution.ineqlin.marginals, 2)
    return below - above


def match_pairs(
    source: np.ndarray, target: np.ndarray, rng: np.random.Generator, share: float = SUBSAMPLE
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of source and target points, by the assignment of least squared distance between two subsamples.

    Args:
      source: phi of the source ``[m_s, n]``.
      target: phi of the target ``[m_t, n]``.
      rng: draws the subsamples.
      share: of the smaller sample, how much goes into either subsample.

    Returns: row numbers into source and into target, of one length.
    """
    size = max(1, round(share * min(source.shape[0], target.shape[0])))
    source_rows = np.sort(rng.choice(source.shape[0], size, replace=False))
    target_rows = np.sort(rng.choice(target.shape[0], size, replace=False))
    costs = cdist(source[source_rows], target[target_rows], "sqeuclidean")
    # What all of a row or column have in common decides nothing, and lengthens the search.
    costs -= np.min(costs, axis=1, keepdims=True)
    costs -= np.min(costs, axis=0)
    rows, columns = linear_sum_assignment(costs)
    return source_rows[rows], target_rows[columns]


def _penalties(features: np.ndarray, others: np.ndarray, params: DasfParams, rng: np.random.Generator) -> np.ndarray:
    """lambda + C sum_pairs |phi_j(s) - phi_j(t)| ``[n]``, over freshly drawn pairs."""
    rows, columns = match_pairs(features, others, rng)
    return params.sparsity + params.pairs * np.sum(np.abs(features[rows] - others[columns]), axis=0)


def _adapt(sample: Sample, params: DasfParams, seed: int) -> DasfModel:
    """Solves, reweights, and goes on while the reverse error falls."""
    rng, labels = np.random.default_rng(seed), sample.labels
    count = min(LANDMARKS, len(sample.source))
    landmarks = sample.source[np.sort(rng.choice(len(sample.source), count, replace=False))]
    similarities = [rbf_kernel(points, landmarks, params.gamma) for points in (sample.source, sample.target)]
    scale, errors = np.ones(count), []
    for _ in range(MOST_ROUNDS):
        used = np.flatnonzero(scale)
        at_source, at_target = (similarity[:, used] * scale[used] for similarity in similarities)
        forward = solve_program(at_source, labels, _penalties(at_source, at_target, params, rng))
        if not np.any(forward):
            # Everything is penalised away; the round before stands.
            break
        target_labels = np.where(at_target @ forward >= 0, 1.0, -1.0)
        if np.all(target_labels == target_labels[0]):
            error = float(np.mean(labels != target_labels[0]))
        else:
            reverse = solve_program(at_target, target_labels, _penalties(at_target, at_source, params, rng))
            error = float(np.mean(labels * (at_source @ reverse) <= 0))
        errors.append(error)
        if error >= min(errors[:-1], default=np.inf):
            break
        scale[used] *= forward
    weights = scale if errors else np.zeros(count)
    return DasfModel(expand(landmarks, params.gamma, weights), np.array(errors), np.asarray(np.sum(weights != 0)))


fit, fit_grid = make_fits(DasfParams, lambda samples, grid, seed: [_adapt(*one, seed) for one in zip(samples, grid)])
