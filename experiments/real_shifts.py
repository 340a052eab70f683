"""All real shifts in one table: penguins, changed digits in 64 pixels, wines and tumours split by a measurement.

  python -m experiments.real_shifts                        eighteen tasks, ten splits each, ten minutes on two cores
  python -m experiments.real_shifts --quick                two splits of three tasks
  python -m experiments.real_shifts --methods PV-Transport SVM
  python -m experiments.real_shifts --study                the tasks that the rules were settled on

"PV-Transport" is the library's default, `pvmincq_jax.fit_transport_validated`, what `PVTransportClassifier` does as it
comes. Of the same grid, "its best point" is the choice without the committee, "its grid, not adapted" the votes
learnt on the source where it is, chosen by the same criterion, and "its grid, best in hindsight" the point of highest
accuracy on the test sample, which nobody can choose: what is left to gain. "ratio estimated" is the default with
the class shares of `pvmincq_jax.label_shift`; it is left out unless it is asked for. The others
are in `experiments.run.peers`. No choice sees a label of the target. The tasks of --study are other digits, changes and
variables, and drawn species in place of penguins; the reported table has seed 5000, never used there.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, mean_and_error, names, needs, write
from experiments.run.peers import PEERS
from experiments.run.study import run_accuracies
from experiments.run.tasks import REPORTED, SIZES, STUDIED, drawn_task
from pvmincq_jax.datasets import DomainTask

with needs("experiments"):
    import matplotlib.pyplot as plt

__all__ = ["GROUPS", "METHODS", "compute", "main", "picture", "tasks"]

OURS = "PV-Transport"
ESTIMATED = "PV-Transport, ratio estimated"
METHODS = (OURS, ESTIMATED, *PEERS)
# Figures that a cell of ours holds besides.
_BESIDE = {
    "best_point": "its best point",
    "not_adapted": "its grid, not adapted",
    "oracle": "its grid, best in hindsight",
}
QUICK = (
    "Adelie to Gentoo",
    "3/8 turned 45°",
    "wine by malic acid",
    "drawn, 119 to 73",
    "3/5 turned 30°",
    "wine by ash",
)


def tasks(study: bool) -> dict[str, partial[DomainTask]]:
    """From a seed to a task, by name."""
    drawn = {f"drawn, {m} to {n}": partial(drawn_task, m, n) for m, n in SIZES}
    return {**drawn, **STUDIED} if study else REPORTED


def _group(task: str) -> str:
    if task.startswith("drawn"):
        return "drawn species"
    return "digits" if "/" in task else "split" if " by " in task else "penguins"


GROUPS = {
    "penguins": "penguins",
    "drawn species": "drawn species",
    "digits": "digits, 64 pixels",
    "split": "wine, tumours",
}


def compute(settings: dict[str, Any], method: str, task: str, run: int) -> dict[str, Any]:
    """Accuracy of one of `METHODS` on one of `tasks`, in per cent; for our own, figures of the same grid besides.

    Settings are the ``seed`` of the first run, and whether it is the ``study``.
    """
    own = settings["seed"] + run
    data = tasks(settings["study"])[task](own)
    given = data.source, data.source_labels, data.target
    with jax.enable_x64(True):
        if method in PEERS:
            return {"accuracy": float(accuracy(PEERS[method](*given, own)(data.test), data.test_labels))}
        ratio: Any = "estimated" if method == ESTIMATED else "source"
        found = pvm.fit_transport_validated(*given, seed=own, progress=False, ratio=ratio)
        grid = accuracy(pvm.values_at(found.sweep, data.test), data.test_labels)
        rest = np.where(found.sweep.unmoved[:, None, None], found.choice.scores, np.inf)
        return {
            "accuracy": float(accuracy(pvm.decision(found.model, data.test), data.test_labels)),
            "best_point": float(grid[found.choice.grid_index]),
            "not_adapted": float(grid.flat[np.argmin(rest)]),
            "oracle": float(np.max(grid)),
            "adapted": found.adapted,
            "ratio": found.sweep.ratio,
        }


Rows = dict[str, dict[str, list[float]]]


def _rows(records: dict[tuple[str, str], list[dict[str, Any]]], methods: Sequence[str]) -> Rows:
    """Accuracies of all runs, by row of the table and by task."""
    rows: Rows = {}
    for (method, task), cells in records.items():
        rows.setdefault(method, {})[task] = [cell["accuracy"] for cell in cells]
        if method == OURS:
            for figure, title in _BESIDE.items():
                rows.setdefault(title, {})[task] = [cell[figure] for cell in cells]
    order = [*(method for method in methods if method in (OURS, ESTIMATED)), *_BESIDE.values(), *PEERS]
    return {name: rows[name] for name in order if name in rows}


def picture(rows: Rows) -> Any:
    """A dot for each row and task, with its standard error; tasks in order, groups apart."""
    columns = list(next(iter(rows.values())))
    figure, axis = plt.subplots(figsize=(7.5, 0.42 * len(columns) + 1.8))
    markers = "osv^D<>Pp*h"
    for place, (name, found) in enumerate(rows.items()):
        figures = np.array([mean_and_error(found[task]) for task in columns])
        ours, hidden = name in (OURS, ESTIMATED), name in _BESIDE.values()
        axis.errorbar(
            figures[:, 0],
            np.arange(len(columns)),
            xerr=np.nan_to_num(figures[:, 1]) if ours else None,
            fmt=markers[place % len(markers)],
            markersize=7 if ours else 4.5,
            color="black" if ours else "0.6" if hidden else plt.get_cmap("tab10")(place % 10),
            label=name,
            zorder=3 if ours else 2,
        )
    for place in range(1, len(columns)):
        if _group(columns[place]) != _group(columns[place - 1]):
            axis.axhline(place - 0.5, color="0.8", linewidth=0.8)
    axis.set(yticks=range(len(columns)), yticklabels=columns, xlabel="accuracy on the target, %")
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    figure.legend(loc="lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes table and picture."""
    usual = {"methods": [OURS, *PEERS], "tasks": None, "runs": 10, "seed": 3000}
    parser = Command("real_shifts", __doc__, usual, {"runs": 2, "tasks": list(QUICK)})
    parser.add_argument("--methods", nargs="+", action=names(METHODS), help=f"of {'; '.join(METHODS)}")
    known = [*REPORTED, *tasks(True)]
    parser.add_argument("--tasks", nargs="+", action=names(known), help=f"of {'; '.join(known)} (default: all)")
    parser.add_argument("--study", action="store_true", help="the tasks that the rules were settled on")
    options = parser.parse_args(arguments)
    columns = [task for task in tasks(options.study) if options.tasks is None or task in options.tasks]
    if not columns:
        parser.error(
            f"--tasks: none of {', '.join(options.tasks)} is a task {'of' if options.study else 'without'} --study"
        )
    settings = {"seed": options.seed, "study": options.study}
    records = run_accuracies("real_shifts", ("method", "task"), (options.methods, columns), settings, options)
    rows = _rows(records, options.methods)
    groups = {key: [task for task in columns if _group(task) == key] for key in GROUPS}
    shown = {key: own for key, own in groups.items() if own}
    means = {
        name: [
            *(np.mean([found[task] for task in own], axis=0) for own in shown.values()),
            float(np.mean(list(found.values()))),
        ]
        for name, found in rows.items()
    }
    text = [
        "Accuracy in per cent on target points that were not learnt from, mean ± standard error over",
        f"{options.runs} splits, seed {options.seed}",
        "",
        as_table("mean of", [*(f"{GROUPS[key]} ({len(own)})" for key, own in shown.items()), "all"], means),
    ]
    for own in shown.values():
        text += ["", as_table("method", own, {name: [found[task] for task in own] for name, found in rows.items()})]
    if OURS in options.methods:
        stayed = {task: np.mean([not cell["adapted"] for cell in records[OURS, task]]) for task in columns}
        text += ["", "Splits on which the source as it is was judged best, in per cent:"]
        text += [", ".join(f"{task} {100 * share:.0f}" for task, share in stayed.items() if share) or "none"]
    write(options.out, "real_shifts", "\n".join(text), partial(picture, rows))


if __name__ == "__main__":
    main()
