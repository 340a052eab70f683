"""How the default of the transport form was settled: rules without target labels against each other, on real shifts.

  python -m experiments.shift_study                     all sets of tasks, about ten minutes on two cores
  python -m experiments.shift_study --quick             every eighth task
  python -m experiments.shift_study --sets unequal      classes of another ratio in the target

"chosen" is the point of least `pvmincq_jax.transport_criterion`, and "chosen, committee" what the library does with it.
The others change one thing: a term of the criterion, which maps are in the grid, or who votes. No task is one of a
reported table: other digits, changes and variables than those of `experiments.real_shifts`, drawn species in place of
penguins, and the moons at other seeds than those of Table 1. The terms and weights were taken from the sets digits,
split, drawn and moons; the agreement that a committee asks for came from the moons at 80 degrees, where all
but one map are wrong. The set "unequal" has classes 4:1 in the target and 1:1 in the source. Test labels judge the
rules, and are never seen inside one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import pvmincq_jax as pvm
from experiments.drawn_species import SIZES, drawn_task
from experiments.real_tasks import STUDIED, digits_task, moons_unequal
from experiments.transport_study import chosen_by, first_criterion, run_rules
from pvmincq_jax.datasets import DomainTask, moons_task

__all__ = ["RULES", "SETS", "compute", "look", "main"]

Rule = Callable[[pvm.TransportSweep], np.ndarray]

RARER = 4
ANGLES = ("0", "20", "40", "60", "translation")


class Task(NamedTuple):
    """A task of the study, by its name and seed."""

    shape: str
    seed: int
    group: str


def _makers() -> dict[str, Callable[[int], DomainTask]]:
    """From a seed to a task, by name."""
    makers: dict[str, Callable[[int], DomainTask]] = dict(STUDIED)
    makers |= {f"drawn, {m} to {n}": partial(drawn_task, m, n) for m, n in (*SIZES, (34, 59))}
    for angle in (*ANGLES, "50", "70", "80"):
        makers |= {f"moons {angle}": partial(moons_task, angle)}
        makers |= {f"moons {angle}, {RARER}:1": partial(moons_unequal, angle, RARER)}
    for name, make in STUDIED.items():
        if "/" in name:
            positive, negative, change = make.args
            makers[f"{name}, {RARER}:1"] = partial(digits_task, positive, negative, change, rarer=RARER)
    return makers


def _tasks(wanted: Callable[[str], bool], group: str, seeds: Sequence[int]) -> list[Task]:
    return [Task(name, seed, group) for seed in seeds for name in _makers() if wanted(name)]


def _unequal() -> list[Task]:
    moons = _tasks(lambda name: name in [f"moons {angle}, {RARER}:1" for angle in ANGLES], "moons", (1000, 1001, 1002))
    return moons + _tasks(lambda name: "/" in name and name.endswith(":1"), "digits", (1000,))


SETS: dict[str, Callable[[], Sequence[Task]]] = {
    "digits": lambda: _tasks(lambda name: "/" in name and ":1" not in name, "digits", (1000, 1001)),
    "split": lambda: _tasks(lambda name: " by " in name, "wine and tumours", (1000, 1001)),
    "drawn": lambda: _tasks(lambda name: name.startswith("drawn"), "drawn species", range(1000, 1005)),
    "moons": lambda: _tasks(lambda name: name.startswith("moons") and ":1" not in name, "moons", (1000, 1001, 1002)),
    "unequal": _unequal,
}


def _rule(
    cut: float = 6,
    gap: float = 1,
    price: float = 1,
    at_rest: float = 1,
    reason: float = 0.8,
    plain: bool = False,
) -> Rule:
    """The criterion with other weights, or with the cut as it was before it was normalised."""

    def scores(one: pvm.TransportSweep) -> np.ndarray:
        cuts = pvm.neighbour_disagreement(one) if plain else pvm.normalised_cut(one)
        total = cut * cuts + gap * pvm.class_ratio_gap(one) ** 2 + 4 * np.maximum(pvm.moved_risk(one) - 0.1, 0)
        prices = price * np.where(one.radii == 0, at_rest, 1.0) * pvm.map_price(one)
        return np.where(pvm.at_rest(one), reason, 1.0)[:, None, None] * (total + prices[:, None, None])

    return scores


def _only(kept: Callable[[pvm.TransportSweep], np.ndarray]) -> Rule:
    """The criterion on some of the maps."""
    return lambda one: np.where(kept(one)[:, None, None], pvm.transport_criterion(one), np.inf)


def _scaled(one: pvm.TransportSweep) -> np.ndarray:
    """Which maps start from the source on the target's scale ``[r]``: the second run of radii."""
    return np.arange(len(one.radii)) >= np.flatnonzero(one.radii == 0)[1]


RULES: dict[str, Rule] = {
    "chosen": pvm.transport_criterion,
    "the criterion of version 0.1.0": first_criterion,
    "plain cut": _rule(plain=True),
    "half the cut": _rule(cut=3),
    "twice the cut": _rule(cut=12),
    "no gap": _rule(gap=0),
    "8 gap²": _rule(gap=8),
    "half the price": _rule(price=0.5),
    "no price at rest": _rule(at_rest=0),
    "no reason needed to adapt": _rule(reason=1),
    "without own scales": _only(lambda one: ~_scaled(one)),
    "own scales alone": _only(_scaled),
    "without the identity": _only(lambda one: ~pvm.at_rest(one)),
    "not adapted": _only(pvm.at_rest),
}


def _share(model: Any, data: DomainTask) -> float:
    return float(np.mean(pvm.decision(model, data.test) * data.test_labels > 0))


def _quarter(sweep: pvm.TransportSweep, data: DomainTask) -> float:
    """Whoever is in the best quarter votes, as in version 0.1.0's command."""
    scores = pvm.transport_criterion(sweep)
    best = np.argsort(scores, axis=None)[: np.count_nonzero(np.isfinite(scores)) // 4]
    votes = np.sign(pvm.values_at(sweep, data.test)).reshape(scores.size, -1)[best]
    return float(np.mean(np.sum(votes, axis=0) * data.test_labels > 0))


def look(task: Task, seed: int = 3) -> dict[str, float]:
    """The accuracy that each rule reaches on a task, the best of the grid, and the median.

    Args:
      task: of `SETS`.
      seed: of the matchings.

    Returns:
      Shares, by rule.
    """
    data = _makers()[task.shape](task.seed)
    given = data.source, data.source_labels, data.target
    if task.shape.endswith(":1"):
        return _look_unequal(data, seed, _makers()[task.shape.rpartition(",")[0]](task.seed))
    found = pvm.fit_transport_validated(*given, seed=seed, progress=False)
    accuracy = np.mean(pvm.values_at(found.sweep, data.test) * data.test_labels > 0, axis=-1)
    together = {
        "chosen, committee": _share(found.model, data),
        "chosen, best quarter votes": _quarter(found.sweep, data),
    }
    return together | chosen_by(RULES, found.sweep, accuracy)


def _confusion(data: DomainTask) -> float:
    """The class ratio by the confusion matrix of an SVM that has not seen the target."""
    from sklearn.model_selection import cross_val_predict
    from sklearn.svm import SVC

    held_out = cross_val_predict(SVC(), data.source, data.source_labels)
    predicted = SVC().fit(data.source, data.source_labels).predict(data.target)
    return float(np.clip(pvm.confusion_ratio(data.source_labels, held_out, predicted), 0.05, 0.95))


def _look_unequal(data: DomainTask, seed: int, balanced: DomainTask) -> dict[str, float]:
    """Accuracies under each way to the class ratio, and how far the two estimates are off."""

    def fit(one: DomainTask, ratio: Any) -> pvm.ValidatedTransport:
        return pvm.fit_transport_validated(
            one.source, one.source_labels, one.target, seed=seed, progress=False, ratio=ratio
        )

    source, scanned, by_matrix = fit(data, "source"), fit(data, "estimated"), _confusion(data)
    accuracy = np.mean(pvm.values_at(source.sweep, data.test) * data.test_labels > 0, axis=-1)
    true = float(np.mean(data.test_labels > 0))
    return {
        "chosen": _share(source.model, data),
        "ratio estimated by the scan": _share(scanned.model, data),
        "ratio estimated by a confusion matrix": _share(fit(data, by_matrix).model, data),
        "ratio given": _share(fit(data, true).model, data),
        "even classes in the target": _share(fit(balanced, "source").model, balanced),
        "the scan is off by": abs(float(scanned.sweep.ratio or 0.0) - true),
        "the confusion matrix is off by": abs(by_matrix - true),
        **chosen_by({"not adapted": RULES["not adapted"]}, source.sweep, accuracy),
    }


def compute(settings: dict[str, Any], tasks: str, number: int) -> dict[str, Any]:
    """The accuracy that each rule reaches on a task, by its set and its place there."""
    return {"accuracy": look(SETS[tasks]()[number], settings["draw_seed"])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Judges the rules on real shifts."""
    run_rules("shift_study", __doc__, SETS, arguments, 0.5)


if __name__ == "__main__":
    main()
