"""A grid of votes, of either form: what is learnt from at each radius, and the vote at each radius, gamma and margin.

The form that carries labels learns on target points, the same at every radius, with labels of their own; the form that
moves source points learns on points of their own, with true labels. A point that is not learnt from has weight 0 and
voters that sit on it are masked, so that all problems have one shape. Folds and classes are further axes.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._threads import core_count, on_all_cores
from pvmincq_jax._types import MarginUnit, Status, brief
from pvmincq_jax.adaptation.transport import Transport
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.cbound import vote_loss
from pvmincq_jax.voting.centers import PlacedVoters, stack_masks
from pvmincq_jax.voting.classes import ahead, balance_classes, mean_weights
from pvmincq_jax.voting.grid import Figures, Problems, VoteBlocks, solve_grid
from pvmincq_jax.voting.program import Solver

__all__ = ["Sweep"]


class GridOptions(NamedTuple):
    """How the votes of a grid are learnt; each as in `pvmincq_jax.sweep`.

    Attributes:
      gammas: what the families are called ``[g]``.
      margins: checked ``[k]``.
      unit: of the margins.
      solver: of MinCq.
      mesh: devices to split the grid over.
      advance: told the number of problems that were just solved.
    """

    gammas: np.ndarray
    margins: np.ndarray
    unit: MarginUnit = "fraction"
    solver: Solver = "interior_point"
    mesh: jax.sharding.Mesh | None = None
    advance: Callable[[int], None] = lambda steps: None


class Sweep(NamedTuple):
    """Every vote of a grid, of either form; ``[r, g, k]`` counts radii, gammas, margins.

    Of c > 2 classes there is a vote for each against the rest. What differs between them, marked with a star, has a
    class axis before the radii, and values say by how much a class is ahead of the best other one.

    Attributes:
      radii: absolute ``[r]``; 0 where nobody was matched, see `pvmincq_jax.identity_transport`. With
        ``match_moments=True`` they come twice; the second time the source first gets the target's mean and deviation.
      gammas: of the voters, or the values that their families were made of ``[g]``; NaN where there are none.
      margins: as given ``[k]``.
      margin_unit: "absolute" or "fraction".
      pv: of the whole samples ``[r]``.
      status: of the vote learnt from all folds, `Status` codes ``[r, g, k]``; solved if the votes of all classes are.
      weights: of these votes ``[r, g, k, n]``*; NaN if not solved, as are the values; 0 beyond the voters of a family
        that has fewer than n.
      c_bound: on the learning sample ``[r, g, k]``*.
      kkt_residual: ``[r, g, k]``*; NaN where nothing was solved.
      mu_max: the largest margins ``[r, g]``*.
      self_risk: on the learning sample ``[r, g, k]``*.
      target_values: on the target points ``[r, g, k, m_t]``*.
      source_risk: of the vote learnt without a fold, on that fold's source points ``[folds, r, g, k]``*; NaN if not
        solved. The form that moves points has no folds.
      fold_status, fold_kkt_residual: of the same votes ``[folds, r, g, k]``, the latter*.
      matched: number of learning points with a weight ``[r]``; ``fold_matched`` without each fold ``[folds, r]``.
      self_labels: the learning samples, one per radius; labels ``[m]``*.
      voters: the family that votes, for each radius and gamma.
      voter_mask: which voters take part ``[r, g, n]``.
      voter_counts: how many voters the families have ``[r, g]``.
      source_labels: ``[m_s]``*.
      target: ``[m_t, d]``.
      transports: where the source points moved, one per radius; empty in the form that carries labels.
      ratio: the share of +1, or the shares of the classes ``[c]``, that the target is taken to have; None for those of
        ``source_labels``.
      source_weights: of the source points, of mean 1 ``[m_s]``.
      source_values: on each source point, of the vote learnt without its fold ``[r, g, k, m_s]``*; None without folds.
      shift: what has changed, where a fit asked for it, a `pvmincq_jax.Shift`; else None.
      classes: how many the task has.
    """

    radii: np.ndarray
    gammas: np.ndarray
    margins: np.ndarray
    margin_unit: MarginUnit
    pv: np.ndarray
    status: np.ndarray
    weights: np.ndarray
    c_bound: np.ndarray
    kkt_residual: np.ndarray
    mu_max: np.ndarray
    self_risk: np.ndarray
    target_values: np.ndarray
    source_risk: np.ndarray
    fold_status: np.ndarray
    fold_kkt_residual: np.ndarray
    matched: np.ndarray
    fold_matched: np.ndarray
    self_labels: tuple[SelfLabels, ...]
    voters: tuple[tuple[Any, ...], ...]
    voter_mask: np.ndarray
    voter_counts: np.ndarray
    source_labels: np.ndarray
    target: np.ndarray
    transports: tuple[Transport, ...] = ()
    ratio: Any = None
    source_weights: np.ndarray | float = 1.0
    source_values: np.ndarray | None = None
    shift: Any = None
    classes: int = 2

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)

    def each_class(self) -> tuple["Sweep", ...]:
        """The grid of each class against the rest, as one of two classes; of two classes, this one."""
        if self.source_labels.ndim == 1:
            return (self,)
        first = ("weights", "c_bound", "kkt_residual", "mu_max", "self_risk", "target_values", "source_labels")
        views = []
        for number in range(len(self.source_labels)):
            fields: Any = {name: getattr(self, name)[number] for name in first}
            fields |= {name: getattr(self, name)[:, number] for name in ("source_risk", "fold_kkt_residual")}
            labels = tuple(one._replace(labels=one.labels[number]) for one in self.self_labels)
            ratio = None if self.ratio is None else float(self.ratio[number])
            values = None if self.source_values is None else self.source_values[number]
            views.append(self._replace(**fields, self_labels=labels, ratio=ratio, source_values=values))
        return tuple(views)

    @property
    def unmoved(self) -> np.ndarray:
        """At which radii the source stays where it is, without adaptation, as on one domain; bool ``[r]``."""
        if not self.transports:
            return self.radii == 0
        return np.array([float(one.radius) == 0 and np.array_equal(one.moved, one.source) for one in self.transports])

    def placed(self, radius: int, gamma: int) -> PlacedVoters:
        """The family of this radius and gamma, with the voters that take part."""
        mask = self.voter_mask[radius, gamma, : self.voter_counts[radius, gamma]]
        return PlacedVoters(self.voters[radius][gamma], lambda *_: mask)

    def learning_points(self, radius: int) -> np.ndarray:
        """The points ``[m, d]`` that votes of the radius with this number learnt on."""
        return self.target if not self.transports else np.asarray(self.transports[radius].moved)


class LearningTask(NamedTuple):
    """What there is to learn from, before any vote; f counts everybody, then all folds but one.

    Attributes:
      points: the learning points of each radius, as the families take them; one if they are the same at all radii.
      voters: families on their places, for each radius and gamma; one row if they are the same at all radii.
      samples: labels and weights of the learning points, for each f and radius.
      target: the target points, as the families take them.
      source_labels: ``[m_s]``, or those of each class against the rest ``[c, m_s]``.
      source_weights: of the source points in a risk ``[m_s]``, and in the samples already.
      source: the source points, as the families take them; None without folds.
      learns: which of these are learnt from ``[f, m_s]``.
    """

    points: Sequence[Any]
    voters: Sequence[Sequence[PlacedVoters]]
    samples: Sequence[Sequence[SelfLabels]]
    target: Any
    source_labels: np.ndarray
    source_weights: np.ndarray | float = 1.0
    source: Any = None
    learns: np.ndarray = np.ones((1, 1), bool)


def learn_sweep(task: LearningTask, options: GridOptions, **named: Any) -> Sweep:
    """MinCq on every fold, radius, family, class and margin.

    Args:
      task: samples, voters and folds.
      options: of the grid.
      **named: radii, and further fields of the `Sweep` that are there already.

    Returns: a `Sweep`. It is an error if no point of it could be solved.
    """
    margins, source_labels = options.margins, task.source_labels
    labels = np.array([[np.atleast_2d(one.labels) for one in row] for row in task.samples])  # [f, r, c, m]
    learnt = np.array([[one.weights for one in row] for row in task.samples])  # [f, r, m]
    weights = np.broadcast_to(learnt[:, :, None], labels.shape)
    subsets, radii, classes, size = labels.shape
    gammas = len(options.gammas)
    axes = radii, gammas, subsets, classes
    shared = len(task.points) == 1
    voters = list(task.voters) * (radii if shared else 1)
    families = tuple(tuple(one.family for one in row) for row in voters)

    def votes_at(points: Sequence[Any]) -> Callable[[int, int], VoteBlocks]:
        """The votes of the family of each radius and gamma, on the points of that radius."""
        if shared:
            blocks = [VoteBlocks(family, points[0]) for family in families[0]]
            return lambda _, gamma: blocks[gamma]
        # Problems of one family follow each other, so a small cache suffices.
        return lru_cache(core_count() + 1)(lambda r, gamma: VoteBlocks(families[r][gamma], points[r]))

    learning_votes = votes_at(task.points)

    def problems(field: np.ndarray) -> np.ndarray:
        """Of ``[f, r, c, m]`` a row for every problem, those of a family together."""
        return np.broadcast_to(np.moveaxis(field, 1, 0)[:, None], (*axes, size)).reshape(-1, size)

    places = np.ndindex(subsets, radii, gammas)
    parts = [voters[r][g].mask(learnt[f, r] > 0, task.learns[f]) for f, r, g in places]
    masks = stack_masks(parts).reshape(subsets, radii, gammas, -1)
    problem_masks = np.repeat(np.moveaxis(masks, 0, 2), classes, axis=2).reshape(-1, masks.shape[-1])
    source_weights = np.broadcast_to(task.source_weights, source_labels.shape[-1:])
    sample = labels, weights
    if classes > 1:
        sample = balance_classes(labels, weights, mean_weights(source_labels, source_weights))
    figures = solve_grid(
        lambda number: learning_votes(*map(int, np.unravel_index(number, axes)[:2])),
        Problems(problems(sample[0]), problems(sample[1]), problem_masks),
        margins,
        unit=options.unit,
        solver=options.solver,
        mesh=options.mesh,
        advance=options.advance,
    )
    each = Figures(*(field.reshape(*axes, *field.shape[1:]) for field in figures))
    status = np.max(each.status, axis=3)  # [r, g, f, k]
    if classes > 1:
        named_at = np.any(weights[0] * (1 + labels[0]) > 0, axis=-1)  # [r, c]
        if missing := np.flatnonzero(~np.any(named_at, axis=0)).tolist():
            raise UnlabelledClass(missing)
        # A vote would never be for a class without a label.
        status[~np.all(named_at, axis=1), :, 0] = Status.BAD_INPUT
    _check_solved(status[:, :, 0], each.mu_max[:, :, 0], margins)

    def values(votes: Callable[[int, int], VoteBlocks], part: slice) -> np.ndarray:
        """Of some subsets ``[r, g, f, c, k, m]``; of several classes, by how much one is ahead."""
        places = list(np.ndindex(radii, gammas))
        by_place = on_all_cores(lambda place: votes(*place).values(each.weights[place][part]), places)
        expected = np.reshape(by_place, (radii, gammas, *np.shape(by_place[0])))
        if classes == 1:
            return expected
        mu = margins * (each.mu_max[:, :, part, :, None] if options.unit == "fraction" else 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.moveaxis(expected / np.broadcast_to(mu, expected.shape[:-1])[..., None], 3, 0)
        return np.moveaxis(ahead(scaled), 0, 3)

    on_points = values(learning_votes, slice(1))
    on_target = on_points if task.target is task.points[0] else values(votes_at([task.target] * radii), slice(1))
    risk = _risks(on_points, labels[0][:, None, None], weights[0][:, None, None])
    source_risk, source_values = np.empty((*axes[:2], 0, classes, len(margins)), risk.dtype), None
    if subsets > 1:
        held_out = ~task.learns[1:, None] * source_weights
        on_source = values(votes_at([task.source] * radii), slice(1, None))
        source_risk = _risks(on_source, np.atleast_2d(source_labels), held_out)
        source_values = np.sum(on_source, axis=2, where=~task.learns[1:, None, None], keepdims=True)

    def whole(field: np.ndarray) -> np.ndarray:
        """Entry f = 0 of ``[r, g, f, c, ...]``, that of the whole source: classes first, without that axis if two."""
        return np.moveaxis(field[:, :, 0], 2, 0) if classes > 1 else field[:, :, 0, 0]

    def by_fold(field: np.ndarray) -> np.ndarray:
        """The same of the folds ``[f, c, r, g, k]``."""
        moved = np.moveaxis(field, (2, 3), (0, 1))
        return moved if classes > 1 else moved[:, 0]

    solved = (status == Status.SOLVED)[:, :, :, None, :, None]
    matched = np.sum(learnt > 0, axis=-1)
    return Sweep(
        gammas=options.gammas,
        margins=margins,
        margin_unit=options.unit,
        pv=np.array([one.pv for one in task.samples[0]]),
        status=status[:, :, 0],
        weights=whole(np.where(solved, each.weights, np.nan)),
        c_bound=whole(np.where(solved[..., 0], each.c_bound, np.nan)),
        kkt_residual=whole(each.kkt_residual),
        mu_max=whole(each.mu_max),
        self_risk=whole(risk),
        target_values=whole(on_target),
        source_risk=by_fold(source_risk),
        fold_status=np.moveaxis(status[:, :, 1:], 2, 0),
        fold_kkt_residual=by_fold(each.kkt_residual[:, :, 1:]),
        matched=matched[0],
        fold_matched=matched[1:],
        self_labels=tuple(task.samples[0]),
        voters=families,
        voter_mask=masks[0],
        voter_counts=np.reshape([len(mask) for mask in parts[: radii * gammas]], (radii, gammas)),
        source_labels=source_labels,
        classes=max(classes, 2),
        source_weights=source_weights,
        source_values=None if source_values is None else whole(source_values),
        **{"target": task.target} | named,
    )


def _risks(values: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`pvmincq_jax.vote_risk` of values ``[..., k, m]`` on labels and weights ``[..., m]``: ``[..., k]``."""
    loss = vote_loss(values, labels[..., None, :])
    with np.errstate(invalid="ignore"):
        shares = weights / np.sum(weights, axis=-1, keepdims=True)
    # A point of weight 0 counts for nothing, even one whose value is not a number.
    return np.sum(np.where(weights[..., None, :] > 0, loss, 0.0) * shares[..., None, :], axis=-1)


class UnlabelledClass(ValueError):
    """No radius of a grid carries a label of a class; ``numbers`` says of which."""

    def __init__(self, numbers: Sequence[int], names: Sequence[Any] | None = None) -> None:
        """By the names of all classes, if they have any."""
        self.numbers = numbers
        missing = ", ".join(repr(number if names is None else names[number]) for number in numbers)
        super().__init__(
            f"no radius of the grid carries a label of class {missing} to the target: give larger radii, or leave the "
            "class out"
        )


def _check_solved(status: np.ndarray, mu_max: np.ndarray, margins: np.ndarray) -> None:
    """An error that says why, if no point of the grid ``[r, g, k]`` has a vote; of largest margins ``[r, g, c]``."""
    if np.any(status == Status.SOLVED):
        return
    total, largest = status.size, np.nanmax(np.min(mu_max, axis=-1), initial=0.0)
    if total == 1 and status == Status.INFEASIBLE:
        raise ValueError(
            f"margin must be in (0, mu_max], with mu_max = {largest:.6g} here, the largest margin that these labels "
            f"allow; it is {margins[0]:g}"
        )
    reasons = [f"{Status(code).sentence} ({np.sum(status == code)} of {total} points)" for code in np.unique(status)]
    small = np.all(status == Status.MAX_ITERATIONS)
    advice = "larger margins" if small else "smaller margins, fractions of it (margin_unit='fraction'), or larger radii"
    raise ValueError(
        f"no point of the grid could be solved: {'; '.join(reasons)}. The largest margin that these labels allow is "
        f"{largest:.4g}: give {advice}"
    )
