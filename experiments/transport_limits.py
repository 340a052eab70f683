"""Where the transport form fails: shifts that are no small motion of the source, class by class.

  python -m experiments.transport_limits --out DIR          accuracies of five draws, and a picture of the first
  python -m experiments.transport_limits --runs 1 --methods PV-Transport-MinCq

A matching within a radius moves points as little as it must. Where another map than the right one moves them less, no
radius and no criterion finds the right one: a mirror image, or a shape that has nothing to do with the source's. And a
matching pairs as many points as it can, so a class that is rarer in the target lends its surplus to the other one. A
rotation of 80 degrees, where the form works, stands beside them.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments.figures_style import STYLE, bare, points
from experiments.methods import METHODS, Fitted
from experiments.results import library_versions
from experiments.shifts import draw_shape
from pvmincq_jax.datasets import DomainTask, draw_moons

__all__ = ["CASES", "limits_task", "main", "picture"]

CASES = {
    "rotation": "80° rotation",
    "mirror": "mirror image",
    "ratio": "one class four times rarer",
    "disjoint": "rings from moons",
}
NOISE = 0.05
RARER = 4
FAR = (3.0, 0.0)


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
    """One draw of a case.

    Args:
      case: of `CASES`.
      seed: of the draw.
      per_class: half of the points of each domain.
      test_size: fresh target points.

    Returns:
      A `DomainTask`.
    """
    if case not in CASES:
        raise ValueError(f"case must be one of {', '.join(CASES)}; it is {case!r}")
    streams = [np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(3)]
    source, source_labels = draw_moons(per_class, streams[0], noise=NOISE)
    target, _ = _target(case, per_class, streams[1])
    test, test_labels = _target(case, test_size // 2, streams[2])
    return DomainTask(source, source_labels, target, test, test_labels)


def _accuracy(fitted: Fitted, data: DomainTask) -> float:
    return 100 * float(np.mean(fitted.decision(data.test) * data.test_labels > 0))


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


def picture(data: dict[str, DomainTask], fitted: dict[str, Fitted]) -> Any:
    """A column a case: the two domains above, the moved source points and the vote below.

    Args:
      data: by case.
      fitted: PV-Transport-MinCq on them.

    Returns:
      A Matplotlib figure.
    """
    figure, axes = plt.subplots(2, len(data), figsize=(3.0 * len(data), 6.2), squeeze=False)
    for (above, below), (case, task) in zip(axes.T, data.items()):
        points(above, task.target)
        points(above, task.source, task.source_labels, size=10)
        above.set_title(CASES[case])
        model = fitted[case].details.model
        _region(below, fitted[case], task.target)
        shown = slice(0, 300)
        wrong = fitted[case].decision(task.test[shown]) * task.test_labels[shown] <= 0
        points(below, task.target, marker=".", size=6, color="0.6")
        points(below, np.asarray(model.centers), task.source_labels, size=12)
        below.scatter(*task.test[shown][wrong].T, s=26, marker="x", color="#b2182b", linewidths=1.0, zorder=3)
        below.set_title(f"{_accuracy(fitted[case], task):.0f} % on the target")
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
    """Prints accuracies and criterion, and writes OUT/limits.jsonl and OUT/limits.png and .pdf."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.transport_limits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = ["PV-Transport-MinCq", "OT-skada", "CORAL-skada", "SVM"]
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=usual, help="which beside our own")
    parser.add_argument("--runs", type=int, default=5, help="draws of each case (default 5)")
    parser.add_argument("--seed", type=int, default=6000, help="of the first draw (default 6000)")
    parser.add_argument("--per-class", type=int, default=150, help="half of the points of each domain")
    parser.add_argument("--out", type=Path, default=Path("results/transport_limits"), help="folder")
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.seed < 0 or options.per_class < 10:
        parser.error("--runs must be at least 1, --seed at least 0 and --per-class at least 10")
    options.out.mkdir(parents=True, exist_ok=True)
    ours = "PV-Transport-MinCq"
    methods = [ours, *(name for name in options.methods if name != ours)]
    figures: dict[tuple[str, str], list[float]] = {}
    data, fitted = {}, {}
    with (options.out / "limits.jsonl").open("w") as stream:
        for case in CASES:
            for run in range(options.runs):
                task = limits_task(case, options.seed + run, options.per_class)
                for name in methods:
                    found = METHODS[name].fit(task.source, task.source_labels, task.target, options.seed + run)
                    accuracy = _accuracy(found, task)
                    figures.setdefault((case, name), []).append(accuracy)
                    record = {"case": case, "run": run, "method": name, "accuracy": accuracy}
                    record |= {"criterion": found.criterion, "seed": options.seed + run, "versions": library_versions()}
                    stream.write(json.dumps(record) + "\n")
                    print(f"{case} run {run} {name}: {accuracy:.1f} %", file=sys.stderr, flush=True)
                    if name == ours:
                        figures.setdefault((case, "criterion"), []).append(found.criterion)
                        if run == 0:
                            data[case], fitted[case] = task, found
    print("| shift | " + " | ".join(methods) + " | our criterion |")
    print("|---" * (len(methods) + 2) + "|")
    for case, title in CASES.items():
        cells = []
        for name in methods:
            values = figures[case, name]
            error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.1f}{error}")
        print(f"| {title} | " + " | ".join(cells) + f" | {np.mean(figures[case, 'criterion']):.3f} |")
    with plt.rc_context(STYLE):
        drawn = picture(data, fitted)
        for ending in ("png", "pdf"):
            drawn.savefig(options.out / f"limits.{ending}")
        plt.close(drawn)


if __name__ == "__main__":
    main()
