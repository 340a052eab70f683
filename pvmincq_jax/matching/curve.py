"""The perturbed variation as a function of the radius, exactly, by growing one matching as edges come by length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_positive, check_rank
from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.matching.augment import draw_lanes
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.matching import pv_of
from pvmincq_jax.matching.space import Metric, Space, make_space

__all__ = ["PVCurve", "bottleneck_radius", "grid_radii", "pv_curve"]

# Levels of PV, the natural scale of the radius: it follows the data on rotations and translations alike.
PV_LEVELS = (0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)

# More pairs than this are not held in memory at once (200 MB of distances).
_DENSE_PAIRS = 25_000_000
# Radii are above 0. Points that coincide are matched at the smallest one that keeps its digits when scaled.
_SMALLEST = float(np.finfo(float).tiny)


class PVCurve(NamedTuple):
    """The step function of PV over all radii; unpacks to radii and values.

    Attributes:
      radii: where PV falls ``[steps]``, increasing; each is the distance of a pair (coinciding pairs: the smallest
        normal float, since radii are above 0).
      pv: from that radius, included, to the next ``[steps]``. Below the first radius PV is 1.
    """

    radii: np.ndarray
    pv: np.ndarray

    def at(self, radius: ArrayLike) -> np.ndarray:
        """PV at any radius above 0."""
        radius = np.maximum(np.asarray(radius), _SMALLEST)
        return np.concatenate([[1.0], self.pv])[np.searchsorted(self.radii, radius, side="right")]


def pv_curve(source: ArrayLike | None, target: ArrayLike | None, *, metric: Metric = "euclidean") -> PVCurve:
    """Every step of the perturbed variation as the radius grows.

    One matching grows: unmatched points of the smaller sample keep a forest of alternating paths, and the
    shortest edge that leaves the forest either extends it or completes a path, which is a step of PV at that length.
    Completing a path dissolves one tree of the forest and leaves the others as they are.

    Holds all distances in memory: 8 bytes for each of the m_s m_t pairs.

    Args:
      source: ``[m_s, d]``.
      target: ``[m_t, d]``.
      metric: see `pvmincq_jax.match`.

    Returns:
      A `PVCurve`, which agrees with `pvmincq_jax.perturbed_variation` at every radius.

    Example:
      >>> radii, pv = pv_curve(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]))
      >>> radii, pv
      (array([0.5, 2. ]), array([0.5, 0. ]))
    """
    space = make_space(source, target, metric)
    sizes = space.source_rows.size, space.target_rows.size
    lengths = _path_lengths(_all_distances(space), min(sizes))
    last = np.flatnonzero(np.append(np.diff(lengths) > 0, True))
    pv = np.array([pv_of(int(k) + 1, *sizes) for k in last])
    return PVCurve(np.maximum(lengths[last], _SMALLEST), pv)


def bottleneck_radius(
    source: ArrayLike | None, target: ArrayLike | None, pv: float = 0.0, *, metric: Metric = "euclidean"
) -> float:
    """The smallest radius whose perturbed variation is at most ``pv``.

    With samples of different sizes PV cannot reach 0; ``pv=0`` then asks for the smallest radius that matches the whole
    smaller sample, and any other value below the smallest PV is an error.

    Args:
      source: ``[m_s, d]``.
      target: ``[m_t, d]``.
      pv: in [0, 1).
      metric: see `pvmincq_jax.match`.

    Returns:
      The distance of some pair; matching at this radius gives that PV. For coinciding points, which any radius
      matches, the smallest normal float.

    Example:
      >>> bottleneck_radius(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]))
      2.0
    """
    space = make_space(source, target, metric)
    sizes = space.source_rows.size, space.target_rows.size
    if np.ndim(pv) != 0 or not 0 <= pv < 1:
        raise ValueError(f"pv must be one number in [0, 1); it is {pv}")
    least = pv_of(min(sizes), *sizes)
    if 0 < pv < least:
        raise ValueError(
            f"pv must be at least {least:g}, the smallest that samples of {sizes[0]} and {sizes[1]} points can reach, "
            f"or 0 to match the whole smaller sample; it is {pv:g}"
        )
    needed = next((k for k in range(1, min(sizes)) if pv_of(k, *sizes) <= pv), min(sizes))
    if sizes[0] * sizes[1] <= _DENSE_PAIRS:
        return max(float(_path_lengths(_all_distances(space), needed)[-1]), _SMALLEST)
    return max(_bisect(space, needed), _SMALLEST)


def grid_radii(
    source: ArrayLike,
    target: ArrayLike,
    radii: ArrayLike | Sequence[float],
    unit: RadiusUnit,
    metric: Metric = "euclidean",
) -> np.ndarray:
    """Absolute radii from levels of PV, fractions of the bottleneck radius, or absolute radii.

    Args:
      source: ``[m_s, d]``.
      target: ``[m_t, d]``.
      radii: ``[r]``. As PV: the share, in [0, 1), that may stay unmatched of what can be matched at all (for samples of
        one size, PV itself); each gives the smallest radius that reaches it.
      unit: "pv", "bottleneck" or "absolute".
      metric: see `pvmincq_jax.match`.

    Returns:
      Increasing radii ``[r]``.

    Example:
      >>> grid_radii(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]), [0.0, 0.5], "pv")
      array([0.5, 2. ])
    """
    values = np.asarray(radii, float)
    check_rank("radii", values, 1)
    if not values.size:
        raise ValueError("radii is empty")
    if unit == "absolute":
        check_positive("radii", values)
        return np.sort(values)
    if unit not in ("pv", "bottleneck"):
        raise ValueError(f"radius_unit must be 'pv', 'bottleneck' or 'absolute'; it is {unit!r}")
    curve = pv_curve(source, target, metric=metric)
    if unit == "bottleneck":
        check_positive("radii", values)
        return np.sort(values * curve.radii[-1])
    if not np.all((values >= 0) & (values < 1)):
        raise ValueError(f"radii must be in [0, 1) as levels of PV; they are {values}")
    # Rounding in PV must not push a level that is met exactly to the next step.
    levels = curve.pv[-1] + values * (1 - curve.pv[-1]) + 1e-12
    return np.sort(curve.radii[np.argmax(curve.pv[None] <= levels[:, None], axis=1)])


def _all_distances(space: Space) -> np.ndarray:
    """All distances, with the smaller sample in the rows."""
    matrix = np.concatenate([block for _, block in space.blocks()])
    return matrix if matrix.shape[0] <= matrix.shape[1] else np.ascontiguousarray(matrix.T)


def _path_lengths(distances: np.ndarray, needed: int) -> np.ndarray:
    """The radius at which a maximum matching first has 1, 2, .., ``needed`` pairs.

    Args:
      distances: ``[rows, columns]``, not more rows than columns.
      needed: at most the number of rows.

    Returns:
      ``[needed]``, never decreasing.
    """
    rows, columns = distances.shape
    row_mate, column_mate = np.full(rows, -1), np.full(columns, -1)
    # The forest: a tree for each unmatched row. Of a column outside it, the shortest edge from a row inside.
    row_tree, column_tree = np.arange(rows), np.full(columns, -1)
    via = np.argmin(distances, axis=0)
    gap = distances[via, np.arange(columns)]
    parent = np.full(columns, -1)
    radius, lengths = 0.0, np.empty(needed)
    for pairs in range(needed):
        while True:
            radius = max(radius, float(gap.min()))
            new = np.flatnonzero(gap <= radius)
            free = new[column_mate[new] < 0]
            if free.size:
                break
            parent[new], column_tree[new] = via[new], row_tree[via[new]]
            gap[new] = np.inf
            grown = column_mate[new]
            row_tree[grown] = column_tree[new]
            near = distances[grown]
            length = near.min(axis=0)
            closer = np.flatnonzero((length < gap) & (column_tree < 0))
            gap[closer], via[closer] = length[closer], grown[np.argmin(near[:, closer], axis=0)]
        lengths[pairs] = radius
        at = int(free[0])
        parent[at], root = via[at], row_tree[via[at]]
        while at >= 0:
            row = parent[at]
            row_mate[row], column_mate[at], at = at, row, row_mate[row]
        gone = row_tree == root
        row_tree[gone] = -1
        # Columns that the tree held, or that it was closest to, look for the nearest row of the trees that are left.
        lost = np.flatnonzero((column_tree == root) | ((column_tree < 0) & gone[via]))
        column_tree[lost] = -1
        rest = np.flatnonzero(row_tree >= 0)
        if rest.size:
            part = distances[np.ix_(rest, lost)]
            shortest = np.argmin(part, axis=0)
            via[lost], gap[lost] = rest[shortest], part[shortest, np.arange(lost.size)]
    return lengths


def _bisect(space: Space, needed: int) -> float:
    """The bottleneck radius of samples with too many pairs for memory, by a few matchings of sparse graphs."""
    radius = max(space.smallest(), _SMALLEST)
    while True:
        graph = space_graph(space, radius)
        if np.count_nonzero(draw_lanes(graph, 0, [0]) >= 0) >= needed:
            break
        radius *= 2
    lengths = np.unique(graph.distances)
    below, enough = -1, lengths.size - 1
    while enough - below > 1:
        middle = (below + enough) // 2
        part = graph.within(max(float(lengths[middle]), _SMALLEST))
        if np.count_nonzero(draw_lanes(part, 0, [0]) >= 0) >= needed:
            enough = middle
        else:
            below = middle
    return float(lengths[enough])
