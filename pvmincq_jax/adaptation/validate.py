"""Fits that choose radius, margin and gamma without a single target label (section 3.4)."""

from typing import Any, NamedTuple

from pvmincq_jax._types import ArrayLike
from pvmincq_jax.adaptation.criteria import (
    Choice,
    Criterion,
    TransportCriterion,
    choose,
    label_criterion,
    transport_criterion,
)
from pvmincq_jax.adaptation.label import PVMinCq, pv_mincq
from pvmincq_jax.adaptation.sweeps import Sweep, sweep
from pvmincq_jax.adaptation.transport_sweeps import TransportSweep, transport_model, transport_sweep

__all__ = ["ValidatedFit", "ValidatedTransport", "fit_transport_validated", "fit_validated"]


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
    criterion: Criterion = label_criterion,
    draws: int = 16,
    **grid: Any,
) -> ValidatedFit:
    """PV-MinCq with radius, margin and gamma chosen by validation, in one call.

    The defaults are ours: soft labels from 16 matchings, and `label_criterion`. The paper's own rule is
    ``criterion=rs_pv, draws=1``.

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


class ValidatedTransport(NamedTuple):
    """What `fit_transport_validated` returns: the vote, the point chosen, and the whole grid."""

    model: PVMinCq
    choice: Choice
    sweep: TransportSweep


def fit_transport_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    criterion: TransportCriterion = transport_criterion,
    draws: int = 64,
    **grid: Any,
) -> ValidatedTransport:
    """MinCq on moved source points, with radius, margin and gamma chosen without target labels, in one call.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``, without labels.
      criterion: from a `TransportSweep` to scores.
      draws: matchings per radius.
      **grid: anything else that `pvmincq_jax.transport_sweep` takes: radii, margins, gammas, seed and so on.

    Returns:
      A `ValidatedTransport`.
    """
    figures = transport_sweep(source, source_labels, target, draws=draws, **grid)
    choice = choose(figures, criterion(figures))
    return ValidatedTransport(transport_model(figures, choice.grid_index), choice, figures)
