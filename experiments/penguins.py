"""A real problem: telling male from female penguins of a species of which no bird was ever sexed.

  python -m experiments.penguins                              six pairs of species, ten runs
  python -m experiments.penguins --methods SVM PV-Transport   some of the methods
  python -m experiments.penguins --quick                      two runs of three methods
  python -m experiments.penguins --drawn                      drawn species in their place

Four measurements (length and depth of the bill, length of the flipper, body mass) of 333 birds of three species, from
the palmerpenguins package, which ships its data. The source is one species with the sex of every bird; the target is
half of the birds of another species without it, and the other half is the test sample, drawn anew in each run. Each
species has its own size, so a classifier of the source calls nearly all birds of another species by one sex.
Measurements are scaled on the source alone. No choice sees the sex of a target bird: MinCq, PV-SVM, PV-MinCq and
PV-MinCq+ are tuned as in Table 1 and the transport form by `fit_transport_validated`, all with the library's
defaults. The SVM, alone, on domains that are each scaled by their own mean and deviation ("standardised"), and after
skada's adapters, is that of `experiments.run.peers`.

That earlier defaults of the transport form fell short was seen on the penguins (seeds from 1000 on, the same birds in
other halves); what to change was settled on drawn species (``--drawn``), two Gaussian classes that are moved and scaled
at random, and on the other tasks of `experiments.studies.shift_study`. The reported table has seed 5014.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, names, needs, write
from experiments.run.peers import PEERS, Decision, Fit, table1
from experiments.run.study import run_accuracies
from experiments.run.tasks import PAIRS, SIZES, drawn_task, penguins_task
from pvmincq_jax.datasets import DomainTask

with needs("experiments"):
    import matplotlib.pyplot as plt

    from experiments.run.style import points

__all__ = ["METHODS", "compute", "main"]


def _transport(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int) -> Decision:
    model = pvm.fit_transport_validated(source, labels, target, seed=seed, progress=False).model
    return lambda x: pvm.decision(model, x)


METHODS: dict[str, Fit] = {
    "SVM": PEERS["SVM"],
    **{name: table1(name) for name in ("MinCq", "PV-SVM", "PV-MinCq", "PV-MinCq+")},
    "PV-Transport": _transport,
    **{name: PEERS[name] for name in ("standardised + SVM", "CORAL + SVM", "OT + SVM")},
}


def tasks(drawn: bool) -> dict[str, Callable[[int], DomainTask]]:
    """The six pairs of species by name, or pairs of drawn species by their sizes; each from a seed to a task."""
    if drawn:
        return {f"drawn, {m} to {n}": partial(drawn_task, m, n) for m, n in SIZES}
    return {f"{source} to {target}": partial(penguins_task, source, target) for source, target in PAIRS}


def compute(settings: dict[str, Any], method: str, task: str, run: int) -> dict[str, Any]:
    """Accuracy of one of `METHODS` on one of `tasks`, in per cent, on target points that were not learnt from.

    Settings are the ``seed`` of the first run, and whether the species are ``drawn``; runs are counted from 0.
    """
    own = settings["seed"] + run
    data = tasks(settings["drawn"])[task](own)
    with jax.enable_x64(True):
        decide = METHODS[method](data.source, data.source_labels, data.target, own)
        return {"accuracy": float(accuracy(decide(data.test), data.test_labels))}


class _Plane(NamedTuple):
    """The two principal components of a sample."""

    mean: np.ndarray
    axes: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean) @ self.axes.T


def draw(source: str, target: str, seed: int) -> Any:
    """A transfer in two principal components: birds as they are, and the source moved to the target."""
    task = penguins_task(source, target, seed)
    found = pvm.fit_transport_validated(task.source, task.source_labels, task.target, seed=seed, progress=False)
    transport = found.sweep.transports[found.choice.grid_index[0]]
    both = np.concatenate([task.source, task.target])
    plane = _Plane(both.mean(axis=0), np.linalg.svd(both - both.mean(axis=0), full_matrices=False)[2][:2])
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), sharex=True, sharey=True)
    moved, matched = np.asarray(transport.moved), np.asarray(transport.weights) > 0
    starts, ends = plane(task.source[matched]), plane(moved[matched])
    points(axes[0], plane(task.source), task.source_labels, size=16)
    points(axes[0], plane(task.target), size=16)
    axes[0].set_title(f"{source}, sexed; {target}, not")
    axes[1].quiver(*starts.T, *(ends - starts).T, angles="xy", scale_units="xy", scale=1, color="0.75", width=0.0025)
    points(axes[1], ends, task.source_labels[matched], size=16)
    points(axes[1], plane(task.target), size=16)
    matching = float(transport.radius) > 0
    axes[1].set_title("each moves to its matched birds" if matching else f"each on the scale of the {target}s")
    with jax.enable_x64(True):
        said = np.sign(np.asarray(pvm.decision(found.model, task.test)))
    points(axes[2], plane(task.test), said, size=16)
    wrong = said != task.test_labels
    axes[2].scatter(*plane(task.test[wrong]).T, s=80, facecolors="none", edgecolors="black", linewidths=1.0)
    axes[2].set_title(f"the vote on the other half\n{int(wrong.sum())} of {len(wrong)} wrong (circled)")
    for axis in axes:
        axis.set(xticks=[], yticks=[], xlabel="first principal component")
    axes[0].set_ylabel("second principal component")
    handles, _ = axes[0].get_legend_handles_labels()
    cross = axes[0].collections[-1]
    figure.legend([*handles, cross], ["male", "female", f"{target}, sex unknown"], loc="lower center", ncols=3)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes table and picture."""
    usual = {"methods": list(METHODS), "runs": 10, "seed": 2014}
    quick = {"methods": ["SVM", "PV-Transport", "standardised + SVM"], "runs": 2}
    parser = Command("penguins", __doc__, usual, quick)
    parser.add_argument("--methods", nargs="+", action=names(METHODS), help=f"of {'; '.join(METHODS)} (default: all)")
    parser.add_argument("--drawn", action="store_true", help="drawn species, on which the rules were settled")
    options = parser.parse_args(arguments)
    methods, runs, columns = options.methods, options.runs, list(tasks(options.drawn))
    settings = {"seed": options.seed, "drawn": options.drawn}
    records = run_accuracies("penguins", ("method", "task"), (methods, columns), settings, options)
    found = {m: [[one["accuracy"] for one in records[m, task]] for task in columns] for m in methods}
    text = [
        "Accuracy in per cent on the part of the target that was not learnt from, mean ± standard error over",
        f"{runs} runs, seed {options.seed}",
        "",
        as_table("method", [*columns, "mean"], {m: [*rows, float(np.mean(rows))] for m, rows in found.items()}),
        "",
        f"Best on average: {max(found, key=lambda method: np.mean(found[method]))}.",
    ]
    write(options.out, "penguins", "\n".join(text), partial(draw, "Adelie", "Gentoo", options.seed))


if __name__ == "__main__":
    main()
