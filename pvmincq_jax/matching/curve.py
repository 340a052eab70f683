"""The perturbed variation as a function of the radius, exactly, and the radii at which it takes given values.

One matching grows with the radius, edge by edge, and tells the exact length at which it gets one pair more.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_list, check_numbers, check_positive
from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.growth import Forest
from pvmincq_jax.matching.matching import pv_of
from pvmincq_jax.matching.space import Metric, Space, make_space

__all__ = ["PVCurve", "bottleneck_radius", "grid_radii", "pv_curve"]

# Levels of PV, the natural scale of the radius: it follows the data on rotations and translations alike.
PV_LEVELS = (0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)

# Radii are above 0. Points that coincide are matched at the smallest one that keeps its digits when scaled.
_SMALLEST = float(np.finfo(float).tiny)
# Edges for each point of the first graph that is looked at, and how many times as many each further one has.
_EDGES, _MORE_EDGES = 64, 2
_LARGEST = float(np.finfo(float).max)


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
    """Every step of the perturbed variation as the radius grows (Algorithm 2 at every radius).

    One matching grows: unmatched points of the smaller sample keep a forest of alternating paths, and the
    shortest edge that leaves the forest either extends it or completes a path, which is a step of PV at that length.

    Holds the pairs up to the last radius in memory, about 30 bytes for each, and two bits for every pair.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      metric: see `pvmincq_jax.match`.

    Returns: a `PVCurve`, which agrees with `pvmincq_jax.perturbed_variation` at every radius.

    Example:
      >>> radii, pv = pv_curve(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]))
      >>> radii, pv
      (array([0.5, 2. ]), array([0.5, 0. ]))
    """
    space = make_space(source, target, metric)
    pv = _pv_of_pairs(space)
    radii = radii_of_pairs(space, np.arange(pv.size) + 1)
    last = np.flatnonzero(np.append(np.diff(radii) > 0, True))
    return PVCurve(np.maximum(radii[last], _SMALLEST), pv[last])


def bottleneck_radius(
    source: ArrayLike | None, target: ArrayLike | None, pv: float = 0.0, *, metric: Metric = "euclidean"
) -> float:
    """The smallest radius whose perturbed variation is at most ``pv`` (not in the paper).

    With samples of different sizes PV cannot reach 0; ``pv=0`` then asks for the smallest radius that matches the whole
    smaller sample, and any other value below the smallest PV is an error.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
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
    if check_numbers("pv", pv).ndim != 0 or not 0 <= pv < 1:
        raise ValueError(f"pv must be one number in [0, 1); it is {pv}")
    least = _pv_of_pairs(space)[-1]
    if 0 < pv < least:
        raise ValueError(
            f"pv must be at least {least:g}, the smallest that samples of {space.source_rows.size} and "
            f"{space.target_rows.size} points can reach, or 0 to match the whole smaller sample; it is {pv:g}"
        )
    return float(_radii_at(space, np.array([max(pv, least)]))[0])


def grid_radii(
    source: ArrayLike,
    target: ArrayLike,
    radii: ArrayLike | Sequence[float],
    unit: RadiusUnit,
    metric: Metric = "euclidean",
) -> np.ndarray:
    """Absolute radii from levels of PV, fractions of the bottleneck radius, or absolute radii (not in the paper).

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radii: ``[r]``. As PV: the share, in [0, 1), that may stay unmatched of what can be matched at all (for samples of
        one size, PV itself); each gives the smallest radius that reaches it.
      unit: "pv", "bottleneck" or "absolute".
      metric: see `pvmincq_jax.match`.

    Returns: increasing radii ``[r]``.

    Example:
      >>> grid_radii(np.array([[0.0], [1.0]]), np.array([[1.5], [3.0]]), [0.0, 0.5], "pv")
      array([0.5, 2. ])
    """
    values = check_list("radii", radii)
    if unit == "absolute":
        check_positive("radii", values)
        return np.sort(values)
    if unit not in ("pv", "bottleneck"):
        raise ValueError(f"radius_unit must be 'pv', 'bottleneck' or 'absolute'; it is {unit!r}")
    if unit == "bottleneck":
        check_positive("radii", values)
        return np.sort(values * bottleneck_radius(source, target, metric=metric))
    if not np.all((values >= 0) & (values < 1)):
        raise ValueError(f"radii must be in [0, 1) as levels of PV; they are {values}")
    return level_radii(make_space(source, target, metric), values)


def level_radii(space: Space, levels: ArrayLike | Sequence[float]) -> np.ndarray:
    """`grid_radii` at levels of PV."""
    least = _pv_of_pairs(space)[-1]
    # Rounding in PV must not push a level that is met exactly to the next step.
    return np.sort(_radii_at(space, least + np.asarray(levels) * (1 - least) + 1e-12))


def _pv_of_pairs(space: Space) -> np.ndarray:
    """PV of a maximum matching of 1, 2, .. pairs, up to all of the smaller sample."""
    sizes = space.source_rows.size, space.target_rows.size
    return np.array([pv_of(pairs, *sizes) for pairs in range(1, min(sizes) + 1)])


def _radii_at(space: Space, levels: np.ndarray) -> np.ndarray:
    """The smallest radius at which PV is at most each level; every level can be reached."""
    pv = _pv_of_pairs(space)
    needed, place = np.unique([np.argmax(pv <= level) + 1 for level in levels], return_inverse=True)
    return np.maximum(radii_of_pairs(space, needed), _SMALLEST)[place]


def radii_of_pairs(space: Space, needed: Sequence[int] | np.ndarray) -> np.ndarray:
    """The smallest radius whose maximum matching has so many pairs, for increasing numbers of pairs, 1 at least.

    It is 0 if coinciding points suffice.
    """
    if space.source_rows.size > space.target_rows.size:
        space = space.flipped()
    edges = _EDGES * space.target_rows.size
    # Below any distance, so that coinciding points are matched like others.
    forest = Forest(_shortest(space, edges, 0.0), np.full(space.target_rows.size, -1), -1.0)
    radii = []
    for pairs in map(int, needed):
        while forest.pairs < pairs:
            if np.isinf(forest.next_pair()):
                edges *= _MORE_EDGES
                graph = _shortest(space, edges, forest.graph.radius)
                forest = Forest(graph, forest.column_mate, forest.graph.radius)
        radii.append(forest.radius)
    return np.array(radii)


def _shortest(space: Space, edges: int, radius: float) -> RadiusGraph:
    """A graph of about so many of the shortest edges, one at least, and of a radius beyond this one."""
    share = edges / (space.source_rows.size * space.target_rows.size)
    reach = float(np.quantile(space.some_lengths(), share)) if share < 1 else _LARGEST
    graph = space_graph(space, max(reach, 1.1 * radius, _SMALLEST))
    return graph if graph.neighbours.size else space_graph(space, graph.nearest)
