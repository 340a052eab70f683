"""What matchings say of single points: their labels, where their partners lie, and how often they have any.

Labels are carried over from the source by a matching (section 3.2), or by nearest neighbours. A source point that
maximum matchings pair at small radii already has a counterpart in the target; one that is left over at all but the
largest has none, or shares it with too many others (section 5). Unlike a distance to the nearest target point, this
sees where the source holds too many points.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from pvmincq_jax._checks import (
    check_count,
    check_instance,
    check_labels,
    check_not_negative,
    check_points,
    read_samples,
)
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax._fork import check_process
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii, level_radii
from pvmincq_jax.matching.graph import check_reach, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching, MatchingDraws, draw_matchings
from pvmincq_jax.matching.space import Metric, Points, Precomputed, make_space

__all__ = [
    "MatchedSpread",
    "SelfLabels",
    "SharedPoints",
    "carry_labels",
    "matched_spread",
    "nn_self_label",
    "self_label",
    "shared_points",
]

# Numbers of pairs' features that are handled at once: few enough for the processor's cache.
_NUMBERS = 1 << 15


class SelfLabels(NamedTuple):
    """A self-labelled target sample, one entry per target point whether it got a label or not.

    Attributes:
      labels: ``[m_t]`` in [-1, 1]; 0 where the weight is 0.
      weights: ``[m_t]`` in [0, 1], how far each point counts; an unmatched point has weight 0 instead of being removed.
      pv: the perturbed variation; NaN for nearest-neighbour labels, which come from no matching.
      pairs: who carried its label to whom, and in which share of the draws.
    """

    labels: np.ndarray
    weights: np.ndarray
    pv: float
    pairs: ExpectedMatching


def _checked_labels(source_labels: ArrayLike, size: int) -> np.ndarray:
    (labels,) = read_samples(source_labels=source_labels)
    check_labels("source_labels", labels, size, soft=False)
    return labels.astype(float)


def carry_labels(draws: MatchingDraws, source_labels: ArrayLike) -> SelfLabels:
    """Carries labels over matchings that are already drawn (section 3.2, Algorithm 3 step 2).

    Args:
      draws: of `pvmincq_jax.draw_matchings`.
      source_labels: ``[m_s]`` in {-1, +1}.

    Returns: `SelfLabels`: the label of a target point is the mean over the draws that match it, its weight their share.

    Example:
      >>> carry_labels(MatchingDraws(np.array([[0, -1], [1, -1]]), 0.5, 2), np.array([1, -1])).labels
      array([0., 0.])
    """
    check_instance("draws", draws, MatchingDraws, "pvmincq_jax.draw_matchings")
    labels = _checked_labels(source_labels, draws.source_size)
    matched = draws.partners >= 0
    count = matched.sum(axis=0)
    total = np.where(matched, labels[draws.partners], 0.0).sum(axis=0)
    # The sum of two zeros of different sign would else show as -0.
    mean = total / np.maximum(count, 1) + 0.0
    return SelfLabels(mean, count / draws.partners.shape[0], draws.pv, draws.expected)


def self_label(
    source: Points,
    source_labels: ArrayLike,
    target: Points,
    radius: float,
    *,
    draws: int = 1,
    seed: int = 0,
    metric: Metric = "euclidean",
) -> SelfLabels:
    """Labels the target points that a maximum matching pairs with a source point (section 3.2).

    T^ = {(x_t, y_s) : (x_t, x_s) in M_ST}. With ``draws=1`` this is the paper's self-labelling. A maximum matching is
    not unique, and with K draws labels and weights are means over K random ones: the label over the draws that match
    the point, the weight the share of these draws.

    Permuting the rows of the source together with their labels changes nothing, even where source points with
    different labels coincide, because labels then tell them apart.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``.
      radius: above 0.
      draws: how many matchings, at least 1.
      seed: a non-negative integer.
      metric: see `pvmincq_jax.match`.

    Returns: `SelfLabels`. It is an error if no pair is within the radius.

    Example:
      >>> found = self_label(np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[1.1], [0.2], [7.0]]), 0.3)
      >>> found.labels, found.weights, found.pairs.source
      (array([-1.,  1.,  0.]), array([1., 1., 0.]), array([1, 0]))
    """
    # A source that is no array of points is left to the space, which says so.
    rows = metric.distances if isinstance(metric, Precomputed) else source
    points: Any = [] if rows is None else read_samples(source=rows)[0]
    labels = _checked_labels(source_labels, len(points)) if np.ndim(points) == 2 and len(points) else None
    graph = check_reach(space_graph(make_space(source, target, metric, ties=labels), radius))
    return carry_labels(draw_matchings(graph, draws, seed=seed), source_labels)


def nn_self_label(
    source: Points, source_labels: ArrayLike, target: Points, k: int, *, metric: Metric = "euclidean"
) -> SelfLabels:
    """Labels every target point by the majority of its k nearest source points, as NN-MinCq does (section 4).

    Source points that tie for the last places share them equally, so the order of the rows does not matter.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``.
      k: from 1 to m_s.
      metric: see `pvmincq_jax.match`.

    Returns:
      `SelfLabels` with a weight of 1, or 0 where the majority is undecided, and with NaN for pv. The weights of the
      pairs of a target point sum to 1.

    Example:
      >>> source, labels = np.array([[0.0], [1.0], [3.0]]), np.array([1, 1, -1])
      >>> nn_self_label(source, labels, np.array([[0.9], [2.9]]), 1).labels
      array([ 1., -1.])
    """
    space = make_space(source, target, metric)
    labels = _checked_labels(source_labels, space.source_rows.size)
    k = check_count("k", k, 1)
    if k > labels.size:
        raise ValueError(f"k must be at most the number of source points, {labels.size}; it is {k}")
    parts = []
    for start, block in space.flipped().blocks():
        last = np.partition(block, k - 1, axis=1)[:, k - 1 : k]
        closer, tied = block < last, block == last
        share = (k - closer.sum(axis=1)) / tied.sum(axis=1)
        target_vertex, source_vertex = np.nonzero(closer | tied)
        weight = np.where(closer[target_vertex, source_vertex], 1.0, share[target_vertex]) / k
        parts.append((source_vertex, target_vertex + start, weight))
    source_vertex, target_vertex, weight = map(np.concatenate, zip(*parts))
    source_row, target_row = space.source_rows[source_vertex], space.target_rows[target_vertex]
    order = np.lexsort((source_row, target_row))
    source_row, target_row, weight = source_row[order], target_row[order], weight[order]
    mean = np.bincount(target_row, weight * labels[source_row], minlength=space.target_rows.size)
    # Shares of ties do not add up exactly: what is left of a balanced vote is rounding.
    majority = np.where(np.abs(mean) < 1e-12, 0.0, np.sign(mean))
    return SelfLabels(majority, np.abs(majority), np.nan, ExpectedMatching(source_row, target_row, weight))


class MatchedSpread(NamedTuple):
    """Where the matched target points of each source point lie. A source point without any has weight 0.

    Attributes:
      moved: their means ``[m_s, d]``: the source points, moved.
      weights: how much each source point is matched ``[m_s]``.
      mean_distance: mean distance of the matched points from their mean ``[m_s]``.
      variance: mean squared distance ``[m_s]``.
    """

    moved: Array
    weights: Array
    mean_distance: Array
    variance: Array


def matched_spread(target: ArrayLike, plan: ArrayLike) -> MatchedSpread:
    """Moves each source point to the mean of its matched target points, and measures their spread. Not in the paper.

    z_s = sum_t p_st x_t / P_s with P_s = sum_t p_st, and the means of |x_t - z_s| and |x_t - z_s|^2 under p_st / P_s.

    Args:
      target: ``[m_t, d]``.
      plan: p, how much each pair is matched ``[m_s, m_t]``, not negative.

    Returns: a `MatchedSpread`, differentiable in the target points and the plan.

    Example:
      >>> spread = matched_spread(np.array([[0.0], [2.0], [5.0]]), np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
      >>> print(spread.moved[:, 0], spread.variance)
      [1. 5.] [1. 0.]
    """
    check_process()
    check_points("target", target)
    check_points("plan", plan)
    check_not_negative("plan", plan)
    target, plan = jnp.asarray(target), jnp.asarray(plan)
    if plan.shape[1] != target.shape[0]:
        raise ValueError(f"plan must have a column per target point ({target.shape[0]}); it has {plan.shape[1]}")
    weights = jnp.sum(plan, axis=1)
    share = plan / jnp.where(weights > 0, weights, 1.0)[:, None]
    moved = share @ target
    square = squared_distances(moved, target)
    return MatchedSpread(moved, weights, jnp.sum(share * root(square), axis=1), jnp.sum(share * square, axis=1))


def host_spread(
    target: np.ndarray, source_index: np.ndarray, target_index: np.ndarray, pair_weights: np.ndarray, size: int
) -> MatchedSpread:
    """`matched_spread` in NumPy, of pairs ``[k]`` and their weights: it compiles nothing for a new number of pairs."""

    def total(values: np.ndarray) -> Any:
        return np.bincount(source_index, values, minlength=size)

    weights = total(pair_weights)
    share = pair_weights / np.where(weights > 0, weights, 1.0)[source_index]
    moved = csr_array((share, (source_index, target_index)), shape=(size, target.shape[0])) @ target
    square = np.empty(len(pair_weights))
    step = max(1, _NUMBERS // target.shape[1])
    for start in range(0, len(square), step):
        some = slice(start, start + step)
        gaps = target[target_index[some]] - moved[source_index[some]]
        square[some] = np.einsum("ij,ij->i", gaps, gaps)
    return MatchedSpread(moved, weights, total(share * np.sqrt(square)), total(share * square))


class SharedPoints(NamedTuple):
    """How much each source point is shared with the target.

    Attributes:
      radii: absolute, increasing ``[r]``.
      pv: of the whole samples ``[r]``.
      frequency: in which share of the drawn maximum matchings each source point has a partner ``[r, m_s]``.
      nearest: distance to the nearest target point ``[m_s]``, for comparison, and to break ties.
      score: mean of the frequency over the radii ``[m_s]``, in [0, 1].
      ranking: rows of the source, the most shared first ``[m_s]``; those with equal scores by `nearest`.
    """

    radii: np.ndarray
    pv: np.ndarray
    frequency: np.ndarray
    nearest: np.ndarray
    score: np.ndarray
    ranking: np.ndarray


def shared_points(
    source: Points,
    target: Points,
    *,
    radii: ArrayLike | Sequence[float] | None = None,
    draws: int = 64,
    seed: int = 0,
    metric: Metric = "euclidean",
) -> SharedPoints:
    """Ranks the source points by how often they are matched, over random maximum matchings at several radii.

    No label is looked at. With the samples exchanged, it ranks the target points: the last of them are those that the
    source says nothing about.

    Section 5.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radii: to draw at, absolute; None for those at ten levels of PV, from 0.6 to 0. At a radius that matches the whole
        source every frequency is 1 and the ranking does not change.
      draws: matchings per radius.
      seed: of the matchings.
      metric: see `pvmincq_jax.match`.

    Returns: `SharedPoints`. Permuting the rows of either sample permutes the result and changes nothing else.

    Example:
      >>> source, target = np.array([[0.0], [0.1], [5.0], [1.0]]), np.array([[0.05], [1.2]])
      >>> shared = shared_points(source, target, radii=[0.06, 0.3])
      >>> shared.ranking[-1], shared.score.round(1)
      (np.int64(2), array([0.4, 0.6, 0. , 0.5]))
    """
    space = make_space(source, target, metric)
    size = space.source_rows.size
    absolute = level_radii(space, PV_LEVELS) if radii is None else grid_radii(source, target, radii, "absolute", metric)
    graph = space_graph(space, float(absolute.max()))
    drawn = [draw_matchings(graph.within(float(radius)), draws, seed=seed) for radius in absolute]
    pairs = [one.expected for one in drawn]
    # Shares of a few draws do not add up exactly.
    frequency = np.minimum([np.bincount(one.source, one.weights, minlength=size) for one in pairs], 1.0)
    nearest = np.concatenate([block.min(axis=1) for _, block in space.blocks()])[np.argsort(space.source_rows)]
    # Shares are multiples of 1 / draws: what differs by less than rounding is equal.
    score: np.ndarray = np.round(frequency.mean(axis=0), 12)
    place = canonical_order(np.asarray(source)) if source is not None else space.source_rows
    ranking = np.lexsort((np.argsort(place), nearest, -score))
    return SharedPoints(absolute, np.array([one.pv for one in drawn]), frequency, nearest, score, ranking)
