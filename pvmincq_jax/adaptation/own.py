"""One domain: every point is its own match, at distance 0, and PV is 0. The grid is then MinCq's cross-validation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pvmincq_jax._types import MarginUnit
from pvmincq_jax.adaptation.classes import class_numbers
from pvmincq_jax.adaptation.sweeps import LabelledGrid, Sweep, everybody_and_folds, learn_grid
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.matching.selflabel import SelfLabels

__all__: list[str] = []


def own_grid(
    points: np.ndarray,
    labels: np.ndarray,
    family_at: Callable[[float], Any],
    gammas: np.ndarray,
    margins: np.ndarray,
    unit: MarginUnit,
    folds: int,
    seed: int,
    seated: bool,
) -> Sweep:
    """MinCq at every gamma and margin, on all folds but one and on the whole.

    Args:
      points: ``[m, d]``.
      labels: ``[m]`` in {-1, +1}, or those of each class against the rest ``[c, m]``.
      family_at: from a gamma to a family of voters.
      gammas: ``[g]``.
      margins: ``[k]``.
      unit: of the margins.
      folds: for the risk on points not learnt from; 0 for none.
      seed: of the folds.
      seated: whether voter j sits on point j, and is left out with it.

    Returns:
      A `Sweep` with one radius, 0; or that radius once for each class.
    """
    learning = everybody_and_folds(points, class_numbers(labels), folds, seed)
    families = [family_at(float(gamma)) for gamma in gammas]
    voters = families[0].votes(points[:1]).shape[1]
    rows = np.atleast_2d(labels)
    found: Sequence[Sequence[SelfLabels]] = [[_own_labels(row, kept) for row in rows] for kept in learning]
    masks = [[kept if seated else np.ones(voters, bool)] * len(rows) for kept in learning]
    task = LabelledGrid(learning, found, masks, np.zeros(len(rows)), labels, points)
    return learn_grid(task, families, gammas, margins, unit, points, points)


def _own_labels(labels: np.ndarray, kept: np.ndarray) -> SelfLabels:
    rows = np.flatnonzero(kept)
    pairs = ExpectedMatching(rows, rows, np.ones(rows.size))
    return SelfLabels(np.where(kept, labels, 0.0), kept.astype(float), 0.0, pairs)
