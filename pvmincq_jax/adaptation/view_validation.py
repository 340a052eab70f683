"""Radius, margin and bandwidths of a vote over several views, chosen without target labels, as in `validation`.

The grid is that of `pvmincq_jax.sweep`, with the votes of all views in place of the kernels of one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._checks import check_margins, check_rows, check_same_dimension
from pvmincq_jax._progress import Progress, progress_bar
from pvmincq_jax._samples import check_folds
from pvmincq_jax._types import ArrayLike, MarginUnit, common_dtype
from pvmincq_jax.adaptation.choice import choose
from pvmincq_jax.adaptation.criteria import Criterion, rs_pv_cbound
from pvmincq_jax.adaptation.labelled import LabelledGrid, Sweep, check_solved, learn_grid
from pvmincq_jax.adaptation.learn import model_at
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.seats import everybody_and_folds
from pvmincq_jax.adaptation.sweeps import MARGIN_FRACTIONS
from pvmincq_jax.adaptation.validate import ValidatedFit
from pvmincq_jax.adaptation.views import (
    ViewMatching,
    Views,
    check_any_reach,
    check_views_task,
    draw_views,
    matched_spaces,
    view_family,
    view_scales,
)
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import make_space
from pvmincq_jax.voting.families import FamilyGrid, OutputVoters
from pvmincq_jax.voting.voters import GAMMA_MULTIPLES

__all__ = ["ValidatedVotes", "fit_views_validated", "fit_votes_validated"]


class ValidatedVotes(ValidatedFit):
    """What the validated fits of views and of given votes return.

    Attributes: model, choice and sweep, as in `pvmincq_jax.ValidatedFit`.
    """


def fit_views_validated(
    source_views: Views,
    source_labels: ArrayLike,
    target_views: Views,
    *,
    matching: ViewMatching = "joint",
    criterion: Criterion = rs_pv_cbound,
    draws: int = 16,
    levels: Sequence[float] = PV_LEVELS,
    margins: Sequence[float] = MARGIN_FRACTIONS,
    multiples: Sequence[float] = GAMMA_MULTIPLES,
    folds: int = 5,
    seed: int = 0,
    margin_unit: MarginUnit = "fraction",
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = None,
) -> ValidatedVotes:
    """`pv_mincq_views` with radius, margin and bandwidths chosen without target labels (section 5).

    The rules are those of `pvmincq_jax.fit_validated`, but for the criterion: what the neighbours of a point are is
    less clear in several views, so by default none is asked for. Every view's gamma is a multiple of one over its own
    median squared distance, the same multiple for all views, so the grid does not grow with their number.

    Args:
      source_views: one array ``[m_s, d_v]`` per view.
      source_labels: ``[m_s]`` in {-1, +1}.
      target_views: one array ``[m_t, d_v]`` per view.
      matching: see `pv_mincq_views`.
      criterion: from a `pvmincq_jax.Sweep` to scores; its ``gammas`` are the multiples, and with ``matching="each"``
        its radii are means over the views in units of their scales.
      draws: matchings per fold and radius.
      levels: of PV, see `pvmincq_jax.grid_radii`; with ``matching="each"``, of the PV in each view.
      multiples: of one over the median squared distance, to choose from.
      margins, folds, seed, margin_unit, mesh, progress: as in `pvmincq_jax.sweep`.

    Returns: `ValidatedVotes`.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> grid = {"levels": [0.0], "margins": [0.5], "multiples": [2.0], "folds": 2}
      >>> fit = fit_views_validated([a, b], labels, [a, b], **grid)
      >>> fit.choice.grid_index, len(fit.model.voters.families)
      ((0, 0, 0), 2)
    """
    source_views, target_views, labels = check_views_task(source_views, source_labels, target_views)
    scales = view_scales(target_views)
    gammas = np.asarray(multiples, float)[:, None] / scales**2
    families = FamilyGrid(np.asarray(multiples, float), tuple(view_family(target_views, own) for own in gammas))
    spaces = matched_spaces(source_views, target_views, matching)
    matched = _Matched(spaces, scales if matching == "each" else np.ones(1), labels, levels)
    options = _options(families, margins, margin_unit, folds, draws, seed, mesh)
    figures = _sweep_votes(matched, target_views, source_views, len(scales), options, progress)
    return _chosen(figures, criterion)


def fit_votes_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    source_votes: ArrayLike,
    target_votes: ArrayLike,
    *,
    criterion: Criterion = rs_pv_cbound,
    draws: int = 16,
    levels: Sequence[float] = PV_LEVELS,
    margins: Sequence[float] = MARGIN_FRACTIONS,
    folds: int = 5,
    seed: int = 0,
    margin_unit: MarginUnit = "fraction",
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = None,
) -> ValidatedVotes:
    """`adapt_votes` with radius and margin chosen without target labels (section 5).

    Args:
      source: the points to match ``[m_s, d]``, in any description: a view, `stack_views`, or the votes themselves.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``.
      source_votes: of the given classifiers on the source ``[m_s, n]``, for R_S. A classifier that learnt from these
        points flatters itself on them: give its votes on folds that it was not learnt from.
      target_votes: ``[m_t, n]``.
      criterion: from a `pvmincq_jax.Sweep` to scores; its only gamma is 1, which nothing depends on.
      draws, levels, margins, folds, seed, margin_unit, mesh, progress: as in `fit_views_validated`.

    Returns: `ValidatedVotes`; the points of its model are votes, as with `adapt_votes`.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> votes = np.tanh(np.concatenate([1 - 2 * a, b - 4.6], axis=1))
      >>> fit = fit_votes_validated(a, labels, a, votes, votes, levels=[0.0], margins=[0.5], folds=2)
      >>> fit.model.weights.shape
      (2,)
    """
    (space_source,), (space_target,), labels = check_views_task([source], source_labels, [target])
    check_rows("source_votes", source_votes, source)
    check_rows("target_votes", target_votes, target)
    check_same_dimension("source_votes", source_votes, "target_votes", target_votes)
    dtype = common_dtype(source_votes, target_votes)
    bound = max(1.0, float(np.max(np.abs(target_votes))), float(np.max(np.abs(source_votes))))
    matched = _Matched([(space_source, space_target)], np.ones(1), labels, levels)
    options = _options(FamilyGrid(np.ones(1), (OutputVoters(bound),)), margins, margin_unit, folds, draws, seed, mesh)
    outputs = np.asarray(target_votes, dtype), np.asarray(source_votes, dtype)
    figures = _sweep_votes(matched, *outputs, None, options, progress)
    return _chosen(figures, criterion)


def _chosen(figures: Sweep, criterion: Criterion) -> ValidatedVotes:
    choice = choose(figures, criterion(figures))
    return ValidatedVotes(model_at(figures, choice.grid_index), choice, figures)


def _options(
    voters: FamilyGrid, margins: Sequence[float], unit: MarginUnit, folds: int, draws: int, seed: int, mesh: Any
) -> GridOptions:
    checked = check_margins(margins, unit)
    return GridOptions(voters, checked, unit, folds=folds, draws=draws, seed=seed, mesh=mesh)


class _Matched(NamedTuple):
    """What the labels come from: the samples to match, and how to read their radii.

    Attributes:
      spaces: pairs of samples, one or one per view.
      units: of the radii ``[spaces]``, which makes them comparable.
      labels: of the source ``[m_s]``.
      levels: of PV, that the radii are at.
    """

    spaces: list[tuple[np.ndarray, np.ndarray]]
    units: np.ndarray
    labels: np.ndarray
    levels: Sequence[float]


def _sweep_votes(
    matched: _Matched,
    learn_at: Any,
    judge_at: Any,
    views: int | None,
    options: GridOptions,
    progress: Progress,
) -> Sweep:
    """`pvmincq_jax.sweep` with any voters, one family per gamma, and any matchings.

    Learnt at the target and judged at the source, both as the families take them. So many views have a kernel on each
    target point, which votes only if it has a label; None if the voters are given ones.
    """
    labels, folds, families = matched.labels, options.folds, options.voters.families
    check_folds(folds, int(np.sum(labels < 0)), int(np.sum(labels > 0)))
    # Every space has its own radius for a level of PV: [levels, spaces], the larger the level the smaller.
    radii = np.stack([grid_radii(*space, matched.levels, "pv") for space in matched.spaces], axis=1)
    graphs = [
        space_graph(make_space(*space, ties=labels), float(largest))
        for space, largest in zip(matched.spaces, radii.max(axis=0))
    ]
    check_any_reach(graphs)
    stacked = np.concatenate([space[0] for space in matched.spaces], axis=1)
    learning = everybody_and_folds(stacked, labels, folds, options.seed)
    with progress_bar(progress, len(learning) * len(radii) * (1 + len(families)), "sweep") as advance:

        def carried(kept: np.ndarray, radius: np.ndarray) -> SelfLabels:
            advance(1)
            rows = np.flatnonzero(kept)
            return carry_labels(draw_views(graphs, radius, rows, options.draws, options.seed), labels[rows])

        found = [[carried(kept, radius) for radius in radii] for kept in learning]
        # A kernel on a target point without a label does not vote; a given classifier always may.
        each = [
            [np.ones(np.shape(learn_at)[1], bool) if views is None else np.tile(one.weights > 0, views) for one in row]
            for row in found
        ]
        masks = np.stack([each] * len(families))
        target = np.concatenate([space[1] / unit for space, unit in zip(matched.spaces, matched.units)], axis=1)
        task = LabelledGrid(learning, found, masks, np.mean(radii / matched.units, axis=1), labels, target)
        figures = learn_grid(task, families, options._replace(advance=advance), learn_at, judge_at)
    check_solved(figures.status, figures.fold_status)
    return figures
