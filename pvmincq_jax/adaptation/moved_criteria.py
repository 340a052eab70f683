"""Choosing a map of the transport form, and the vote learnt on it, without a single target label. Not in the paper."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import canonical_order
from pvmincq_jax.adaptation.criteria import class_ratio_gap, normalised_cut, where_solved
from pvmincq_jax.adaptation.moved_grid import TransportSweep

__all__ = ["at_rest", "energy_distance", "map_price", "moved_risk", "transport_criterion"]

TransportCriterion = Callable[[TransportSweep], np.ndarray]

# What cut and risk count for beside PV and the squared gap of class ratios, and the energy distance beside PV.
_CUT = 6
_RISK = 4
_APART = 0.2
# What the score of not adapting counts for: a map has to be a fifth better.
_AT_REST = 0.8
# The share of moved points that may be on the wrong side at no cost: a wide radius blurs the map, and that is no harm.
_BLURRED = 0.1
# The part of a class's matches that a map must have, and the part of the target's spread that moved points must keep.
_MATCHED = 0.5
_COLLAPSED = 0.25
# Points that mean distances are taken from.
_FEW = 500


def moved_risk(sweep: TransportSweep) -> np.ndarray:
    """The risk of the vote on the moved points that it was learnt from, with their true labels (not in the paper).

    Args:
      sweep: a `TransportSweep`.

    Returns: shares ``[r, g, k]``; infinite where nothing was solved.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.transport_sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0])
      >>> moved_risk(figures).shape
      (2, 1, 1)
    """
    wrong = ~(sweep.moved_values * sweep.source_labels > 0)
    shares = np.stack([np.asarray(one.weights) / np.sum(one.weights) for one in sweep.transports])
    return where_solved(sweep, np.einsum("rgks,rs->rgk", wrong, shares))


def _mean_distance(x: Any, y: Any, x_weights: Any = None, y_weights: Any = None) -> float:
    """Between a point of one sample and one of another, drawn by their weights; some 500 points of each tell."""
    few, shares = [], []
    for points, weights in ((np.asarray(x, float), x_weights), (np.asarray(y, float), y_weights)):
        heavy = np.ones(len(points)) if weights is None else np.asarray(weights, float)
        rows = np.flatnonzero(heavy > 0)
        rows = rows[canonical_order(points[rows])][:: -(-rows.size // _FEW)]
        few.append(points[rows])
        shares.append(heavy[rows] / np.sum(heavy[rows]))
    return float(shares[0] @ np.sqrt(squared_distances(*few)) @ shares[1])


def energy_distance(x: Any, y: Any, weights: Any = None) -> float:
    """How far the law of one sample is from that of another, in units of the mean distance within the second.

    (2 E|X - Y| - E|X - X'| - E|Y - Y'|) / E|Y - Y'|: 0 for two samples of one law, up to the draw.

    Not in the paper.

    Args:
      x: ``[m, d]``.
      y: ``[n, d]``.
      weights: of the first sample ``[m]``; None for equal ones.

    Returns: a number; 0 where the second sample is one point.

    Example:
      >>> energy_distance([[0.0], [1.0]], [[0.0], [1.0]]), energy_distance([[5.0], [6.0]], [[0.0], [1.0]])
      (0.0, 18.0)
    """
    within = _mean_distance(y, y)
    if within == 0:
        return 0.0
    return (2 * _mean_distance(x, y, weights) - _mean_distance(x, x, weights, weights) - within) / within


def map_price(sweep: TransportSweep) -> np.ndarray:
    """What each map of a grid costs, before any vote.

    PV for a matching, beyond what unequal sizes make of PV; a fifth of the `energy_distance` between the samples
    where nobody is matched. Infinite for a map that leaves a class, or most points, out: one with less than half of the
    matches that a class has elsewhere in the grid; and for one whose points have collapsed, to less than a quarter of
    the target's mean distance between two points. What such a map leaves of the source says nothing of the rest. If
    there are no others, none is left out.

    Not in the paper.

    Args:
      sweep: a `TransportSweep`.

    Returns: ``[r]``.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 5, per_class=15)
      >>> figures = pvm.transport_sweep(*task[:3], draws=4, gammas=[2.0], margins=[0.2])
      >>> price = map_price(figures)
      >>> price.shape == figures.radii.shape, bool(np.min(price) >= 0)
      (True, True)
    """
    matched = np.asarray(sweep.radii) > 0
    least = 0.0 if np.all(matched) else float(np.min(sweep.pv, where=matched, initial=1.0))
    weights = np.stack([np.asarray(one.weights) for one in sweep.transports])
    sides = np.stack([np.sum(weights, axis=1, where=sweep.source_labels * sign > 0) for sign in (1, -1)])
    most = np.max(sides, axis=1, where=matched, initial=np.finfo(float).tiny, keepdims=True)
    whole = np.all(sides >= _MATCHED * most, axis=0)
    size = _mean_distance(sweep.target, sweep.target)
    prices = []
    for row, (one, there) in enumerate(zip(sweep.transports, matched)):
        if not there:
            # As PV, it is to count once in the halved sum over several classes.
            prices.append(_APART * 2 / sweep.classes * energy_distance(one.moved, sweep.target, one.weights))
        elif whole[row] and _mean_distance(one.moved, one.moved, one.weights, one.weights) >= _COLLAPSED * size:
            prices.append(float(sweep.pv[row]) - least)
        else:
            prices.append(np.inf)
    if not np.any(np.isfinite(prices)):
        return np.asarray(sweep.pv) - least
    return np.array(prices)


def at_rest(sweep: Any) -> np.ndarray:
    """At which radii of a grid the source stays where it is: no adaptation.

    Not in the paper.

    Args:
      sweep: a `pvmincq_jax.Sweep` or a `pvmincq_jax.TransportSweep`.

    Returns: bool ``[r]``.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 5, per_class=15)
      >>> figures = pvm.transport_sweep(*task[:3], draws=4, gammas=[2.0], margins=[0.2])
      >>> int(np.sum(at_rest(figures)))
      1
    """
    if not isinstance(sweep, TransportSweep):
        return np.zeros(len(sweep.radii), bool)
    return np.array([float(one.radius) == 0 and np.array_equal(one.moved, one.source) for one in sweep.transports])


def transport_criterion(sweep: TransportSweep) -> np.ndarray:
    """The criterion of the transport form, without a source risk. Not in the paper.

    6 cut + gap^2 + 4 max(0, risk - 1/10) + price, with cut the `pvmincq_jax.normalised_cut`, gap the
    `pvmincq_jax.class_ratio_gap`, risk the `moved_risk` and price the `map_price`; four fifths of that for the source
    as it is (`at_rest`), so that adapting needs a reason.

    A vote is trusted if its boundary keeps out of dense regions of the target, if it finds the classes about as often
    as they are, if the map left them separable, and if it moved all points, or need not move them.
    ``python -m experiments.shift_study`` shows other terms and weights beside these, on the tasks that they were chosen
    on.

    Args:
      sweep: a `TransportSweep`.

    Returns: scores ``[r, g, k]``.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.transport_sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0])
      >>> transport_criterion(figures).shape
      (2, 1, 1)
    """
    cut, gap, risk = normalised_cut(sweep), class_ratio_gap(sweep), moved_risk(sweep)
    total = _CUT * cut + gap**2 + _RISK * np.maximum(risk - _BLURRED, 0) + map_price(sweep)[:, None, None]
    return np.where(at_rest(sweep), _AT_REST, 1.0)[:, None, None] * total
