"""The class ratio of the target, which matchings take for that of the source. Not in the paper.

A matching pairs as many points as it can. Where a class is rarer in the target than in the source, its surplus of
source points goes to the other class, and the map is wrong however near the domains are. The ratio is a quantity of
its own, then: given, taken from the source, or estimated by `estimate_ratio`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.adaptation.choice import least
from pvmincq_jax.adaptation.criteria import rare_neighbours
from pvmincq_jax.adaptation.moved_criteria import TransportCriterion, transport_criterion
from pvmincq_jax.adaptation.transport_sweeps import transport_sweep
from pvmincq_jax.voting.families import VoterKind, family_grid

__all__ = ["RatioScan", "confusion_ratio", "estimate_ratio"]

Ratio = float | Literal["source", "estimated"]

RATIOS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
# The squared distance from the source's ratio is the exponent of a factor on the score: a reason is needed to leave it.
_AWAY = 1.0


class RatioScan(NamedTuple):
    """What `estimate_ratio` found.

    Attributes:
      ratio: the share of +1 of least score.
      ratios: all that were tried ``[p]``, that of the source among them.
      scores: the least criterion at each, times exp of the squared distance from the source's ratio ``[p]``.
    """

    ratio: float
    ratios: np.ndarray
    scores: np.ndarray


def estimate_ratio(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    ratios: Sequence[float] = RATIOS,
    criterion: TransportCriterion = transport_criterion,
    draws: int = 32,
    margin: float = 0.1,
    voters: VoterKind = "rbf",
    gammas: ArrayLike | Sequence[float] | None = None,
    **options: Any,
) -> RatioScan:
    """The class ratio of the target, by a scan: the source is brought to each ratio in turn, and the criterion decides.

    The grid at each ratio is `pvmincq_jax.transport_sweep`'s with one gamma and one margin. A wrong ratio sends points
    of one class to the other, and votes learnt there cut through it. That needs classes that lie apart in the target:
    where they do not, as in many real tasks, the scan can end at an extreme ratio, and the source's is the safer guess
    unless the ratio is known to differ.

    Not in the paper.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``.
      ratios: shares of +1 to try, besides that of the source.
      criterion: from a `pvmincq_jax.TransportSweep` to scores above 0, the lower the better.
      draws: matchings per radius.
      margin: as a fraction of mu_max.
      voters: see `pvmincq_jax.pv_mincq`.
      gammas: of the voters; None for the middle one of those that `pvmincq_jax.transport_sweep` takes then.
      **options: of `pvmincq_jax.transport_sweep`.

    Returns: a `RatioScan`. Of equal scores the ratio nearest to that of the source wins.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("20", 5, per_class=15)
      >>> scan = estimate_ratio(*task[:3], ratios=(0.2, 0.8), draws=4)
      >>> print(scan.ratios, scan.ratio)
      [0.2 0.5 0.8] 0.5
    """
    own = float(np.mean(np.asarray(source_labels) > 0))
    tried = np.unique([*ratios, own])
    if criterion is transport_criterion:
        # Ratios are compared by cuts of as many neighbours: those that the rarest class of all can give.
        rarest = rare_neighbours(float(min(*tried, *(1 - tried))), len(np.asarray(target)))
        criterion = partial(transport_criterion, neighbours=rarest)
    if gammas is None:
        values = family_grid(voters, None, np.asarray(target)).values
        gammas = None if np.isnan(values[0]) else values[[len(values) // 2]]
    given: dict[str, Any] = {"draws": draws, "margins": [margin], "voters": voters, "gammas": gammas}
    scores = []
    for ratio in tried:
        found = transport_sweep(source, source_labels, target, ratio=float(ratio), **given | options)
        scores.append(float(np.min(criterion(found))) * np.exp(_AWAY * (ratio - own) ** 2))
    best = least(np.array(scores))[:, 0]
    return RatioScan(float(tried[best[np.argmin(np.abs(tried[best] - own))]]), tried, np.array(scores))


def confusion_ratio(labels: ArrayLike, held_out: ArrayLike, predicted: ArrayLike) -> float:
    """The class ratio of the target from a confusion matrix: what a vote says there, unmixed by how it errs at home.

    P_T(B = +1) = pi P_S(B = +1 | +1) + (1 - pi) P_S(B = +1 | -1), solved for pi. Right if the classes look the same in
    both domains and differ in their frequency alone.

    Not in the paper.

    Args:
      labels: of source points ``[m]`` in {-1, +1}.
      held_out: what votes that have not seen them say of them ``[m]``, by the sign.
      predicted: what the vote says of the target points ``[m_t]``, by the sign.

    Returns: pi, the share of +1, in [0, 1]; NaN if the vote tells nothing of the classes.

    Example:
      >>> confusion_ratio([1, 1, 1, 1, -1, -1], [1, 1, 1, -1, -1, -1], [1, 1, 1, -1])
      1.0
      >>> confusion_ratio([1, 1, 1, 1, -1, -1], [1, 1, 1, -1, -1, -1], [1, 1, 1, -1, -1, -1, -1, -1])
      0.5
    """
    labels, said = np.asarray(labels), np.asarray(held_out) > 0
    hit, alarm = np.mean(said[labels > 0]), np.mean(said[labels < 0])
    if hit == alarm:
        return float("nan")
    return float(np.clip((np.mean(np.asarray(predicted) > 0) - alarm) / (hit - alarm), 0.0, 1.0))
