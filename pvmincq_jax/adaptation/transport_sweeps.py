"""MinCq on moved source points, at one point and over the grid of radii x gammas x margins.

Matchings are drawn on the host, once per radius; `pvmincq_jax.adaptation.moved_grid` learns on what they moved.
"""

from collections.abc import Sequence

import jax
import numpy as np

from pvmincq_jax._checks import check_margins, check_positive, read_task
from pvmincq_jax._progress import Progress, progress_bar
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.grid import VoteBlocks, compile_ahead
from pvmincq_jax.adaptation.learn import learn_at
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.moved_grid import TransportSweep, learn_on_moved, moved_labels
from pvmincq_jax.adaptation.moves import Moves, one_map, plan_moves
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.seats import MOST_VOTERS, place_on_moved
from pvmincq_jax.adaptation.transport import stay
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind, family_grid, one_family
from pvmincq_jax.voting.program import Solver

__all__ = ["pv_transport_mincq", "transport_sweep"]

MARGIN_FRACTIONS = (0.05, 0.2, 0.5)


def pv_transport_mincq(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    margin: float,
    radius: float | None = None,
    gamma: float | None = None,
    draws: int = 64,
    seed: int = 0,
    voters: VoterKind = "rbf",
    most_voters: int = MOST_VOTERS,
    radius_unit: RadiusUnit = "absolute",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
    identity: bool = False,
    own_scale: bool = False,
    even: bool = True,
    ratio: float | None = None,
) -> PVMinCq:
    """Learns a majority vote for the target domain on the moved, truly labelled source points (not in the paper).

    1. draw maximum matchings within the radius; 2. move each source point to the mean of its matched target points;
    3. run MinCq on the moved points, each as heavy as it is matched.

    Host code, as `pvmincq_jax.pv_mincq`. To choose radius, margin and gamma without target labels, see
    `pvmincq_jax.fit_transport_validated`.

    Args:
      source, source_labels, target, radius, margin, gamma, seed, radius_unit, margin_unit, metric: as in
        `pvmincq_jax.pv_mincq`.
      draws: how many matchings.
      voters, most_voters: as there; kernels sit on the moved points.
      identity: whether nobody is matched, and the source stays where it is; the radius is then None or 0.
      own_scale: whether the source is brought to the target's scale first, see `pvmincq_jax.own_scale`.
      even, ratio: as in `pvmincq_jax.transport_sweep`.

    Returns:
      A `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict`. Its learning sample is the moved source:
      ``labels`` and ``label_weights``, both ``[m_s]``, are theirs. A `pvmincq_jax.Choice` of the same task, draws and
      seed has its radius, margin, margin_unit, gamma, identity and own_scale.

    Example:
      >>> from pvmincq_jax import predict
      >>> source, labels = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([1, 1, -1, -1])
      >>> model = pv_transport_mincq(source, labels, source + 3, radius=3.1, margin=0.5, gamma=5.0)
      >>> print(predict(model, np.array([[3.1], [4.1]])), float(model.pv))
      [ 1. -1.] 0.0
    """
    source, labels, target = read_task(source, source_labels, target)
    check_margins([margin], margin_unit, "margin")
    family = one_family(voters, gamma)
    if identity and radius not in (None, 0):
        raise ValueError(f"radius must be None or 0 where identity is True; it is {radius!r}")
    if not identity and radius is None:
        raise ValueError("radius must be a number unless identity is True; it is None")
    if not identity and radius_unit != "pv":
        check_positive("radius", radius)
    moves = Moves([radius or 0.0], radius_unit, identity, own_scale, even, _shares(ratio), draws, seed, metric)
    transport = one_map(source, labels, target, moves)
    [(family, mask)] = place_on_moved([family], transport, most_voters, seed)
    learnt = np.asarray(transport.moved), moved_labels(transport, labels), mask
    return learn_at(family, *learnt, transport.radius, margin, margin_unit)


def transport_sweep(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radii: ArrayLike | Sequence[float] | None = None,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
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
    ratio: float | None = None,
    source_weights: ArrayLike | None = None,
) -> TransportSweep:
    """Learns the vote on moved source points at every point of a grid, without target labels (not in the paper).

    Args:
      source, source_labels, target: the task, as in `pvmincq_jax.sweep`.
      radii: to choose from; None for six levels of PV from 0.6 to 0, and up to six radii that reach from 20 to 88 % of
        all pairs, those that are at least 1.15 times the bottleneck radius and reach no more than 2^25 pairs.
      draws, seed: how many matchings per radius, and of which seed.
      voters, most_voters: as in `pvmincq_jax.pv_mincq`; kernels sit on the moved points.
      margins, gammas, radius_unit, margin_unit, metric, solver, progress: as in `pvmincq_jax.sweep`.
      mesh: as there; radii and gammas are split over its first axis.
      identity: whether the vote learnt on the source where it is, without adaptation, is a point of the grid, at
        radius 0; None: with the default radii.
      own_scale: whether all of the grid is there a second time, with each source feature on the target's mean and
        deviation before it is matched, see `pvmincq_jax.own_scale`; None: with the default radii.
      even: whether the smaller sample is repeated to the size of the larger one before they are matched, see
        `pvmincq_jax.even_rows`.
      ratio: the share of +1 in the target, which the source is brought to by repeating and leaving out rows before the
        samples are matched, see `pvmincq_jax.estimate_ratio`; None: the classes are as frequent as in the source.
      source_weights: of the source points ``[m_s]``, see `pvmincq_jax.detect_shift`; then the source stays where it is,
        so weighed, and there is no other map in the grid.

    Returns: a `TransportSweep`; what could not be solved is marked, or an error, as in `pvmincq_jax.sweep`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.transport_sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0])
      >>> figures.status.shape, figures.moved_values.shape
      ((2, 1, 1), (2, 1, 1, 16))
    """
    source, labels, target = read_task(source, source_labels, target)
    margins = check_margins(margins, margin_unit)
    families = family_grid(voters, gammas, target)
    moves = Moves(radii, radius_unit, identity, own_scale, even, _shares(ratio), draws, seed, metric)
    options = GridOptions(families, margins, margin_unit, most_voters, seed=seed, solver=solver, mesh=mesh)
    makers = plan_moves(source, labels, target, moves) if source_weights is None else []
    if mesh is None and margin_unit == "fraction":
        # As if nobody moved.
        placed = place_on_moved(families.families, stay(source), most_voters, seed)
        blocks = [VoteBlocks(family, source[:600]) for family, _ in placed]
        compile_ahead(blocks, len(makers) or 1, margins, solver)
    transports = [] if source_weights is None else [stay(source, weights=source_weights)]
    steps = len(makers) + (len(makers) or 1) * len(families.values)
    with progress_bar(progress, steps, "transport") as advance:
        for make in makers:
            transports.append(make())
            advance(1)
        (found,) = learn_on_moved(transports, labels[None], target, options._replace(advance=advance))
    return found._replace(ratio=float(np.mean(labels > 0)) if ratio is None else float(ratio))


def _shares(ratio: float | None) -> dict[float, float] | None:
    """Of both classes, from that of +1, which is between 0 and 1."""
    if ratio is None:
        return None
    if not 0 < ratio < 1:
        raise ValueError(f"ratio must be None or the share of +1 in the target, between 0 and 1; it is {ratio!r}")
    return {1.0: ratio, -1.0: 1 - ratio}
