"""Shifts that other people made: the simulated tasks of SKADA-Bench, by its own protocol, beside its published figures.

  python -m experiments.skada_bench                          four shifts, five seeds, five splits
  python -m experiments.skada_bench --quick                  two splits of the first seed
  python -m experiments.skada_bench --methods PV-Transport SVM
  python -m experiments.skada_bench --seed 100               other draws of the same shifts

Two classes in the plane, drawn by skada. In the target points are selected around a place ("covariate"), the classes
are as 9 to 1 ("class ratio"), all points are scaled and moved ("conditional"), or mirrored through the origin, so that
the domains agree along one direction only ("subspace"). A domain has 800 points, 1 200 in the last. Each seed is split
five times, in both domains and by classes: four fifths are learnt from, the other target points are the test sample.

"PV-Transport" is the library's default, `pvmincq_jax.fit_transport_validated`; "ratio estimated" the same with the
class ratio taken from `pvmincq_jax.label_shift`; "PV-MinCq" the label form. "SVM" and "MinCq" learn on the source and
do not adapt. The others are adapters of skada as they come, before the same SVM. Every choice in the library was made
on other tasks: other seeds, noises and places of these shifts, moons, shapes, digits and penguins.

The published figures are means over the same seeds and splits, of methods that were tuned by unsupervised scorers.
"""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, mean_and_error, names, needs, write
from experiments.run.peers import PEERS, Fit, skada_svm
from experiments.run.study import run_accuracies
from pvmincq_jax.datasets import DomainTask

with needs("experiments"):
    import matplotlib.pyplot as plt

__all__ = ["METHODS", "PUBLISHED", "SHIFTS", "compute", "main", "picture", "task"]

# What skada calls the shift, its noise, and points of a cluster.
SHIFTS = {
    "covariate": ("covariate_shift", 0.6, 100),
    "class ratio": ("target_shift", 0.8, 100),
    "conditional": ("conditional_shift", 0.8, 100),
    "subspace": ("subspace", 0.4, 300),
}
_CENTER = (-0.4, 3)
SPLITS = 5
OURS = "PV-Transport"
ESTIMATED = "PV-Transport, ratio estimated"
METHODS: dict[str, Fit | None] = {
    OURS: None,
    ESTIMATED: None,
    "PV-MinCq": None,
    "MinCq": None,
    **{name: PEERS[name] for name in ("SVM", "CORAL + SVM", "OT + SVM", "subspace alignment + SVM")},
    "transfer components + SVM": skada_svm("TransferComponentAnalysisAdapter"),
}
# Accuracies in per cent, in the order of SHIFTS, from the benchmark's paper.
PUBLISHED = {
    "trained on the source": (88.1, 85.1, 66.2, 19.0),
    "best method and scorer of each column": (90.6, 92.8, 81.7, 61.8),
    "trained on the target": (91.5, 93.2, 81.7, 98.5),
}
# Means over the four shifts of the best methods with one scorer for all.
_PUBLISHED_MEANS = {"TSL": 72.5, "MMD-LS": 70.7}


def task(shift: str, seed: int, split: int) -> DomainTask:
    """One of `SHIFTS`, drawn with a seed, and one of its splits."""
    from skada.datasets import make_shifted_datasets
    from skada.model_selection import StratifiedDomainShuffleSplit

    kind, noise, size = SHIFTS[shift]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of an option that skada's own default sets
        x, y, domain = make_shifted_datasets(
            size, size, shift=kind, noise=noise, center_cov_shift=_CENTER, random_state=seed
        )
    splits = StratifiedDomainShuffleSplit(n_splits=SPLITS, test_size=0.2, random_state=0)
    train, test = list(splits.split(x, y, sample_domain=domain))[split]
    labels = np.where(y > 0, 1.0, -1.0)
    source, target, unseen = train[domain[train] >= 0], train[domain[train] < 0], test[domain[test] < 0]
    return DomainTask(x[source], labels[source], x[target], x[unseen], labels[unseen])


def compute(settings: dict[str, Any], method: str, shift: str, run: int) -> dict[str, Any]:
    """Accuracy of one of `METHODS` on one of `SHIFTS`, in per cent; of our own, what it says has changed, besides.

    Settings are the ``seed`` of the first five runs; the next five have the next seed.
    """
    data = task(shift, settings["seed"] + run // SPLITS, run % SPLITS)
    arguments = data.source, data.source_labels, data.target
    fit = METHODS[method]
    if fit is not None:
        return {"accuracy": float(accuracy(fit(*arguments, run)(data.test), data.test_labels))}
    with jax.enable_x64(True):
        if method == "MinCq":
            from pvmincq_jax.estimators import MinCqClassifier

            values = MinCqClassifier().fit(*arguments[:2]).decision_function(data.test)
            return {"accuracy": float(accuracy(values, data.test_labels))}
        if method == "PV-MinCq":
            values = pvm.decision(pvm.fit_validated(*arguments, progress=False).model, data.test)
            return {"accuracy": float(accuracy(values, data.test_labels))}
        ratio: Any = "estimated" if method == ESTIMATED else "source"
        fitted = pvm.fit_transport_validated(*arguments, progress=False, ratio=ratio)
        right = float(accuracy(pvm.decision(fitted.model, data.test), data.test_labels))
        said: Any = fitted.shift
        return {"accuracy": right, "adapted": fitted.adapted, "kind": said.kind, "sentence": said.sentence}


Rows = dict[str, dict[str, list[float]]]


def picture(rows: Rows) -> Any:
    """A group of bars for each shift, a bar for each method, and the published figures as lines across."""
    columns = list(next(iter(rows.values())))
    figure, axis = plt.subplots(figsize=(9, 4.2))
    width = 0.8 / len(rows)
    for place, (name, accuracies) in enumerate(rows.items()):
        figures = np.array([mean_and_error(accuracies[shift]) for shift in columns])
        at = np.arange(len(columns)) + (place - (len(rows) - 1) / 2) * width
        colour = "black" if name == OURS else plt.get_cmap("tab10")(place % 10)
        axis.bar(at, figures[:, 0], width, yerr=np.nan_to_num(figures[:, 1]), color=colour, label=name, ecolor="0.5")
    lines = zip(PUBLISHED.items(), (":", "--", "-"))
    for (name, published), style in lines:
        values = [published[list(SHIFTS).index(shift)] for shift in columns]
        left = np.arange(len(columns)) - 0.45
        axis.hlines(values, left, left + 0.9, color="0.3", linestyle=style, label=f"published: {name}")
    axis.set(xticks=range(len(columns)), xticklabels=columns, ylabel="accuracy on the target, %", ylim=(0, 101))
    figure.legend(loc="lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.2, 1, 1))
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes table and picture."""
    usual = {"methods": list(METHODS), "shifts": list(SHIFTS), "runs": 5 * SPLITS, "seed": 0}
    parser = Command("skada_bench", __doc__, usual, {"runs": 2})
    parser.add_argument("--methods", nargs="+", action=names(METHODS), help=f"of {'; '.join(METHODS)}")
    parser.add_argument("--shifts", nargs="+", action=names(SHIFTS), help=f"of {'; '.join(SHIFTS)}")
    options = parser.parse_args(arguments)
    settings = {"seed": options.seed}
    names_of_cells = options.methods, options.shifts
    records = run_accuracies("skada_bench", ("method", "shift"), names_of_cells, settings, options)
    rows: Rows = {
        method: {shift: [cell["accuracy"] for cell in records[method, shift]] for shift in options.shifts}
        for method in options.methods
    }
    table: dict[str, list[Any]] = {
        method: [*found.values(), float(np.mean([np.mean(one) for one in found.values()]))]
        for method, found in rows.items()
    }
    for name, published in PUBLISHED.items():
        shown = [published[list(SHIFTS).index(shift)] for shift in options.shifts]
        table[f"published: {name}"] = [*shown, float(np.mean(shown))]
    text = [
        "Accuracy in per cent on target points that were not learnt from, mean ± standard error over",
        f"{options.runs} runs, {SPLITS} splits of each seed from {options.seed} on. Published: SKADA-Bench's figures",
        "of seeds 0 to 4; its best methods with one scorer for all four shifts have a mean of "
        + ", ".join(f"{mean} ({name})" for name, mean in _PUBLISHED_MEANS.items()),
        "",
        as_table("method", [*options.shifts, "mean"], table),
    ]
    if OURS in options.methods:
        text += ["", "What the default says has changed, in runs:"]
        for shift in options.shifts:
            kinds = [cell["kind"] for cell in records[OURS, shift]]
            counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
            text += [f"{shift}: " + ", ".join(f"{kind} {count}" for kind, count in counts.items())]
    write(options.out, "skada_bench", "\n".join(text), partial(picture, rows))


if __name__ == "__main__":
    main()
