"""PV-MinCq (Algorithm 3): match, carry the labels over, learn the majority vote on the self-labelled target.

At one point, over the grid of folds x radii x gammas x margins, and on one domain, where every point is its own match.
Matchings are drawn on the host, once per fold and radius.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._samples import check_folds, everybody_and_folds
from pvmincq_jax._threads import Progress, progress_bar
from pvmincq_jax._types import ArrayLike, MarginUnit, RadiusUnit, common_dtype, takes_options_of
from pvmincq_jax.adaptation.choice import model_at
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.options import check_grid, check_options, grid_of_point
from pvmincq_jax.adaptation.sweeps import GridOptions, LearningTask, Sweep, learn_sweep
from pvmincq_jax.matching.curve import PV_LEVELS, grid_radii
from pvmincq_jax.matching.graph import RadiusGraph, check_reach, space_graph
from pvmincq_jax.matching.matching import ExpectedMatching, MatchingDraws, draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.matching.space import Metric, make_space
from pvmincq_jax.voting.centers import MOST_VOTERS, CenterKind, PlacedVoters, place_voters
from pvmincq_jax.voting.classes import class_numbers, labels_by_class
from pvmincq_jax.voting.families import VoterKind, family_grid
from pvmincq_jax.voting.program import Solver
from pvmincq_jax.voting.voters import OutputVoters, check_outputs

__all__ = ["adapt_votes", "mincq_sweep", "pv_mincq", "sweep"]

MARGIN_FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)
# Of c > 2 classes each fold learns c votes, and so does the whole sample: 5 classes with 2 folds are 5 x (2 + 1) = 15
# votes, as many as 2 classes with 14 folds.
_FOLDS, _FOLDS_OF_MORE = 5, 2


def read_classes(
    source: ArrayLike, source_labels: ArrayLike, target: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A checked task in one precision, with labels ``[m_s]``, or those of each class against the rest ``[c, m_s]``."""
    source, labels, target = _checks.read_task(source, source_labels, target, classes=True)
    return source, labels_by_class(labels), target


def read_weights(name: str, weights: ArrayLike | None, count: int) -> np.ndarray:
    """Weights of sample points, above 0, brought to a mean of 1 ``[m]``; None for 1 each.

    Example:
      >>> read_weights("source_weights", [1, 3], 2), read_weights("source_weights", None, 2)
      (array([0.5, 1.5]), array([1., 1.]))
    """
    if weights is None:
        return np.ones(count)
    (values,) = _checks.read_samples(**{name: weights})
    _checks.check_sample_weights(name, values, count)
    values = values.astype(float)
    if np.any(values == 0):
        raise ValueError(f"{name} must be above 0; row {np.argmin(values)} has 0. Leave such rows out")
    return values / np.mean(values)


def sweep(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radii: ArrayLike | Sequence[float] | None = None,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
    gammas: ArrayLike | Sequence[float] | None = None,
    folds: int | None = 5,
    draws: int = 1,
    seed: int = 0,
    voters: VoterKind = "rbf",
    centers: CenterKind = "target",
    most_voters: int = MOST_VOTERS,
    radius_unit: RadiusUnit = "absolute",
    margin_unit: MarginUnit = "fraction",
    metric: Metric = "euclidean",
    solver: Solver = "interior_point",
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = None,
    source_weights: ArrayLike | None = None,
) -> Sweep:
    """Learns PV-MinCq at every point of a grid, on all folds but one and on the whole, without target labels.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``. More than two classes are
        numbers from 0 on.
      radii: to choose from; None for those at ten levels of PV, from 0.6 to 0.
      margins: to choose from.
      gammas: of Gaussian voters, or the values that other ``voters`` make families of; None for
        `pvmincq_jax.default_gammas` of the target, for what the class of a family has by default, or for all families
        of a list, which are then numbered from 0 on.
      folds: of the source, stratified by class; the target is used whole (section 3.4). None for 5, or 2 with more
        than two classes, fewer if the smallest class has fewer points, and none where there is nothing to choose.
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
      source_weights: of the source points ``[m_s]``, above 0; None for 1 each. They count in R_S, and in MinCq, where a
        label carries its weight along. They play no part in the matching, which pairs points whatever they weigh.

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
    source, labels, target = read_classes(source, source_labels, target)
    check_grid(
        source, radii=radii, margins=margins, draws=draws, seed=seed, centers=centers, most_voters=most_voters,
        radius_unit=radius_unit, margin_unit=margin_unit, metric=metric, solver=solver, mesh=mesh, progress=progress,
        source_weights=source_weights,
    )  # fmt: skip
    margins = np.asarray(margins, float)
    families = family_grid(voters, gammas, target)
    if radii is None:
        radii, radius_unit = PV_LEVELS, "pv"
    count = _fold_count(folds, labels, np.size(radii) * len(margins) * len(families.values))
    options = GridOptions(families.values, margins, margin_unit, solver, mesh)
    kinds = class_numbers(labels)
    weights = read_weights("source_weights", source_weights, len(source))
    placed = place_voters(families.families, source, target, centers, most_voters, seed)
    learns = everybody_and_folds(source, kinds, count, seed)
    lengths = grid_radii(source, target, radii, radius_unit, metric)
    # Algorithm 3: match, carry the labels over, and learn on the self-labelled target.
    graph = check_reach(space_graph(make_space(source, target, metric, ties=kinds), float(lengths.max())))
    with progress_bar(progress, len(learns) * len(lengths) * (1 + len(families.values)), "sweep") as advance:
        samples = carry_at_radii([graph], lengths[:, None], labels, weights, learns, draws, seed, advance)
        task = LearningTask([target], [placed], samples, target, labels, weights, source, learns)
        return learn_sweep(task, options._replace(advance=advance), radii=lengths)


@takes_options_of(sweep, "radii", "margins", "gammas", "folds")
def pv_mincq(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    radius: float,
    margin: float,
    gamma: float | None = None,
    **options: Any,
) -> PVMinCq:
    """Learns a majority vote for the target domain from labelled source points (Algorithm 3).

    1. match source and target points within the radius; 2. carry the labels over the matching; 3. run MinCq on the
    self-labelled target points. The steps are the last lines of `pvmincq_jax.sweep`, which is called here with a grid
    of one point.

    Host code: it computes in the precision of the samples (float64 unless all are float32), whatever JAX's
    configuration, and returns NumPy arrays. To choose radius, margin and gamma without target labels, see
    `pvmincq_jax.sweep` and `pvmincq_jax.fit_validated`.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``, without labels.
      radius: pairs up to this distance may be matched.
      margin: mu as a fraction of mu_max, in (0, 1], or absolute, in (0, mu_max].
      gamma: of the kernels exp(-gamma |x - c|^2); or the value that other ``voters`` make a family of.
      draws: 1 for the paper's single matching; more for soft labels, the mean over as many random maximum matchings.
      seed: of the matchings.
      voters: "rbf" for Gaussian kernels, "stumps" for ten decision stumps per feature; a list of functions from points
        to values in [-1, 1]; any family with ``votes(x)``, such as `pvmincq_jax.StumpVoters`, in JAX or NumPy; a
        function from a value, ``gamma``, to a family; or a list of families, of which ``gamma`` is the number, from 0
        on. `pvmincq_jax.Voters` says how to write one.
      centers: where kernels, or other voters with a point each, sit: "target" (the matched target points, "the
        learning sample" of MinCq in the paper), "source", or "both". ``python -m experiments.voters`` compares them.
        The default is the paper's own and the cheapest.
      most_voters: how many of them at most. Of more points than that, some stand for all of them, drawn as
        k-means++ starts and the same whatever the order of the rows; a kernel votes if it stands for a matched point.
      radius_unit: how to read ``radius``: "absolute", "pv" or "bottleneck", see `pvmincq_jax.grid_radii`.
      margin_unit: how to read ``margin``: "fraction" or "absolute".
      metric: of the matching, see `pvmincq_jax.match`.
      solver, mesh, progress, source_weights: as in `pvmincq_jax.sweep`.

    Returns: a `PVMinCq`, for `pvmincq_jax.decision` and `pvmincq_jax.predict`.

    Example:
      >>> from pvmincq_jax import predict
      >>> source, labels = np.array([[0.0], [0.2], [1.0], [1.2]]), np.array([1, 1, -1, -1])
      >>> model = pv_mincq(source, labels, source + 0.1, radius=0.15, margin=0.5, gamma=5.0)
      >>> print(predict(model, np.array([[0.1], [1.1]])), float(model.pv))
      [ 1. -1.] 0.0
    """
    _checks.check_task(source, source_labels, target)
    point = grid_of_point(radius, margin, gamma, options)
    return model_at(sweep(source, source_labels, target, folds=None, **point), (0, 0, 0))


def adapt_votes(
    votes: ArrayLike,
    self_labels: SelfLabels,
    *,
    margin: float,
    margin_unit: MarginUnit = "fraction",
    bound: float = 1.0,
) -> PVMinCq:
    """MinCq over given voters, on labels carried over from the source: step (ii) of the paper's stacking (section 5).

    Args:
      votes: of the target points ``[m_t, n]``: the outputs of classifiers learnt on the source, or any others.
      self_labels: labels of the same points, from `pvmincq_jax.self_label`.
      margin: mu as a fraction of mu_max, in (0, 1], or absolute, in (0, mu_max].
      margin_unit: how to read ``margin``.
      bound: the largest size of a vote.

    Returns: a `PVMinCq` whose points are votes: ``pvmincq_jax.decision(model, new_votes)`` is the expected vote.

    Example:
      >>> from pvmincq_jax import decision, self_label
      >>> self_labels = self_label(np.array([[0.0], [1.0]]), np.array([1, -1]), np.array([[0.1], [1.2]]), 0.3)
      >>> vote = adapt_votes(np.array([[1.0, -0.5], [-1.0, -0.5]]), self_labels, margin=0.5)
      >>> print(abs(vote.weights.round(3)), decision(vote, np.array([[0.8, 0.0]])).round(3))
      [0.25 0.  ] [0.2]
    """
    (votes,) = _checks.read_samples(votes=votes)
    check_outputs("votes", votes, bound)
    _checks.check_instance("self_labels", self_labels, SelfLabels, "pvmincq_jax.self_label")
    _checks.check_length("self_labels.labels", self_labels.labels, np.shape(votes)[0], "row of the votes")
    votes = np.asarray(votes, common_dtype(votes))
    placed = PlacedVoters(OutputVoters(bound), lambda *_: np.ones(votes.shape[1], bool))
    # The labels are there: of the source nothing is asked.
    task = LearningTask([votes], [[placed]], [[self_labels]], votes, np.zeros(0))
    options = GridOptions(np.full(1, np.nan), _checks.check_margins([margin], margin_unit, "margin"), margin_unit)
    figures = learn_sweep(task, options, radii=np.full(1, np.nan))
    return model_at(figures, (0, 0, 0))


def mincq_sweep(
    points: ArrayLike,
    labels: ArrayLike,
    *,
    margins: ArrayLike | Sequence[float] = MARGIN_FRACTIONS,
    gammas: ArrayLike | Sequence[float] | None = None,
    folds: int | None = None,
    seed: int = 0,
    voters: VoterKind = "rbf",
    most_voters: int = MOST_VOTERS,
    margin_unit: MarginUnit = "fraction",
    sample_weights: ArrayLike | None = None,
) -> Sweep:
    """MinCq on one domain, on all folds but one and on the whole: its cross-validation (section 4).

    Every point is its own match, at distance 0, and PV is 0. A kernel on a point is left out with it.

    Args:
      points, labels: ``[m, d]``, and ``[m]`` in {-1, +1}, or numbers from 0 on of more than two classes.
      margins, gammas, folds, seed, voters, most_voters, margin_unit: as in `sweep`.
      sample_weights: ``[m]``, above 0, in the risk and in MinCq; None for 1 each.

    Returns: a `Sweep` with one radius, 0.

    Example:
      >>> x = np.random.default_rng(0).normal(size=(30, 2))
      >>> mincq_sweep(x, np.sign(x[:, 0]), margins=[0.1, 0.5], gammas=[1.0], folds=3).source_risk.shape
      (3, 1, 1, 2)
    """
    check_options(seed=seed, most_voters=most_voters, margin_unit=margin_unit)
    points, labels = _checks.read_samples(points=points, labels=labels)
    _checks.check_points("points", points)
    _checks.check_class_labels("labels", labels, len(points))
    dtype = common_dtype(points)
    points, labels = points.astype(dtype), labels_by_class(labels.astype(dtype))
    margins, families = _checks.check_margins(margins, margin_unit), family_grid(voters, gammas, points)
    count = _fold_count(folds, labels, len(margins) * len(families.values))
    learns = everybody_and_folds(points, class_numbers(labels), count, seed)
    weights, samples = read_weights("sample_weights", sample_weights, len(points)), []
    for kept in learns:
        rows = np.flatnonzero(kept)
        pairs = ExpectedMatching(rows, rows, np.ones(rows.size))
        samples.append([SelfLabels(np.where(kept, labels, 0.0), kept * weights, 0.0, pairs)])
    placed = place_voters(families.families, points, points, "source", most_voters, seed)
    task = LearningTask([points], [placed], samples, points, labels, weights, points, learns)
    return learn_sweep(task, GridOptions(families.values, margins, margin_unit), radii=np.zeros(1))


def _fold_count(folds: int | None, labels: np.ndarray, grid_size: int) -> int:
    """How many folds: those given, or what suits the classes; a fold may then have to do without one class."""
    sizes = np.unique(class_numbers(labels), return_counts=True)[1]
    if folds is not None:
        check_folds(folds, *sizes.tolist())
        return _checks.check_count("folds", folds, 2)
    return max(2, min(_FOLDS if labels.ndim == 1 else _FOLDS_OF_MORE, int(sizes.min()))) if grid_size > 1 else 0


def carry_at_radii(
    graphs: Sequence[RadiusGraph], radii: np.ndarray, labels: np.ndarray, weights: np.ndarray, learns: np.ndarray,
    draws: int, seed: int, advance: Callable[[int], None],
) -> list[list[SelfLabels]]:  # fmt: skip
    """Labels carried over matchings of each fold at each radius: step 2 of Algorithm 3, from everybody and by folds.

    Args:
      graphs: of the samples in each of s views, whose matchings count alike.
      radii: of each view ``[r, s]``.
      labels: of the source ``[m_s]``, or of each class against the rest ``[c, m_s]``.
      weights: of the source points ``[m_s]``.
      learns: which of these are learnt from ``[1 + folds, m_s]``.
      draws, seed: of the matchings in each view.
      advance: told when the labels of a fold and radius are there.

    Returns: labels of the target points for each fold and radius ``[1 + folds][r]``; their PV is the mean.
    """
    parts = [np.flatnonzero(kept) for kept in learns]
    samples: list[list[SelfLabels]] = [[] for _ in parts]
    for lengths in radii:
        # A radius at a time: its folds are cut from its own edges, which may be few.
        cuts = [graph.within(float(radius)) for graph, radius in zip(graphs, lengths)]
        for row, rows in zip(samples, parts):
            drawn = [draw_matchings(cut.within(cut.radius, rows), draws, seed=seed) for cut in cuts]
            partners, pv = np.concatenate([one.partners for one in drawn]), np.mean([one.pv for one in drawn])
            row.append(_carry(MatchingDraws(partners, float(pv), len(rows)), labels[..., rows], weights[rows]))
            advance(1)
    return samples


def _carry(draws: MatchingDraws, labels: np.ndarray, weights: np.ndarray) -> SelfLabels:
    """`pvmincq_jax.carry_labels`, or that of each class against the rest: labels ``[c, m_t]`` from ``[c, m_s]``.

    A label of weight w_s counts as w_s labels: l_t = sum_s p_st w_s y_s / sum_s p_st w_s, and the latter is the weight.
    """
    each = [carry_labels(draws, row) for row in np.atleast_2d(labels)]
    carried = each[0] if labels.ndim == 1 else each[0]._replace(labels=np.stack([one.labels for one in each]))
    if np.all(weights == 1):
        return carried
    source, target, shares = carried.pairs
    heavy = np.bincount(target, shares * weights[source], len(carried.weights))
    sums = [np.bincount(target, shares * (weights * row)[source], len(heavy)) for row in np.atleast_2d(labels)]
    means = np.stack(sums) / np.where(heavy > 0, heavy, 1.0)
    return carried._replace(labels=means.reshape(carried.labels.shape), weights=heavy)
