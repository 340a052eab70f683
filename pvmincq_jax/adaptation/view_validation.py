"""Radius, margin and bandwidths of a vote over several views, chosen without target labels, as in `validation`.

The grid is that of `pvmincq_jax.sweep`, with the votes of all views in place of the kernels of one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_points, check_same_dimension
from pvmincq_jax._samples import check_folds, fold_numbers
from pvmincq_jax._types import ArrayLike, common_dtype, precision
from pvmincq_jax.adaptation.criteria import Choice, Criterion, choose, rs_pv_cbound
from pvmincq_jax.adaptation.grid import Figures, chunks, judge_lanes, lanes_tolerance, make_lanes
from pvmincq_jax.adaptation.sweeps import MARGIN_FRACTIONS, Sweep, gather
from pvmincq_jax.adaptation.views import (
    ViewMatching,
    Views,
    adapt_votes,
    check_views_task,
    draw_views,
    learn_views,
    matched_spaces,
    view_scales,
    view_votes,
)
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import make_space
from pvmincq_jax.voting.factor import vote_factor
from pvmincq_jax.voting.voters import GAMMA_MULTIPLES

__all__ = ["ValidatedVotes", "fit_views_validated", "fit_votes_validated"]

# Folds and radii that one compiled call takes, as in `pvmincq_jax.sweep`.
_CHUNK = 16


class ValidatedVotes(NamedTuple):
    """What the validated fits return: the vote (`ViewsVote` or `AdaptedVote`), the point chosen, and the whole grid."""

    model: Any
    choice: Choice
    sweep: Sweep


def fit_views_validated(
    source_views: Views,
    source_labels: ArrayLike,
    target_views: Views,
    *,
    matching: ViewMatching = "joint",
    criterion: Criterion = rs_pv_cbound,
    draws: int = 16,
    radii: Sequence[float] = PV_LEVELS,
    margins: Sequence[float] = MARGIN_FRACTIONS,
    multiples: Sequence[float] = GAMMA_MULTIPLES,
    folds: int = 5,
    seed: int = 0,
) -> ValidatedVotes:
    """`pv_mincq_views` with radius, margin and bandwidths chosen without target labels.

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
      radii: levels of PV, see `pvmincq_jax.grid_radii`; with ``matching="each"``, of the PV in each view.
      margins: fractions of mu_max.
      multiples: of one over the median squared distance.
      folds: of the source.
      seed: of folds and matchings.

    Returns:
      `ValidatedVotes` with a `ViewsVote`.
    """
    source_views, target_views, labels = check_views_task(source_views, source_labels, target_views)
    scales = view_scales(target_views)
    gammas = np.asarray(multiples, float)[:, None] / scales**2
    dtype = common_dtype(*source_views, *target_views)
    with precision(dtype):
        votes = [
            (view_votes(target_views, target_views, gamma), view_votes(source_views, target_views, gamma))
            for gamma in gammas.astype(dtype)
        ]
    spaces = matched_spaces(source_views, target_views, matching)
    units = scales if matching == "each" else np.ones(1)
    matched = _Matched(spaces, units, labels)
    named = np.asarray(multiples, float)
    figures = _sweep_votes(matched, votes, named, radii, margins, draws, folds, seed, len(scales))
    choice = choose(figures, criterion(figures))
    r, g, _ = choice.grid_index
    model = learn_views(target_views, gammas[g], figures.self_labels[r], choice.margin, "fraction")
    return ValidatedVotes(model, choice, figures)


def fit_votes_validated(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    source_votes: ArrayLike,
    target_votes: ArrayLike,
    *,
    criterion: Criterion = rs_pv_cbound,
    draws: int = 16,
    radii: Sequence[float] = PV_LEVELS,
    margins: Sequence[float] = MARGIN_FRACTIONS,
    folds: int = 5,
    seed: int = 0,
) -> ValidatedVotes:
    """`adapt_votes` with radius and margin chosen without target labels.

    Args:
      source: the points to match ``[m_s, d]``, in any description: a view, `stack_views`, or the votes themselves.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``.
      source_votes: of the given classifiers on the source ``[m_s, n]``, for R_S. A classifier that learnt from these
        points flatters itself on them: give its votes on folds that it was not learnt from.
      target_votes: ``[m_t, n]``.
      criterion: from a `pvmincq_jax.Sweep` to scores; its only gamma is 1, which nothing depends on.
      draws: matchings per fold and radius.
      radii: levels of PV, see `pvmincq_jax.grid_radii`.
      margins: fractions of mu_max.
      folds: of the source.
      seed: of folds and matchings.

    Returns:
      `ValidatedVotes` with an `AdaptedVote`.
    """
    (space_source,), (space_target,), labels = check_views_task([source], source_labels, [target])
    for name, given, points in (("source_votes", source_votes, source), ("target_votes", target_votes, target)):
        check_points(name, given)
        if np.shape(given)[0] != np.shape(points)[0]:
            raise ValueError(f"{name} must have one row per point ({np.shape(points)[0]}); it has {np.shape(given)[0]}")
    check_same_dimension("source_votes", source_votes, "target_votes", target_votes)
    dtype = common_dtype(source_votes, target_votes)
    votes = [(np.asarray(target_votes, dtype), np.asarray(source_votes, dtype))]
    matched = _Matched([(space_source, space_target)], np.ones(1), labels)
    figures = _sweep_votes(matched, votes, np.ones(1), radii, margins, draws, folds, seed, None)
    choice = choose(figures, criterion(figures))
    model = adapt_votes(
        votes[0][0], figures.self_labels[choice.grid_index[0]], margin=choice.margin, margin_unit=choice.margin_unit
    )
    return ValidatedVotes(model, choice, figures)


class _Matched(NamedTuple):
    """What the labels come from: the samples to match, and how to read their radii.

    Attributes:
      spaces: pairs of samples, one or one per view.
      units: of the radii ``[spaces]``, which makes them comparable.
      labels: of the source ``[m_s]``.
    """

    spaces: list[tuple[np.ndarray, np.ndarray]]
    units: np.ndarray
    labels: np.ndarray


def _sweep_votes(
    matched: _Matched,
    votes: Sequence[tuple[Any, Any]],
    gammas: np.ndarray,
    levels: Sequence[float],
    margins: Sequence[float],
    draws: int,
    folds: int,
    seed: int,
    views: int | None,
) -> Sweep:
    """`pvmincq_jax.sweep` over votes that are already there.

    Args:
      matched: the samples to match.
      votes: of target and source, for each gamma: ``[m_t, n]`` and ``[m_s, n]``.
      gammas: what to call them ``[g]``.
      levels: of PV, in every space.
      margins: fractions of mu_max.
      draws: matchings per space, fold and radius.
      folds: of the source.
      seed: of folds and matchings.
      views: how many kernels sit on a target point and vote only if it has a label; None if the voters are given ones.

    Returns:
      A `Sweep`.
    """
    labels = matched.labels
    check_folds(folds, int(np.sum(labels < 0)), int(np.sum(labels > 0)))
    # Every space has its own radius for a level of PV: [levels, spaces], the larger the level the smaller.
    radii = np.stack([grid_radii(*space, levels, "pv") for space in matched.spaces], axis=1)
    graphs = [
        space_graph(make_space(*space, ties=labels), float(largest))
        for space, largest in zip(matched.spaces, radii.max(axis=0))
    ]
    stacked = np.concatenate([space[0] for space in matched.spaces], axis=1)
    numbers = fold_numbers(stacked, labels, folds, seed)
    learning = np.stack([np.ones(len(labels), bool), *(numbers != fold for fold in range(folds))])

    def carried(kept: np.ndarray, radius: np.ndarray) -> SelfLabels:
        rows = np.flatnonzero(kept)
        return carry_labels(draw_views(graphs, radius, rows, draws, seed), labels[rows])

    found = [[carried(kept, radius) for radius in radii] for kept in learning]
    dtype = np.dtype(votes[0][0].dtype)
    lanes = make_lanes(found, learning, "target", dtype)
    # A kernel on a target point without a label does not vote; a given classifier always may.
    voters = np.shape(votes[0][0])[1]
    mask = np.ones((len(lanes.labels), voters), bool) if views is None else np.tile(lanes.mask, (1, views))
    lanes = lanes._replace(mask=mask)
    fractions = np.asarray(margins, float)
    results = [_figures(target, source, labels, fractions, lanes, dtype) for target, source in votes]
    target = np.concatenate([space[1] / unit for space, unit in zip(matched.spaces, matched.units)], axis=1)
    return gather(
        results, lanes, found, labels, target, np.mean(radii / matched.units, axis=1), gammas, fractions, "fraction"
    )


def _figures(
    target_votes: Any, source_votes: Any, labels: np.ndarray, margins: np.ndarray, lanes: Any, dtype: np.dtype
) -> Figures:
    """All folds, radii and margins of one set of voters; fields are ``[lanes, k, ...]``."""
    with precision(dtype):
        votes, judged = jnp.asarray(target_votes, dtype), jnp.asarray(source_votes, dtype)
        factor = vote_factor(votes, tolerance=lanes_tolerance(votes, lanes, margins, "fraction"))
        fixed = votes, judged, jnp.asarray(labels, dtype), factor
        pieces = []
        for piece, count in chunks(lanes, min(_CHUNK, len(lanes.labels))):
            figures = jax.device_get(judge_lanes(*fixed, jnp.asarray(margins, dtype), piece, "fraction", False))
            pieces.append(Figures(*(field[:count] for field in figures)))
    return Figures(*(np.concatenate(fields) for fields in zip(*pieces)))
