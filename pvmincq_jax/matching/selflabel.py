"""Labels for the target sample, carried over from the source: by a matching (section 3.2) or by nearest neighbours."""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count, check_labels, read_samples
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.matching.graph import check_reach, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching, MatchingDraws, draw_matchings
from pvmincq_jax.matching.space import Metric, Points, Precomputed, make_space

__all__ = ["SelfLabels", "carry_labels", "nn_self_label", "self_label"]


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
    rows = metric.distances if isinstance(metric, Precomputed) else source
    shape = () if rows is None else np.shape(rows)
    # Without a source to speak of, the space raises the error.
    labels = _checked_labels(source_labels, shape[0]) if any(shape[:1]) else None
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
