"""Scores of a grid turned into a choice: the point of least score, by rules that settle ties."""

from typing import NamedTuple

import numpy as np

from pvmincq_jax._types import MarginUnit, brief
from pvmincq_jax.adaptation.labelled import Sweep
from pvmincq_jax.adaptation.moved_grid import TransportSweep

__all__ = ["Choice", "choose"]

# Scores are sums of a few shares of points: what differs by less than this is equal but for rounding.
_EQUAL = 1e-9


class Choice(NamedTuple):
    """A point of the grid.

    Attributes:
      radius: absolute.
      gamma: absolute.
      margin: in `margin_unit`.
      margin_unit: "absolute" or "fraction".
      grid_index: into the grid, (radius, gamma, margin).
      score: of that point.
      scores: of the whole grid ``[r, g, k]``.
      own_scale: in the transport form, whether the source was brought to the target's scale first.
      identity: in the transport form, whether nobody was matched, and the radius is 0.

    Radius, gamma, margin and its unit, and in the transport form the last two, are what `pvmincq_jax.pv_mincq` and
    `pvmincq_jax.pv_transport_mincq` take to learn the chosen vote again, with the draws and the seed of the grid.
    """

    radius: float
    gamma: float
    margin: float
    margin_unit: MarginUnit
    grid_index: tuple[int, int, int]
    score: float
    scores: np.ndarray
    own_scale: bool = False
    identity: bool = False

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)


def least(scores: np.ndarray) -> np.ndarray:
    """The points of least score, all those that are equal up to rounding: indices ``[points, axes]``."""
    if not np.any(np.isfinite(scores)):
        raise ValueError(
            "scores hold no finite number: no point of the grid can be chosen. Give smaller margins, larger radii, or "
            "another criterion"
        )
    able = np.where(np.isfinite(scores), scores, np.inf)
    return np.argwhere(able <= np.min(able) + _EQUAL)


def choose(sweep: Sweep | TransportSweep, scores: np.ndarray) -> Choice:
    """The point of least score; ties go to the smallest radius, then the smallest gamma, then the largest margin.

    The smallest radius moves labels the shortest way; the smallest gamma is the smoothest vote, and the largest margin
    the one closest to equal weights.

    Section 3.4.

    Args:
      sweep: a `Sweep` or a `TransportSweep`.
      scores: one per point of the grid ``[r, g, k]``; infinite or NaN for points that cannot be chosen.

    Returns: a `Choice`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> figures = pvm.sweep(*pvm.datasets.moons_task("30", 0, per_class=8)[:3], margins=[0.5], gammas=[2.0], folds=2)
      >>> choice = choose(figures, pvm.rs_pv(figures))
      >>> bool(choice.score == pvm.rs_pv(figures).min()), choice.margin
      (True, 0.5)
    """
    scores = np.asarray(scores, float)
    if scores.shape != sweep.status.shape:
        raise ValueError(f"scores must have the grid's shape {sweep.status.shape}; theirs is {scores.shape}")
    best = least(scores)
    keys = sweep.radii[best[:, 0]], sweep.gammas[best[:, 1]], -sweep.margins[best[:, 2]]
    r, g, k = (int(i) for i in best[np.lexsort(keys[::-1])[0]])
    return Choice(
        radius=float(sweep.radii[r]),
        gamma=float(sweep.gammas[g]),
        margin=float(sweep.margins[k]),
        margin_unit=sweep.margin_unit,
        grid_index=(r, g, k),
        score=float(scores[r, g, k]),
        scores=scores,
        own_scale=isinstance(sweep, TransportSweep) and bool(sweep.transports[r].own_scale),
        identity=isinstance(sweep, TransportSweep) and float(sweep.radii[r]) == 0,
    )
