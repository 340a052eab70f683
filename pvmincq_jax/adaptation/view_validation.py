"""Radius, margin and bandwidths of a vote over several views, chosen without target labels.

The grid is that of `pvmincq_jax.sweep`, with the votes of all views in place of the kernels of one.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pvmincq_jax._checks import check_callable, check_margins, check_rows, check_same_dimension
from pvmincq_jax._samples import check_folds, everybody_and_folds
from pvmincq_jax._threads import Progress, progress_bar
from pvmincq_jax._types import ArrayLike, MarginUnit, common_dtype, takes_options_of
from pvmincq_jax.adaptation.criteria import Criterion, rs_pv_cbound
from pvmincq_jax.adaptation.label import MARGIN_FRACTIONS
from pvmincq_jax.adaptation.sweeps import GridOptions, LearningTask, Sweep, learn_sweep
from pvmincq_jax.adaptation.validate import ValidatedFit, best_fit
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
from pvmincq_jax.voting.families import FamilyGrid
from pvmincq_jax.voting.voters import GAMMA_MULTIPLES, OutputVoters

__all__ = ["fit_views_validated", "fit_votes_validated"]


def _sweep_votes(
    spaces: list[tuple[np.ndarray, np.ndarray]],
    units: np.ndarray,
    labels: np.ndarray,
    families: FamilyGrid,
    learn_at: Any,
    judge_at: Any,
    views: int | None,
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
    """`pvmincq_jax.sweep` with any voters, one family per gamma, and any matchings.

    Samples are matched in each of the spaces, in its own units. Votes are learnt at the target and judged at the
    source, both as the families take them. So many views have a kernel on each target point, which votes only if it has
    a label; None if the voters are given ones.
    """
    check_folds(folds, int(np.sum(labels < 0)), int(np.sum(labels > 0)))
    checked = check_margins(margins, margin_unit)
    options = GridOptions(families, checked, margin_unit, folds=folds, draws=draws, seed=seed, mesh=mesh)
    # Every space has its own radius for a level of PV: [levels, spaces], the larger the level the smaller.
    radii = np.stack([grid_radii(*space, levels, "pv") for space in spaces], axis=1)
    graphs = [
        space_graph(make_space(*space, ties=labels), float(largest))
        for space, largest in zip(spaces, radii.max(axis=0))
    ]
    check_any_reach(graphs)
    stacked = np.concatenate([space[0] for space in spaces], axis=1)
    learning = everybody_and_folds(stacked, labels, folds, seed)
    with progress_bar(progress, len(learning) * len(radii) * (1 + len(families.values)), "sweep") as advance:

        def carried(kept: np.ndarray, radius: np.ndarray) -> SelfLabels:
            advance(1)
            rows = np.flatnonzero(kept)
            return carry_labels(draw_views(graphs, radius, rows, draws, seed), labels[rows])

        def mask(sample: SelfLabels) -> np.ndarray:
            # A kernel on a target point without a label does not vote; a given classifier always may.
            return np.ones(np.shape(learn_at)[1], bool) if views is None else np.tile(sample.weights > 0, views)

        samples = [[carried(kept, radius) for radius in radii] for kept in learning]
        masks = [[[mask(sample)] * len(families.values) for sample in row] for row in samples]
        voters = (families.families,) * len(radii)
        points: list[Any] = [learn_at] * len(radii)
        task = LearningTask(points, voters, masks, samples, learn_at, judge_at, learning)
        target = np.concatenate([space[1] / unit for space, unit in zip(spaces, units)], axis=1)
        named = {"radii": np.mean(radii / units, axis=1), "pv": np.array([one.pv for one in samples[0]])}
        return learn_sweep(task, options._replace(advance=advance), labels, target=target, **named)


@takes_options_of(_sweep_votes)
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
      source_views: one array ``[m_s, d_v]`` per view.
      source_labels: ``[m_s]`` in {-1, +1}.
      target_views: one array ``[m_t, d_v]`` per view.
      matching: see `pv_mincq_views`.
      criterion: from a `pvmincq_jax.Sweep` to scores; its ``gammas`` are the multiples, and with ``matching="each"``
        its radii are means over the views in units of their scales.
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
    check_callable("criterion", criterion)
    source_views, target_views, labels = check_views_task(source_views, source_labels, target_views)
    scales = view_scales(target_views)
    gammas = np.asarray(multiples, float)[:, None] / scales**2
    families = FamilyGrid(np.asarray(multiples, float), tuple(view_family(target_views, row) for row in gammas))
    spaces = matched_spaces(source_views, target_views, matching)
    units = scales if matching == "each" else np.ones(1)
    learnt = target_views, source_views, len(scales)
    return best_fit(_sweep_votes(spaces, units, labels, families, *learnt, **grid), criterion)


@takes_options_of(_sweep_votes)
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
    """`adapt_votes` with radius and margin chosen without target labels (section 5).

    Args:
      source: the points to match ``[m_s, d]``, in any description: a view, `stack_views`, or the votes themselves.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``.
      source_votes: of the given classifiers on the source ``[m_s, n]``, for R_S. A classifier that learnt from these
        points flatters itself on them: give its votes on folds that it was not learnt from.
      target_votes: ``[m_t, n]``.
      criterion: from a `pvmincq_jax.Sweep` to scores; its only gamma is 1, which nothing depends on.
      **grid: levels, margins, folds, draws, seed, margin_unit, mesh and progress, as in `fit_views_validated`.

    Returns: a `pvmincq_jax.ValidatedFit`; the points of its model are votes, as with `adapt_votes`.

    Example:
      >>> a, b = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([[5.0], [5.1], [4.0], [4.5]])
      >>> labels = np.array([1, 1, -1, -1])
      >>> votes = np.tanh(np.concatenate([1 - 2 * a, b - 4.6], axis=1))
      >>> fit = fit_votes_validated(a, labels, a, votes, votes, levels=[0.0], margins=[0.5], folds=2)
      >>> fit.model.weights.shape
      (2,)
    """
    check_callable("criterion", criterion)
    (space_source,), (space_target,), labels = check_views_task([source], source_labels, [target])
    check_rows("source_votes", source_votes, source)
    check_rows("target_votes", target_votes, target)
    check_same_dimension("source_votes", source_votes, "target_votes", target_votes)
    dtype = common_dtype(source_votes, target_votes)
    bound = max(1.0, float(np.max(np.abs(target_votes))), float(np.max(np.abs(source_votes))))
    families = FamilyGrid(np.ones(1), (OutputVoters(bound),))
    learnt = np.asarray(target_votes, dtype), np.asarray(source_votes, dtype), None
    space = [(space_source, space_target)]
    return best_fit(_sweep_votes(space, np.ones(1), labels, families, *learnt, **grid), criterion)
