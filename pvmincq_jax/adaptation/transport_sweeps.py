"""MinCq on moved source points, at one point and over the grid of maps x gammas x margins. Not in the paper.

A map moves nobody, brings the source to the target's moments, or follows matchings at a radius. In the plane the useful
radii reach far beyond the bottleneck radius; in many dimensions distances concentrate, and a little beyond it every
point is within reach of every other. Levels of PV follow the data in both cases, and radii that reach given shares of
all pairs are added where they are well beyond the bottleneck radius.

Samples of unequal size, or of unequal class ratio, are made even by repeating rows before they are matched; copies are
folded into their point afterwards, so that a map is always one of the source as it was given.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from pvmincq_jax._checks import check_flag, check_real, check_task
from pvmincq_jax._samples import class_rows, even_rows
from pvmincq_jax._threads import Progress, on_all_cores, progress_bar
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit, takes_options_of
from pvmincq_jax.adaptation.choice import model_at
from pvmincq_jax.adaptation.label import read_classes, read_weights
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.options import check_grid, grid_of_point
from pvmincq_jax.adaptation.sweeps import GridOptions, LearningTask, Sweep, learn_sweep
from pvmincq_jax.adaptation.transport import Transport, barycentres, identity_transport, match_moments
from pvmincq_jax.matching.curve import grid_radii, level_radii
from pvmincq_jax.matching.graph import RadiusGraph, check_reach, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching, draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.matching.space import Metric, Precomputed, Space, make_space
from pvmincq_jax.voting.centers import MOST_VOTERS, PlacedVoters, place_on_moved
from pvmincq_jax.voting.classes import class_numbers
from pvmincq_jax.voting.families import VoterKind, family_grid
from pvmincq_jax.voting.program import Solver

__all__ = ["pv_transport_mincq", "transport_sweep"]

TRANSPORT_MARGINS = (0.05, 0.2, 0.5)
# Levels of PV, then shares of all pairs within reach: close together where large rotations need them, and below 0.9,
# from where on a matching is next to any permutation, and moved points are all one.
TRANSPORT_LEVELS = (0.6, 0.4, 0.2, 0.1, 0.05, 0.0)
REACHES = (0.2, 0.4, 0.6, 0.75, 0.82, 0.88)
# How far beyond the bottleneck radius, in its units: what is nearer gives next to the same map.
_BEYOND = 1.15
# Of samples with more pairs than these, 5 800 points a domain, radii that reach more are left out: 400 MB of edges.
_MOST_EDGES = 1 << 25


# Whether maps begin from the source with the target's moments, too, or alone.
ScaledMaps = bool | Literal["only"] | None


class MapOptions(NamedTuple):
    """Which maps a grid holds; each as in `pvmincq_jax.transport_sweep`.

    Attributes:
      radii: of the matchings, or None for the default.
      unit: of the radii.
      include_identity: whether a map that moves nobody is among them; None: with default radii.
      match_moments: whether the same maps follow from the source with the target's moments, or "only" these; None: with
        default radii.
      equal_sizes: whether samples of unequal size are made even.
      shares: of the classes in the target ``[c]``, which the source is brought to; None for those of the source.
      draws: matchings per radius.
      seed: of matchings and repeated rows.
      metric: of the matching.
    """

    radii: ArrayLike | Sequence[float] | None = None
    unit: RadiusUnit = "absolute"
    include_identity: bool | None = None
    match_moments: ScaledMaps = None
    equal_sizes: bool = True
    shares: np.ndarray | None = None
    draws: int = 64
    seed: int = 0
    metric: Metric = "euclidean"


def plan_maps(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, options: MapOptions
) -> Iterator[Callable[[], Transport]]:
    """The maps of a grid between two checked samples, at least one, each to be made when it is called."""
    default, metric = options.radii is None, options.metric
    scaled = options.match_moments
    if scaled is None:
        scaled = default and not isinstance(metric, Precomputed)
    identity = default if options.include_identity is None else options.include_identity
    seed, equal, shares = options.seed, options.equal_sizes, options.shares
    size = max(len(source), len(target)) if equal else len(source)
    if shares is None:
        rows = even_rows(source, size, seed=seed, labels=labels)
    else:
        rows = class_rows(source, labels, size, dict(zip(np.unique(labels).tolist(), shares.tolist())), seed=seed)
    columns = even_rows(target, size if equal else len(target), seed=seed)
    if isinstance(metric, Precomputed):
        if scaled:
            raise ValueError("match_moments must be False where metric is Precomputed: distances are given as they are")
        metric = Precomputed(np.asarray(metric.distances)[np.ix_(rows, columns)])
    # A point is as heavy as all its copies, and all together weigh m_s.
    heavy = len(source) / len(rows)

    def matched(graph: RadiusGraph, radius: float, moments: bool) -> Transport:
        drawn = draw_matchings(graph.within(radius), options.draws, seed=seed)
        # Pairs of copies as pairs of points.
        code = columns[drawn.expected.target] * len(source) + rows[drawn.expected.source]
        code, place = np.unique(code, return_inverse=True)
        weights = np.bincount(place, drawn.expected.weights) * heavy
        pairs = ExpectedMatching(code % len(source), code // len(source), weights)
        return barycentres(source, target, pairs, drawn.pv, radius)._replace(match_moments=moments)

    for moments in (True,) if scaled == "only" else (False, True) if scaled else (False,):
        start = match_moments(source, target[columns], rows).astype(source.dtype) if moments else source
        if identity:
            still = identity_transport(source, start, np.bincount(rows, minlength=len(source)) * heavy)
            yield partial(still._replace, match_moments=moments)
        if identity and np.asarray(options.radii).size == 0:
            continue
        samples = start[rows], target[columns]
        space = make_space(*samples, metric, ties=labels[rows])
        if options.radii is None:
            lengths = _default_radii(space)
        else:
            lengths = grid_radii(*samples, options.radii, options.unit, metric)
        graph = check_reach(space_graph(space, float(lengths.max())))
        # A radius that reaches nobody gives nothing to learn from.
        for radius in lengths[lengths >= np.min(graph.distances)]:
            yield partial(matched, graph, float(radius), moments)


def _default_radii(space: Space) -> np.ndarray:
    """Those at levels of PV, and those that reach given shares of all pairs."""
    levels, pairs = np.unique(level_radii(space, TRANSPORT_LEVELS)), space.source_rows.size * space.target_rows.size
    wide = np.quantile(space.some_lengths(), [share for share in REACHES if share * pairs <= _MOST_EDGES])
    return np.concatenate([levels, wide[wide >= _BEYOND * levels[-1]]])


def moved_labels(transport: Transport, labels: np.ndarray, source_weights: np.ndarray | float = 1.0) -> SelfLabels:
    """The labels of moved points, each as heavy as it is matched, times its own weight."""
    return SelfLabels(labels, np.asarray(transport.weights) * source_weights, float(transport.pv), transport.pairs)


def transport_sweep(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radii: ArrayLike | Sequence[float] | None = None,
    margins: ArrayLike | Sequence[float] = TRANSPORT_MARGINS,
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
    include_identity: bool | None = None,
    match_moments: ScaledMaps = None,
    equal_sizes: bool = True,
    ratio: float | Sequence[float] | None = None,
    identity_weights: ArrayLike | None = None,
    source_weights: ArrayLike | None = None,
) -> Sweep:
    """Learns the vote on moved source points at every point of a grid, without target labels (not in the paper).

    Args:
      source, source_labels, target: the task, as in `pvmincq_jax.sweep`.
      radii: to choose from; None for six levels of PV from 0.6 to 0, and up to six radii that reach from 20 to 88 % of
        all pairs, those that are at least 1.15 times the bottleneck radius and reach no more than 2^25 pairs; an empty
        list for the identity alone.
      draws, seed: how many matchings per radius, and of which seed.
      voters, most_voters: as in `pvmincq_jax.pv_mincq`; kernels sit on the moved points.
      margins, gammas, radius_unit, margin_unit, metric, solver, progress: as in `pvmincq_jax.sweep`.
      mesh: as there; radii and gammas are split over its first axis.
      include_identity: whether the votes learnt on the source where it is, without adaptation, are in the grid, at
        radius 0; None: with the default radii.
      match_moments: True adds to every map a second one, for which each source feature first gets the target's mean
        and deviation, see `pvmincq_jax.match_moments`; "only" keeps just these second ones, which is what True means in
        `pvmincq_jax.pv_transport_mincq`; False leaves them out; None: True with the default radii, else False.
      equal_sizes: whether the smaller sample is repeated to the size of the larger one before they are matched.
      ratio: the share of +1 in the target, or the shares of all classes ``[c]``, which the source is brought to by
        repeating and leaving out rows before the samples are matched; None: the classes are as frequent as in the
        source.
      identity_weights: of the source points ``[m_s]``, see `pvmincq_jax.detect_shift`; then the source stays where it
        is, so weighed, and there is no other map in the grid.
      source_weights: of the source points ``[m_s]``, above 0, in MinCq, where they multiply the share in which a point
        is matched; None for 1 each. They play no part in the maps, which pair points whatever they weigh.

    Returns:
      A `Sweep`; what could not be solved is marked, or an error, as in `pvmincq_jax.sweep`. Radii that reach no pair
      are left out, so r may be smaller than the number given.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.transport_sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0])
      >>> figures.status.shape, len(figures.transports)
      ((2, 1, 1), 2)
    """
    check_flag("match_moments", match_moments, None, "only")
    source, labels, target = read_classes(source, source_labels, target)
    check_grid(
        source, radii=radii, margins=margins, draws=draws, seed=seed, most_voters=most_voters, radius_unit=radius_unit,
        margin_unit=margin_unit, metric=metric, solver=solver, mesh=mesh, progress=progress, equal_sizes=equal_sizes,
        include_identity=include_identity, identity_weights=identity_weights, source_weights=source_weights,
    )  # fmt: skip
    margins = np.asarray(margins, float)
    families = family_grid(voters, gammas, target)
    kinds, two = class_numbers(labels), labels.ndim == 1
    shares = None if ratio is None else check_shares(ratio, np.unique(kinds).size)
    expected = shares if not two else float(np.mean(labels > 0) if shares is None else shares[1])
    weights = read_weights("source_weights", source_weights, len(source))
    options = GridOptions(families.values, margins, margin_unit, solver, mesh)

    def place(transport: Transport) -> list[PlacedVoters]:
        moved, matched = np.asarray(transport.moved), np.asarray(transport.weights)
        return place_on_moved(families.families, source, moved, matched, most_voters, seed)

    if identity_weights is None:
        maps = MapOptions(radii, radius_unit, include_identity, match_moments, equal_sizes, shares, draws, seed, metric)
        makers = list(plan_maps(source, kinds, target, maps))
    else:
        makers = [partial(identity_transport, source, weights=identity_weights)]
    with progress_bar(progress, len(makers) * (1 + len(families.values)), "transport") as advance:
        transports = []
        for make in makers:
            transports.append(make())
            advance(1)
        placed = on_all_cores(place, transports)
        samples = [moved_labels(one, labels, weights) for one in transports]
        task = LearningTask([np.asarray(one.moved) for one in transports], placed, [samples], target, labels, weights)
        return learn_sweep(
            task,
            options._replace(advance=advance),
            radii=np.array([float(one.radius) for one in transports]),
            transports=tuple(transports),
            ratio=expected,
        )


@takes_options_of(transport_sweep, "radii", "margins", "gammas", "include_identity", "identity_weights")
def pv_transport_mincq(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    margin: float,
    radius: float | None = None,
    gamma: float | None = None,
    identity: bool = False,
    match_moments: bool = False,
    **options: Any,
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
      solver, mesh, progress, source_weights: as in `pvmincq_jax.transport_sweep`.
      voters, most_voters: as there; kernels sit on the moved points.
      identity: whether nobody is matched, and the source stays where it is; the radius is then None or 0.
      match_moments: whether the source first gets the target's mean and deviation, see `pvmincq_jax.match_moments`.
        There is one map here, so True is the "only" of `pvmincq_jax.transport_sweep`, where True keeps both maps.
      equal_sizes, ratio: as in `pvmincq_jax.transport_sweep`.

    Returns:
      A `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict`. Its learning sample is the moved source:
      ``labels`` and ``label_weights``, both ``[m_s]``, are theirs. A `pvmincq_jax.Choice` of the same task, draws and
      seed has its radius, margin, margin_unit, gamma, identity and match_moments.

    Example:
      >>> from pvmincq_jax import predict
      >>> source, labels = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([1, 1, -1, -1])
      >>> model = pv_transport_mincq(source, labels, source + 3, radius=3.1, margin=0.5, gamma=5.0)
      >>> print(predict(model, np.array([[3.1], [4.1]])), float(model.pv))
      [ 1. -1.] 0.0
    """
    check_task(source, source_labels, target)
    check_flag("identity", identity)
    check_flag("match_moments", match_moments)
    if identity and radius is not None and np.any(check_real("radius", radius) != 0):
        raise ValueError(f"radius must be None or 0 where identity is True; it is {radius!r}")
    if not identity and radius is None:
        raise ValueError("radius must be a number unless identity is True; it is None")
    options |= {"include_identity": identity, "match_moments": "only" if match_moments else False}
    point = grid_of_point(None if identity else radius, margin, gamma, options)
    return model_at(transport_sweep(source, source_labels, target, **point), (0, 0, 0))


def check_shares(ratio: ArrayLike | Sequence[float], classes: int) -> np.ndarray:
    """The shares of all classes ``[c]``, from the share of +1, or from those of more than two.

    Example:
      >>> check_shares(0.25, 2)
      array([0.75, 0.25])
    """
    shares = np.asarray(check_real("ratio", ratio), float)
    if classes == 2:
        if shares.ndim or not 0 < shares < 1:
            raise ValueError(f"ratio must be the share of +1 in the target, between 0 and 1; it is {ratio!r}")
        return np.array([1 - shares, shares])
    if shares.shape != (classes,) or not np.all(shares > 0) or not np.isclose(np.sum(shares), 1):
        raise ValueError(
            f"ratio must be {classes} shares above 0 with sum 1, in the order of the classes; it is {ratio!r}"
        )
    return shares
