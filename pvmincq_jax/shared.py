"""Shared points: which source points matter for the target, by how often they are matched (section 5).

The perturbed variation pairs points of the two samples one to one. A source point that maximum matchings pair at small
radii already has a counterpart in the target; one that is left over at all but the largest has none, or shares it with
too many others. Unlike a distance to the nearest target point, this sees where the source holds too many points.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._folds import canonical_order
from pvmincq_jax._graph import space_graph
from pvmincq_jax._space import Metric, make_space
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.matching import ExpectedMatching, check_count, draw_matchings
from pvmincq_jax.sweep import PV_LEVELS, RadiusUnit, grid_radii

__all__ = ["SharedPoints", "match_frequency", "shared_points"]


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


def match_frequency(pairs: ExpectedMatching, size: int) -> np.ndarray:
    """In which share of the matchings each source point has a partner.

    P_s = sum_t p_st.

    Args:
      pairs: p, of `pvmincq_jax.draw_matchings` or of a model.
      size: m_s.

    Returns:
      ``[m_s]`` in [0, 1].

    Example:
      >>> match_frequency(ExpectedMatching(np.array([0, 0]), np.array([0, 1]), np.array([0.25, 0.5])), 2)
      array([0.75, 0.  ])
    """
    size = check_count("size", size, 1)
    rows = np.asarray(pairs.source)
    if rows.size and rows.max() >= size:
        raise ValueError(f"size must be above the last row of the pairs, {rows.max()}; it is {size}")
    # Shares of a few draws do not add up exactly.
    return np.minimum(np.bincount(rows, pairs.weights, minlength=size), 1.0)


def shared_points(
    source: ArrayLike | None,
    target: ArrayLike | None,
    *,
    radii: ArrayLike | Sequence[float] = PV_LEVELS,
    radius_unit: RadiusUnit = "pv",
    draws: int = 64,
    seed: int = 0,
    metric: Metric = "euclidean",
) -> SharedPoints:
    """Ranks the source points by how often they are matched, over random maximum matchings at several radii.

    No label is looked at. With the samples exchanged, it ranks the target points: the last of them are those that the
    source says nothing about.

    Args:
      source: ``[m_s, d]``.
      target: ``[m_t, d]``.
      radii: see `pvmincq_jax.grid_radii`; levels of PV from 0.6 to 0 unless given. At a radius that matches the whole
        source every frequency is 1 and the ranking does not change.
      radius_unit: how to read ``radii``.
      draws: matchings per radius.
      seed: of the matchings.
      metric: see `pvmincq_jax.match`.

    Returns:
      `SharedPoints`. Permuting the rows of either sample permutes the result and changes nothing else.

    Example:
      >>> source, target = np.array([[0.0], [0.1], [5.0], [1.0]]), np.array([[0.05], [1.2]])
      >>> found = shared_points(source, target, radii=[0.06, 0.3], radius_unit="absolute")
      >>> found.ranking[-1], found.score.round(1)
      (np.int64(2), array([0.5, 0.5, 0. , 0.5]))
    """
    space = make_space(source, target, metric)
    size = space.source_rows.size
    absolute = grid_radii(source, target, radii, radius_unit, metric)  # type: ignore[arg-type]
    graph = space_graph(space, float(absolute.max()))
    found = [draw_matchings(graph.within(float(radius)), draws, seed=seed) for radius in absolute]
    frequency = np.stack([match_frequency(one.expected, size) for one in found])
    nearest = np.empty(size)
    nearest[space.source_rows] = np.concatenate([block.min(axis=1) for _, block in space.blocks()])
    # Shares are multiples of 1 / draws: what differs by less than rounding is equal.
    score: np.ndarray = np.round(frequency.mean(axis=0), 12)
    place = canonical_order(np.asarray(source)) if source is not None else space.source_rows
    order = np.empty(size, dtype=int)
    order[place] = np.arange(size)
    return SharedPoints(
        radii=absolute,
        pv=np.array([one.pv for one in found]),
        frequency=frequency,
        nearest=nearest,
        score=score,
        ranking=np.lexsort((order, nearest, -score)),
    )
