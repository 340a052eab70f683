"""Fits that choose radius, margin and gamma without a single target label (section 3.4)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._checks import check_callable, check_list, check_task
from pvmincq_jax._progress import Progress
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit, brief
from pvmincq_jax.adaptation.choice import Choice, choose
from pvmincq_jax.adaptation.committee import PART, committee
from pvmincq_jax.adaptation.criteria import Criterion, label_criterion
from pvmincq_jax.adaptation.labelled import Sweep
from pvmincq_jax.adaptation.learn import model_at
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.moved_criteria import TransportCriterion, at_rest, transport_criterion
from pvmincq_jax.adaptation.moved_grid import TransportSweep
from pvmincq_jax.adaptation.ratio import Ratio, estimate_ratio
from pvmincq_jax.adaptation.seats import MOST_VOTERS, Centers
from pvmincq_jax.adaptation.shift import Shift, contradicted, detect_shift, stay_weights
from pvmincq_jax.adaptation.sweeps import MARGIN_FRACTIONS, sweep
from pvmincq_jax.adaptation.transport_sweeps import MARGIN_FRACTIONS as MOVED_FRACTIONS
from pvmincq_jax.adaptation.transport_sweeps import transport_sweep
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind
from pvmincq_jax.voting.program import Solver

__all__ = ["ValidatedFit", "ValidatedTransport", "fit_transport_validated", "fit_validated"]


class ValidatedFit(NamedTuple):
    """What `fit_validated` returns: the vote, the point chosen, and the whole grid.

    Attributes:
      model: the vote at the point chosen, a `pvmincq_jax.PVMinCq`.
      choice: that point, a `pvmincq_jax.Choice`.
      sweep: the whole grid, a `pvmincq_jax.Sweep`.
    """

    model: PVMinCq
    choice: Choice
    sweep: Sweep

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)


def fit_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    criterion: Criterion = label_criterion,
    radii: ArrayLike | Sequence[float] | None = None,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
    gammas: ArrayLike | Sequence[float] | None = None,
    folds: int = 5,
    draws: int = 16,
    seed: int = 0,
    voters: VoterKind = "rbf",
    centers: Centers = "target",
    most_voters: int = MOST_VOTERS,
    radius_unit: RadiusUnit = "absolute",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
    solver: Solver = "interior_point",
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = None,
) -> ValidatedFit:
    """PV-MinCq with radius, margin and gamma chosen by validation, in one call (Algorithm 3 and section 3.4).

    The defaults are ours: soft labels from 16 matchings, and `label_criterion`. The paper's own rule is
    ``criterion=rs_pv, draws=1``.

    Args:
      source, source_labels, target: the task, as in `pvmincq_jax.sweep`.
      criterion: from a `Sweep` to scores ``[r, g, k]``, the lower the better.
      radii, margins, gammas, folds, draws, seed, voters, centers, most_voters, radius_unit, margin_unit, metric,
        solver, mesh, progress: of the grid, as in `pvmincq_jax.sweep`.

    Returns:
      A `ValidatedFit`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> fit = fit_validated(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> fit.choice.radius == float(fit.model.radius), pvm.predict(fit.model, task.test).shape
      (True, (1500,))
    """
    check_callable("criterion", criterion)
    figures = sweep(
        source, source_labels, target, radii=radii, margins=margins, gammas=gammas, folds=folds, draws=draws, seed=seed,
        voters=voters, centers=centers, most_voters=most_voters, radius_unit=radius_unit, margin_unit=margin_unit,
        metric=metric, solver=solver, mesh=mesh, progress=progress,
    )  # fmt: skip
    choice = choose(figures, criterion(figures))
    return ValidatedFit(model_at(figures, choice.grid_index), choice, figures)


def _share(
    ratio: Ratio,
    source: ArrayLike,
    labels: ArrayLike,
    target: ArrayLike,
    criterion: TransportCriterion,
    options: dict,
    shift: Shift | None,
) -> float | None:
    """The share of +1 that the source is brought to; None to leave it as it is."""
    if isinstance(ratio, str) and ratio not in ("source", "estimated"):
        raise ValueError(f"ratio must be 'source', 'estimated', or a number between 0 and 1; it is {ratio!r}")
    if ratio == "source":
        return None
    if ratio == "estimated":
        if shift is not None and shift.weights is not None:
            return float(np.clip(shift.label_shift.shares[1], 0.01, 0.99))
        return estimate_ratio(source, labels, target, criterion=criterion, **options).ratio
    return float(ratio)


class ValidatedTransport(NamedTuple):
    """What `fit_transport_validated` returns.

    Attributes:
      model: the committee, or the vote at the best point, a `pvmincq_jax.PVMinCq`.
      choice: the best point, a `pvmincq_jax.Choice`.
      sweep: the whole grid, a `pvmincq_jax.TransportSweep`.
      shift: what has changed, a `pvmincq_jax.Shift`; None where the radii or maps were given.
    """

    model: PVMinCq
    choice: Choice
    sweep: TransportSweep
    shift: Shift | None = None

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)

    @property
    def adapted(self) -> bool:
        """Whether the best point of the grid is a map, and not the source where it is."""
        return not at_rest(self.sweep)[self.choice.grid_index[0]]


def fit_transport_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    criterion: TransportCriterion = transport_criterion,
    radii: ArrayLike | Sequence[float] | None = None,
    margins: ArrayLike | Sequence[float] = MOVED_FRACTIONS,
    gammas: ArrayLike | Sequence[float] | None = None,
    draws: int = 64,
    seed: int = 0,
    voters: VoterKind = "rbf",
    most_voters: int = MOST_VOTERS,
    radius_unit: RadiusUnit = "absolute",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
    solver: Solver = "interior_point",
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = None,
    identity: bool | None = None,
    own_scale: bool | None = None,
    even: bool = True,
    ratio: Ratio = "source",
    part: float | None = PART,
) -> ValidatedTransport:
    """MinCq on moved source points, with radius, margin and gamma chosen without target labels, in one call.

    Unless a criterion, radii, maps or a metric are given, `pvmincq_jax.detect_shift` is asked first: where the class
    ratio or the shares of the source's cells explain the target nothing is moved, and where points that move as they
    are nearest contradict a subspace in which nothing has changed, they move as they are nearest there. Not in the
    paper.

    Args:
      source, source_labels, target: the task, as in `pvmincq_jax.transport_sweep`.
      criterion: from a `TransportSweep` to scores ``[r, g, k]``, the lower the better.
      radii, margins, gammas, draws, seed, voters, most_voters, radius_unit, margin_unit, metric, solver, mesh,
        progress, identity, own_scale, even: of the grid, as in `pvmincq_jax.transport_sweep`.
      ratio: the share of +1 in the target, "source" where it is that of the source, or "estimated": by
        `pvmincq_jax.label_shift` where nothing else has changed, else by `pvmincq_jax.estimate_ratio` over the same
        maps and voters, at the middle one of the gammas. Weighing classes is a bet: a conditional shift can look like
        another class ratio, and no unlabelled sample tells them apart.
      part: of the grid that votes, see `pvmincq_jax.committee`; None for the best point alone.

    Returns:
      A `ValidatedTransport`; its model is made of votes that the sweep found, or, where one vote alone is asked for,
      is solved to 1e-7.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> fit = fit_transport_validated(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0])
      >>> fit.choice.radius == float(fit.model.radius), pvm.predict(fit.model, task.test).shape
      (True, (1500,))
    """
    check_callable("criterion", criterion)
    scan = {
        "radii": radii, "seed": seed, "voters": voters, "most_voters": most_voters, "radius_unit": radius_unit,
        "metric": metric, "identity": identity, "own_scale": own_scale, "even": even,
    }  # fmt: skip
    if gammas is not None:
        scan["gammas"] = np.sort(check_list("gammas", gammas))[[np.size(gammas) // 2]]
    check_task(source, source_labels, target)
    default = criterion is transport_criterion and radii is None and identity is None and own_scale is None
    asked = default and isinstance(metric, str) and metric == "euclidean"
    shift = detect_shift(source, source_labels, target, seed=seed) if asked else None
    share = _share(ratio, source, source_labels, target, criterion, scan, shift)
    shares = None if share is None else {1.0: share, -1.0: 1 - share}

    def learn(**maps: Any) -> tuple[TransportSweep, np.ndarray, Choice]:
        figures = transport_sweep(
            source, source_labels, target, margins=margins, gammas=gammas, draws=draws, seed=seed, voters=voters,
            most_voters=most_voters, radius_unit=radius_unit, margin_unit=margin_unit, solver=solver, mesh=mesh,
            progress=progress, even=even, ratio=share, **maps,
        )  # fmt: skip
        scores = criterion(figures)
        return figures, scores, choose(figures, scores)

    weights = stay_weights(shift, shares, source_labels)
    figures, scores, choice = learn(
        radii=radii, metric=metric, identity=identity, own_scale=own_scale, source_weights=weights
    )
    if shift is not None and shift.map is not None and contradicted(shift, figures.target_values[choice.grid_index]):
        figures, scores, choice = learn(metric=shift.map.mahalanobis, identity=False, own_scale=False)
    model = model_at(figures, choice.grid_index) if part is None else committee(figures, scores, part)
    return ValidatedTransport(model, choice, figures, shift)
