"""Votes on labels that were carried: every fold, radius and class is a lane of the engine, solved gamma by gamma.

An unmatched point has weight 0 and the voters of a fold's own points are masked, so that all lanes have one shape.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._types import MarginUnit, Status, brief
from pvmincq_jax.adaptation.classes import as_heavy, lanes_ahead
from pvmincq_jax.adaptation.grid import Figures, Problems, VoteBlocks, solve_grid, values_of
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.matching.graph import RadiusGraph
from pvmincq_jax.matching.matching import draw_matchings
from pvmincq_jax.matching.selflabel import SelfLabels, carry_labels
from pvmincq_jax.voting.cbound import vote_loss

__all__ = ["Sweep"]


class Sweep(NamedTuple):
    """Every figure of the grid; ``[r, g, k]`` counts radii, gammas, margins, and a fold axis comes first.

    Attributes:
      radii: absolute ``[r]``.
      gammas: of the voters, or the values that their families were made of ``[g]``; NaN where there are none.
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
      kkt_residual: of the vote learnt from all folds ``[r, g, k]``; NaN where nothing was solved.
      fold_kkt_residual: ``[folds, r, g, k]``.
      mu_max: the largest margins of the votes learnt from all folds ``[r, g]``.
      weights: of these votes ``[r, g, k, n]``; NaN if not solved, as are the values; 0 beyond the voters of a family
        that has fewer than n.
      target_values: their values on the target points ``[r, g, k, m_t]``.
      voters: the family that votes, for each radius and gamma.
      self_labels: of the whole samples, one per radius.
      source_labels: ``[m_s]``.
      target: ``[m_t, d]``.
      voter_mask: which voters take part ``[r, g, n]``.
      voter_counts: how many voters the families have ``[r, g]``.
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
    fold_kkt_residual: np.ndarray
    mu_max: np.ndarray
    weights: np.ndarray
    target_values: np.ndarray
    voters: tuple[tuple[Any, ...], ...]
    self_labels: tuple[SelfLabels, ...]
    source_labels: np.ndarray
    target: np.ndarray
    voter_mask: np.ndarray
    voter_counts: np.ndarray

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)


class LabelledGrid(NamedTuple):
    """What there is to learn from, before any vote.

    Attributes:
      learning: source points learnt from ``[1 + folds, m_s]``, all of them first; the others are judged on.
      found: self-labels of the learning points, for each row of ``learning`` and each class and radius.
      masks: which voters take part, for the same and each family ``[g, 1 + folds, r, n]``.
      radii: ``[r]``; once for each class if there are more than two.
      source_labels: ``[m_s]``, or those of each class against the rest ``[c, m_s]``.
      target: the learning points ``[m_t, d]``.
    """

    learning: np.ndarray
    found: Sequence[Sequence[SelfLabels]]
    masks: np.ndarray
    radii: np.ndarray
    source_labels: np.ndarray
    target: np.ndarray


def carried_labels(
    graph: RadiusGraph, labels: np.ndarray, radii: np.ndarray, learning: np.ndarray, options: GridOptions
) -> list[list[SelfLabels]]:
    """One matching, or mean of several, per fold and radius, all from one graph; [1 + folds][classes x radii]."""
    parts, classes = [np.flatnonzero(kept) for kept in learning], np.atleast_2d(labels)
    # A radius at a time: its folds are cut from its own edges, which may be few.
    cuts = (graph.within(float(radius)) for radius in radii)
    folds = (cut.within(cut.radius, rows) for cut in cuts for rows in parts)
    drawn = (draw_matchings(fold, options.draws, seed=options.seed) for fold in folds)
    found = []
    for one, rows in zip(drawn, itertools.cycle(parts)):
        options.advance(1)
        found.append([carry_labels(one, own[rows]) for own in classes])
    at_radii = [found[fold :: len(parts)] for fold in range(len(parts))]
    return [[one for of_class in zip(*each) for one in of_class] for each in at_radii]


def learn_grid(
    task: LabelledGrid, families: Sequence[Any], options: GridOptions, learn_at: Any, judge_at: Any
) -> Sweep:
    """MinCq on every fold, radius, family and margin.

    Args:
      task: labels, folds and radii.
      families: of voters, one per gamma.
      options: of the grid.
      learn_at: the learning points, as the families take them.
      judge_at: the source points, as the families take them.

    Returns: a `Sweep`.
    """
    margins, unit = options.margins, options.unit
    folds, radii, gammas = len(task.learning), len(task.radii), len(families)
    flat = [one for row in task.found for one in row]
    labels, weights = (np.stack([getattr(one, name) for one in flat]) for name in ("labels", "weights"))
    rows = np.atleast_2d(task.source_labels)
    classes = len(rows)
    learnt_from = (labels, weights) if classes == 1 else as_heavy(labels, weights)
    # All gammas in one call, which then knows all shapes.
    blocks, judges = ([VoteBlocks(family, points) for family in families] for points in (learn_at, judge_at))
    figures = solve_grid(
        lambda number: blocks[number // len(flat)],
        Problems(
            labels=np.tile(learnt_from[0], (gammas, 1)),
            weights=np.tile(learnt_from[1], (gammas, 1)),
            mask=task.masks.reshape(gammas * len(flat), -1),
        ),
        margins,
        unit=unit,
        solver=options.solver,
        mesh=options.mesh,
        advance=options.advance,
    )
    each = Figures(*(field.reshape(gammas, len(flat), *field.shape[1:]) for field in figures))

    def ahead(votes: Sequence[VoteBlocks], part: slice) -> list[np.ndarray]:
        """The values of some votes of each family; of several classes, by how much one is ahead."""
        found = values_of([(one, weights) for one, own in zip(votes, each.weights) for weights in own[part]])
        found = found.reshape(gammas, -1, *found.shape[1:])
        return [
            lanes_ahead(values, mu_max[part], margins, unit, classes, radii // classes)
            for values, mu_max in zip(found, each.mu_max)
        ]

    values = ahead(blocks, slice(radii))
    risks = [lane_risks(one, labels[:radii], weights[:radii]) for one in values]
    fold_risks = [np.empty((0, len(margins)))] * gammas
    if folds > 1:
        truth = np.tile(np.repeat(rows, radii // classes, axis=0), (folds - 1, 1))
        held_out = np.repeat(~task.learning[1:], radii, axis=0).astype(float)
        fold_risks = [lane_risks(one, truth, held_out) for one in ahead(judges, slice(radii, None))]

    def gather(fields: Sequence[np.ndarray], *first: int) -> np.ndarray:
        """One field of every family, problems [first.., r] and what comes after them, gammas behind the radii."""
        return np.stack([field.reshape(*first, radii, *field.shape[1:]) for field in fields], axis=len(first) + 1)

    whole: Any = {name: gather(field[:, :radii]) for name, field in each._asdict().items()}
    each_fold: Any = {
        f"fold_{name}": gather(getattr(each, name)[:, radii:], folds - 1) for name in ("status", "kkt_residual")
    }
    matched = np.array([int(np.sum(one.weights > 0)) for one in flat]).reshape(folds, radii)
    return Sweep(
        radii=task.radii,
        gammas=options.voters.values,
        margins=margins,
        margin_unit=unit,
        source_risk=gather(fold_risks, folds - 1),
        pv=np.array([one.pv for one in task.found[0]]),
        self_risk=gather(risks),
        matched=matched[0],
        fold_matched=matched[1:],
        target_values=gather(values),
        voters=(tuple(families),) * radii,
        self_labels=tuple(task.found[0]),
        source_labels=task.source_labels,
        target=task.target,
        voter_mask=np.moveaxis(task.masks[:, 0], 0, 1),
        voter_counts=np.tile([one.voters for one in blocks], (radii, 1)),
        **whole,
        **each_fold,
    )


def lane_risks(values: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`pvmincq_jax.vote_risk` of each lane: values ``[L, k, m]``, labels and weights ``[L, m]`` -> ``[L, k]``."""
    loss = vote_loss(values, labels[:, None, :])
    with np.errstate(invalid="ignore"):
        shares = weights / np.sum(weights, axis=1, keepdims=True)
    # A point of weight 0 counts for nothing, even one whose value is not a number.
    return np.sum(np.where(weights[:, None, :] > 0, loss, 0.0) * shares[:, None, :], axis=-1)


def check_solved(*status: np.ndarray) -> None:
    """Some point of the grid has a vote; if none has, an error that says why."""
    codes = np.concatenate([np.ravel(codes) for codes in status])
    if not np.any(codes == Status.SOLVED):
        reasons = [f"{Status(code).sentence} ({int(np.sum(codes == code))} points)" for code in np.unique(codes)]
        raise ValueError(
            f"no point of the grid could be solved: {'; '.join(reasons)}. Give smaller margins or larger radii"
        )
