"""The matching as a map: source points move to their matched target points and keep their true labels.

Algorithm 3 carries labels to the target points. Past a shift of some size too many of these labels are wrong, and the
source risk must reject what is right on the target. Here the same matchings are used the other way round: a source
point goes to the mean of the target points that it is matched with, over many random maximum matchings, and MinCq
learns on the moved points, whose labels are true. Not in the paper.

The mean over the drawn matchings is a matrix p of pair shares, whose rows and columns sum to at most 1. A row is a law
over target points, and its mean and spread are what moves and what it costs: see
`pvmincq_jax.bounds.deviation.moved_gibbs_bound`.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from pvmincq_jax import _checks
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._fork import check_process
from pvmincq_jax._threads import on_all_cores
from pvmincq_jax._types import Array, ArrayLike, common_dtype
from pvmincq_jax.matching.graph import check_reach, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching, draw_matchings
from pvmincq_jax.matching.selflabel import MatchedSpread, host_spread
from pvmincq_jax.matching.space import Metric, make_space

__all__ = ["Transport", "barycentres", "identity_transport", "match_moments", "move", "pv_transport"]

# Features up to which a tree finds neighbours faster than a matrix product, and points that are looked up at a time.
_TREE_FEATURES, _ROWS = 16, 2048


class Transport(NamedTuple):
    """Where the source points go. A pytree of arrays.

    Attributes:
      source: the source points ``[m_s, d]``.
      moved: the means of their matched target points ``[m_s, d]``; a point that was never matched stays.
      weights: in which share of the matchings each source point is matched ``[m_s]``, times its copies if it was
        repeated.
      mean_distance: mean distance of the matched target points from their mean ``[m_s]``.
      variance: mean squared distance from it ``[m_s]``.
      pv: the perturbed variation.
      radius: of the matchings.
      pairs: the expected matching, as sparse pair weights.
      match_moments: whether the source had the target's moments when it was matched, see `match_moments`.
    """

    source: ArrayLike
    moved: ArrayLike
    weights: ArrayLike
    mean_distance: ArrayLike
    variance: ArrayLike
    pv: ArrayLike
    radius: ArrayLike
    pairs: ExpectedMatching
    match_moments: bool = False

    @property
    def spread(self) -> MatchedSpread:
        """In the form that the bounds of `pvmincq_jax.bounds` take."""
        return MatchedSpread(*map(jnp.asarray, (self.moved, self.weights, self.mean_distance, self.variance)))


def barycentres(source: ArrayLike, target: ArrayLike, pairs: ExpectedMatching, pv: float, radius: float) -> Transport:
    """Moves source points by given pair weights, from a matching or from Sinkhorn's scaling (not in the paper).

    z_s = sum_t p_st x_t / P_s with P_s = sum_t p_st.

    Host code. `pvmincq_jax.matching.selflabel.matched_spread` has the same equations for traced arrays.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      pairs: p, with weights above 0.
      pv: to be kept with the result.
      radius: to be kept with the result.

    Returns: a `Transport`.

    Example:
      >>> pairs = ExpectedMatching(np.array([0, 0]), np.array([0, 1]), np.array([0.25, 0.75]))
      >>> barycentres(np.array([[5.0], [6.0]]), np.array([[0.0], [1.0]]), pairs, 0.5, 9.0).moved
      array([[0.75],
             [6.  ]])
    """
    source, target = np.asarray(source), np.asarray(target)
    spread = host_spread(target, *pairs, len(source))
    moved = np.where(spread.weights[:, None] > 0, spread.moved, source).astype(target.dtype)
    return Transport(source, moved, *spread[1:], pv, radius, pairs)


def identity_transport(
    source: ArrayLike, moved: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Transport:
    """The map without a matching: every point stays, or goes where it is told. Its radius is 0, and PV is 1.

    Not in the paper.

    Args:
      source: ``[m_s, d]``.
      moved: where to, ``[m_s, d]``; None to stay.
      weights: of the points ``[m_s]``; None for 1 each.

    Returns: a `Transport` without pairs.

    Example:
      >>> rest = identity_transport(np.array([[0.0], [2.0]]))
      >>> print(rest.moved[:, 0], rest.weights, rest.pv)
      [0. 2.] [1. 1.] 1.0
    """
    (source,) = _checks.read_samples(source=source)
    _checks.check_points("source", source)
    moved, weights = _checks.read_samples(
        moved=source if moved is None else moved, weights=np.ones(len(source)) if weights is None else weights
    )
    _checks.check_rows("moved", moved, source)
    _checks.check_same_dimension("moved", moved, "source", source)
    _checks.check_sample_weights("weights", weights, len(source))
    still, nobody = np.zeros(len(source)), np.zeros(0, int)
    return Transport(source, moved, weights, still, still, 1.0, 0.0, ExpectedMatching(nobody, nobody, np.zeros(0)))


def match_moments(source: ArrayLike, target: ArrayLike, rows: ArrayLike | None = None) -> np.ndarray:
    """The source with each feature moved and scaled to the target's mean and standard deviation.

    x' = mean_T + (x - mean_S) std_T / std_S, the map that two domains have in common when each is standardised by
    itself. It takes the classes to be as frequent in both domains, and no feature to be turned into another: a feature
    that shifts because one class is rarer is moved by as much. Not in the paper.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      rows: of the source, that its mean and deviation are taken from; None for all.

    Returns: ``[m_s, d]``. A feature that is constant in the source is moved, and not scaled.

    Example:
      >>> match_moments(np.array([[0.0], [2.0]]), np.array([[10.0], [16.0]]))
      array([[10.],
             [16.]])
    """
    source, target = _checks.read_samples(source=source, target=target)
    _checks.check_samples(source, target)
    sample = source
    if rows is not None:
        index = _checks.check_real("rows", rows)
        if index.ndim != 1 or not index.size or not np.issubdtype(index.dtype, np.integer):
            raise ValueError(f"rows must be a vector of row numbers, at least one; they are {rows!r}")
        if np.min(index) < 0 or np.max(index) >= len(source):
            raise ValueError(f"rows must be in [0, {len(source) - 1}]; they are {rows!r}")
        sample = source[np.asarray(index)]
    mean, spread = sample.mean(axis=0), sample.std(axis=0)
    # What differs by rounding alone is constant.
    varies = spread > 1e-9 * np.maximum(np.abs(mean), np.max(spread, initial=0.0))
    factor = np.where(varies, target.std(axis=0) / np.where(varies, spread, 1.0), 1.0)
    return (source - mean) * factor + target.mean(axis=0)


def pv_transport(
    source: ArrayLike,
    target: ArrayLike,
    radius: float,
    *,
    draws: int = 64,
    seed: int = 0,
    metric: Metric = "euclidean",
    source_labels: ArrayLike | None = None,
) -> Transport:
    """Moves each source point to the mean of its matched target points, over random maximum matchings.

    z_s = sum_t p_st x_t / P_s, with p_st the share of the drawn matchings that pair s with t.

    A moved point is a mean of points within the radius of the original, hence within it too, if the distance is a norm.
    Permuting the rows of either sample permutes the result and changes nothing else, up to rounding.

    Not in the paper.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: pairs up to this distance may be matched. Below the bottleneck radius some points stay unmatched; above
        it, a larger radius moves every point closer to the middle of the target.
      draws: how many matchings.
      seed: a non-negative integer.
      metric: see `pvmincq_jax.match`.
      source_labels: ``[m_s]``, only to tell source points apart that coincide, so that the order of their rows cannot.

    Returns: a `Transport`. It is an error if no pair is within the radius.

    Example:
      >>> transport = pv_transport(np.array([[0.0], [9.0]]), np.array([[9.5], [1.0]]), 2.0)
      >>> transport.moved[:, 0], transport.pv
      (array([1. , 9.5]), 0.0)
    """
    source, target = _checks.read_samples(source=source, target=target)
    _checks.check_samples(source, target)
    ties = None
    if source_labels is not None:
        (labels,) = _checks.read_samples(source_labels=source_labels)
        _checks.check_labels("source_labels", labels, len(source), soft=False)
        ties = labels.astype(float)
    dtype = common_dtype(source, target)
    source, target = np.asarray(source, dtype), np.asarray(target, dtype)
    graph = check_reach(space_graph(make_space(source, target, metric, ties=ties), radius))
    drawn = draw_matchings(graph, draws, seed=seed)
    return barycentres(source, target, drawn.expected, drawn.pv, float(radius))


def nearest_means(
    points: np.ndarray, fields: Sequence[tuple[np.ndarray, np.ndarray]], x: np.ndarray, neighbours: int = 5
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Values of points ``[n, v]`` carried over to others ``[m, v]``, and the distance of the nearest point ``[m]``.

    The means of `move`, in NumPy and by blocks: sum_i a_i(x) v_i, a_i(x) ~ P_i / |x - x_i|^2, over the nearest points
    whose weight P_i is above 0.

    Args:
      points: ``[n, d]``.
      fields: weights P ``[n]`` and values ``[n, v]``, any number of them, which share the distances.
      x: ``[m, d]``.
      neighbours: how many points each mean is over.

    Returns: means and distances of each field.

    Example:
      >>> nearest_means(np.array([[0.0], [2.0]]), [(np.ones(2), np.array([[4.0], [8.0]]))], np.array([[0.0], [1.0]]))
      [(array([[4.],
             [6.]]), array([0., 1.]))]
    """
    rows = [np.flatnonzero(weights > 0) for weights, _ in fields]
    by_tree = points.shape[1] <= _TREE_FEATURES
    trees = [cKDTree(points[some]) for some in rows] if by_tree else []
    results = [(np.empty((len(x), values.shape[1])), np.empty(len(x))) for _, values in fields]

    def carry(start: int) -> None:
        part = slice(start, start + _ROWS)
        every = None if by_tree else squared_distances(x[part], points)
        for i, ((weights, values), some, (means, nearest)) in enumerate(zip(fields, rows, results)):
            k = min(neighbours, some.size)
            if every is None:
                distance, near = (np.reshape(one, (-1, k)) for one in trees[i].query(x[part], k))
                square = distance**2
            else:
                known = every if some.size == len(points) else every[:, some]
                near = np.argpartition(known, k - 1, axis=1)[:, :k]
                square = np.take_along_axis(known, near, axis=1)
            shares = _shares(square, weights[some][near], np)
            shape = len(shares), len(points)
            mean = csr_array((shares.ravel(), some[near].ravel(), np.arange(0, shares.size + 1, k)), shape=shape)
            means[part], nearest[part] = mean @ values, np.sqrt(np.min(square, axis=1))

    on_all_cores(carry, range(0, len(x), _ROWS))
    return results


def _shares(square: Any, weights: Any, xp: ModuleType) -> Any:
    """a_i ~ P_i / |x - x_i|^2 of the nearest points, from their squared distances and weights ``[m, k]``; of sum 1.

    Relative to the nearest, so that a point itself outweighs all others without a division by 0.
    """
    least = xp.min(square, axis=1, keepdims=True)
    closest = square <= least
    share = xp.where(closest, 1.0, least / xp.where(closest, 1.0, square)) * weights
    return share / xp.sum(share, axis=1, keepdims=True)


def move_all(transports: Sequence[Transport], source: np.ndarray, target: np.ndarray) -> list[Transport]:
    """Maps of parts of two samples, the same for all maps, for all of the source.

    Points that were not matched move along with those that were, see `move`, and weigh as these do. Pairs are left as
    they are.
    """
    part, fields = np.asarray(transports[0].source), []
    for one in transports:
        values = np.asarray(one.moved) - part, one.weights, one.mean_distance, one.variance
        fields.append((np.asarray(one.weights), np.column_stack(values)))
    whole = []
    for one, (means, _) in zip(transports, nearest_means(part, fields, source)):
        moved = means[:, :-3]
        moved += source
        if float(one.radius) == 0:
            moved = match_moments(source, target) if one.match_moments else source
        heavy, distance, variance = means[:, -3:].T
        moved = moved.astype(source.dtype, copy=False)
        whole.append(one._replace(source=source, moved=moved, weights=heavy, mean_distance=distance, variance=variance))
    return whole


def move(transport: Transport, x: ArrayLike, *, neighbours: int = 5) -> Array:
    """Moves new points of the source domain along with their nearest source points (not in the paper).

    T(x) = x + sum_i a_i(x) (z_i - x_i),  a_i(x) ~ P_i / |x - x_i|^2, over the nearest matched source points.

    A matched source point goes where it went; in between, displacements are interpolated (Shepard).

    Args:
      transport: of `pv_transport`.
      x: ``[m, d]``.
      neighbours: how many source points move a new one, at least 1; 1 takes over the displacement of the nearest.

    Returns: ``[m, d]``, differentiable in x wherever the nearest source points do not change.

    Example:
      >>> transport = pv_transport(np.array([[0.0], [9.0]]), np.array([[9.5], [1.0]]), 2.0)
      >>> print(move(transport, np.array([[0.0], [4.5], [9.0]]))[:, 0])
      [1.   5.25 9.5 ]
    """
    check_process()
    _checks.check_instance("transport", transport, Transport, "pvmincq_jax.pv_transport")
    _checks.check_points("x", x)
    _checks.check_same_dimension("x", x, "source", transport.source)
    source, shares = jnp.asarray(transport.source), jnp.asarray(transport.weights)
    x = jnp.asarray(x, source.dtype)
    k = min(_checks.check_count("neighbours", neighbours, 1), source.shape[0])
    square = jnp.asarray(squared_distances(x, source))
    nearest, near = jax.lax.top_k(jnp.where(shares > 0, -square, -jnp.inf), k)
    weight = _shares(-nearest, shares[near], jnp)
    shift = jnp.asarray(transport.moved) - source
    return x + jnp.sum(weight[..., None] * shift[near], axis=1)
