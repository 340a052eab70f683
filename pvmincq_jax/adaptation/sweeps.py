"""The whole grid in one call: folds x radii x gammas x margins.

Matchings are drawn on the host, once per fold and radius. Everything after them is one compiled computation over
arrays of fixed shape: an unmatched point has weight 0, a fold's own points have mask 0, and the votes of one gamma
are factored once for all folds, radii and margins.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_count, check_task, check_vector
from pvmincq_jax._progress import Progress, progress_bar
from pvmincq_jax._samples import check_folds, fold_numbers
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit, Status, common_dtype, precision
from pvmincq_jax.adaptation.grid import Figures, Lane, chunks, judge_lanes, lanes_tolerance, make_lanes
from pvmincq_jax.adaptation.label import Voters, voter_centers
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.matching import draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import Metric, make_space
from pvmincq_jax.voting.factor import vote_factor
from pvmincq_jax.voting.voters import default_gammas, rbf_votes

__all__ = ["Sweep", "sweep"]

MARGIN_FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)
# Relative singular values dropped from the votes, per unit of the smallest margin as a fraction. The objective changes
# by their square over that of the margin: 1e-8 and less was measured, where 1e-7 counts as solved.
TOLERANCE = 2e-5
# Up to this fraction of mu_max masked voters cost digits; see `pvmincq_jax.mincq.solve_mincq`.
SMALL_MARGIN = 1e-3


class Sweep(NamedTuple):
    """Every figure of the grid; ``[r, g, k]`` counts radii, gammas, margins, and a fold axis comes first.

    Attributes:
      radii: absolute ``[r]``.
      gammas: ``[g]``.
      margins: as given ``[k]``.
      margin_unit: "absolute" or "fraction".
      source_risk: of the vote learnt without a fold, on that fold's source points ``[folds, r, g, k]``; NaN if not
        solved.
      pv: of the whole samples ``[r]``.
      c_bound: of the vote learnt from all folds, on its self-labels ``[r, g, k]``.
      self_risk: risk of that vote on its self-labels ``[r, g, k]``.
      matched: number of target points with a label ``[r]``.
      fold_matched: the same without each fold ``[folds, r]``.
      status: of the vote learnt from all folds, `Status` codes ``[r, g, k]``.
      fold_status: ``[folds, r, g, k]``.
      kkt_residual: the largest over the folds and the whole ``[r, g, k]``; NaN where nothing was solved.
      target_values: the vote learnt from all folds, on the target points ``[r, g, k, m_t]``; NaN if not solved.
      self_labels: of the whole samples, one per radius.
      source_labels: ``[m_s]``.
      target: ``[m_t, d]``.
    """

    radii: np.ndarray
    gammas: np.ndarray
    margins: np.ndarray
    margin_unit: MarginUnit
    source_risk: np.ndarray
    pv: np.ndarray
    c_bound: np.ndarray
    self_risk: np.ndarray
    matched: np.ndarray
    fold_matched: np.ndarray
    status: np.ndarray
    fold_status: np.ndarray
    kkt_residual: np.ndarray
    target_values: np.ndarray
    self_labels: tuple[SelfLabels, ...]
    source_labels: np.ndarray
    target: np.ndarray


def sweep(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radii: ArrayLike | Sequence[float] = PV_LEVELS,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
    gammas: ArrayLike | None = None,
    folds: int = 5,
    draws: int = 1,
    seed: int = 0,
    voters: Voters = "target",
    radius_unit: RadiusUnit = "pv",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
    chunk: int = 16,
    progress: Progress = None,
) -> Sweep:
    """Learns PV-MinCq at every point of a grid, on all folds but one and on the whole, without target labels.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``.
      radii: see `grid_radii`; levels of PV from 0.6 to 0 unless given.
      margins: fractions of each problem's mu_max, or absolute.
      gammas: absolute; `default_gammas` of the target when None.
      folds: of the source, stratified by class; the target is used whole (section 3.4).
      draws: matchings per fold and radius; 1 is the paper's.
      seed: of folds and matchings.
      voters: see `pvmincq_jax.pv_mincq`.
      radius_unit: how to read ``radii``.
      margin_unit: how to read ``margins``.
      metric: see `pvmincq_jax.match`.
      chunk: how many folds and radii one compiled call takes; bounds the memory and changes nothing else.
      progress: a bar on standard error: True, False, or None for long work at a terminal; or ``f(done, total)``.

    Returns:
      A `Sweep`. Points of the grid that are infeasible or without pairs are marked by their status; it is an error if
      that is all of them.
    """
    check_task(source, source_labels, target)
    dtype = common_dtype(source, target)
    source, target = np.asarray(source, dtype), np.asarray(target, dtype)
    labels = np.asarray(source_labels, dtype)
    margins = grid_margins(margins, margin_unit)
    gammas = default_gammas(target) if gammas is None else check_vector("gammas", gammas)
    check_folds(folds, int(np.sum(labels < 0)), int(np.sum(labels > 0)))
    chunk = check_count("chunk", chunk, 1)
    centers = voter_centers(source, target, voters)
    radii = grid_radii(source, target, radii, radius_unit, metric)

    numbers = fold_numbers(source, labels, folds, seed)
    learning = np.stack([np.ones(len(labels), bool), *(numbers != fold for fold in range(folds))])
    with progress_bar(progress, len(learning) * len(radii) * (1 + len(gammas)), "sweep") as advance:
        graph = space_graph(make_space(source, target, metric, ties=labels), float(radii.max()))
        found = self_labels(graph, labels, radii, learning, draws, seed, advance)
        lanes = make_lanes(found, learning, voters, dtype)
        results = [
            _one_gamma(source, labels, target, centers, float(gamma), margins, margin_unit, lanes, chunk, advance)
            for gamma in gammas
        ]
    if all(np.all(result.status != Status.SOLVED) for result in results):
        raise ValueError(_all_failed(found, radii, graph.nearest, results))
    return gather(results, lanes, found, labels, target, radii, gammas, margins, margin_unit)


def grid_margins(margins: ArrayLike | Sequence[float], unit: MarginUnit) -> np.ndarray:
    """A grid of margins, checked ``[k]``."""
    values = check_vector("margins", margins)
    if unit not in ("absolute", "fraction"):
        raise ValueError(f"margin_unit must be 'absolute' or 'fraction'; it is {unit!r}")
    if unit == "fraction" and np.any(values > 1):
        raise ValueError(f"margins must be in (0, 1] as fractions of mu_max; the largest is {values.max():g}")
    return values


def gather(
    results: Sequence[Figures],
    lanes: Lane,
    found: Sequence[Sequence[SelfLabels]],
    labels: np.ndarray,
    target: np.ndarray,
    radii: np.ndarray,
    gammas: np.ndarray,
    margins: np.ndarray,
    unit: MarginUnit,
) -> Sweep:
    """The figures of each gamma, fields ``[lanes, k, ...]``, as a `Sweep`; the whole sample is first in ``found``."""
    shape = (len(found), len(radii), len(margins))
    stacked = Figures(
        *(np.stack([field.reshape(shape + field.shape[2:]) for field in fields], 2) for fields in zip(*results))
    )
    matched = lanes.weights.reshape(len(found), len(radii), -1) > 0
    return Sweep(
        radii=radii,
        gammas=gammas,
        margins=margins,
        margin_unit=unit,
        source_risk=stacked.source_risk[1:],
        pv=np.array([one.pv for one in found[0]]),
        c_bound=stacked.c_bound[0],
        self_risk=stacked.self_risk[0],
        matched=matched[0].sum(axis=-1),
        fold_matched=matched[1:].sum(axis=-1),
        status=stacked.status[0],
        fold_status=stacked.status[1:],
        kkt_residual=np.fmax.reduce(stacked.kkt_residual),
        target_values=stacked.target_values[0],
        self_labels=tuple(found[0]),
        source_labels=labels,
        target=target,
    )


def self_labels(
    graph: RadiusGraph,
    labels: np.ndarray,
    radii: np.ndarray,
    learning: np.ndarray,
    draws: int,
    seed: int,
    advance: Callable[[int], None] = lambda steps: None,
) -> list[list[SelfLabels]]:
    """One matching, or mean of several, per fold and radius, all from one graph; [folds + 1][radii]."""

    def one(rows: np.ndarray, radius: float) -> SelfLabels:
        advance(1)
        part = graph.within(radius, rows)
        return carry_labels(draw_matchings(part, draws, seed=seed), labels[rows])

    return [[one(np.flatnonzero(kept), float(radius)) for radius in radii] for kept in learning]


def _one_gamma(
    source: np.ndarray,
    labels: np.ndarray,
    target: np.ndarray,
    centers: np.ndarray,
    gamma: float,
    margins: np.ndarray,
    unit: MarginUnit,
    lanes: Lane,
    chunk: int,
    advance: Callable[[int], None],
) -> Figures:
    """All folds, radii and margins of one gamma; fields are ``[lanes, k, ...]``."""
    dtype = target.dtype
    with precision(dtype):
        votes, source_votes = rbf_votes(target, centers, gamma), rbf_votes(source, centers, gamma)
        # Absolute margins may be any fraction of mu_max.
        smallest = float(np.min(margins)) if unit == "fraction" else SMALL_MARGIN
        factor = vote_factor(votes, tolerance=lanes_tolerance(votes, lanes, margins, unit))
        wanted = jnp.asarray(margins, dtype)
        judge_labels = jnp.asarray(labels, dtype)
    turn = smallest <= SMALL_MARGIN

    def work(piece: tuple[Lane, int]) -> Figures:
        with precision(dtype):
            figures = jax.device_get(
                judge_lanes(votes, source_votes, judge_labels, factor, wanted, piece[0], unit, turn)
            )
        advance(piece[1])
        return Figures(*(field[: piece[1]] for field in figures))

    # One after the other: XLA's own threads deadlock when as many computations as cores wait for them.
    pieces = [work(piece) for piece in chunks(lanes, min(chunk, len(lanes.labels)))]
    return Figures(*(np.concatenate(fields) for fields in zip(*pieces)))


def _all_failed(found: list[list[SelfLabels]], radii: np.ndarray, nearest: float, results: Sequence[Figures]) -> str:
    """Why no point of the grid has a solution."""
    if not any(np.any(one.weights > 0) for per_radius in found for one in per_radius):
        return (
            f"radii up to {radii.max():g} leave every point unmatched: the smallest distance between source and target "
            f"is {nearest:g}"
        )
    codes = np.concatenate([np.ravel(result.status) for result in results])
    reasons = [f"{Status(code).sentence} ({int(np.sum(codes == code))} points)" for code in np.unique(codes)]
    return f"no point of the grid could be solved: {'; '.join(reasons)}. Give smaller margins or larger radii"
