"""Choosing a map of the transport form, and the vote learnt on it, without a single target label. Not in the paper."""

from typing import Any

import numpy as np

from pvmincq_jax._checks import check_real
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import canonical_order
from pvmincq_jax.adaptation.choice import choose
from pvmincq_jax.adaptation.criteria import class_ratio_gap, normalised_cut, over_classes, where_solved
from pvmincq_jax.adaptation.options import check_sweep
from pvmincq_jax.adaptation.sweeps import Sweep

__all__ = ["class_distance", "flip_penalty", "matching_penalty", "transport_criterion"]

# What the squares of four shares count for, all alike, and the distance of the classes, in the exponent of a factor on
# the cut; and what is added to the cut, so that a cut of 0 is not all that counts.
_SHARES, _APART, _LEAST_CUT = 8, 0.3, 0.01
# The most that the distance counts for: with four squares of at most 1, single precision does not overflow.
_FAR = 50
# The part of the target's spread that moved points must keep.
_COLLAPSED = 0.25
# Points that mean distances are taken from.
_FEW = 500


def _few(points: Any, weights: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """At most some 500 rows of positive weight, evenly spaced in the order of the points, and weights of sum 1."""
    heavy = np.ones(len(points)) if weights is None else np.asarray(weights, float)
    rows = np.flatnonzero(heavy > 0)
    rows = rows[canonical_order(np.asarray(points)[rows])][:: -(-rows.size // _FEW) or 1]
    return rows, heavy[rows] / np.sum(heavy[rows])


def _distances(x: Any, y: Any) -> np.ndarray:
    return np.sqrt(squared_distances(np.asarray(x, float), np.asarray(y, float)))


def _mean_distance(points: Any, weights: Any = None) -> float:
    """Between two points of a sample, drawn by their weights."""
    rows, shares = _few(points, weights)
    few = np.asarray(points)[rows]
    return float(shares @ _distances(few, few) @ shares)


@over_classes
def class_distance(sweep: Sweep) -> np.ndarray:
    """How far the moved points of each class are from the target points that the vote gives to it.

    sum_c P_T(B(x) = c) E(S_c, T_c) / E|X - X'|, with E(S, T) = 2 E|X - Y| - E|X - X'| - E|Y - Y'| the energy distance
    between the moved points of class c and the target points that the vote calls c; in units of the mean distance
    between two target points. It takes nothing of how frequent the classes are: of a source that looks like the target
    class by class it is 0, up to the draw.

    Not in the paper.

    Args: sweep, a `Sweep`.

    Returns: ``[r, g, k]``; infinite where nothing was solved. A class that a map leaves out does not count.

    Example:
      >>> import pvmincq_jax as pvm
      >>> distance = []
      >>> for angle in ("0", "60"):
      ...     task = pvm.datasets.moons_task(angle, 0, per_class=60)
      ...     figures = pvm.transport_sweep(*task[:3], draws=4, gammas=[2.0], margins=[0.2])
      ...     distance.append(float(class_distance(figures)[0, 0, 0]))
      >>> distance[0] < 0.03, distance[1] > 0.3
      (True, True)
    """
    rows, _ = _few(sweep.target)
    target, values = sweep.target[rows], sweep.target_values[..., rows]
    within = _distances(target, target)
    total = np.zeros(sweep.status.shape)
    for sign in (1, -1):
        called = sign * values > 0
        shares = called / np.maximum(np.sum(called, axis=-1, keepdims=True), 1)
        spread = np.sum(shares @ within * shares, axis=-1)
        for r, one in enumerate(sweep.transports):
            some, weights = _few(one.moved, np.asarray(one.weights) * (sweep.source_labels * sign > 0))
            if some.size:
                moved = np.asarray(one.moved)[some]
                across, among = weights @ _distances(moved, target), weights @ _distances(moved, moved) @ weights
                total[r] += np.mean(called[r], axis=-1) * (2 * shares[r] @ across - among - spread[r])
    return where_solved(sweep, total / (np.mean(within) or 1.0))


def matching_penalty(sweep: Sweep) -> np.ndarray:
    """What each map of a grid costs, before any vote.

    PV for a matching, beyond what unequal sizes make of PV, and 0 where nobody is matched. Of c > 2 classes, each
    against the rest, PV / c: the share of the points that are of one class and unmatched, in the mean; its gap and risk
    are shares of one class, too. Few and close pairs are then worth their price.

    Infinite for a map that leaves a class, or most points, out: one with less than 1 / c of the matches that a class
    has elsewhere in the grid, half of them for two classes; and for one whose points have collapsed, to less than a
    quarter of the target's mean distance between two points. What such a map leaves of the source says nothing of the
    rest. If there are no others, none is left out.

    Not in the paper.

    Args: sweep, a `Sweep`.

    Returns: ``[r]``.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 5, per_class=15)
      >>> figures = pvm.transport_sweep(*task[:3], draws=4, gammas=[2.0], margins=[0.2])
      >>> price = matching_penalty(figures)
      >>> price.shape == figures.radii.shape, bool(np.min(price) >= 0)
      (True, True)
    """
    check_sweep(sweep)
    matched = np.asarray(sweep.radii) > 0
    least = 0.0 if np.all(matched) else float(np.min(sweep.pv, where=matched, initial=1.0))
    weights = np.stack([np.asarray(one.weights) for one in sweep.transports])
    sides = np.stack([np.sum(weights, axis=1, where=sweep.source_labels * sign > 0) for sign in (1, -1)])
    most = np.max(sides, axis=1, where=matched, initial=np.finfo(float).tiny, keepdims=True)
    whole = np.all(sides >= most / sweep.classes, axis=0)
    size = _COLLAPSED * _mean_distance(sweep.target)
    kept = np.array([_mean_distance(one.moved, one.weights) >= size for one in sweep.transports])
    prices = np.where(matched, np.asarray(sweep.pv) - least, 0.0) / (sweep.classes if sweep.classes > 2 else 1)
    able = ~matched | (whole & kept)
    return np.where(able, prices, np.inf) if np.any(able) else prices


def flip_penalty(sweep: Sweep, scores: np.ndarray) -> np.ndarray:
    """By how much a vote contradicts the domains on their own scales more than it agrees with them.

    max(0, P_T(B(x) != B_0(x)) - P_T(B(x) = B_0(x))), with B_0 the vote of least score among those that were learnt on
    the source on the target's scale, nobody matched (see `pvmincq_jax.match_moments`). Above 0 a vote has swapped the
    classes for the most part, which no unlabelled sample can tell from the truth: it needs a better reason than others.

    Not in the paper.

    Args:
      sweep: a `Sweep`.
      scores: of its votes ``[r, g, k]``, the lower the better.

    Returns: shares ``[r, g, k]``; 0 if no map of the grid is the scale alone, infinite where nothing was solved.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 5, per_class=15)
      >>> figures = pvm.transport_sweep(*task[:3], draws=4, gammas=[2.0], margins=[0.2])
      >>> float(np.max(flip_penalty(figures, pvm.adaptation.criteria.normalised_cut(figures)))) < 1
      True
    """
    check_sweep(sweep)
    if np.shape(check_real("scores", scores)) != sweep.status.shape:
        raise ValueError(f"scores must have the grid's shape {sweep.status.shape}; theirs is {np.shape(scores)}")
    scaled = (np.asarray(sweep.radii) == 0) & ~sweep.unmoved
    able = np.where(scaled[:, None, None] & np.isfinite(scores), scores, np.inf)
    if not np.any(np.isfinite(able)):
        return where_solved(sweep, np.zeros(sweep.status.shape))
    labels = np.nan_to_num(np.sign(sweep.target_values))
    usual = labels[choose(sweep, able).grid_index]
    return where_solved(sweep, np.maximum(0.0, -np.mean(labels * usual, axis=-1)))


@over_classes
def transport_criterion(sweep: Sweep, neighbours: int | None = None) -> np.ndarray:
    """The criterion of the transport form, without a source risk. Not in the paper.

    (cut + 1/100) exp(8 (gap^2 + risk^2 + penalty^2 + flip^2) + 3/10 apart), with cut the `normalised_cut`, gap the
    `pvmincq_jax.class_ratio_gap`, risk that on the moved points with their true labels, penalty the `matching_penalty`,
    apart the `class_distance` and flip the `flip_penalty` by the score without it. The source as it is has no gap: it
    takes nothing of how frequent the classes are in the target.

    A vote is trusted if its boundary keeps out of dense regions of the target, if it finds the classes about as often
    as they are, if the map left them separable, if it moved all points, if it does not turn all around, and if the
    classes are then where the vote sees them. As a product, because cuts of different tasks differ by orders of
    magnitude, and it is their ratio that tells. ``python -m experiments.studies.shift_study`` shows other terms and
    weights beside these, on the tasks that they were chosen on.

    Args:
      sweep: a `Sweep`.
      neighbours: of the cut, see `pvmincq_jax.adaptation.criteria.normalised_cut`.

    Returns: scores ``[r, g, k]``.

    Example:
      >>> import pvmincq_jax as pvm
      >>> figures = pvm.transport_sweep(*pvm.datasets.moons_task("30", 0, per_class=8)[:3], margins=[0.5], gammas=[2.0])
      >>> transport_criterion(figures).shape == figures.status.shape
      True
    """
    gap = np.where(sweep.unmoved[:, None, None], 0.0, class_ratio_gap(sweep))
    squares = gap**2 + sweep.self_risk**2 + matching_penalty(sweep)[:, None, None] ** 2
    doubts = _SHARES * squares + np.minimum(_APART * class_distance(sweep), _FAR)
    scores = where_solved(sweep, (normalised_cut(sweep, neighbours) + _LEAST_CUT) * np.exp(doubts))
    return scores * np.exp(_SHARES * np.where(np.isfinite(scores), flip_penalty(sweep, scores), 0.0) ** 2)
