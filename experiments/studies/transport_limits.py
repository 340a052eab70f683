"""Where the transport form fails: shifts that are no small motion of the source, class by class.

  python -m experiments.studies.transport_limits          accuracies of five draws, and a picture of the first
  python -m experiments.studies.transport_limits --runs 1 --methods PV-Transport-MinCq

A matching within a radius moves points as little as it must. Where another map than the right one moves them less, no
radius and no criterion finds the right one: a mirror image, or a shape that has nothing to do with the source's. And a
matching pairs as many points as it can, so a class that is rarer in the target lends its surplus to the other one. A
rotation of 80 degrees, where the form works, stands beside them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, names, needs, number, write
from experiments.run.methods import METHODS, Fitted
from experiments.run.shifts import draw_shape
from experiments.run.study import run_accuracies
from pvmincq_jax.datasets import DomainTask, draw_moons

with needs("experiments"):
    import matplotlib.pyplot as plt

    from experiments.run.style import bare, points

__all__ = ["CASES", "compute", "limits_task", "main", "picture"]

CASES = {
    "rotation": "80° rotation",
    "mirror": "mirror image",
    "ratio": "one class four times rarer",
    "disjoint": "rings from moons",
}
NOISE = 0.05
RARER = 4
FAR = (3.0, 0.0)
OURS = "PV-Transport-MinCq"


def _target(case: str, per_class: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if case == "rotation":
        return draw_moons(per_class, rng, angle=80.0, noise=NOISE)
    if case == "mirror":
        x, labels = draw_moons(per_class, rng, noise=NOISE)
        return x * [-1, 1], labels
    if case == "ratio":
        common = 2 * per_class * RARER // (RARER + 1)
        x, labels = draw_moons(common, rng, angle=20.0, noise=NOISE)
        rare = np.flatnonzero(labels > 0)[: 2 * per_class - common]
        rows = np.sort(np.concatenate([np.flatnonzero(labels < 0), rare]))
        return x[rows], labels[rows]
    x, labels = draw_shape("rings", per_class, NOISE, rng)
    order = rng.permutation(len(x))
    return x[order] + FAR, labels[order]


def limits_task(case: str, seed: int, per_class: int = 150, test_size: int = 1500) -> DomainTask:
    """One draw of one of `CASES`, twice ``per_class`` points a domain."""
    if case not in CASES:
        raise ValueError(f"case must be one of {', '.join(CASES)}; it is {case!r}")
    streams = [np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(3)]
    source, source_labels = draw_moons(per_class, streams[0], noise=NOISE)
    target, _ = _target(case, per_class, streams[1])
    test, test_labels = _target(case, test_size // 2, streams[2])
    return DomainTask(source, source_labels, target, test, test_labels)


def _fit(settings: dict[str, Any], method: str, case: str, run: int) -> tuple[DomainTask, Fitted]:
    seed = settings["seed"] + run
    task = limits_task(case, seed, settings["per_class"])
    return task, METHODS[method].fit(task.source, task.source_labels, task.target, seed)


def compute(settings: dict[str, Any], method: str, case: str, run: int) -> dict[str, Any]:
    """Accuracy in per cent and the criterion that a method of Table 1 chose by, in one of `CASES`.

    Settings are the ``seed`` of run 0, and ``per_class``.
    """
    task, fitted = _fit(settings, method, case, run)
    return {"accuracy": float(accuracy(fitted.decision(task.test), task.test_labels)), "criterion": fitted.criterion}


def _region(axis: Any, fitted: Fitted, around: np.ndarray) -> None:
    """Shades where the vote says +1, and draws its boundary."""
    # A square window, as every panel has.
    middle = (around.min(axis=0) + around.max(axis=0)) / 2
    reach = np.max(np.ptp(around, axis=0)) / 2 + 0.2
    low, high = middle - reach, middle + reach
    x, y = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
    values = fitted.decision(np.stack([x.ravel(), y.ravel()], axis=1)).reshape(x.shape)
    axis.contourf(x, y, values, levels=[0, np.inf], colors=["#dbe5f1"], zorder=0)
    axis.contour(x, y, values, levels=[0], colors="black", linewidths=1.2, zorder=1)
    axis.set_xlim(low[0], high[0])
    axis.set_ylim(low[1], high[1])


def picture(settings: dict[str, Any]) -> Any:
    """A column a case: the two domains of the first run above, the moved source points and the vote below."""
    figure, axes = plt.subplots(2, len(CASES), figsize=(3.0 * len(CASES), 6.2), squeeze=False)
    for (above, below), case in zip(axes.T, CASES):
        task, fitted = _fit(settings, OURS, case, 0)
        points(above, task.target)
        points(above, task.source, task.source_labels, size=10)
        above.set_title(CASES[case])
        found = fitted.details
        moved = found.sweep.transports[found.choice.grid_index[0]].moved
        _region(below, fitted, task.target)
        shown = slice(0, 300)
        wrong = fitted.decision(task.test[shown]) * task.test_labels[shown] <= 0
        points(below, task.target, marker=".", size=6, color="0.6")
        points(below, np.asarray(moved), task.source_labels, size=12)
        below.scatter(*task.test[shown][wrong].T, s=26, marker="x", color="#b2182b", linewidths=1.0, zorder=3)
        below.set_title(f"{accuracy(fitted.decision(task.test), task.test_labels):.0f} % on the target")
        bare(above)
        bare(below)
        below.set_aspect("equal", adjustable="box")
    axes[0, 0].set_ylabel("labelled source, target (x)")
    axes[1, 0].set_ylabel("moved source, vote, target (.), errors (x)")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=2)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes accuracies, criterion and picture."""
    beside = ["OT-skada", "CORAL-skada", "SVM"]
    usual = {"methods": beside, "runs": 5, "seed": 6000, "per_class": 150}
    parser = Command("studies.transport_limits", __doc__, usual, {"methods": ["SVM"], "runs": 1})
    parser.add_argument(
        "--methods",
        nargs="+",
        action=names(METHODS),
        help=f"beside our own, of {' '.join(METHODS)}{parser.default('methods')}",
    )
    parser.add_argument("--per-class", type=number(10), help=f"half of a domain's points{parser.default('per_class')}")
    options = parser.parse_args(arguments)
    methods = [OURS, *(name for name in options.methods if name != OURS)]
    settings = {"seed": options.seed, "per_class": options.per_class}
    found = run_accuracies("studies.transport_limits", ("method", "case"), (methods, list(CASES)), settings, options)
    rows = {}
    for case, title in CASES.items():
        figures = [[one["accuracy"] for one in found[method, case]] for method in methods]
        rows[title] = [*figures, f"{np.mean([one['criterion'] for one in found[OURS, case]]):.3f}"]
    text = f"Accuracy in per cent, mean ± standard error over {options.runs} draws, seed {options.seed}\n\n"
    text += as_table("shift", [*methods, "our criterion"], rows)
    write(options.out, "transport_limits", text, lambda: picture(settings))


if __name__ == "__main__":
    main()
