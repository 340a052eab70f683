"""What a grid is made with, besides the samples and the radii: whoever learns one hands this on."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from pvmincq_jax._checks import check_list, check_positive
from pvmincq_jax._types import ArrayLike, MarginUnit
from pvmincq_jax.adaptation.seats import MOST_VOTERS
from pvmincq_jax.voting.families import VoterKind, on_points
from pvmincq_jax.voting.program import Solver
from pvmincq_jax.voting.voters import default_gammas

__all__: list[str] = []


class GridOptions(NamedTuple):
    """Checked options of a grid; each as in `pvmincq_jax.sweep`.

    Attributes:
      gammas: of the voters, or what to call their families ``[g]``.
      margins: ``[k]``.
      unit: of the margins.
      voters: who votes.
      most_voters: how many of them at most.
      folds: for the risk on points not learnt from; 0 for none.
      draws: matchings per fold and radius.
      seed: of folds, matchings and the voters' places.
      solver: of MinCq.
      mesh: devices to split the grid over.
      advance: told the number of steps that were just done.
    """

    gammas: np.ndarray
    margins: np.ndarray
    unit: MarginUnit = "fraction"
    voters: VoterKind = "rbf"
    most_voters: int = MOST_VOTERS
    folds: int = 0
    draws: int = 1
    seed: int = 0
    solver: Solver = "interior_point"
    mesh: jax.sharding.Mesh | None = None
    advance: Callable[[int], None] = lambda steps: None


def grid_gammas(gammas: ArrayLike | Sequence[float] | None, target: np.ndarray, voters: VoterKind) -> np.ndarray:
    """The gammas of the grid; one NaN for voters that have none."""
    if not on_points(voters):
        if gammas is not None:
            raise ValueError(f"gammas are for Gaussian voters (voters='rbf'); they are {gammas}")
        return np.array([np.nan])
    gammas = default_gammas(target) if gammas is None else check_list("gammas", gammas)
    check_positive("gammas", gammas)
    return gammas
