"""A committee: the best part of a grid votes, so that not a single score of few points decides. Not in the paper."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from pvmincq_jax.adaptation.choice import choose
from pvmincq_jax.adaptation.classes import as_heavy
from pvmincq_jax.adaptation.learn import class_model
from pvmincq_jax.adaptation.model import PVMinCq, decision
from pvmincq_jax.adaptation.moved_criteria import at_rest
from pvmincq_jax.voting.families import JoinedVoters

__all__ = ["committee"]

# The part of the grid that votes, and at least so many.
PART = 0.15
_FEWEST = 3
# How much more a member may score than the best vote, and the share of target points on which the two agree.
_WORSE = 0.2
_AGREED = 0.9


def committee(sweep: Any, scores: np.ndarray, part: float = PART) -> PVMinCq:
    """The mean of the best votes of a grid, each in units of its mean size on the target. Nothing is solved again.

    sum_i w_i c / c_i / k, c_i = 1/m_t sum_t |B_i(x_t)|, over the k best points of the grid, with c the smallest c_i. A
    mean of votes is a vote over the voters of all of them. Of more than two classes B_i is by how much a class is ahead
    of the best other one, in units of its margin, and c_i the mean over all classes; w_i is then the weights of a class
    scaled to the smallest margin of all members and classes. Either way sum |w| <= 1, and values are in [-1, 1].

    Votes with a score more than 20 % above the best, or that agree with it on less than 90 % of the target, have no
    seat: where one map is right and all others are wrong, they would outvote it. Nor have votes that are adapted where
    the best one is not, or the other way round.

    Not in the paper.

    Args:
      sweep: a `pvmincq_jax.Sweep` or a `pvmincq_jax.TransportSweep`, or those of each class.
      scores: one per point of the grid ``[r, g, k]``, the lower the better, such as `pvmincq_jax.transport_criterion`.
      part: of the points that have a score, and no more; three, if that is fewer.

    Returns:
      A `PVMinCq` with the voters and weights of the committee. Labels, pairs and PV are those of the best member, and
      margin and C-bound are those of the committee on the best member's learning sample; mu_max, KKT residual, radius
      and gamma are None. Where the best point alone has a seat, it is `pvmincq_jax.model_at` that point.

    Example:
      >>> import pvmincq_jax as pvm
      >>> from pvmincq_jax.datasets import moons_task
      >>> task = moons_task("30", 5, per_class=15)
      >>> found = pvm.transport_sweep(task.source, task.source_labels, task.target, draws=4)
      >>> model = committee(found, pvm.transport_criterion(found), part=0.2)
      >>> bool(np.mean(pvm.predict(model, task.test) == task.test_labels) > 0.9)
      True
    """
    if not 0 < part <= 1:
        raise ValueError(f"part must be above 0 and at most 1; it is {part!r}")
    scores = np.asarray(scores, float)
    classes = sweep if type(sweep) is tuple else (sweep,)
    first = classes[0]
    best = choose(first, scores).grid_index
    side = at_rest(first)
    able = np.flatnonzero(np.isfinite(scores) & (side == side[best[0]])[:, None, None])
    ranks = scores.copy()
    ranks[best] = -np.inf
    order = able[np.argsort(ranks.flat[able], kind="stable")][: max(_FEWEST, int(part * able.size))]
    places = np.array(np.unravel_index(order, scores.shape)).T
    values = np.stack([[one.target_values[tuple(place)] for one in classes] for place in places])
    sizes = np.mean(np.abs(values), axis=(1, 2))
    same = np.all(np.sign(values) == np.sign(values[0]), axis=1)
    seated = scores.flat[order] <= scores[best] + _WORSE * abs(scores[best])
    # A vote that is 0 on the whole target has nothing to say.
    seated &= (np.mean(same, axis=1) >= _AGREED) & (sizes > 0)
    places, sizes = places[seated], sizes[seated]
    if len(places) < 2:
        return class_model(classes, best)
    margins = np.array([[_unit(one, r, g, k, classes) for one in classes] for r, g, k in places])
    scales = np.min(margins) / margins * (np.min(sizes) / sizes / len(sizes))[:, None]
    # Votes of one family share its voters.
    members: dict[int, tuple[Any, np.ndarray]] = {}
    for (r, g, k), scale in zip(places, scales):
        family = first.voters[r][g]
        share = np.stack([one.weights[r, g, k, : one.voter_counts[r, g]] for one in classes]) * scale[:, None]
        members[id(family)] = family, members.get(id(family), (family, 0.0))[1] + share
    families, shares = zip(*members.values())
    voters = families[0] if len(families) == 1 else JoinedVoters(families)
    weights = np.concatenate(shares, axis=1)
    return _committee_model(classes, best[0], voters, weights)


def _committee_model(classes: tuple[Any, ...], row: int, voters: Any, weights: np.ndarray) -> PVMinCq:
    """The model of weights ``[c, n]``, with its figures on the learning sample of one radius."""
    first, samples = classes[0], [one.self_labels[row] for one in classes]
    points = np.asarray(first.transports[row].moved if hasattr(first, "transports") else first.target)
    labels, label_weights = (np.stack([getattr(one, name) for one in samples]) for name in ("labels", "weights"))
    learnt = (labels, label_weights) if len(classes) == 1 else as_heavy(labels, label_weights)
    shares = learnt[1] / np.sum(learnt[1], axis=1, keepdims=True)
    values = decision(SimpleNamespace(voters=voters, weights=weights), points).T
    margin, second = np.sum(shares * learnt[0] * values, axis=1), np.sum(shares * values**2, axis=1)
    # As `pvmincq_jax.c_bound`: 1 where the first moment is not above 0.
    c_bound = 1 - np.maximum(margin, 0.0) ** 2 / second
    figures: Any = weights, margin, c_bound, labels
    weights, margin, c_bound, labels = figures if len(classes) > 1 else (field[0] for field in figures)
    return PVMinCq(
        voters=voters,
        weights=weights,
        margin=np.asarray(margin),
        mu_max=None,
        c_bound=np.asarray(c_bound),
        kkt_residual=None,
        radius=None,
        pv=np.asarray(samples[0].pv),
        labels=np.asarray(labels),
        label_weights=np.asarray(samples[0].weights),
        pairs=samples[0].pairs,
    )


def _unit(sweep: Any, r: int, g: int, k: int, classes: tuple[Any, ...]) -> float:
    """What a vote of several classes is measured in: its margin. Two classes have one vote, and no need of it."""
    if len(classes) == 1:
        return 1.0
    return float(sweep.margins[k]) * (float(sweep.mu_max[r, g]) if sweep.margin_unit == "fraction" else 1.0)
