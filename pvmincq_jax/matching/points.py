"""Single points in a matching: where their partners lie, how often they have any, and samples made even (section 5).

The perturbed variation pairs points of the two samples one to one. A source point that maximum matchings pair at small
radii already has a counterpart in the target; one that is left over at all but the largest has none, or shares it with
too many others. Unlike a distance to the nearest target point, this sees where the source holds too many points.

Each point has one partner at most, so of samples of unequal size the larger cannot be matched whole, and maximum
matchings choose which part of it is: the part nearest to the smaller sample. Where the domains lie apart that is one
end of the larger sample, the same in all draws and at all radii, and what the rest could teach is lost. `even_rows`
repeats the smaller sample. The paper's samples are of one size.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from pvmincq_jax._checks import check_count, check_not_negative, check_points
from pvmincq_jax._distances import root, squared_distances
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii, level_radii
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.matching import draw_matchings
from pvmincq_jax.matching.space import Metric, Points, make_space

__all__ = ["MatchedSpread", "SharedPoints", "class_rows", "even_rows", "matched_spread", "shared_points"]

# Numbers of pairs' features that are handled at once: few enough for the processor's cache.
_NUMBERS = 1 << 15


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


def even_rows(points: ArrayLike, size: int, *, seed: int = 0, labels: ArrayLike | None = None) -> np.ndarray:
    """Rows that repeat a sample until it has a given size: every point equally often, or once more (not in the paper).

    With ``target[even_rows(target, len(source))]`` in place of a smaller target, a matching may pair each target point
    as many times as it is repeated, PV can reach 0, and a perfect matching uses the whole source. Which points are
    repeated once more is drawn at random.

    Args:
      points: ``[m, d]``.
      size: how many rows; a sample that has as many or more is left as it is.
      seed: of the draw.
      labels: ``[m]``, to tell coinciding points apart, or None.

    Returns: row numbers ``[max(m, size)]``. Permuting the rows of the sample does not change which points are repeated.

    Example:
      >>> even_rows(np.array([[3.0], [5.0]]), 4)
      array([0, 1, 0, 1])
      >>> np.bincount(even_rows(np.array([[3.0], [5.0], [7.0]]), 7)).tolist() in ([3, 2, 2], [2, 3, 2], [2, 2, 3])
      True
    """
    check_points("points", points)
    size, count = check_count("size", size, 1), np.shape(points)[0]
    if size <= count:
        return np.arange(count)
    order = canonical_order(np.asarray(points), None if labels is None else np.asarray(labels))
    more = np.random.default_rng(check_count("seed", seed, 0)).permutation(count)[: size % count]
    return np.concatenate([np.tile(np.arange(count), size // count), np.sort(order[more])])


def class_rows(
    points: ArrayLike, labels: ArrayLike, size: int, shares: dict[float, float], *, seed: int = 0
) -> np.ndarray:
    """Rows of a labelled sample in which each class has a given share: points are repeated, or left out at random.

    Not in the paper.

    Args:
      points: ``[m, d]``.
      labels: ``[m]``.
      size: how many rows.
      shares: of the classes, by label; they add up to 1.
      seed: of the draw.

    Returns:
      Row numbers ``[size]``, in increasing order; at least one of each class. Permuting the rows of the sample does not
      change which points are taken.

    Example:
      >>> x, y = np.array([[3.0], [5.0], [7.0], [9.0]]), np.array([1.0, 1.0, -1.0, -1.0])
      >>> y[class_rows(x, y, 5, {1.0: 0.2, -1.0: 0.8})]
      array([ 1., -1., -1., -1., -1.])
    """
    check_points("points", points)
    points, labels = np.asarray(points), np.asarray(labels)
    if set(np.unique(labels)) != set(shares) or not np.isclose(sum(shares.values()), 1) or min(shares.values()) <= 0:
        raise ValueError(f"shares must give each class of labels a number above 0, with sum 1; they are {shares}")
    taken, left = [], check_count("size", size, len(shares))
    for place, (label, share) in enumerate(sorted(shares.items())):
        rest = len(shares) - place - 1
        count = min(max(1, round(share * size)), left - rest) if rest else left
        rows = np.flatnonzero(labels == label)
        rows = rows[canonical_order(points[rows])]
        some = np.random.default_rng([check_count("seed", seed, 0), place]).permutation(rows)[: count % rows.size]
        taken += [np.tile(rows, count // rows.size), some]
        left -= count
    return np.sort(np.concatenate(taken))
