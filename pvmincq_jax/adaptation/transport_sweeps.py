"""MinCq on moved source points, at one point and over the grid of radii x gammas x margins.

Matchings are drawn on the host, once per radius; `pvmincq_jax.adaptation.moved_grid` learns on what they moved.
"""

from collections.abc import Sequence

import jax
import numpy as np

from pvmincq_jax._checks import check_margins, check_task, read_task
from pvmincq_jax._progress import Progress, progress_bar
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit
from pvmincq_jax.adaptation.learn import learn_at
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.moved_grid import TransportSweep, learn_on_moved, moved_labels
from pvmincq_jax.adaptation.moves import Moves, plan_moves
from pvmincq_jax.adaptation.options import GridOptions, grid_gammas
from pvmincq_jax.adaptation.seats import MOST_VOTERS, seat_moved
from pvmincq_jax.adaptation.transport import pv_transport, stay
from pvmincq_jax.matching.curve import grid_radii
from pvmincq_jax.matching.space import Metric
from pvmincq_jax.voting.families import VoterKind, make_voters

__all__ = ["pv_transport_mincq", "transport_sweep"]

MARGIN_FRACTIONS = (0.05, 0.2, 0.5)


def pv_transport_mincq(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radius: float,
    margin: float,
    gamma: float | None = None,
    draws: int = 64,
    seed: int = 0,
    voters: VoterKind = "rbf",
    most_voters: int = MOST_VOTERS,
    radius_unit: RadiusUnit = "absolute",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
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
      voters, most_voters: as there; Gaussian kernels sit on the moved points.

    Returns:
      A `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict`. Its learning sample is the moved source:
      ``labels`` and ``label_weights``, both ``[m_s]``, are theirs, and Gaussian voters have them as ``centers``.

    Example:
      >>> from pvmincq_jax import predict
      >>> source, labels = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([1, 1, -1, -1])
      >>> model = pv_transport_mincq(source, labels, source + 3, radius=3.1, margin=0.5, gamma=5.0)
      >>> print(predict(model, np.array([[3.1], [4.1]])), float(model.pv))
      [ 1. -1.] 0.0
    """
    check_task(source, source_labels, target)
    check_margins([margin], margin_unit, "margin")
    if radius_unit != "absolute":
        radius = float(grid_radii(source, target, [radius], radius_unit, metric)[0])
    transport = pv_transport(source, target, radius, draws=draws, seed=seed, metric=metric, source_labels=source_labels)
    places, mask = seat_moved(voters, transport, most_voters, seed)
    family = make_voters(voters, places, gamma)
    found = moved_labels(transport, np.asarray(source_labels, float))
    everybody = np.ones(family.votes(places[:1]).shape[1], bool)
    learnt = np.asarray(transport.moved), found, everybody if mask is None else mask
    return learn_at(family, *learnt, radius, margin, margin_unit)


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
    exact: bool | None = None,
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
      voters, most_voters: as in `pvmincq_jax.pv_mincq`; Gaussian kernels sit on the moved points.
      margins, gammas, radius_unit, margin_unit, metric, exact, progress: as in `pvmincq_jax.sweep`.
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
    gammas = grid_gammas(gammas, target, voters)
    check_ratio(ratio)
    shares = None if ratio is None else {1.0: ratio, -1.0: 1 - ratio}
    moves = Moves(radii, radius_unit, identity, own_scale, even, shares, draws, seed, metric)
    options = GridOptions(gammas, margins, margin_unit, voters, most_voters, seed=seed, exact=exact, mesh=mesh)
    makers = plan_moves(source, labels, target, moves) if source_weights is None else []
    transports = [] if source_weights is None else [stay(source, weights=source_weights)]
    with progress_bar(progress, len(makers) + (len(makers) or 1) * len(gammas), "transport") as advance:
        for make in makers:
            transports.append(make())
            advance(1)
        (found,) = learn_on_moved(transports, labels[None], target, options._replace(advance=advance))
    return found._replace(ratio=float(np.mean(labels > 0)) if ratio is None else float(ratio))


def check_ratio(ratio: float | None) -> None:
    """The share of a class is between 0 and 1."""
    if ratio is not None and not 0 < ratio < 1:
        raise ValueError(f"ratio must be None or the share of +1 in the target, between 0 and 1; it is {ratio!r}")
