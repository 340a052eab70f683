"""The perturbed variation as a function of the radius, exactly, and the radii at which it takes given values."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np

from pvmincq_jax._checks import check_list, check_one_of, check_positive, check_real
from pvmincq_jax._types import ArrayLike, RadiusUnit
from pvmincq_jax.matching.growth import SMALLEST_RADIUS, radii_of_all_pairs, radii_of_pairs
from pvmincq_jax.matching.matching import pv_of
from pvmincq_jax.matching.space import Metric, Points, Space, make_space

__all__ = ["PVCurve", "bottleneck_radius", "grid_radii", "pv_curve"]

# Levels of PV, the natural scale of the radius: it follows the data on rotations and translations alike.
PV_LEVELS = (0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.0)


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
        radius = np.maximum(np.asarray(radius), SMALLEST_RADIUS)
        return np.concatenate([[1.0], self.pv])[np.searchsorted(self.radii, radius, side="right")]


def pv_curve(source: Points, target: Points, *, metric: Metric = "euclidean") -> PVCurve:
    """Every step of the perturbed variation as the radius grows (Algorithm 2 at every radius).

    One matching grows: unmatched points of the smaller sample keep a forest of alternating paths, and the
    shortest edge that leaves the forest either extends it or completes a path, which is a step of PV at that length.

    Holds the pairs up to about the last radius in memory, 60 bytes for each, and two bits for every pair.

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
    radii = radii_of_all_pairs(space)
    last = np.flatnonzero(np.append(np.diff(radii) > 0, True))
    return PVCurve(np.maximum(radii[last], SMALLEST_RADIUS), pv[last])


def bottleneck_radius(source: Points, target: Points, pv: float = 0.0, *, metric: Metric = "euclidean") -> float:
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
    if check_real("pv", pv).ndim != 0 or not 0 <= pv < 1:
        raise ValueError(f"pv must be one number in [0, 1); it is {pv}")
    least = _pv_of_pairs(space)[-1]
    if 0 < pv < least:
        raise ValueError(
            f"pv must be at least {least:g}, the smallest that samples of {space.source_rows.size} and "
            f"{space.target_rows.size} points can reach, or 0 to match the whole smaller sample; it is {pv:g}"
        )
    return float(_radii_at(space, np.array([max(pv, least)]))[0])


def grid_radii(
    source: Points, target: Points, radii: ArrayLike | Sequence[float], unit: RadiusUnit, metric: Metric = "euclidean"
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
    check_one_of("unit", unit, get_args(RadiusUnit))
    values = check_radii(radii, unit)
    if unit == "pv":
        return level_radii(make_space(source, target, metric), values)
    return np.sort(values if unit == "absolute" else values * bottleneck_radius(source, target, metric=metric))


def check_radii(radii: ArrayLike | Sequence[float], unit: RadiusUnit, name: str = "radii") -> np.ndarray:
    """A list of radii in a unit, as an array ``[r]``."""
    values = check_list(name, radii)
    if unit != "pv":
        check_positive(name, values)
    elif not np.all((values >= 0) & (values < 1)):
        raise ValueError(f"{name} must be in [0, 1) as levels of PV; they are {values}")
    return values


def level_radii(space: Space, levels: ArrayLike | Sequence[float]) -> np.ndarray:
    """`grid_radii` at levels of PV."""
    least = _pv_of_pairs(space)[-1]
    # Rounding in PV must not push a level that is met exactly to the next step.
    return np.sort(_radii_at(space, least + np.asarray(levels) * (1 - least) + 1e-12))


def _pv_of_pairs(space: Space) -> np.ndarray:
    """PV of a maximum matching of 1, 2, .. pairs, up to all of the smaller sample."""
    sizes = space.source_rows.size, space.target_rows.size
    return pv_of(np.arange(1, min(sizes) + 1), *sizes)


def _radii_at(space: Space, levels: np.ndarray) -> np.ndarray:
    """The smallest radius at which PV is at most each level; every level can be reached."""
    pv = _pv_of_pairs(space)
    needed, place = np.unique([np.argmax(pv <= level) + 1 for level in levels], return_inverse=True)
    return np.maximum(radii_of_pairs(space, needed), SMALLEST_RADIUS)[place]
