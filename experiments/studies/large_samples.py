"""What parts of large samples lose: both forms on random parts beside all points matched, and PV of parts.

  python -m experiments.studies.large_samples                    3 000 and 10 000 points, three runs
  python -m experiments.studies.large_samples --quick            600 points, parts of 200

"parts" is the default, in which parts of about 2 000 points of each domain are matched; "all" is ``most_points=None``.
"moons" are turned by 40 degrees. "normal" are two classes of ten features, the target moved by half the distance
between them. "digits" are fours and nines of scikit-learn, repeated with small changes: noise on every pixel, and the
target's turned by 20 degrees; in their ten leading components. Test points are 2 000 fresh ones.

PV at a radius falls as samples grow. The second table has PV of all points at radii where it is .4, .2 and .1, and the
mean PV of parts at the same radii.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy import ndimage

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, names, number, write
from experiments.run.study import run_accuracies
from pvmincq_jax.datasets import DomainTask, moons_task

__all__ = ["ROADS", "TASKS", "compute", "main", "pv_of_parts"]

ROADS = ("label, parts", "label, all", "transport, parts", "transport, all")
_TEST = 2000
_LEVELS = (0.4, 0.2, 0.1)


def _moons(points: int, rng: np.random.Generator) -> DomainTask:
    return moons_task("40", int(rng.integers(1 << 31)), per_class=points // 2)


def _normal(points: int, rng: np.random.Generator) -> DomainTask:
    samples = []
    for size, moved in ((points, 0.0), (points, 1.0), (_TEST, 1.0)):
        labels = np.where(rng.random(size) < 0.5, 1.0, -1.0)
        x = rng.normal(size=(size, 10))
        x[:, :2] += labels[:, None] * (1.5, 1.0) + np.multiply(moved, (1.5, -1.0))
        samples.append((x, labels))
    (source, source_labels), (target, _), (test, test_labels) = samples
    return DomainTask(source, source_labels, target, test, test_labels)


def _digits(points: int, rng: np.random.Generator) -> DomainTask:
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA

    images, digits = load_digits(return_X_y=True)
    kept = rng.permutation(np.flatnonzero(np.isin(digits, (4, 9))))
    turned = np.stack([ndimage.rotate(one.reshape(8, 8), 20, reshape=False, order=1).ravel() for one in images[kept]])
    third = len(kept) // 3
    samples = []
    for place, (size, shown) in enumerate(((points, images[kept]), (points, turned), (_TEST, turned))):
        rows = place * third + rng.integers(third, size=size)
        samples.append((shown[rows] + rng.normal(size=(size, 64)), np.where(digits[kept[rows]] == 4, 1.0, -1.0)))
    components = PCA(10).fit(np.concatenate([samples[0][0], samples[1][0]]))
    scale = np.sqrt(components.explained_variance_[0])
    (source, target, test) = (components.transform(x) / scale for x, _ in samples)
    return DomainTask(source, samples[0][1], target, test, samples[2][1])


TASKS: dict[str, Callable[[int, np.random.Generator], DomainTask]] = {
    "moons": _moons,
    "normal": _normal,
    "digits": _digits,
}


def compute(settings: dict[str, Any], road: str, task: str, run: int) -> dict[str, Any]:
    """Accuracy of one of `ROADS` on one of `TASKS` of a size, in per cent; the seconds that the fit took."""
    kind, size = task.split(" ")
    data = TASKS[kind](int(size), np.random.default_rng([settings["seed"], run]))
    form, _, what = road.partition(", ")
    fit = pvm.fit_validated if form == "label" else pvm.fit_transport_validated
    most = settings["part"] if what == "parts" else None
    with jax.enable_x64(True):
        began = time.perf_counter()
        model = fit(data.source, data.source_labels, data.target, most_points=most, progress=False).model
        seconds = time.perf_counter() - began
        right = float(accuracy(pvm.decision(model, data.test), data.test_labels))
    return {"accuracy": right, "fit_seconds": seconds}


def pv_of_parts(kind: str, size: int, parts: Sequence[int], seed: int, draws: int = 5) -> dict[str, list[float]]:
    """PV of so many points at three radii, and mean PV of random parts of them at the same radii."""
    rng = np.random.default_rng(seed)
    data = TASKS[kind](size, rng)
    radii = [float(radius) for radius in pvm.grid_radii(data.source, data.target, _LEVELS, "pv")]
    found = {f"{size}": [pvm.perturbed_variation(data.source, data.target, radius) for radius in radii]}
    for part in parts:
        values = []
        for _ in range(draws):
            rows = [rng.permutation(size)[:part] for _ in range(2)]
            pairs = data.source[rows[0]], data.target[rows[1]]
            values.append([pvm.perturbed_variation(*pairs, radius) for radius in radii])
        found[f"{part}"] = np.mean(values, axis=0).tolist()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes both tables."""
    usual = {"tasks": list(TASKS), "sizes": [3000, 10_000], "part": 2000, "runs": 3, "seed": 0}
    parser = Command("large_samples", __doc__, usual, {"sizes": [600], "part": 200, "runs": 1})
    parser.add_argument("--tasks", nargs="+", action=names(TASKS), help=f"of {'; '.join(TASKS)}")
    parser.add_argument("--sizes", nargs="+", type=number(20), help="points of a domain" + parser.default("sizes"))
    parser.add_argument("--part", type=number(10), help="points of a domain that are matched" + parser.default("part"))
    options = parser.parse_args(arguments)
    columns = [f"{kind} {size}" for size in options.sizes for kind in options.tasks]
    settings = {"seed": options.seed, "part": options.part}
    records = run_accuracies("studies.large_samples", ("road", "task"), (ROADS, columns), settings, options)
    rows: dict[str, list[Any]] = {}
    for road in ROADS:
        rows[road] = [[cell["accuracy"] for cell in records[road, column]] for column in columns]
    for road in ROADS:
        rows[f"{road}, s"] = [float(np.mean([cell["fit_seconds"] for cell in records[road, one]])) for one in columns]
    text = [
        f"Accuracy in per cent, mean ± standard error over {options.runs} runs, and seconds of a fit; parts of",
        f"{options.part} points of a domain, seed {options.seed}.",
        "",
        as_table("form, points matched", columns, rows),
        "",
        "PV of all points at radii where it is about .4, .2 and .1, and the mean of five random parts, at these radii:",
        "",
    ]
    for kind in options.tasks:
        size = max(options.sizes)
        parts = sorted({size // 16, size // 4, min(options.part, size // 2)})
        found = pv_of_parts(kind, size, parts, options.seed)
        levels = [f"{level:g}" for level in sorted(_LEVELS, reverse=True)]
        text += [as_table(f"{kind}, points", levels, found, digits=3), ""]
    write(options.out, "large_samples", "\n".join(text))


if __name__ == "__main__":
    main()
