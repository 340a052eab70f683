"""Several descriptions of the same objects: one majority vote over voters of each, adapted by PV-MinCq (section 5).

The voters are Gaussian kernels on blocks of features, with a bandwidth for each block, or outputs of classifiers learnt
elsewhere. Labels come to the target over matchings of all blocks together or of each block for itself. MinCq weighs the
voters of all views in one problem, so that views that err in different places correct each other.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._fork import check_process
from pvmincq_jax._samples import check_folds, everybody_and_folds
from pvmincq_jax._threads import Progress, progress_bar
from pvmincq_jax._types import Array, ArrayLike, MarginUnit, common_dtype, takes_options_of
from pvmincq_jax.adaptation.choice import model_at
from pvmincq_jax.adaptation.criteria import Criterion, rs_pv_cbound
from pvmincq_jax.adaptation.label import MARGIN_FRACTIONS, carry_at_radii
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.options import check_options
from pvmincq_jax.adaptation.sweeps import GridOptions, LearningTask, Sweep, learn_sweep
from pvmincq_jax.adaptation.validate import ValidatedFit, best_fit
from pvmincq_jax.matching.curve import PV_LEVELS, check_radii, grid_radii
from pvmincq_jax.matching.graph import check_reach, space_graph
from pvmincq_jax.matching.space import make_space
from pvmincq_jax.voting.cbound import vote_margin
from pvmincq_jax.voting.centers import PlacedVoters
from pvmincq_jax.voting.families import ViewVoters
from pvmincq_jax.voting.voters import GAMMA_MULTIPLES, GaussianVoters, OutputVoters, default_gammas

__all__ = [
    "fit_views_validated",
    "fit_votes_validated",
    "pv_mincq_views",
    "stack_views",
    "view_margins",
    "view_scales",
]

ViewMatching = Literal["joint", "each"]
Views = Sequence[ArrayLike]


def view_scales(target_views: Views) -> np.ndarray:
    """The root of the median squared distance within each view of the target: what makes views comparable (section 5).

    Args:
      target_views: one array ``[m_t, d_v]`` per view.

    Returns: ``[views]``.

    Example:
      >>> view_scales([np.array([[0.0], [2.0]]), np.array([[0.0], [0.5]])])
      array([2. , 0.5])
    """
    check_views("target_views", target_views)
    return np.array([float(np.sqrt(GAMMA_MULTIPLES[0] / default_gammas(view)[0])) for view in target_views])


def stack_views(views: Views, scales: ArrayLike) -> np.ndarray:
    """One description out of many, each divided by its scale and by the root of their number (section 5).

    The squared distance in the stack is then the mean over the views of the squared distance in units of the scale.

    Args:
      views: one array ``[m, d_v]`` per view.
      scales: ``[views]``, see `view_scales`.

    Returns: ``[m, d_1 + d_2 + ..]``.

    Example:
      >>> stack_views([np.ones((3, 2)), np.zeros((3, 1))], np.array([1.0, 2.0])).shape
      (3, 3)
    """
    check_views("views", views)
    _checks.check_length("scales", scales, len(views), "view")
    _checks.check_positive("scales", scales)
    dtype = common_dtype(*views)
    units = dtype.type(np.asarray(scales) * np.sqrt(len(views)))
    return np.concatenate([np.asarray(view, dtype) / unit for view, unit in zip(views, units)], axis=1)


class _Task(NamedTuple):
    """Samples as voters see them, labels, and samples to match in each of s descriptions, with units of length."""

    source: Any
    target: Any
    labels: np.ndarray
    matched: list[tuple[np.ndarray, np.ndarray]]
    units: np.ndarray


def _sweep_views(
    task: _Task,
    gammas: np.ndarray,
    placed: list[PlacedVoters],
    radii: np.ndarray | None = None,
    *,
    levels: Sequence[float] = PV_LEVELS,
    margins: Sequence[float] = MARGIN_FRACTIONS,
    folds: int = 5,
    draws: int = 16,
    seed: int = 0,
    margin_unit: MarginUnit = "fraction",
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = None,
) -> Sweep:
    """`pvmincq_jax.sweep` of families, one per gamma, that vote on points other than those that are matched."""
    options = GridOptions(gammas, _checks.check_margins(margins, margin_unit), margin_unit, mesh=mesh)
    if radii is None:
        check_radii(levels, "pv", "levels")
        check_folds(folds, int(np.sum(task.labels < 0)), int(np.sum(task.labels > 0)))
        # Every description has its own radius for a level of PV: [levels, s], the larger the level the smaller.
        radii = np.stack([grid_radii(*samples, levels, "pv") for samples in task.matched], axis=1)
    spaces = [make_space(*samples, ties=task.labels) for samples in task.matched]
    graphs = [space_graph(space, float(radius)) for space, radius in zip(spaces, radii.max(axis=0))]
    if not any(graph.neighbours.size for graph in graphs):
        check_reach(min(graphs, key=lambda graph: graph.nearest))
    learns = everybody_and_folds(np.hstack([samples[0] for samples in task.matched]), task.labels, folds, seed)
    with progress_bar(progress, len(learns) * len(radii) * (1 + len(placed)), "sweep") as advance:
        samples = carry_at_radii(graphs, radii, task.labels, np.ones(len(task.labels)), learns, draws, seed, advance)
        problem = LearningTask([task.target], [placed], samples, task.target, task.labels, 1.0, task.source, learns)
        target = np.hstack([one[1] / unit for one, unit in zip(task.matched, task.units)])
        lengths = np.mean(radii / task.units, axis=1)
        return learn_sweep(problem, options._replace(advance=advance), radii=lengths, target=target)


@takes_options_of(_sweep_views, "levels", "margins", "folds")
def pv_mincq_views(
    source_views: Views,
    source_labels: ArrayLike,
    target_views: Views,
    *,
    radius: float | ArrayLike,
    margin: float,
    gammas: ArrayLike,
    matching: ViewMatching = "joint",
    draws: int = 1,
    **options: Any,
) -> PVMinCq:
    """PV-MinCq over Gaussian kernels on several views; with one view, `pvmincq_jax.pv_mincq` (section 5).

    Args:
      source_views: one array ``[m_s, d_v]`` per view.
      source_labels: ``[m_s]`` in {-1, +1}.
      target_views: one array ``[m_t, d_v]`` per view, without labels.
      radius: a distance in `stack_views` of the target's `view_scales` if the matching is joint; one distance per view
        ``[views]``, in the view's own units, if each view is matched for itself.
      margin: mu as a fraction of mu_max, in (0, 1], or absolute, in (0, mu_max].
      gammas: of the kernels, one per view ``[views]``.
      matching: "joint" matches objects that are close in all views together; "each" draws matchings in every view, and
        the labels are means over all of them.
      draws: matchings, in each view or of the stack.
      **options: seed, margin_unit, mesh and progress, as in `pvmincq_jax.sweep`.

    Returns: a `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict` of a list of views.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.0], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> given = {"radius": [0.15, 0.1], "margin": 0.2, "gammas": [5.0, 1.0], "matching": "each"}
      >>> model = pv_mincq_views([a, b], labels, [a + 0.1, b], **given)
      >>> from pvmincq_jax import predict
      >>> print(predict(model, [np.array([[0.1], [1.1]]), np.array([[5.0], [4.2]])]), model.pv)
      [ 1. -1.] 0.0
    """
    check_options(**options, matching=matching, draws=draws)
    task = _read_views(source_views, source_labels, target_views, matching)
    _checks.check_length("gammas", gammas, len(target_views), "view")
    _checks.check_positive("gammas", gammas)
    _checks.check_positive("radius", radius)
    radii = np.atleast_1d(np.asarray(radius, float))
    if radii.shape != task.units.shape:
        raise ValueError(
            f"radius must hold {len(task.units)} numbers with matching={matching!r}; its shape is {radii.shape}"
        )
    placed = _place_kernels(task.target, np.asarray(gammas, float))
    _checks.check_margins([margin], options.get("margin_unit", "fraction"), "margin")
    point: Any = {"margins": [margin], "folds": 0, "draws": draws}
    figures = _sweep_views(task, np.full(1, np.nan), [placed], radii[None], **point, **options)
    return model_at(figures, (0, 0, 0))._replace(radius=radii.astype(task.matched[0][0].dtype))


@takes_options_of(_sweep_views)
def fit_views_validated(
    source_views: Views,
    source_labels: ArrayLike,
    target_views: Views,
    *,
    matching: ViewMatching = "joint",
    criterion: Criterion = rs_pv_cbound,
    multiples: Sequence[float] = GAMMA_MULTIPLES,
    **grid: Any,
) -> ValidatedFit:
    """`pv_mincq_views` with radius, margin and bandwidths chosen without target labels (section 5).

    The rules are those of `pvmincq_jax.fit_validated`, but for the criterion: what the neighbours of a point are is
    less clear in several views, so by default none is asked for. Every view's gamma is a multiple of one over its own
    median squared distance, the same multiple for all views, so the grid does not grow with their number.

    Args:
      source_views, source_labels, target_views, matching: as in `pv_mincq_views`.
      criterion: from a `pvmincq_jax.Sweep` to scores. The ``gammas`` of that sweep are the multiples, and with
        ``matching="each"`` its ``radii`` are means over the views in units of their scales.
      multiples: of one over the median squared distance, to choose from.
      **grid: ``levels`` of PV, see `pvmincq_jax.grid_radii`, with ``matching="each"`` of the PV in each view; and
        margins, folds (5), draws (16), seed, margin_unit, mesh and progress, as in `pvmincq_jax.sweep`.

    Returns: a `pvmincq_jax.ValidatedFit`.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> grid = {"levels": [0.0], "margins": [0.5], "multiples": [2.0], "folds": 2}
      >>> fit = fit_views_validated([a, b], labels, [a, b], **grid)
      >>> fit.choice.grid_index, len(fit.model.voters.families)
      ((0, 0, 0), 2)
    """
    check_options(**grid, matching=matching, criterion=criterion)
    task = _read_views(source_views, source_labels, target_views, matching)
    values = _checks.check_list("multiples", multiples)
    _checks.check_positive("multiples", values)
    gammas = values[:, None] / view_scales(task.target) ** 2
    placed = [_place_kernels(task.target, row) for row in gammas]
    return best_fit(_sweep_views(task, values, placed, **grid), criterion)


@takes_options_of(_sweep_views)
def fit_votes_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    source_votes: ArrayLike,
    target_votes: ArrayLike,
    *,
    criterion: Criterion = rs_pv_cbound,
    **grid: Any,
) -> ValidatedFit:
    """`pvmincq_jax.adapt_votes` with radius and margin chosen without target labels (section 5).

    Args:
      source: the points to match ``[m_s, d]``, in any description: a view, `stack_views`, or the votes themselves.
      source_labels, target: ``[m_s]`` in {-1, +1}, and ``[m_t, d]``.
      source_votes: of the given classifiers on the source ``[m_s, n]``, for R_S. A classifier that learnt from these
        points flatters itself on them: give its votes on folds that it was not learnt from.
      target_votes: ``[m_t, n]``.
      criterion: from a `pvmincq_jax.Sweep` to scores. The only gamma of that sweep is 1, which nothing depends on.
      **grid: levels, margins, folds, draws, seed, margin_unit, mesh and progress, as in `fit_views_validated`.

    Returns: a `pvmincq_jax.ValidatedFit`; the points of its model are votes, as with `pvmincq_jax.adapt_votes`.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> votes = np.tanh(np.concatenate([1 - 2 * a, b - 4.6], axis=1))
      >>> fit = fit_votes_validated(a, labels, a, votes, votes, levels=[0.0], margins=[0.5], folds=2)
      >>> fit.model.weights.shape
      (2,)
    """
    check_options(**grid, criterion=criterion)
    source, labels, target = _checks.read_task(source, source_labels, target)
    source_votes, target_votes = _checks.read_samples(source_votes=source_votes, target_votes=target_votes)
    _checks.check_rows("source_votes", source_votes, source)
    _checks.check_rows("target_votes", target_votes, target)
    _checks.check_same_dimension("source_votes", source_votes, "target_votes", target_votes)
    dtype = common_dtype(source_votes, target_votes)
    votes = np.asarray(source_votes, dtype), np.asarray(target_votes, dtype)
    family = OutputVoters(max(1.0, *(float(np.max(np.abs(one))) for one in votes)))
    placed = PlacedVoters(family, lambda *_: np.ones(votes[1].shape[1], bool))
    task = _Task(*votes, labels, [(source, target)], np.ones(1))
    return best_fit(_sweep_views(task, np.ones(1), [placed], **grid), criterion)


def view_margins(model: PVMinCq, views: Views) -> Array:
    """What each view says: sum_j w_{v,j} h_{v,j}(x), whose sum over the views is the vote (section 5).

    Args:
      model: of `pv_mincq_views`.
      views: one array ``[m, d_v]`` per view.

    Returns: ``[m, views]``.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> model = pv_mincq_views([a, b], labels, [a, b], radius=0.5, margin=0.2, gammas=[5.0, 1.0])
      >>> view_margins(model, [a, b]).shape
      (4, 2)
    """
    check_process()
    _checks.check_instance("model", model, PVMinCq, "pvmincq_jax.pv_mincq_views")
    _checks.check_instance("model.voters", model.voters, ViewVoters, "pvmincq_jax.pv_mincq_views")
    families = model.voters.families
    check_views("views", views, len(families))
    # Every view has a kernel on each target point.
    weights = jnp.reshape(jnp.asarray(model.weights), (len(families), -1))
    parts = [vote_margin(family.votes(view), part) for family, view, part in zip(families, views, weights)]
    return jnp.stack(parts, axis=1)


def _place_kernels(views: list[np.ndarray], gammas: np.ndarray) -> PlacedVoters:
    """Gaussian kernels on the points of every view, with a gamma for each view; those on points with a label vote."""
    kernels = tuple(GaussianVoters(view, view.dtype.type(gamma)) for view, gamma in zip(views, gammas))
    return PlacedVoters(ViewVoters(kernels), lambda matched, _: np.tile(matched, len(views)))


def check_views(name: str, views: Views, count: int | None = None) -> None:
    """One array per view, all of the same objects."""
    if not isinstance(views, list | tuple) or not views:
        raise ValueError(f"{name} must be a list or tuple with one array per view; it is {type(views).__name__}")
    if count is not None and len(views) != count:
        raise ValueError(f"{name} must hold {count} views; it holds {len(views)}")
    for v, view in enumerate(views):
        _checks.check_rows(f"{name}[{v}]", view, views[0], "object")


def _read_views(source_views: Views, source_labels: ArrayLike, target_views: Views, matching: ViewMatching) -> _Task:
    """A checked task in one precision, with the stacks or each view's own samples to match."""
    check_views("source_views", source_views)
    check_views("target_views", target_views, len(source_views))
    for v, (x, y) in enumerate(zip(source_views, target_views)):
        _checks.check_same_dimension(f"source_views[{v}]", x, f"target_views[{v}]", y)
    whole, labels, _ = _checks.read_task(np.hstack(source_views), source_labels, np.hstack(target_views))
    source, target = ([np.asarray(view, whole.dtype) for view in views] for views in (source_views, target_views))
    scales = view_scales(target)
    if matching == "each":
        return _Task(source, target, labels, list(zip(source, target)), scales)
    return _Task(source, target, labels, [(stack_views(source, scales), stack_views(target, scales))], np.ones(1))
