"""One vote: learnt on a labelled sample, or taken from a grid, and the values of all votes of a grid at new points."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pvmincq_jax._checks import check_margins
from pvmincq_jax._threads import one_blas_thread
from pvmincq_jax._types import MarginUnit, Status
from pvmincq_jax.adaptation.classes import as_heavy
from pvmincq_jax.adaptation.coarse_grid import compressed
from pvmincq_jax.adaptation.grid import Figures, solve_grid
from pvmincq_jax.adaptation.lanes import Lanes, above_rounding
from pvmincq_jax.adaptation.model import PVMinCq, make_model
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.coarse import exact_weights
from pvmincq_jax.voting.program import accuracy

__all__ = ["model_at", "values_at"]

# Voters up to which a vote is solved without compiling: its cost is the cube of their number, not of their rank.
_MOST_ON_HOST = 1000


def learn_vote(
    family: Any, votes: np.ndarray, found: SelfLabels, mask: np.ndarray, radius: Any, margin: float, unit: MarginUnit
) -> PVMinCq:
    """MinCq on one labelled sample (step 3) with votes ``[m, n]``, of which the mask ``[n]`` lets some take part.

    It is an error if there is no vote. The radius is kept with the result.
    """
    margins = check_margins([margin], unit, "margin")
    figures = _solve_one(votes, Lanes(found.labels[None], found.weights[None], mask[None]), margins, unit)
    mu_max, status = float(figures.mu_max[0]), Status(int(figures.status[0, 0]))
    if status == Status.INFEASIBLE:
        raise ValueError(f"margin must be in (0, mu_max], with mu_max = {mu_max:.6g} here; it is {margin:g}")
    residual = figures.kkt_residual[0, 0]
    if status != Status.SOLVED:
        raise ValueError(
            f"MinCq did not reach its accuracy ({status.sentence}; residual {residual:.1e}): pass the data in float64, "
            f"or a larger margin than {margin:g}"
        )
    mu = margin * (mu_max if unit == "fraction" else 1.0)
    return make_model(family, found, radius, figures.weights[0, 0], mu, mu_max, figures.c_bound[0, 0], residual)


def _solve_one(votes: np.ndarray, lane: Lanes, margins: np.ndarray, unit: MarginUnit) -> Figures:
    """`solve_grid` for one lane and margin: by `exact_weights` if that is enough, for compiling takes longer."""
    mask, rows = lane.mask[0], lane.weights[0] > 0
    if np.any(rows) and 0 < np.sum(mask) <= _MOST_ON_HOST:
        own, shares = votes[np.ix_(rows, mask)].astype(float), lane.weights[0, rows] / np.sum(lane.weights)
        voter_margins = (shares * lane.labels[0, rows]) @ own
        size = float(np.sqrt(np.mean(shares @ own**2)))
        mu_max = float(above_rounding(np.mean(np.abs(voter_margins)), size, votes.dtype))
        mu = float(margins[0]) * (mu_max if unit == "fraction" else 1.0)
        if mu > mu_max * (1 + 1e-9) or not mu_max:
            # Said without compiling a program that would say it.
            nothing, infeasible = np.full((1, 1), np.nan), np.array([[int(Status.INFEASIBLE)]])
            return Figures(np.full((1, 1, len(mask)), np.nan), infeasible, nothing, nothing, np.array([mu_max]))
        if 0 < mu <= mu_max:
            root = own * np.sqrt(shares)[:, None]
            with one_blas_thread():
                solved, residual = exact_weights(root, voter_margins, np.array([mu]))
            if residual[0] <= accuracy(votes.dtype):
                weights = np.zeros((1, 1, len(mask)), votes.dtype)
                weights[0, 0, mask] = solved[0]
                c_bound = 1 - (solved[0] @ voter_margins) ** 2 / np.sum((root @ solved[0]) ** 2)
                status = np.array([[int(Status.SOLVED)]])
                return Figures(weights, status, residual[None], np.array([[c_bound]]), np.array([mu_max]))
    return solve_grid(votes, lane, margins, unit=unit)


def learn_at(
    family: Any, points: np.ndarray, found: SelfLabels, mask: np.ndarray, radius: Any, margin: float, unit: MarginUnit
) -> PVMinCq:
    """`learn_vote` from the points ``[m, d]``: those without a label are left out, and many are compressed to few."""
    rows = found.weights > 0
    if np.sum(rows) <= len(mask) + 1:
        return learn_vote(family, family.votes(points), found, mask, radius, margin, unit)
    votes, labels, weights = compressed(family, points[rows], found.labels[rows], found.weights[rows])
    model = learn_vote(family, votes, found._replace(labels=labels, weights=weights), mask, radius, margin, unit)
    whole = [np.asarray(field, votes.dtype) for field in (found.labels, found.weights)]
    return model._replace(labels=whole[0], label_weights=whole[1])


def model_at(sweep: Any, index: tuple[int, int, int], *, exact: bool = True, even: bool = False) -> PVMinCq:
    """The vote at one point of a grid. Nothing is solved again, unless the grid was solved to less than 1e-7.

    Not in the paper.

    Args:
      sweep: a `pvmincq_jax.Sweep` or a `pvmincq_jax.TransportSweep`.
      index: into the grid, (radius, gamma, margin), such as `pvmincq_jax.Choice.grid_index`.
      exact: False for the vote as it is in the grid, whatever ``sweep.accuracy``.
      even: whether the grid learnt with both classes equally heavy, as each of several classes does against the rest.

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
    family, found, radius, weights = sweep.voters[r][g], sweep.self_labels[r], sweep.radii[r], sweep.weights[r, g, k]
    margin, mu_max = float(sweep.margins[k]), float(sweep.mu_max[r, g])
    if exact and sweep.accuracy > accuracy(weights.dtype):
        points = sweep.transports[r].moved if hasattr(sweep, "transports") else sweep.target
        labels, shares = as_heavy(found.labels, found.weights) if even else (found.labels, found.weights)
        sample, mask = found._replace(labels=labels, weights=shares), sweep.voter_mask[r]
        model = learn_at(family, np.asarray(points), sample, mask, radius, margin, sweep.margin_unit)
        return model._replace(labels=found.labels, label_weights=found.weights)
    mu = margin * (mu_max if sweep.margin_unit == "fraction" else 1.0)
    figures = weights, mu, mu_max, sweep.c_bound[r, g, k], sweep.kkt_residual[r, g, k]
    return make_model(family, found, radius, *figures)


def class_model(sweeps: Sequence[Any], index: tuple[int, int, int]) -> PVMinCq:
    """The votes of all classes at one point of the grid; see `pvmincq_jax.model_at`.

    Of more than two classes with weights ``[c, n]``, scaled to the smallest of the classes' margins, with that margin,
    mu_max, c_bound and kkt_residual ``[c]``, and with labels ``[c, m]``.
    """
    models = [model_at(sweep, index, even=len(sweeps) > 1) for sweep in sweeps]
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
    rows = zip(sweep.voters, sweep.weights)
    return np.asarray([[own @ family.votes(x).T for family, own in zip(*row)] for row in rows])
