"""One vote: learnt on a labelled sample, or taken from a grid, and the values of all votes of a grid at new points."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pvmincq_jax._checks import check_margins
from pvmincq_jax._types import MarginUnit, Status
from pvmincq_jax.adaptation.grid import Problems, VoteBlocks, solve_grid
from pvmincq_jax.adaptation.model import PVMinCq, make_model
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.families import read_votes

__all__ = ["model_at", "values_at"]


def learn_at(
    family: Any, points: Any, found: SelfLabels, mask: np.ndarray, radius: Any, margin: float, unit: MarginUnit
) -> PVMinCq:
    """MinCq on one labelled sample (step 3 of Algorithm 3), of whose voters the mask ``[n]`` lets some take part.

    Points are as the family takes them. It is an error if there is no vote. The radius is kept with the result.
    """
    margins = check_margins([margin], unit, "margin")
    blocks = VoteBlocks(family, points)
    problem = Problems(found.labels[None], found.weights[None], mask[None])
    figures = solve_grid(lambda _: blocks, problem, margins, unit=unit)
    mu_max, status = float(figures.mu_max[0]), Status(int(figures.status[0, 0]))
    if status == Status.INFEASIBLE:
        raise ValueError(f"margin must be in (0, mu_max], with mu_max = {mu_max:.6g} here; it is {margin:g}")
    residual = figures.kkt_residual[0, 0]
    if status != Status.SOLVED:
        raise ValueError(
            f"MinCq did not reach its accuracy ({status.sentence}; residual {residual:.1e}): give a larger margin than "
            f"{margin:g}"
        )
    mu = margin * (mu_max if unit == "fraction" else 1.0)
    return make_model(family, found, radius, figures.weights[0, 0], mu, mu_max, figures.c_bound[0, 0], residual)


def model_at(sweep: Any, index: tuple[int, int, int]) -> PVMinCq:
    """The vote at one point of a grid. Nothing is solved again.

    Not in the paper.

    Args:
      sweep: a `pvmincq_jax.Sweep` or a `pvmincq_jax.TransportSweep`.
      index: into the grid, (radius, gamma, margin), such as `pvmincq_jax.Choice.grid_index`.

    Returns: a `PVMinCq`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> model = model_at(figures, (1, 0, 0))
      >>> float(model.radius), float(model.margin) < float(model.mu_max)
      (0.6, True)
    """
    r, g, k = index
    status = Status(int(sweep.status[r, g, k]))
    if status != Status.SOLVED:
        raise ValueError(f"index {tuple(index)}: no vote there; {status.sentence}")
    family, found, radius = sweep.voters[r][g], sweep.self_labels[r], sweep.radii[r]
    weights = sweep.weights[r, g, k, : sweep.voter_counts[r, g]]
    margin, mu_max = float(sweep.margins[k]), float(sweep.mu_max[r, g])
    mu = margin * (mu_max if sweep.margin_unit == "fraction" else 1.0)
    figures = weights, mu, mu_max, sweep.c_bound[r, g, k], sweep.kkt_residual[r, g, k]
    return make_model(family, found, radius, *figures)


def class_model(sweeps: Sequence[Any], index: tuple[int, int, int]) -> PVMinCq:
    """The votes of all classes at one point of the grid; see `pvmincq_jax.model_at`.

    Of more than two classes with weights ``[c, n]``, scaled to the smallest of the classes' margins, with that margin,
    mu_max, c_bound and kkt_residual ``[c]``, and with labels ``[c, m]``.
    """
    models = [model_at(sweep, index) for sweep in sweeps]
    if len(models) == 1:
        return models[0]
    of_class = ("weights", "margin", "mu_max", "c_bound", "kkt_residual", "labels")
    stacked: Any = {name: np.stack([np.asarray(getattr(one, name)) for one in models]) for name in of_class}
    least = np.full_like(stacked["margin"], np.min(stacked["margin"]))
    stacked["weights"] = stacked["weights"] * (least / stacked["margin"])[:, None]
    stacked["margin"] = least
    return models[0]._replace(**stacked)


def values_at(sweep: Any, x: Any) -> np.ndarray:
    """The votes of a whole grid at new points. Nothing is solved again (not in the paper).

    Args:
      sweep: a `pvmincq_jax.Sweep` or a `pvmincq_jax.TransportSweep`.
      x: ``[m, d]``.

    Returns: ``[r, g, k, m]``; NaN where nothing was solved.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> values_at(figures, task.test[:5]).shape
      (2, 1, 1, 5)
    """

    def values(family: Any, weights: np.ndarray) -> np.ndarray:
        votes = read_votes(family, x)
        return weights[:, : votes.shape[1]] @ votes.T

    return np.asarray([[values(*one) for one in zip(*row)] for row in zip(sweep.voters, sweep.weights)])
