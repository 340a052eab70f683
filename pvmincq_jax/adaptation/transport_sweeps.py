"""The grid of the transport form in one call: radii x gammas x margins, each a vote on moved source points.

Matchings are drawn on the host, once per radius. Every lane, a radius and a gamma, has the same shapes, rank included,
so that one compiled program serves the whole grid and every task of the same sizes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_task, check_vector
from pvmincq_jax._progress import Progress, progress_bar
from pvmincq_jax._types import Array, ArrayLike, MarginUnit, RadiusUnit, Status, common_dtype, precision
from pvmincq_jax.adaptation.label import PVMinCq
from pvmincq_jax.adaptation.sweeps import TOLERANCE, grid_margins
from pvmincq_jax.adaptation.transport import Transport, barycentres
from pvmincq_jax.matching.curve import grid_radii
from pvmincq_jax.matching.graph import space_graph
from pvmincq_jax.matching.matching import draw_matchings
from pvmincq_jax.matching.space import Metric, make_space
from pvmincq_jax.voting.factor import VoteFactor, vote_factor
from pvmincq_jax.voting.mincq import max_margin, solve_mincq
from pvmincq_jax.voting.voters import default_gammas, rbf_votes

__all__ = ["TransportSweep", "judge_transports", "transport_model", "transport_sweep"]

# In units of the bottleneck radius.
RADIUS_MULTIPLES = (0.7, 0.85, 1.0, 1.15, 1.3, 1.45, 1.6, 1.75, 1.9, 2.05, 2.2, 2.4)
MARGIN_FRACTIONS = (0.05, 0.2, 0.5)
# The rank of all lanes. Votes of more directions are solved as well as these allow, and their status says how well.
_RANK = 128


class TransportSweep(NamedTuple):
    """Every vote of the grid, by its values; ``[r, g, k]`` counts radii, gammas, margins.

    Attributes:
      radii: absolute ``[r]``.
      gammas: ``[g]``.
      margins: as given ``[k]``.
      margin_unit: "absolute" or "fraction".
      pv: ``[r]``.
      c_bound: of the vote on the moved points, with their true labels ``[r, g, k]``.
      status: `Status` codes ``[r, g, k]``.
      kkt_residual: ``[r, g, k]``.
      mu_max: the largest margin ``[r, g, k]``, the same for all margins.
      weights: of the vote ``[r, g, k, m_s]``, over kernels on the moved points; NaN if not solved, as are the values.
      moved_values: the vote on the moved points ``[r, g, k, m_s]``.
      target_values: the vote on the target points ``[r, g, k, m_t]``.
      transports: one per radius.
      source_labels: ``[m_s]``.
      target: ``[m_t, d]``.
    """

    radii: np.ndarray
    gammas: np.ndarray
    margins: np.ndarray
    margin_unit: MarginUnit
    pv: np.ndarray
    c_bound: np.ndarray
    status: np.ndarray
    kkt_residual: np.ndarray
    mu_max: np.ndarray
    weights: np.ndarray
    moved_values: np.ndarray
    target_values: np.ndarray
    transports: tuple[Transport, ...]
    source_labels: np.ndarray
    target: np.ndarray


def transport_sweep(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radii: ArrayLike | Sequence[float] = RADIUS_MULTIPLES,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
    gammas: ArrayLike | None = None,
    draws: int = 64,
    seed: int = 0,
    radius_unit: RadiusUnit = "bottleneck",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
    progress: Progress = None,
) -> TransportSweep:
    """Learns the vote on moved source points at every point of a grid, without target labels.

    Args:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``.
      radii: see `pvmincq_jax.grid_radii`; from 0.7 to 2.4 times the bottleneck radius unless given.
      margins: fractions of each problem's mu_max, or absolute.
      gammas: absolute; `pvmincq_jax.default_gammas` of the target when None.
      draws: matchings per radius.
      seed: of the matchings.
      radius_unit: how to read ``radii``.
      margin_unit: how to read ``margins``.
      metric: see `pvmincq_jax.match`.
      progress: a bar on standard error: True, False, or None for long work at a terminal; or ``f(done, total)``.

    Returns:
      A `TransportSweep`. Points of the grid that could not be solved are marked by their status; it is an error if
      that is all of them.
    """
    check_task(source, source_labels, target)
    dtype = common_dtype(source, target)
    source, target = np.asarray(source, dtype), np.asarray(target, dtype)
    labels = np.asarray(source_labels, dtype)
    margins = grid_margins(margins, margin_unit)
    gammas = default_gammas(target) if gammas is None else check_vector("gammas", gammas)
    radii = grid_radii(source, target, radii, radius_unit, metric)
    graph = space_graph(make_space(source, target, metric, ties=labels), float(radii.max()))
    # A radius that reaches nobody gives nothing to learn from.
    radii = radii[[bool(np.any(graph.distances <= radius)) for radius in radii]]
    if not radii.size:
        raise ValueError(
            f"radii up to {graph.radius:g} leave every point unmatched: the smallest distance between source and "
            f"target is {graph.nearest:g}"
        )
    transports = []
    with progress_bar(progress, len(radii) * (1 + len(gammas)), "transport") as advance:
        for radius in radii:
            drawn = draw_matchings(graph.within(float(radius)), draws, seed=seed)
            transports.append(barycentres(source, target, drawn.expected, drawn.pv, float(radius)))
            advance(1)
        return judge_transports(transports, labels, target, gammas, margins, margin_unit, advance)


def judge_transports(
    transports: Sequence[Transport],
    labels: np.ndarray,
    target: np.ndarray,
    gammas: np.ndarray,
    margins: np.ndarray,
    margin_unit: MarginUnit = "fraction",
    advance: Callable[[int], None] = lambda _: None,
) -> TransportSweep:
    """Learns on moved points that are already there, whatever moved them.

    Args:
      transports: one for each radius, e.g. of `pvmincq_jax.barycentres`.
      labels: of the source ``[m_s]``.
      target: ``[m_t, d]``.
      gammas: ``[g]``.
      margins: ``[k]``.
      margin_unit: how to read ``margins``.
      advance: told of each finished lane.

    Returns:
      A `TransportSweep`.
    """
    lanes = []
    for transport in transports:
        for gamma in gammas:
            lanes.append(_one_lane(transport, labels, target, float(gamma), margins, margin_unit))
            advance(1)
    grid = (len(transports), len(gammas))
    figures = _Figures(*(np.stack(field).reshape(grid + field[0].shape) for field in zip(*lanes)))
    if np.all(figures.status != Status.SOLVED):
        reasons = "; ".join(Status(code).sentence for code in np.unique(figures.status))
        raise ValueError(f"no point of the grid could be solved: {reasons}. Give smaller margins or larger radii")
    return TransportSweep(
        radii=np.array([float(transport.radius) for transport in transports]),
        gammas=gammas,
        margins=margins,
        margin_unit=margin_unit,
        pv=np.array([float(transport.pv) for transport in transports]),
        transports=tuple(transports),
        source_labels=labels,
        target=target,
        **figures._asdict(),
    )


def transport_model(sweep: TransportSweep, index: tuple[int, int, int]) -> PVMinCq:
    """The vote at one point of the grid, as `pvmincq_jax.pv_transport_mincq` would return it.

    Args:
      sweep: of `transport_sweep`.
      index: into the grid, (radius, gamma, margin).

    Returns:
      A `PVMinCq`.
    """
    r, g, k = index
    if sweep.status[r, g, k] != Status.SOLVED:
        raise ValueError(f"index {tuple(index)}: no vote there; {Status(int(sweep.status[r, g, k])).sentence}")
    transport, mu_max, dtype = sweep.transports[r], sweep.mu_max[r, g, k], sweep.target.dtype
    margin = sweep.margins[k] * (mu_max if sweep.margin_unit == "fraction" else 1.0)
    return PVMinCq(
        centers=transport.moved,
        weights=sweep.weights[r, g, k],
        gamma=np.asarray(sweep.gammas[g], dtype),
        margin=np.asarray(margin, dtype),
        mu_max=mu_max,
        c_bound=sweep.c_bound[r, g, k],
        kkt_residual=sweep.kkt_residual[r, g, k],
        radius=np.asarray(transport.radius, dtype),
        pv=np.asarray(transport.pv, dtype),
        labels=sweep.source_labels,
        label_weights=np.asarray(transport.weights, dtype),
        pairs=transport.pairs,
    )


class _Figures(NamedTuple):
    """What one lane gives for each margin ``[k]``."""

    c_bound: Any
    status: Any
    kkt_residual: Any
    mu_max: Any
    weights: Any
    moved_values: Any
    target_values: Any


def _one_lane(
    transport: Transport, labels: np.ndarray, target: np.ndarray, gamma: float, margins: np.ndarray, unit: MarginUnit
) -> _Figures:
    """All margins of one radius and gamma."""
    moved: Any = transport.moved
    matched: Any = np.asarray(transport.weights) > 0
    dtype = moved.dtype
    with precision(dtype):
        votes = _masked_votes(moved, moved, gamma, matched)
        smallest = float(np.min(margins)) if unit == "fraction" else 1e-3
        tolerance = max(TOLERANCE * smallest, 4 * float(np.finfo(dtype).eps))
        factor = _of_rank(vote_factor(votes, tolerance=tolerance), min(_RANK, len(moved)))
        target_votes = _masked_votes(target, moved, gamma, matched)
        weights = jnp.asarray(transport.weights, dtype)
        # One after the other: XLA's own threads deadlock when as many computations as cores wait for them.
        return jax.device_get(
            _judge(votes, target_votes, jnp.asarray(labels), weights, factor, jnp.asarray(margins, dtype), unit)
        )


@jax.jit
def _masked_votes(x: Array, centers: Array, gamma: Array, mask: Array) -> Array:
    """Voters that are masked out vote 0, so that they take up no rank."""
    return jnp.where(mask, rbf_votes(x, centers, gamma), 0.0)


def _of_rank(factor: VoteFactor, rank: int) -> VoteFactor:
    """The factor with its directions, largest first, cut off or filled up with zeros."""
    missing = max(0, rank - factor.right.shape[0])
    left = np.pad(np.asarray(factor.left)[:, :rank], ((0, 0), (0, missing)))
    return VoteFactor(jnp.asarray(left), jnp.asarray(np.pad(np.asarray(factor.right)[:rank], ((0, missing), (0, 0)))))


@functools.partial(jax.jit, static_argnames="unit")
def _judge(
    votes: Array,
    target_votes: Array,
    labels: Array,
    weights: Array,
    factor: VoteFactor,
    margins: Array,
    unit: MarginUnit,
) -> _Figures:
    """Learns at all margins side by side, and evaluates the votes."""
    mask = weights > 0
    mu = margins * max_margin(votes, labels, sample_weights=weights, voter_mask=mask) if unit == "fraction" else margins

    def one_margin(margin: Array) -> _Figures:
        solution = solve_mincq(votes, labels, margin, weights, mask, factor, "interior_point", False)
        return _Figures(
            c_bound=solution.c_bound,
            status=solution.status,
            kkt_residual=solution.kkt_residual,
            mu_max=solution.mu_max,
            weights=solution.weights,
            moved_values=votes @ solution.weights,
            target_values=target_votes @ solution.weights,
        )

    return jax.vmap(one_margin)(mu)
