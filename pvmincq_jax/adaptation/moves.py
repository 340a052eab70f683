"""The maps of a grid: nobody moves, each domain on its own scale, and matchings at radii that follow the data.

In the plane the useful radii reach far beyond the bottleneck radius; in many dimensions distances concentrate, and a
little beyond it every point is within reach of every other. Levels of PV follow the data on both sides, and radii that
reach given shares of all pairs are added where they are well beyond the bottleneck radius.

Samples of unequal size, or of unequal class ratio, are made even by repeating rows before they are matched; copies are
folded into their point afterwards, so that a map is always one of the source as it was given.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.adaptation.points import class_rows, even_rows
from pvmincq_jax.adaptation.transport import Transport, barycentres, stay
from pvmincq_jax.matching.curve import grid_radii, level_radii
from pvmincq_jax.matching.graph import RadiusGraph, check_reach, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching, draw_matchings
from pvmincq_jax.matching.space import Metric, Precomputed, make_space

__all__ = ["own_scale"]

# Levels of PV, then shares of all pairs within reach: close together where large rotations need them, and below 0.9,
# from where on a matching is next to any permutation, and moved points are all one.
PV_LEVELS = (0.6, 0.4, 0.2, 0.1, 0.05, 0.0)
REACHES = (0.2, 0.4, 0.6, 0.75, 0.82, 0.88)
# How far beyond the bottleneck radius, in its units: what is nearer gives next to the same map.
_BEYOND = 1.15
# Of samples with more pairs than these, 5 800 points a domain, radii that reach more are left out: 400 MB of edges.
_MOST_EDGES = 1 << 25


def own_scale(source: ArrayLike, target: ArrayLike, rows: ArrayLike | None = None) -> np.ndarray:
    """The source with each feature moved and scaled to the target's mean and standard deviation.

    x' = mean_T + (x - mean_S) std_T / std_S, the map that two domains have in common when each is standardised by
    itself. It takes the classes to be as frequent in both domains, and no feature to be turned into another: a feature
    that shifts because one class is rarer is moved by as much. Not in the paper.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      rows: of the source, that its mean and deviation are taken from; None for all.

    Returns: ``[m_s, d]``. A feature that is constant in the source is moved, and not scaled.

    Example:
      >>> own_scale(np.array([[0.0], [2.0]]), np.array([[10.0], [16.0]]))
      array([[10.],
             [16.]])
    """
    source, target = np.asarray(source), np.asarray(target)
    sample = source if rows is None else source[np.asarray(rows)]
    mean, here, there = sample.mean(axis=0), sample.std(axis=0), target.std(axis=0)
    # What differs by rounding alone is constant.
    varies = here > 1e-9 * np.maximum(np.abs(mean), np.max(here, initial=0.0))
    factor = np.where(varies, there / np.where(varies, here, 1.0), 1.0)
    return (source - mean) * factor + target.mean(axis=0)


class Moves(NamedTuple):
    """Which maps a grid holds; each as in `pvmincq_jax.transport_sweep`.

    Attributes:
      radii: of the matchings, or None for the default.
      unit: of the radii.
      identity: whether a map that moves nobody is among them; None: with default radii.
      own_scale: whether the same maps follow from the source on the target's scale; None: with default radii.
      even: whether samples of unequal size are made even.
      shares: of the classes in the target, by label, which the source is brought to; None for those of the source.
      draws: matchings per radius.
      seed: of matchings and repeated rows.
      metric: of the matching.
    """

    radii: ArrayLike | Sequence[float] | None = None
    unit: RadiusUnit = "absolute"
    identity: bool | None = None
    own_scale: bool | None = None
    even: bool = True
    shares: dict[float, float] | None = None
    draws: int = 64
    seed: int = 0
    metric: Metric = "euclidean"


class _Rows:
    """The rows of both samples that are matched, and the way back to the samples."""

    def __init__(self, source: np.ndarray, labels: np.ndarray, target: np.ndarray, moves: Moves) -> None:
        even, shares, seed = moves.even, moves.shares, moves.seed
        self.points = len(source)
        self.source, self.target = np.arange(len(source)), np.arange(len(target))
        size = max(len(source), len(target)) if even else len(source)
        if shares is not None:
            self.source = class_rows(source, labels, size, shares, seed=seed)
        elif even:
            self.source = even_rows(source, size, seed=seed, labels=labels)
        if even:
            self.target = even_rows(target, size, seed=seed)
        self.weights = np.bincount(self.source, minlength=self.points) * (self.points / len(self.source))

    def fold(self, pairs: ExpectedMatching) -> ExpectedMatching:
        """Pairs of copies as pairs of points; a point is as heavy as all its copies, and all together weigh m_s."""
        code = self.target[pairs.target] * self.points + self.source[pairs.source]
        code, place = np.unique(code, return_inverse=True)
        weights = np.bincount(place, pairs.weights) * (self.points / len(self.source))
        return ExpectedMatching(code % self.points, code // self.points, weights)


def plan_moves(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, moves: Moves
) -> list[Callable[[], Transport]]:
    """The maps of a grid on checked arrays, at least one, each to be made when it is called."""
    default, given = moves.radii is None, isinstance(moves.metric, Precomputed)
    rows = _Rows(source, labels, target, moves)
    makers: list[Callable[[], Transport]] = []
    for scaled in (
        (False, True) if (default and not given if moves.own_scale is None else moves.own_scale) else (False,)
    ):
        start = _start(source, target, moves, rows, scaled)
        if default if moves.identity is None else moves.identity:
            makers.append(partial(_still, source, start, rows, scaled))
        graph, radii = _reach(start[rows.source], labels[rows.source], target[rows.target], moves, rows)
        makers += [partial(_matched, source, target, graph, float(radius), moves, rows, scaled) for radius in radii]
    return makers


def one_map(source: np.ndarray, labels: np.ndarray, target: np.ndarray, moves: Moves) -> Transport:
    """One map of a grid by itself: the identity or that of one radius, on the target's scale or as it is."""
    rows, scaled = _Rows(source, labels, target, moves), bool(moves.own_scale)
    start = _start(source, target, moves, rows, scaled)
    if moves.identity:
        return _still(source, start, rows, scaled)
    graph, radii = _reach(start[rows.source], labels[rows.source], target[rows.target], moves, rows)
    return _matched(source, target, graph, float(radii[0]), moves, rows, scaled)


def _start(source: np.ndarray, target: np.ndarray, moves: Moves, rows: _Rows, scaled: bool) -> np.ndarray:
    """The source as it is matched: as it is, or on the target's scale."""
    if not scaled:
        return source
    if isinstance(moves.metric, Precomputed):
        raise ValueError("own_scale must be False where metric is Precomputed: distances are given as they are")
    return own_scale(source, target[rows.target], rows.source).astype(source.dtype)


def _still(source: np.ndarray, start: np.ndarray, rows: _Rows, scaled: bool) -> Transport:
    return stay(source, start, rows.weights)._replace(own_scale=scaled)


def _reach(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, moves: Moves, rows: _Rows
) -> tuple[RadiusGraph, np.ndarray]:
    """The graph of the largest radius, and all radii ``[r]``."""
    metric = moves.metric
    if isinstance(metric, Precomputed):
        metric = Precomputed(np.asarray(metric.distances)[np.ix_(rows.source, rows.target)])
    space = make_space(source, target, metric, ties=labels)
    if moves.radii is None:
        levels = np.unique(level_radii(space, PV_LEVELS))
        shares = [share for share in REACHES if share * len(source) * len(target) <= _MOST_EDGES]
        wide = np.quantile(space.some_lengths(), shares)
        lengths = np.concatenate([levels, wide[wide >= _BEYOND * levels[-1]]])
    else:
        lengths = grid_radii(source, target, moves.radii, moves.unit, metric)
    graph = check_reach(space_graph(space, float(lengths.max())))
    # A radius that reaches nobody gives nothing to learn from.
    return graph, lengths[lengths >= np.min(graph.distances)]


def _matched(
    source: np.ndarray,
    target: np.ndarray,
    graph: RadiusGraph,
    radius: float,
    moves: Moves,
    rows: _Rows,
    scaled: bool,
) -> Transport:
    drawn = draw_matchings(graph.within(radius), moves.draws, seed=moves.seed)
    return barycentres(source, target, rows.fold(drawn.expected), drawn.pv, radius)._replace(own_scale=scaled)
