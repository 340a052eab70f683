"""Fits that choose radius, margin and gamma without a single target label (section 3.4)."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_callable, check_count, check_task
from pvmincq_jax._samples import part_rows
from pvmincq_jax._types import ArrayLike, brief, takes_options_of
from pvmincq_jax.adaptation.choice import TOP_FRACTION, Choice, check_fraction, choose, committee, members, model_at
from pvmincq_jax.adaptation.criteria import Criterion, label_criterion, rs, scores_of
from pvmincq_jax.adaptation.label import mincq_sweep, read_classes, read_weights, sweep
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.options import check_grid
from pvmincq_jax.adaptation.shift import Shift, contradicted, detect_shift, label_shift
from pvmincq_jax.adaptation.sweeps import GridOptions, LearningTask, Sweep, learn_sweep
from pvmincq_jax.adaptation.transport import Transport, move_all, nearest_means
from pvmincq_jax.adaptation.transport_criteria import transport_criterion
from pvmincq_jax.adaptation.transport_sweeps import check_shares, moved_labels, transport_sweep
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.matching.space import Precomputed
from pvmincq_jax.voting.centers import MOST_VOTERS

__all__ = ["ValidatedFit", "fit_mincq_validated", "fit_transport_validated", "fit_validated"]

Ratio = float | Sequence[float] | Literal["source", "estimated"]

# Draws times points: up to this product the default number of draws is not reduced.
_DRAWN = 48_000
# Points of a domain that are matched, unless asked for more.
MOST_POINTS = 2000
# Options of a transport grid that say which maps it holds: who gives one knows what has changed.
_MAPS = ("radii", "include_identity", "match_moments", "identity_weights")
# With more classes than so many, fewer voters: there are as many programs as classes.
_CLASSES = 5
# An estimate with a class below this share is rejected if more than the ratio has changed.
_VANISHED = 0.02
# Estimated shares are raised to at least this, so that no class is without weight.
_LEAST_SHARE = 1e-3


def draw_count(draws: int | None, usual: int, points: int) -> int:
    """How many matchings: those given, or the usual number; fewer for many points, which average by themselves.

    Example:
      >>> [draw_count(None, 16, points) for points in (300, 3000, 6000, 100_000)], draw_count(5, 16, 100_000)
      ([16, 16, 8, 4], 5)
    """
    return check_count("draws", max(usual // 4, min(usual, _DRAWN // points)) if draws is None else draws, 1)


class ValidatedFit(NamedTuple):
    """What the validated fits return: the vote, the point chosen, and the whole grid.

    Attributes:
      model: the vote at the point chosen, or the committee, a `pvmincq_jax.PVMinCq`.
      choice: the best point of the grid, a `pvmincq_jax.Choice`; its score is NaN if the grid has one point and
        no folds, unless source points move.
      sweep: the whole grid, a `pvmincq_jax.Sweep`.
    """

    model: PVMinCq
    choice: Choice
    sweep: Sweep

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)

    @property
    def shift(self) -> Shift | None:
        """What has changed; None in the form that carries labels, or with a criterion, radii, maps or metric given."""
        return self.sweep.shift

    @property
    def adapted(self) -> bool:
        """Whether the best point of the grid adapts: False on one domain, or if no source point is moved or matched."""
        return not self.sweep.unmoved[self.choice.grid_index[0]]


def _fit_parts(
    fit: Callable[..., ValidatedFit], task: tuple[ArrayLike, ...], most: int | None, options: dict[str, Any]
) -> ValidatedFit | None:
    """For large samples: chooses on a random part of each, then learns the vote on all points. None if not needed."""
    size, precomputed = max(len(np.asarray(one)) for one in task), isinstance(options.get("metric"), Precomputed)
    if most is None or size <= most or precomputed:
        return None
    source, labels, target = read_classes(*task)
    names, seed = np.asarray(task[1]), options.get("seed", 0)
    weights = read_weights("source_weights", options.get("source_weights"), len(source))
    rows, columns = part_rows(source, most, seed, names), part_rows(target, most, seed)
    weighed = [name for name in ("source_weights", "identity_weights") if options.get(name) is not None]
    cut_down = {name: np.asarray(options[name])[rows] for name in weighed}
    parts = fit(source[rows], names[rows], target[columns], most_points=None, **options | cut_down)

    solver: Any = {name: options[name] for name in ("solver", "mesh") if name in options}
    model = _learn_on_all(parts, (source, labels, target), weights, options.get("top_fraction"), solver)
    pairs = model.pairs._replace(source=rows[model.pairs.source], target=columns[model.pairs.target])
    return parts._replace(model=model._replace(pairs=pairs))


def _learn_on_all(
    parts: ValidatedFit, task: tuple[np.ndarray, ...], weights: np.ndarray, top_fraction: float | None,
    solver: dict[str, Any],
) -> PVMinCq:  # fmt: skip
    """The votes that parts of the samples chose, learnt again on all points; its pairs are of rows of the parts."""
    (source, labels, target), figures, scores = task, parts.sweep, parts.choice.scores
    points = np.array([parts.choice.grid_index])
    if top_fraction is not None:
        points = np.concatenate([points, members(figures, scores, top_fraction)[0]])
    rows, gammas = np.unique(points[:, 0]).tolist(), np.unique(points[:, 1]).tolist()
    maps: list[Transport] = []
    if figures.transports:
        maps = move_all([figures.transports[r] for r in rows], source, target)
    samples = [moved_labels(one, labels, weights) for one in maps] or [_labels_of_all(figures, rows[0], target)]
    voters = [[figures.placed(r, g) for g in gammas] for r in rows]
    learnt_from = [np.asarray(one.moved) for one in maps] or [target]
    whole = LearningTask(learnt_from, voters, [samples], figures.target, labels, weights)
    options = GridOptions(figures.gammas[gammas], figures.margins, figures.margin_unit, **solver)
    again = learn_sweep(whole, options, radii=figures.radii[rows], transports=tuple(maps))
    if top_fraction is None:
        return model_at(again, (0, 0, points[0, 2]))
    chosen = np.full_like(scores, np.inf)
    chosen[tuple(points.T)] = scores[tuple(points.T)]
    return committee(again, chosen[np.ix_(rows, gammas)], 1.0)


def _labels_of_all(figures: Sweep, radius: int, target: np.ndarray) -> SelfLabels:
    """Labels of all target points: means of those of the nearest ones with a label, within the radius."""
    sample = figures.self_labels[radius]
    fields = np.vstack([np.atleast_2d(sample.labels), sample.weights]).T
    ((means, nearest),) = nearest_means(figures.target, [(sample.weights, fields)], target)
    near = nearest <= figures.radii[radius]
    labels = np.where(near, means[:, :-1].T, 0.0).reshape(*sample.labels.shape[:-1], -1)
    return sample._replace(labels=labels, weights=np.where(near, means[:, -1], 0.0))


def best_fit(figures: Sweep, criterion: Criterion, top_fraction: float | None = None) -> ValidatedFit:
    """The vote at the point of least score, or a committee; one point without transports is always taken."""
    scored = figures.transports or figures.fold_status.size > 0
    scores = scores_of(figures, criterion) if scored else np.full(figures.status.shape, np.nan)
    if figures.transports or figures.status.size > 1:
        choice = choose(figures, scores)
    else:
        choice = choose(figures, np.nan_to_num(scores))._replace(score=float(scores[0, 0, 0]), scores=scores)
    if top_fraction is None:
        return ValidatedFit(model_at(figures, choice.grid_index), choice, figures)
    return ValidatedFit(committee(figures, choice.scores, top_fraction), choice, figures)


@takes_options_of(sweep)
def fit_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    criterion: Criterion = label_criterion,
    draws: int | None = None,
    most_points: int | None = MOST_POINTS,
    **grid: Any,
) -> ValidatedFit:
    """PV-MinCq with radius, margin and gamma chosen by validation, in one call (Algorithm 3 and section 3.4).

    The defaults are ours: soft labels from 16 matchings, and `label_criterion`. The paper's own rule is
    ``criterion=rs_pv, draws=1``.

    Args:
      source, source_labels, target: the task, as in `pvmincq_jax.sweep`.
      criterion: from a `Sweep` to scores ``[r, g, k]``, the lower the better. Of more than two classes it may give
        scores of each ``[c, r, g, k]``, half the sum of which counts. A grid of one point is taken whatever its score,
        which is NaN unless ``folds`` are given.
      draws: matchings per fold and radius. None for 16; fewer where more than 3 000 target points are matched, down to
        a quarter at four times as many.
      most_points: of a domain that are matched. Of a larger sample a random part of about so many is, classes in their
        shares: PV, radii, the grid and the choice are those of the parts. PV of fewer points is larger at one radius.
        The chosen vote is then learnt on all target points that are within the radius of one with a label, which they
        take over from their nearest ones. None matches all, as does a metric of given distances.
      **grid: radii, margins, gammas, folds, seed, voters, centers, most_voters, radius_unit, margin_unit, metric,
        solver, mesh, progress and source_weights, as in `pvmincq_jax.sweep`, but for ``folds``, which is None unless
        given.

    Returns: a `ValidatedFit`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> fit = fit_validated(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> fit.choice.radius == float(fit.model.radius), pvm.predict(fit.model, task.test).shape
      (True, (1500,))
    """
    check_task(source, source_labels, target, classes=True)
    counts = {"draws": 1 if draws is None else draws, "most_points": most_points}
    check_grid(np.asarray(source), **grid, **counts, criterion=criterion)
    options = grid | {"criterion": criterion, "draws": draws}
    parts = _fit_parts(fit_validated, (source, source_labels, target), most_points, options)
    if parts is not None:
        return parts
    count = draw_count(draws, 16, len(np.asarray(target)))
    return best_fit(sweep(source, source_labels, target, draws=count, **{"folds": None} | grid), criterion)


@takes_options_of(mincq_sweep)
def fit_mincq_validated(
    points: ArrayLike, labels: ArrayLike, *, criterion: Criterion = rs, **grid: Any
) -> ValidatedFit:
    """MinCq on one domain, with margin and gamma chosen by cross-validation (section 4).

    Args:
      points, labels: ``[m, d]``, and ``[m]`` in {-1, +1}, or numbers from 0 on of more than two classes.
      criterion: as in `fit_validated`.
      **grid: margins, gammas, folds, seed, voters, most_voters, margin_unit and sample_weights, as in
        `pvmincq_jax.adaptation.label.mincq_sweep`.

    Returns: a `ValidatedFit`; its radius is 0.

    Example:
      >>> x = np.random.default_rng(0).normal(size=(30, 2))
      >>> fit = fit_mincq_validated(x, np.sign(x[:, 0]), margins=[0.1, 0.5], gammas=[1.0], folds=3)
      >>> fit.choice.radius, bool(fit.choice.score == fit.choice.scores.min())
      (0.0, True)
    """
    check_callable("criterion", criterion)
    return best_fit(mincq_sweep(points, labels, **grid), criterion)


def class_weights(labels: ArrayLike, shares: ArrayLike) -> np.ndarray:
    """Weights of source points ``[m_s]``, of mean 1, under which the classes have given shares, in their order.

    Example:
      >>> class_weights(np.array([-1, -1, 1, 1]), np.array([0.75, 0.25]))
      array([1.5, 1.5, 0.5, 0.5])
    """
    _, numbers, counts = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    return (np.asarray(shares) / counts * numbers.size)[numbers]


def _target_shares(ratio: Ratio, shift: Shift | None, task: tuple[ArrayLike, ...], seed: int) -> np.ndarray | None:
    """The shares of all classes ``[c]`` that the source is brought to; None to leave them as they are."""
    if not isinstance(ratio, str):
        return check_shares(ratio, np.unique(np.asarray(task[1])).size)
    if ratio == "source":
        return None
    estimate = label_shift(*task, seed=seed) if shift is None else shift.label_shift
    shares = np.maximum(np.asarray(estimate.shares), _LEAST_SHARE)
    explained = shift is not None and shift.kind != "move"
    return None if np.min(shares) < _VANISHED and not explained else shares / np.sum(shares)


@takes_options_of(transport_sweep)
def fit_transport_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    criterion: Criterion = transport_criterion,
    draws: int | None = None,
    ratio: Ratio = "source",
    top_fraction: float | None = TOP_FRACTION,
    most_points: int | None = MOST_POINTS,
    **grid: Any,
) -> ValidatedFit:
    """MinCq on moved source points, with radius, margin and gamma chosen without target labels, in one call.

    Unless a criterion, radii, maps (``include_identity``, ``match_moments``, ``identity_weights``) or a metric are
    given, `pvmincq_jax.detect_shift` is asked first. If class shares, or the shares of small clusters of source points,
    explain the target, nothing is moved. If the vote on moved points contradicts the vote of a subspace that did not
    change, points are matched again by distance within that subspace. Not in the paper.

    Args:
      source, source_labels, target: the task, as in `pvmincq_jax.transport_sweep`.
      criterion: as in `fit_validated`.
      draws: matchings per radius. None for 64, and fewer from 750 points on: down to a quarter at four times as many.
      ratio: the share of +1 in the target, or the shares of more than two classes ``[c]``; "source" where they are
        those of the source; or "estimated", by `pvmincq_jax.label_shift`, unless a class would then vanish where more
        than the ratio has changed. Weighing classes is a bet: a conditional shift can look like another class ratio,
        and no unlabelled sample tells them apart.
      top_fraction: of the grid that votes, see `pvmincq_jax.committee`; None for the best point alone.
      most_points: as in `fit_validated`; the votes of the committee are then learnt on all source points, of which
        those that are not matched move along with their nearest ones.
      **grid: radii, margins, gammas, seed, voters, most_voters, radius_unit, margin_unit, metric, solver, mesh,
        progress, include_identity, match_moments, equal_sizes, identity_weights and source_weights, as in
        `pvmincq_jax.transport_sweep`. `pvmincq_jax.detect_shift` does not use source weights. Of c > 5 classes
        5 / c of ``most_voters`` sit on points.

    Returns:
      A `ValidatedFit`. Its model is made of votes that the sweep has, up to ``most_points``; beyond, the chosen votes
      are learnt again on all points.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> fit = fit_transport_validated(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0])
      >>> fit.choice.radius == float(fit.model.radius), pvm.predict(fit.model, task.test).shape
      (True, (1500,))
    """
    task = source, source_labels, target
    check_task(*task, classes=True)
    counts = {"draws": 1 if draws is None else draws, "most_points": most_points}
    check_grid(np.asarray(source), **grid, **counts, criterion=criterion)
    if not isinstance(ratio, str):
        check_shares(ratio, np.unique(np.asarray(source_labels)).size)
    elif ratio not in ("source", "estimated"):
        raise ValueError(
            "ratio must be 'source', 'estimated', a number between 0 and 1, or a share for each of more than two "
            f"classes; it is {ratio!r}"
        )
    if top_fraction is not None:
        check_fraction(top_fraction)
    given = grid | {"criterion": criterion, "draws": draws, "ratio": ratio, "top_fraction": top_fraction}
    parts = _fit_parts(fit_transport_validated, task, most_points, given)
    if parts is not None:
        return parts
    seed, metric, most = grid.get("seed", 0), grid.get("metric", "euclidean"), grid.get("most_voters", MOST_VOTERS)
    classes = np.unique(np.asarray(source_labels)).size
    options: Any = grid | {"draws": draw_count(draws, 64, max(len(np.asarray(one)) for one in (source, target)))}
    options["most_voters"] = most if classes <= _CLASSES else max(1, most * _CLASSES // classes)
    plain = isinstance(metric, str) and metric == "euclidean" and all(grid.get(name) is None for name in _MAPS)
    shift = detect_shift(*task, seed=seed) if plain and criterion is transport_criterion else None
    shares = _target_shares(ratio, shift, task, seed)
    if shares is not None:
        options["ratio"] = float(shares[1]) if len(shares) == 2 else shares
    if shift is not None and shift.weights is not None:
        options["identity_weights"] = shift.weights if shares is None else class_weights(source_labels, shares)
    fit = best_fit(transport_sweep(*task, **options), criterion, top_fraction)
    best = fit.choice.grid_index
    if shift is not None and shift.map is not None and contradicted(shift, fit.sweep.target_values[best]):
        maps = {"metric": shift.map.mahalanobis, "include_identity": False, "match_moments": False}
        fit = best_fit(transport_sweep(*task, **options | maps | {"identity_weights": None}), criterion, top_fraction)
    return fit._replace(sweep=fit.sweep._replace(shift=shift))
