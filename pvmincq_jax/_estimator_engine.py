"""The grid of `pvmincq_jax.sweep` for estimators, which are fitted on samples of ever new sizes.

Compiling takes seconds and solving takes milliseconds, so shapes are rounded up: sample points of weight 0, masked
voters and zero directions fill the arrays, and change nothing in the result. One compiled program solves one lane (a
fold and a radius) for all margins; votes and risks are NumPy's.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._samples import fold_numbers
from pvmincq_jax._types import Array, MarginUnit, precision
from pvmincq_jax.adaptation.sweeps import SMALL_MARGIN, TOLERANCE, Sweep
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.matching.space import Metric, make_space
from pvmincq_jax.voting.factor import VoteFactor, vote_factor
from pvmincq_jax.voting.mincq import MinCqSolution, solve_mincq

__all__: list[str] = []

# Two small sizes serve most samples, then steps of a quarter of the power of two below. Up to the larger of them a
# program of higher rank than needed takes milliseconds longer, and seconds less to compile.
_SMALL_SIZES = (64, 256)
_RANK_STEP = 64
_SMALL_RANK = 128
# Two compiled computations at once can wait for each other for ever, and joblib may fit in threads.
ONE_AT_A_TIME = threading.Lock()

# votes of the learning points [m, n], and of the points that are judged [m_s, n]
Votes = tuple[np.ndarray, np.ndarray]


class GridFit(NamedTuple):
    """A sweep with its votes.

    Attributes:
      sweep: the figures.
      weights: of the votes learnt from all folds ``[r, g, k, n]``; NaN where not solved.
      mu_max: the largest margins there ``[r, g]``.
      kkt_residual: of these votes alone ``[r, g, k]``; the sweep's is the largest over the folds, too.
    """

    sweep: Sweep
    weights: np.ndarray
    mu_max: np.ndarray
    kkt_residual: np.ndarray


def padded_size(size: int) -> int:
    """The number of rows or voters of a compiled program.

    Example:
      >>> [padded_size(size) for size in (10, 64, 65, 300, 1000, 1100)]
      [64, 64, 256, 320, 1024, 1280]
    """
    for small in _SMALL_SIZES:
        if size <= small:
            return small
    step = 1 << (int(size - 1).bit_length() - 3)
    return -(-size // step) * step


@functools.partial(jax.jit, static_argnames=("turn",))
def _solve(
    votes: Array,
    factor: VoteFactor,
    labels: Array,
    sample_weights: Array,
    voter_mask: Array,
    margins: Array,
    turn: bool,
) -> MinCqSolution:
    """MinCq at each margin ``[k]``."""
    return jax.vmap(
        lambda one: solve_mincq(votes, labels, one, sample_weights, voter_mask, factor, "interior_point", turn)
    )(margins)


def _pad(array: np.ndarray, *sizes: int) -> np.ndarray:
    return np.pad(array, [(0, size - length) for size, length in zip(sizes, array.shape)])


class _Solver:
    """MinCq over one vote matrix: padded and factored once, for any labels, sample weights, masks and these margins."""

    def __init__(self, votes: np.ndarray, margins: np.ndarray, unit: MarginUnit) -> None:
        self.shape, self.margins, self.unit = votes.shape, margins, unit
        self.padded = padded_size(votes.shape[0]), padded_size(votes.shape[1])
        # Absolute margins may be any fraction of the largest.
        smallest = float(np.min(margins)) if unit == "fraction" else SMALL_MARGIN
        self.votes = _pad(votes, *self.padded)
        with ONE_AT_A_TIME, precision(np.dtype(float)):
            tolerance = max(TOLERANCE * smallest, 4 * float(np.finfo(float).eps))
            left, right = (np.asarray(part) for part in vote_factor(self.votes, tolerance=tolerance))
        least = _SMALL_RANK if max(self.padded) <= _SMALL_SIZES[-1] else _RANK_STEP
        rank = min(max(-(-left.shape[1] // _RANK_STEP) * _RANK_STEP, least), *self.padded)
        padded: Any = _pad(left, self.padded[0], rank), _pad(right, rank, self.padded[1])
        self.factor = VoteFactor(*padded)

    def solve(self, labels: np.ndarray, sample_weights: np.ndarray, voter_mask: np.ndarray) -> Any:
        """One lane's `MinCqSolution`, in NumPy arrays of the sizes given; fields start with ``[k]``."""
        rows, voters = self.padded
        total = float(np.sum(sample_weights))
        each = np.abs((sample_weights * labels) @ self.votes[: self.shape[0], : self.shape[1]])
        # Without a pair there is no largest margin, and the program says that the input is bad.
        mu_max = float(np.mean(each, where=voter_mask)) / total if total else 1.0
        mu = self.margins * mu_max if self.unit == "fraction" else self.margins
        with ONE_AT_A_TIME, precision(np.dtype(float)):
            found = jax.device_get(
                _solve(
                    self.votes,
                    self.factor,
                    _pad(labels, rows),
                    _pad(sample_weights, rows),
                    _pad(voter_mask, voters),
                    mu,
                    turn=bool(np.min(mu) <= SMALL_MARGIN * mu_max),
                )
            )
        own = slice(self.shape[1])
        return found._replace(weights=found.weights[:, own], posterior=found.posterior[:, own])


def _risk(votes: np.ndarray, labels: np.ndarray, weights: np.ndarray, sample_weights: np.ndarray) -> np.ndarray:
    """`pvmincq_jax.vote_risk` of several votes, weights ``[k, n]`` -> ``[k]``; NaN without points or weights."""
    total = float(np.sum(sample_weights))
    if total == 0:
        return np.full(len(weights), np.nan)
    values = votes @ weights.T
    loss = (1 - labels[:, None] * np.sign(values)) / 2 + (values == 0) / 2
    return sample_weights @ loss / total


def deal(points: np.ndarray, labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Who learns: everybody, then all but one fold after the other ``[1 + folds, m]``; 0 folds for no validation.

    With fewer points in a class than folds there are as many folds as points, but two at least: a fold may then have
    to do without one class.
    """
    everybody = np.ones((1, len(labels)), bool)
    if not folds:
        return everybody
    count = max(2, min(folds, int(np.sum(labels > 0)), int(np.sum(labels < 0))))
    numbers = fold_numbers(points, labels, count, seed)
    return np.concatenate([everybody, numbers[None] != np.arange(count)[:, None]])


def reachable(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, radii: np.ndarray, metric: Metric
) -> RadiusGraph:
    """The graph of the largest radius; it is an error if it reaches nobody."""
    graph = space_graph(make_space(source, target, metric, ties=labels), float(radii.max()))
    if not graph.neighbours.size:
        raise ValueError(
            f"radius {radii.max():g} leaves every point unmatched: the smallest distance between source and target "
            f"is {graph.nearest:g}. Give a larger radius, or radius=None to have it chosen"
        )
    return graph


def own_labels(labels: np.ndarray, learning: np.ndarray) -> list[list[SelfLabels]]:
    """One domain: every point is matched with itself, at distance 0, and PV is 0."""

    def one(kept: np.ndarray) -> SelfLabels:
        rows = np.flatnonzero(kept)
        pairs = ExpectedMatching(rows, rows, np.ones(rows.size))
        return SelfLabels(np.where(kept, labels, 0.0), kept.astype(float), 0.0, pairs)

    return [[one(kept)] for kept in learning]


def fit_grid(
    found: Sequence[Sequence[SelfLabels]],
    masks: Sequence[Sequence[np.ndarray]],
    learning: np.ndarray,
    labels: np.ndarray,
    target: np.ndarray,
    radii: np.ndarray,
    gammas: np.ndarray,
    votes_at: Callable[[float], Votes],
    margins: np.ndarray,
    unit: MarginUnit,
) -> GridFit:
    """MinCq on every fold, radius, gamma and margin.

    Args:
      found: self-labels of the learning points for each row of ``learning`` and each radius.
      masks: voters that take part ``[n]``, for the same.
      learning: source points learnt from ``[1 + folds, m_s]``, all of them first; the others are judged on.
      labels: of the source ``[m_s]``.
      target: the points that are labelled ``[m_t, d]``.
      radii: ``[r]``.
      gammas: ``[g]``.
      votes_at: gamma to votes.
      margins: ``[k]``.
      unit: of the margins.

    Returns:
      A `GridFit`.
    """
    shape = (len(learning), len(radii), len(gammas), len(margins))
    risk, self_risk, bound, residual = (np.full(shape, np.nan) for _ in range(4))
    status = np.zeros(shape, int)
    weights, mu_max = [], np.full(shape[1:3], np.nan)
    values = np.full((*shape[1:], len(target)), np.nan)
    for g, gamma in enumerate(gammas):
        votes, judged = votes_at(float(gamma))
        solver = _Solver(votes, margins, unit)
        for fold, kept in enumerate(learning):
            for r, (one, mask) in enumerate(zip(found[fold], masks[fold])):
                solution = solver.solve(one.labels, one.weights, mask)
                cell = fold, r, g
                risk[cell] = _risk(judged, labels, solution.weights, (~kept).astype(float))
                self_risk[cell] = _risk(votes, one.labels, solution.weights, one.weights)
                bound[cell], residual[cell] = solution.c_bound, solution.kkt_residual
                status[cell] = solution.status
                if not fold:
                    weights.append(solution.weights)
                    values[r, g] = solution.weights @ votes.T
                    mu_max[r, g] = solution.mu_max[0]
    matched = np.array([[int(np.sum(one.weights > 0)) for one in row] for row in found])
    sweep = Sweep(
        radii=radii,
        gammas=gammas,
        margins=margins,
        margin_unit=unit,
        source_risk=risk[1:],
        pv=np.array([one.pv for one in found[0]]),
        c_bound=bound[0],
        self_risk=self_risk[0],
        matched=matched[0],
        fold_matched=matched[1:],
        status=status[0],
        fold_status=status[1:],
        kkt_residual=np.fmax.reduce(residual),
        target_values=values,
        self_labels=tuple(found[0]),
        source_labels=labels,
        target=target,
    )
    stacked = np.array(weights).reshape(len(gammas), len(radii), len(margins), -1).swapaxes(0, 1)
    return GridFit(sweep, stacked, mu_max, residual[0])
