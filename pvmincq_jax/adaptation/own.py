"""One domain: every point is its own match, at distance 0, and PV is 0. The grid is then MinCq's cross-validation."""

import numpy as np

from pvmincq_jax.adaptation.classes import class_numbers
from pvmincq_jax.adaptation.labelled import LabelledGrid, Sweep, learn_grid
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.seats import everybody_and_folds, place_voters, voter_masks
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.matching.selflabel import SelfLabels

__all__: list[str] = []


def own_grid(points: np.ndarray, labels: np.ndarray, options: GridOptions) -> Sweep:
    """MinCq at every gamma and margin, on all folds but one and on the whole.

    Args:
      points: ``[m, d]``.
      labels: ``[m]`` in {-1, +1}, or those of each class against the rest ``[c, m]``.
      options: of the grid. A kernel on a point is left out with it.

    Returns: a `Sweep` with one radius, 0; or that radius once for each class.
    """
    learning = everybody_and_folds(points, class_numbers(labels), options.folds, options.seed)
    rows = np.atleast_2d(labels)
    found = [[_own_labels(row, kept) for row in rows] for kept in learning]
    placed = place_voters(options.voters.families, points, points, "source", options.most_voters, options.seed)
    masks = voter_masks(placed, found, learning)
    task = LabelledGrid(learning, found, masks, np.zeros(len(rows)), labels, points)
    return learn_grid(task, [one.family for one in placed], options, points, points)


def _own_labels(labels: np.ndarray, kept: np.ndarray) -> SelfLabels:
    rows = np.flatnonzero(kept)
    pairs = ExpectedMatching(rows, rows, np.ones(rows.size))
    return SelfLabels(np.where(kept, labels, 0.0), kept.astype(float), 0.0, pairs)
