"""Choosing the hyperparameters without a single target label (section 3.4).

A criterion is a pure function from the arrays of a `Sweep` to a score per point of the grid, the lower the better, and
`choose` turns scores into a choice. Another criterion takes a few lines: ::

    def cautious(sweep):
        "R_S + PV, and a price for leaving target points out."
        return rs_pv(sweep) + 0.1 * (1 - sweep.matched / sweep.matched.max())[:, None, None]

    choice = choose(sweep, cautious(sweep))
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike, Status
from pvmincq_jax.pvmincq import MarginUnit, PVMinCq, pv_mincq
from pvmincq_jax.sweep import Sweep, sweep

__all__ = ["Choice", "choose", "fit_validated", "rs", "rs_pv", "rs_pv_cbound", "rs_pv_risk"]

Criterion = Callable[[Sweep], np.ndarray]

# Scores are sums of a few shares of points: what differs by less than this is equal but for rounding.
_EQUAL = 1e-9


def rs(sweep: Sweep) -> np.ndarray:
    """Plain cross-validation on the source.

    R_S(B_Q) = 1/k sum_i R_{S_i}(B_Q), each fold judged by the vote learnt without it.

    Args:
      sweep: a `Sweep`.

    Returns:
      Scores ``[r, g, k]``; infinite where a fold, or the whole, was not solved.
    """
    solved = np.all(sweep.fold_status == Status.SOLVED, axis=0) & (sweep.status == Status.SOLVED)
    return np.where(solved, np.mean(sweep.source_risk, axis=0), np.inf)


def rs_pv(sweep: Sweep) -> np.ndarray:
    """The paper's criterion (section 3.4).

    R_S(B_Q) + PV(S, T, epsilon, d), with PV of the whole samples.

    Args:
      sweep: a `Sweep`.

    Returns:
      Scores ``[r, g, k]``.
    """
    return rs(sweep) + sweep.pv[:, None, None]


def rs_pv_cbound(sweep: Sweep) -> np.ndarray:
    """The paper's criterion plus Corollary 1's C-bound of the self-labelled sample. Not in the paper.

    R_S(B_Q) + PV + (1 - first moment^2 / second moment), on the self-labels. The paper's two terms do not see whether
    the self-labels can be learnt at all; this one is large when matched points of one region got both labels.

    Args:
      sweep: a `Sweep`.

    Returns:
      Scores ``[r, g, k]``.
    """
    return rs_pv(sweep) + np.where(sweep.status == Status.SOLVED, sweep.c_bound, np.inf)


def rs_pv_risk(sweep: Sweep) -> np.ndarray:
    """The paper's criterion plus twice the risk of the vote on its own self-labels. Not in the paper.

    Args:
      sweep: a `Sweep`.

    Returns:
      Scores ``[r, g, k]``.
    """
    return rs_pv(sweep) + np.where(sweep.status == Status.SOLVED, 2 * sweep.self_risk, np.inf)


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
    """

    radius: float
    gamma: float
    margin: float
    margin_unit: MarginUnit
    grid_index: tuple[int, int, int]
    score: float
    scores: np.ndarray


def choose(sweep: Sweep, scores: np.ndarray) -> Choice:
    """The point of least score; ties go to the smallest radius, then the smallest gamma, then the largest margin.

    The smallest radius moves labels the shortest way; the smallest gamma is the smoothest vote, and the largest margin
    the one closest to equal weights.

    Args:
      sweep: a `Sweep`.
      scores: one per point of the grid ``[r, g, k]``; infinite or NaN for points that cannot be chosen.

    Returns:
      A `Choice`.
    """
    scores = np.asarray(scores, float)
    if scores.shape != sweep.status.shape:
        raise ValueError(f"scores must have the grid's shape {sweep.status.shape}; theirs is {scores.shape}")
    if not np.any(np.isfinite(scores)):
        raise ValueError("scores hold no finite number: no point of the grid can be chosen")
    able = np.where(np.isfinite(scores), scores, np.inf)
    best = np.argwhere(able <= np.min(able) + _EQUAL)
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
    )


class ValidatedFit(NamedTuple):
    """What `fit_validated` returns: the vote, the point chosen, and the whole grid."""

    model: PVMinCq
    choice: Choice
    sweep: Sweep


def fit_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    criterion: Criterion = rs_pv_cbound,
    draws: int = 16,
    **grid: Any,
) -> ValidatedFit:
    """PV-MinCq with radius, margin and gamma chosen by validation, in one call.

    The defaults are ours: soft labels from 16 matchings, and the criterion with the C-bound term. The paper's own rule
    is ``criterion=rs_pv, draws=1``.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``, without labels.
      criterion: from a `Sweep` to scores.
      draws: matchings per fold and radius.
      **grid: anything else that `pvmincq_jax.sweep` takes.

    Returns:
      A `ValidatedFit`.
    """
    figures = sweep(source, source_labels, target, draws=draws, **grid)
    choice = choose(figures, criterion(figures))
    shared = {name: grid[name] for name in ("seed", "voters", "metric") if name in grid}
    model = pv_mincq(
        source,
        source_labels,
        target,
        radius=choice.radius,
        margin=choice.margin,
        gamma=choice.gamma,
        margin_unit=choice.margin_unit,
        draws=draws,
        **shared,
    )
    return ValidatedFit(model, choice, figures)
