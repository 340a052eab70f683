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

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dger
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.baselines._form import (
    KernelModel,
    Sample,
    by_gamma,
    decision,
    make_grid,
    rbf_kernel,
    read_grid,
)

__all__ = ["GRID", "VALIDATION", "DasfModel", "DasfParams", "decision", "fit", "fit_grid"]

LANDMARKS = 100
SUBSAMPLE = 0.5
MOST_ROUNDS = 4
# Slopes are at least of the size of the penalties, 1e-4 and more. Rounding stays below 1e-14 as a rule; after a drift
# beyond this the edges are computed anew.
_FLAT, _DRIFT = 1e-10, 1e-9
_MOST_STARTS, _MOST_PIVOTS = 10, 10_000


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
    """The linear program of DASF, by a simplex method made for it.

    min_a mean_i max(0, 1 - y_i sum_j a_j phi_ij) + sum_j p_j |a_j|. The pairs' term is of this form,
    |(phi(s) - phi(t)) o a|_1 = sum_j |phi_j(s) - phi_j(t)| |a_j|, so p_j = lambda + C sum_pairs |phi_j(s) - phi_j(t)|.

    This is convex and linear between its kinks, a_j = 0 and y_i phi_i a = 1. At a vertex n kinks are active; an edge
    leaves one of them and keeps the others. From a = 0 on, the steepest edge is followed past all kinks up to where the
    slope turns, and the kink there becomes active. Where no edge falls, a is optimal.

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
    normals = np.concatenate([np.eye(n), labels[:, None] * features])
    offsets = np.concatenate([np.zeros(n), np.ones(m)])
    # Slopes of the program in what a kink is about, above it and below it.
    above, below = np.concatenate([penalties, np.zeros(m)]), np.concatenate([-penalties, np.full(m, -1 / m)])
    active, side = np.arange(n), np.where(np.arange(n + m) < n, 0.0, -1.0)
    # How fast each kink is approached along each edge ``[n + m, n]``, and how far it is.
    rates, values = np.array(normals, order="F"), -offsets
    for _ in range(_MOST_STARTS):
        _pivot(rates, values, active, side, above, below)
        a = values[:n]
        if np.max(np.abs(normals @ a - offsets - values)) < _DRIFT:
            return a
        rates = np.asfortranarray(normals @ np.linalg.inv(normals[active]))
        values = normals @ np.linalg.solve(normals[active], offsets[active]) - offsets
        values[active] = 0.0
    raise RuntimeError(f"the program of {m} points and {n} landmarks lost its digits in rounding")


def _pivot(
    rates: np.ndarray,
    values: np.ndarray,
    active: np.ndarray,
    side: np.ndarray,
    above: np.ndarray,
    below: np.ndarray,
) -> None:
    """From vertex to vertex while an edge falls; all but the slopes change in place.

    Args:
      rates: ``[n + m, n]``, in Fortran's order.
      values: what each kink is about, less its value there ``[n + m]``.
      active: the kink that each edge leaves ``[n]``.
      side: of each kink, 1 above, -1 below, 0 if it is active ``[n + m]``.
      above: slopes there ``[n + m]``.
      below: slopes there ``[n + m]``.
    """
    rise = above - below
    slopes = np.where(side > 0, above, np.where(side < 0, below, 0.0))
    for _ in range(_MOST_PIVOTS):
        along = slopes @ rates
        upward, downward = along + above[active], -along - below[active]
        falls = np.minimum(upward, downward)
        edge = int(falls.argmin())
        fall = falls[edge]
        if fall >= -_FLAT:
            return
        up = upward[edge] < downward[edge]
        column = rates[:, edge].copy()
        rate = column if up else -column
        ahead = (side * rate < -_FLAT).nonzero()[0]
        speeds = rate[ahead]
        far = np.maximum(-values[ahead] / speeds, 0.0)
        order = far.argsort(kind="stable")
        turn = int((fall + (rise[ahead] * np.abs(speeds))[order].cumsum()).searchsorted(0.0))
        passed, entering, leaving = ahead[order[:turn]], ahead[order[turn]], active[edge]
        values += far[order[turn]] * rate
        values[entering] = 0.0
        across = -side[passed]
        side[passed], slopes[passed] = across, np.where(across > 0, above[passed], below[passed])
        side[leaving], slopes[leaving] = (1, above[leaving]) if up else (-1, below[leaving])
        side[entering] = slopes[entering] = 0.0
        # The edge now leaves the entering kink, and the others keep it.
        row = rates[entering].copy()
        pivot = row[edge]
        row[edge] -= 1
        dger(-1 / pivot, column, row, a=rates, overwrite_a=1)
        rates[entering] = 0.0
        rates[entering, edge] = 1.0
        active[edge] = entering
    raise RuntimeError(f"the program went through {_MOST_PIVOTS} vertices without coming to its end")


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
    costs = cdist(source[here], target[there], "sqeuclidean")
    # What all of a row or column have in common decides nothing, and lengthens the search.
    costs -= np.min(costs, axis=1, keepdims=True)
    costs -= np.min(costs, axis=0)
    rows, columns = linear_sum_assignment(costs)
    return here[rows], there[columns]


class _Similarities(NamedTuple):
    """What the fits of one gamma share.

    Attributes:
      landmarks: ``[n, d]``.
      at_source: phi of the source ``[m_s, n]``.
      at_target: phi of the target ``[m_t, n]``.
      drawn: state of the random numbers after the landmarks.
      first: see `_apart`; of the first round, in which no similarity is reweighted yet.
    """

    landmarks: np.ndarray
    at_source: np.ndarray
    at_target: np.ndarray
    drawn: Mapping[str, Any]
    first: dict[str, tuple[np.ndarray, Mapping[str, Any]]]


def _compare(sample: Sample, gamma: float, seed: int) -> _Similarities:
    rng = np.random.default_rng(seed)
    count = min(LANDMARKS, sample.source.shape[0])
    landmarks = sample.source[np.sort(rng.choice(sample.source.shape[0], count, replace=False))]
    at_source, at_target = (rbf_kernel(points, landmarks, gamma) for points in (sample.source, sample.target))
    return _Similarities(landmarks, at_source, at_target, rng.bit_generator.state, {})


def _apart(
    features: np.ndarray,
    others: np.ndarray,
    rng: np.random.Generator,
    known: dict[str, tuple[np.ndarray, Mapping[str, Any]]],
    way: str,
) -> np.ndarray:
    """sum_pairs |phi_j(s) - phi_j(t)| ``[n]``; what is known of this way, and the draws behind it, is taken over."""
    if way not in known:
        here, there = match_pairs(features, others, rng)
        known[way] = np.sum(np.abs(features[here] - others[there]), axis=0), rng.bit_generator.state
    moved, rng.bit_generator.state = known[way]
    return moved


def _adapt(similar: _Similarities, labels: np.ndarray, params: DasfParams) -> DasfModel:
    """The rounds; labels of the source ``[m_s]``."""
    rng = np.random.default_rng()
    rng.bit_generator.state = similar.drawn
    scale = np.ones(len(similar.landmarks))
    best, least, errors = np.zeros_like(scale), np.inf, []
    for number in range(MOST_ROUNDS):
        used, known = np.flatnonzero(scale), {} if number else similar.first
        here, there = similar.at_source[:, used] * scale[used], similar.at_target[:, used] * scale[used]
        learnt = solve_program(here, labels, params.sparsity + params.pairs * _apart(here, there, rng, known, "there"))
        if not np.any(learnt):
            # Everything is penalised away; what was found before stands.
            break
        given = np.where(there @ learnt >= 0, 1.0, -1.0)
        if np.all(given == given[0]):
            error = float(np.mean(labels != given[0]))
        else:
            penalties = params.sparsity + params.pairs * _apart(there, here, rng, known, "back")
            error = float(np.mean(labels * (here @ solve_program(there, given, penalties)) <= 0))
        errors.append(error)
        if error >= least:
            break
        least, best = error, np.zeros_like(scale)
        best[used] = scale[used] * learnt
        scale = best
    model = KernelModel(similar.landmarks, best, np.zeros(()), np.asarray(float(params.gamma)))
    return DasfModel(model, np.array(errors), np.asarray(int(np.sum(best != 0))))


def fit_grid(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike, grid: Sequence[DasfParams | dict], seed: int = 0
) -> list[DasfModel]:
    """Trains the whole grid, with the similarities and the pairs of the first round once for each gamma (section 4).

    Args: source, source_labels, target, grid (`DasfParams`s), seed (of subsamples); see `pvmincq_jax.baselines`.

    Returns: list of `DasfModel` ``[g]``.

    Example:
      >>> source, labels = np.array([[0.0], [1.0], [0.1], [1.1]]), np.array([-1, 1, -1, 1])
      >>> [int(model.landmarks) for model in fit_grid(source, labels, source + 0.1, GRID[:2])]
      [2, 2]
    """
    read, samples = read_grid(DasfParams, source, source_labels, target, grid)

    def fit_rows(rows: list[int]) -> Iterator[DasfModel]:
        similar = _compare(samples[rows[0]], read[rows[0]].gamma, seed)
        return (_adapt(similar, samples[row].labels, read[row]) for row in rows)

    return by_gamma(read, fit_rows)


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
    return fit_grid(source, source_labels, target, [params], seed)[0]
