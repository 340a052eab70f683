"""What a grid is made with, besides the samples and the radii: whoever learns one hands this on."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from pvmincq_jax._types import MarginUnit
from pvmincq_jax.adaptation.seats import MOST_VOTERS
from pvmincq_jax.voting.families import FamilyGrid
from pvmincq_jax.voting.program import Solver

__all__: list[str] = []


class GridOptions(NamedTuple):
    """Checked options of a grid; each as in `pvmincq_jax.sweep`.

    Attributes:
      voters: families, not yet on points, and what they are called ``[g]``.
      margins: ``[k]``.
      unit: of the margins.
      most_voters: how many sit on points, at most.
      folds: for the risk on points not learnt from; 0 for none.
      draws: matchings per fold and radius.
      seed: of folds, matchings and the voters' places.
      solver: of MinCq.
      mesh: devices to split the grid over.
      advance: told the number of steps that were just done.
    """

    voters: FamilyGrid
    margins: np.ndarray
    unit: MarginUnit = "fraction"
    most_voters: int = MOST_VOTERS
    folds: int = 0
    draws: int = 1
    seed: int = 0
    solver: Solver = "interior_point"
    mesh: jax.sharding.Mesh | None = None
    advance: Callable[[int], None] = lambda steps: None
