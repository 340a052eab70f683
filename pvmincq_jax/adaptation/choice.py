"""Votes taken from a grid: of any point, of the point of least score, or of a committee of the best ones."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_number, check_real
from pvmincq_jax._types import MarginUnit, Status, brief
from pvmincq_jax.adaptation.model import PVMinCq, decision, make_model
from pvmincq_jax.adaptation.options import check_sweep
from pvmincq_jax.adaptation.sweeps import Sweep
from pvmincq_jax.voting.classes import balance_classes, mean_weights
from pvmincq_jax.voting.families import JoinedVoters, read_votes

__all__ = ["Choice", "choose", "committee", "model_at", "values_at"]

# Scores are sums of a few shares of points: what differs by less than this is equal but for rounding.
_EQUAL = 1e-9
# The part of the grid that votes, and at least so many.
TOP_FRACTION = 0.15
_FEWEST = 3
# How much more a member may score than the best vote, and the share of target points on which the two agree.
_WORSE = 0.2
_AGREED = 0.9


def model_at(sweep: Sweep, index: tuple[int, int, int]) -> PVMinCq:
    """The vote at one point of a grid. Nothing is solved again.

    Of more than two classes the weights ``[c, n]`` are scaled to the smallest of the classes' margins. Not in the
    paper.

    Args:
      sweep: a `pvmincq_jax.Sweep`.
      index: into the grid, (radius, gamma, margin), such as `pvmincq_jax.Choice.grid_index`.

    Returns: a `PVMinCq`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> model = model_at(figures, (1, 0, 0))
      >>> float(model.radius), float(model.margin) < float(model.mu_max)
      (0.6, True)
    """
    check_sweep(sweep)
    r, g, k = check_index(sweep, index)
    status = Status(int(sweep.status[r, g, k]))
    if status != Status.SOLVED:
        raise ValueError(f"index {tuple(index)}: no vote there; {status.sentence}")
    weights = sweep.weights[..., r, g, k, : sweep.voter_counts[r, g]]
    mu_max, mu = sweep.mu_max[..., r, g], margins_at(sweep, index)
    smallest = np.full_like(mu, np.min(mu))
    weights = weights * (smallest / mu)[..., None] if weights.ndim == 2 else weights
    figures = weights, smallest, mu_max, sweep.c_bound[..., r, g, k], sweep.kkt_residual[..., r, g, k]
    return make_model(sweep.voters[r][g], sweep.self_labels[r], sweep.radii[r], *figures)


def check_index(sweep: Sweep, index: Any) -> tuple[int, int, int]:
    """A point of the grid, as three numbers."""
    numbers, shape = check_real("index", index), sweep.status.shape
    inside = numbers.shape == (3,) and np.issubdtype(numbers.dtype, np.integer)
    if not inside or np.any(numbers < np.negative(shape)) or np.any(numbers >= shape):
        raise ValueError(f"index must be (radius, gamma, margin) in a grid of the shape {shape}; it is {index!r}")
    r, g, k = numbers.tolist()
    return r, g, k


def check_fraction(top_fraction: Any) -> None:
    """The part of a grid that votes."""
    check_number("top_fraction", top_fraction)
    if not 0 < top_fraction <= 1:
        raise ValueError(f"top_fraction must be above 0 and at most 1; it is {top_fraction!r}")


def margins_at(sweep: Sweep, index: tuple[int, int, int]) -> np.ndarray:
    """The absolute margin mu of a point of the grid, or those of all classes ``[c]``."""
    r, g, k = index
    mu_max = np.asarray(sweep.mu_max[..., r, g], float)
    return sweep.margins[k] * (mu_max if sweep.margin_unit == "fraction" else np.ones_like(mu_max))


def values_at(sweep: Sweep, x: Any) -> np.ndarray:
    """The votes of a whole grid at new points. Nothing is solved again (not in the paper).

    Args:
      sweep: a `Sweep`.
      x: ``[m, d]``.

    Returns: ``[r, g, k, m]``, of more than two classes ``[c, r, g, k, m]``; NaN where nothing was solved.

    Example:
      >>> import pvmincq_jax as pvm
      >>> task = pvm.datasets.moons_task("30", 0, per_class=8)
      >>> figures = pvm.sweep(*task[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2)
      >>> values_at(figures, task.test[:5]).shape
      (2, 1, 1, 5)
    """
    check_sweep(sweep)
    rows = []
    for r, families in enumerate(sweep.voters):
        votes = [read_votes(family, x) for family in families]
        rows.append(np.stack([sweep.weights[..., r, g, :, : one.shape[1]] @ one.T for g, one in enumerate(votes)], -3))
    return np.stack(rows, axis=-4)


class Choice(NamedTuple):
    """A point of the grid.

    Attributes:
      radius: absolute.
      gamma: of the voters, or the value that makes the family.
      margin: in `margin_unit`.
      margin_unit: "absolute" or "fraction".
      grid_index: into the grid, (radius, gamma, margin).
      score: of that point.
      scores: of the whole grid ``[r, g, k]``.
      match_moments: in the transport form, whether the source was brought to the target's moments first.
      identity: in the transport form, whether nobody was matched, and the radius is 0.

    Radius, gamma, margin and its unit, and in the transport form the last two, are what `pvmincq_jax.pv_mincq` and
    `pvmincq_jax.pv_transport_mincq` take to learn the chosen vote again, with the draws and the seed of the grid.
    Of samples larger than ``most_points`` they are of the parts that were matched.
    """

    radius: float
    gamma: float
    margin: float
    margin_unit: MarginUnit
    grid_index: tuple[int, int, int]
    score: float
    scores: np.ndarray
    match_moments: bool = False
    identity: bool = False

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)


def least(scores: np.ndarray) -> np.ndarray:
    """The points of least score, all those that are equal up to rounding: indices ``[points, axes]``."""
    if not np.any(np.isfinite(scores)):
        raise ValueError(
            "scores hold no finite number: no point of the grid can be chosen. Give smaller margins, larger radii, or "
            "another criterion"
        )
    able = np.where(np.isfinite(scores), scores, np.inf)
    return np.argwhere(able <= np.min(able) + _EQUAL)


def choose(sweep: Sweep, scores: np.ndarray) -> Choice:
    """The point of least score; ties go to the smallest radius, then the smallest gamma, then the largest margin.

    The smallest radius moves labels the shortest way; the smallest gamma is the smoothest vote, and the largest margin
    the one closest to equal weights.

    Section 3.4.

    Args:
      sweep: a `Sweep`.
      scores: one per point of the grid ``[r, g, k]``; infinite or NaN for points that cannot be chosen.

    Returns: a `Choice`.

    Example:
      >>> import pvmincq_jax as pvm
      >>> figures = pvm.sweep(*pvm.datasets.moons_task("30", 0, per_class=8)[:3], margins=[0.5], gammas=[2.0], folds=2)
      >>> choice = choose(figures, pvm.rs_pv(figures))
      >>> bool(choice.score == pvm.rs_pv(figures).min()), choice.margin
      (True, 0.5)
    """
    check_sweep(sweep)
    scores = np.asarray(check_real("scores", scores), float)
    if scores.shape != sweep.status.shape:
        raise ValueError(f"scores must have the grid's shape {sweep.status.shape}; theirs is {scores.shape}")
    best = least(scores)
    keys = sweep.radii[best[:, 0]], sweep.gammas[best[:, 1]], -sweep.margins[best[:, 2]]
    r, g, k = (int(i) for i in best[np.lexsort(keys[::-1])[0]])
    return Choice(
        radius=float(sweep.radii[r]),
        gamma=float(sweep.gammas[g]),
        margin=float(sweep.margins[k]),
        margin_unit=sweep.margin_unit,
        grid_index=(r, g, k),
        score=float(scores[r, g, k]),
        scores=scores,
        match_moments=bool(sweep.transports) and bool(sweep.transports[r].match_moments),
        identity=bool(sweep.transports) and float(sweep.radii[r]) == 0,
    )


def members(sweep: Sweep, scores: np.ndarray, top_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of a grid that have a seat in its `committee` ``[s, 3]``, the best first, and the sizes c_i ``[s]``."""
    check_fraction(top_fraction)
    best = choose(sweep, scores).grid_index
    scores = np.asarray(scores, float)
    able = np.flatnonzero(np.isfinite(scores) & (sweep.unmoved == sweep.unmoved[best[0]])[:, None, None])
    ranks = scores.copy()
    ranks[best] = -np.inf
    order = able[np.argsort(ranks.flat[able], kind="stable")][: max(_FEWEST, int(top_fraction * able.size))]
    places = np.array(np.unravel_index(order, scores.shape)).T
    # A class axis of length 1 where there are two classes: [members, c, m_t].
    values = np.stack([np.atleast_2d(sweep.target_values[(..., *place, slice(None))]) for place in places])
    sizes = np.mean(np.abs(values), axis=(1, 2))
    same = np.all(np.sign(values) == np.sign(values[0]), axis=1)
    seated = scores.flat[order] <= scores[best] + _WORSE * abs(scores[best])
    # A vote that is 0 on the whole target has nothing to say.
    seated &= (np.mean(same, axis=1) >= _AGREED) & (sizes > 0)
    # The best one always has a seat.
    seated[0] = True
    return places[seated], sizes[seated]


def committee(sweep: Sweep, scores: np.ndarray, top_fraction: float = TOP_FRACTION) -> PVMinCq:
    """The mean of the best votes of a grid, each in units of its mean size on the target. Nothing is solved again.

    sum_i w_i c / c_i / s, c_i = 1/m_t sum_t |B_i(x_t)|, over the s best points of the grid, with c the smallest c_i. A
    mean of votes is a vote over the voters of all of them. Of more than two classes B_i is by how much a class is ahead
    of the best other one, in units of its margin, and c_i the mean over all classes; w_i is then the weights of a class
    scaled to the smallest margin of all members and classes. Either way sum |w| <= 1, and values are in [-1, 1].

    Votes with a score more than 20 % above the best, or that agree with it on less than 90 % of the target, have no
    seat: where one map is right and all others are wrong, they would outvote it. Nor have votes that are adapted where
    the best one is not, or the other way round.

    Not in the paper.

    Args:
      sweep: a `pvmincq_jax.Sweep`.
      scores: one per point of the grid ``[r, g, k]``, the lower the better, such as `pvmincq_jax.transport_criterion`.
      top_fraction: of the points that have a score, and no more; three, if that is fewer.

    Returns:
      A `PVMinCq` with the voters and weights of the committee. Labels, pairs and PV are those of the best member, and
      margin and C-bound are those of the committee on the best member's learning sample; mu_max, KKT residual, radius
      and gamma are None. Where the best point alone has a seat, it is `pvmincq_jax.model_at` that point.

    Example:
      >>> import pvmincq_jax as pvm
      >>> from pvmincq_jax.datasets import moons_task
      >>> task = moons_task("30", 5, per_class=15)
      >>> figures = pvm.transport_sweep(task.source, task.source_labels, task.target, draws=4)
      >>> model = committee(figures, pvm.transport_criterion(figures), top_fraction=0.2)
      >>> bool(np.mean(pvm.predict(model, task.test) == task.test_labels) > 0.9)
      True
    """
    places, sizes = members(sweep, scores, top_fraction)
    if len(places) < 2:
        return model_at(sweep, tuple(places[0]))
    # Votes of several classes are measured in units of their margins; two classes have one vote, and no need of it.
    two = sweep.source_labels.ndim == 1
    margins = np.array([np.ones(1) if two else margins_at(sweep, tuple(place)) for place in places])
    scales = np.min(margins) / margins * (np.min(sizes) / sizes / len(sizes))[:, None]
    # Votes of one family share its voters.
    shares_of: dict[int, tuple[Any, np.ndarray]] = {}
    for (r, g, k), scale in zip(places, scales):
        family = sweep.voters[r][g]
        share = np.atleast_2d(sweep.weights[..., r, g, k, : sweep.voter_counts[r, g]]) * scale[:, None]
        shares_of[id(family)] = family, shares_of.get(id(family), (family, 0.0))[1] + share
    families, shares = zip(*shares_of.values())
    voters = families[0] if len(families) == 1 else JoinedVoters(families)
    return _committee_model(sweep, places[0][0], voters, np.concatenate(shares, axis=1))


def _committee_model(sweep: Sweep, row: int, voters: Any, weights: np.ndarray) -> PVMinCq:
    """The model of weights ``[c, n]``, with its figures on the learning sample of one radius."""
    sample, two = sweep.self_labels[row], len(weights) == 1
    labels = np.atleast_2d(sample.labels)
    heavy = np.broadcast_to(sample.weights, labels.shape)
    learnt = labels, heavy
    if not two:
        learnt = balance_classes(labels, heavy, mean_weights(sweep.source_labels, np.asarray(sweep.source_weights)))
    shares = learnt[1] / np.sum(learnt[1], axis=1, keepdims=True)
    values = decision(SimpleNamespace(voters=voters, weights=weights), sweep.learning_points(row)).T
    margin, second = np.sum(shares * learnt[0] * values, axis=1), np.sum(shares * values**2, axis=1)
    # As `pvmincq_jax.c_bound`: 1 where the first moment is not above 0.
    c_bound = 1 - np.maximum(margin, 0.0) ** 2 / second
    weights, margin, c_bound = (one[0] if two else one for one in (weights, margin, c_bound))
    return make_model(voters, sample, None, weights, margin, None, c_bound, None)
