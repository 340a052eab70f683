"""Grids of more than two classes: one choice for all classes, by the criteria of two.

A grid of c classes is c grids of two: by how much a class is ahead of the best other one stands for its vote against
the rest, see `pvmincq_jax.adaptation.classes`. Every criterion of two classes then has its counterpart.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pvmincq_jax.adaptation.choice import Choice, choose
from pvmincq_jax.adaptation.classes import class_numbers
from pvmincq_jax.adaptation.committee import committee
from pvmincq_jax.adaptation.criteria import label_criterion, rs_pv, rs_pv_cbound, rs_pv_risk
from pvmincq_jax.adaptation.labelled import Sweep
from pvmincq_jax.adaptation.learn import class_model
from pvmincq_jax.adaptation.model import PVMinCq
from pvmincq_jax.adaptation.moved_criteria import transport_criterion
from pvmincq_jax.adaptation.moved_grid import TransportSweep, learn_on_moved
from pvmincq_jax.adaptation.moves import Moves, plan_moves
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.ratio import Ratio
from pvmincq_jax.adaptation.shift import Shift, detect_shift, stay_weights
from pvmincq_jax.adaptation.transport import stay

__all__: list[str] = []

# Criteria that add PV to what they say of the classes.
_WITH_PV = (rs_pv, rs_pv_cbound, rs_pv_risk, label_criterion)
# The fields of a `Sweep` that count radii along their second axis, after the folds, and those without radii.
_PER_FOLD = ("source_risk", "fold_matched", "fold_status", "fold_kkt_residual")
_WITHOUT_RADII = ("gammas", "margins", "margin_unit", "source_labels", "target")


def by_class(sweep: Sweep, labels: np.ndarray) -> tuple[Sweep, ...]:
    """The grid of each class, from that of `label_grid` or `own_grid` on labels ``[c, m_s]``.

    A point of the grid is solved if all classes are.
    """
    radii = len(sweep.radii) // len(labels)
    views = []
    for number, own in enumerate(labels):
        part = slice(number * radii, (number + 1) * radii)
        fields = {
            name: field[:, part] if name in _PER_FOLD else field[part]
            for name, field in sweep._asdict().items()
            if name not in _WITHOUT_RADII
        }
        views.append(sweep._replace(source_labels=own, **fields))
    status = np.max([view.status for view in views], axis=0)
    fold_status = np.max([view.fold_status for view in views], axis=0)
    return tuple(view._replace(status=status, fold_status=fold_status) for view in views)


def unmatched(sweeps: Sequence[Any]) -> np.ndarray:
    """Which classes have no label at which radius ``[c, r]``, bool: a vote would never be for them."""
    return np.array([[not np.any(one.weights * (1 + one.labels)) for one in sweep.self_labels] for sweep in sweeps])


def check_matched(sweeps: tuple[Any, ...], names: np.ndarray) -> tuple[Any, ...]:
    """The grids, in which every class has a label at some radius; it is an error if one has not."""
    missing = [repr(name) for name, never in zip(names.tolist(), np.all(unmatched(sweeps), axis=1)) if never]
    if missing:
        raise ValueError(
            f"no radius of the grid carries a label of class {', '.join(missing)} to the target: give larger radii, or "
            "leave the class out"
        )
    return sweeps


def class_scores(sweeps: Sequence[Any], criterion: Callable[[Any], np.ndarray]) -> np.ndarray:
    """The criterion of a grid of c classes: half the sum over the classes of that of two.

    1/2 sum_c criterion_c. A point whose prediction is wrong is wrong for two classes, so that half the sum of the risks
    is the risk of the prediction, half the sum of the cuts is the share of neighbours with another prediction, and for
    two classes all of it is the criterion of two. PV is no share of the classes: our own criteria that add it have it
    once in the sum; what else a function adds for the whole task counts c / 2 times. Scores ``[r, g, k]`` are infinite
    where a class has no label.
    """
    count = len(sweeps)
    if count == 1:
        return criterion(sweeps[0])
    total = np.sum([criterion(sweep) for sweep in sweeps], axis=0) / 2
    if criterion in _WITH_PV:
        total = total - (count / 2 - 1) * sweeps[0].pv[:, None, None]
    return np.where(np.any(unmatched(sweeps), axis=0)[:, None, None], np.inf, total)


def _class_shares(ratio: Ratio | Sequence[float], names: np.ndarray, shift: Shift | None) -> dict[float, float] | None:
    """The shares of the classes by their number; None for those of the source.

    "estimated" takes them from `label_shift` where nothing else has changed, and else those of the source: a scan would
    be over a simplex.
    """
    if isinstance(ratio, str) and ratio == "estimated" and shift is not None:
        if shift.weights is None:
            return None
        ratio = np.maximum(shift.label_shift.shares, 1e-3) / np.sum(np.maximum(shift.label_shift.shares, 1e-3))
    if isinstance(ratio, str) and ratio == "source":
        return None
    shares = np.asarray(ratio, float) if not isinstance(ratio, str) and np.ndim(ratio) == 1 else np.zeros(0)
    if len(shares) != len(names) or not np.all(shares > 0) or not np.isclose(np.sum(shares), 1):
        raise ValueError(
            f"ratio must be 'source' or 'estimated' with more than two classes, or {len(names)} shares above 0 with "
            f"sum 1, in the order of the classes; it is {ratio!r}"
        )
    return {float(number): float(share) for number, share in enumerate(shares)}


def fit_transport_classes(
    source: np.ndarray,
    labels: np.ndarray,
    target: np.ndarray,
    moves: Moves,
    options: GridOptions,
    *,
    criterion: Callable[[Any], np.ndarray],
    ratio: Ratio | Sequence[float],
    part: float | None,
    names: np.ndarray,
) -> tuple[PVMinCq, Choice, tuple[TransportSweep, ...], Shift | None]:
    """`pvmincq_jax.fit_transport_validated` on labels ``[c, m_s]`` of each class against the rest.

    The ratio is "source", "estimated", or the shares of all classes in the target, in the order of their names.
    `detect_shift` is asked first, as there, but for a subspace.
    """
    numbers = class_numbers(labels).astype(source.dtype)
    default = criterion is transport_criterion and moves.radii is None and moves.own_scale is None
    asked = default and isinstance(moves.metric, str) and moves.metric == "euclidean"
    shift = detect_shift(source, numbers, target, seed=moves.seed) if asked else None
    shares = _class_shares(ratio, names, shift)
    weights = stay_weights(shift, shares, numbers)
    if weights is None:
        makers = plan_moves(source, numbers, target, moves._replace(shares=shares))
    else:
        makers = [partial(stay, source, weights=weights)]
    moved = learn_on_moved([make() for make in makers], labels, target, options)
    if shares is not None:
        moved = tuple(one._replace(ratio=share) for one, share in zip(moved, shares.values()))
    sweeps = check_matched(moved, names)
    scores = class_scores(sweeps, criterion)
    choice = choose(sweeps[0], scores)
    model = class_model(sweeps, choice.grid_index) if part is None else committee(sweeps, scores, part)
    return model, choice, sweeps, shift
