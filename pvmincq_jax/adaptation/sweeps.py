"""The whole grid of the form that carries labels: folds x radii x gammas x margins, in one call.

Matchings are drawn on the host, once per fold and radius; `pvmincq_jax.adaptation.labelled` learns on what they carry.
"""

from collections.abc import Sequence

import jax
import numpy as np

from pvmincq_jax._checks import check_margins, read_task
from pvmincq_jax._progress import Progress, progress_bar
from pvmincq_jax._samples import check_folds
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.classes import class_numbers
from pvmincq_jax.adaptation.grid import VoteBlocks, compile_ahead
from pvmincq_jax.adaptation.labelled import LabelledGrid, Sweep, carried_labels, check_solved, learn_grid
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.seats import MOST_VOTERS, Centers, everybody_and_folds, place_voters, voter_masks
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii
from pvmincq_jax.matching.graph import check_reach, space_graph
from pvmincq_jax.matching.space import Metric, make_space
from pvmincq_jax.voting.families import VoterKind, family_grid
from pvmincq_jax.voting.program import Solver

__all__ = ["sweep"]

MARGIN_FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)


def sweep(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radii: ArrayLike | Sequence[float] | None = None,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
    gammas: ArrayLike | Sequence[float] | None = None,
    folds: int = 5,
    draws: int = 1,
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
) -> Sweep:
    """Learns PV-MinCq at every point of a grid, on all folds but one and on the whole, without target labels.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``.
      radii: to choose from; None for those at ten levels of PV, from 0.6 to 0.
      margins: to choose from.
      gammas: of Gaussian voters, or the values that other ``voters`` make families of; None for
        `pvmincq_jax.default_gammas` of the target, for what the class of a family has by default, or for all families
        of a list, which are then numbered from 0 on.
      folds: of the source, stratified by class; the target is used whole (section 3.4).
      draws: matchings per fold and radius; 1 is the paper's.
      seed: of folds and matchings.
      voters, centers, most_voters: see `pvmincq_jax.pv_mincq`.
      radius_unit: how to read ``radii``, see `pvmincq_jax.grid_radii`.
      margin_unit: "fraction" of each problem's mu_max, or "absolute".
      metric: see `pvmincq_jax.match`.
      solver: as in `pvmincq_jax.mincq`, at every point of the grid.
      mesh: a `jax.sharding.Mesh`; folds, radii and gammas are split over its first axis. None for JAX's default device,
        on which threads keep all cores busy.
      progress: a bar on standard error: True, False, or None for long work at a terminal; or ``f(done, total)``.

    Returns:
      A `Sweep`. Points of the grid that are infeasible or without pairs are marked by their status; it is an error if
      that is all of them.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> figures.status.shape, figures.source_risk.shape
      ((2, 1, 1), (2, 2, 1, 1))
    """
    source, labels, target = read_task(source, source_labels, target)
    margins = check_margins(margins, margin_unit)
    families = family_grid(voters, gammas, target)
    check_folds(folds, int(np.sum(labels < 0)), int(np.sum(labels > 0)))
    unit, values = ("pv", PV_LEVELS) if radii is None else (radius_unit, radii)
    radii = grid_radii(source, target, values, unit, metric)
    options = GridOptions(families, margins, margin_unit, most_voters, folds, draws, seed, solver, mesh)
    with progress_bar(progress, (1 + folds) * len(radii) * (1 + len(families.values)), "sweep") as advance:
        figures = label_grid(source, labels, target, radii, centers, metric, options._replace(advance=advance))
    check_solved(figures.status, figures.fold_status)
    return figures


def label_grid(
    source: np.ndarray,
    labels: np.ndarray,
    target: np.ndarray,
    radii: np.ndarray,
    centers: Centers,
    metric: Metric,
    options: GridOptions,
) -> Sweep:
    """`sweep` on checked arrays of one dtype and absolute radii.

    With labels ``[c, m_s]`` of each class against the rest, its radii are those of the first class, then of the second,
    and so on; see `pvmincq_jax.adaptation.class_grids`.
    """
    kinds = class_numbers(labels)
    graph = check_reach(space_graph(make_space(source, target, metric, ties=kinds), float(radii.max())))
    placed = place_voters(options.voters.families, source, target, centers, options.most_voters, options.seed)
    families = [one.family for one in placed]
    learning = everybody_and_folds(source, kinds, options.folds, options.seed)
    if options.mesh is None and options.unit == "fraction":
        blocks = [VoteBlocks(family, target[:600]) for family in families]
        compile_ahead(blocks, len(learning) * len(radii), options.margins, options.solver)
    found = carried_labels(graph, labels, radii, learning, options)
    masks = voter_masks(placed, found, learning)
    task = LabelledGrid(learning, found, masks, np.tile(radii, len(np.atleast_2d(labels))), labels, target)
    return learn_grid(task, families, options, target, source)
