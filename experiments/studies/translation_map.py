"""Which translation, and which moons, the paper's Table 1 may have had: maps of the fit to its figures.

  python -m experiments.studies.translation_map              both maps, some ten minutes on one core
  python -m experiments.studies.translation_map --maps moons

The translation: at each direction and length the methods of the paper's column other than the PV ones are tuned and
tested, and the fit is the mean absolute difference to the paper's figures, in points. As in the paper, NN-MinCq must be
degenerate: the k nearest source points of all target points are of one class, for each k of its grid. Where that does
not hold the methods are not run. Turned by half a circle the moons change places, so that directions from 0 to 180
degrees are all there are. The map is of one run; the points that fit best are computed in further runs.

The moons: the fit of the SVM's row over the rotations as the noise grows and the half-circles move apart or into each
other (the gap, vertically). An SVM without adaptation is fitted once for all angles.

No PV method is looked at, and the seeds are not those of the reported table.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, amount, as_table, names, needs, number, write
from experiments.run.engine import Order
from experiments.run.methods import METHODS, PAPER
from experiments.run.study import Study, run_study
from pvmincq_jax.baselines import nn_mincq
from pvmincq_jax.datasets import ANGLES, draw_moons, moons_task

with needs("experiments"):
    import matplotlib.pyplot as plt

__all__ = ["COMPARED", "main", "moons_cell", "translation_cell"]

Point = tuple[float, float]
COMPARED = ("SVM", "MinCq", "TSVM", "DASVM", "PBDA", "DASF")
CONDITION = "NN-MinCq"
COLUMN = {name: float(PAPER[name][-1] or 0.0) for name in COMPARED}
ROW = np.array(PAPER["SVM"][:-1], float)
MAPS = ("translation", "moons")
USUAL: dict[str, Any] = {
    "maps": list(MAPS),
    "methods": list(COMPARED),
    "directions": [22.5 * k for k in range(8)],
    "lengths": [1.5, 2.0, 2.5, 3.0, 4.0, 6.0],
    "noises": [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3],
    "gaps": [-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.4],
    "closest": 5,
    "runs": 3,
    "seed": 7000,
    "per_class": 150,
    "test_size": 1500,
}
QUICK = {
    "methods": ["SVM"],
    "directions": [0.0, 90.0],
    "lengths": [2.0, 4.0],
    "noises": [0.05, 0.2],
    "gaps": [0.0, 0.2],
}
QUICK |= {"closest": 1, "runs": 2}


def translation_cell(settings: dict[str, Any], method: str, direction: float, length: float, run: int) -> dict:
    """The ``accuracy`` of a method in per cent, or whether NN-MinCq is ``degenerate``: its labels are all of one class.

    The direction is in degrees, anticlockwise from the first axis. Settings are the ``seed`` of run 0, ``per_class``
    and ``test_size``.
    """
    turn, seed = np.deg2rad(direction), settings["seed"] + run
    away = (float(length * np.cos(turn)), float(length * np.sin(turn)))
    sizes = {name: settings[name] for name in ("per_class", "test_size")}
    task = moons_task("translation", seed, **sizes, translation=away)
    if method == CONDITION:
        labels = [
            pvm.nn_self_label(task.source, task.source_labels, task.target, k).labels
            for k in {point.neighbours for point in nn_mincq.GRID}
        ]
        return {"degenerate": all(np.unique(one).size == 1 for one in labels)}
    fitted = METHODS[method].fit(task.source, task.source_labels, task.target, seed)
    return {"accuracy": float(accuracy(fitted.decision(task.test), task.test_labels))}


def _gapped(per_class: int, noise: float, gap: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    points, labels = draw_moons(per_class, rng, noise=noise)
    return points + np.outer(labels, [0.0, gap / 2]), labels


def moons_cell(settings: dict[str, Any], noise: float, gap: float, run: int) -> dict[str, Any]:
    """The SVM's row of Table 1, in per cent at each angle, on moons of another noise and so much farther apart."""
    seed = settings["seed"] + run
    source_rng, *test_rngs = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(1 + len(ANGLES)))
    source, labels = _gapped(settings["per_class"], noise, gap, source_rng)
    fitted = METHODS["SVM"].fit(source, labels, source, seed)
    row = []
    for angle, rng in zip(np.deg2rad(ANGLES), test_rngs):
        test, test_labels = _gapped(settings["test_size"] // 2, noise, gap, rng)
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        row.append(float(accuracy(fitted.decision(test @ rotation.T), test_labels)))
    return {"accuracy": row}


def _run(part: str, fields: Sequence[str], cells: list[Any], options: argparse.Namespace) -> dict[Any, dict]:
    settings = {name: getattr(options, name) for name in ("seed", "per_class", "test_size")}
    order = Order(weight=lambda cell: METHODS[str(cell[0])].weight) if part == "translation" else Order(str)
    say = {"translation": lambda one: str(one.get("accuracy", one.get("degenerate"))), "moons": lambda one: "a row"}
    work = f"experiments.studies.translation_map:{part}_cell"
    study = Study(work, (*fields, "run"), settings, cells, say[part], order=order)
    places = {"out": options.out / part, "jobs": options.jobs, "dask": options.dask, "cache": options.cache}
    return run_study(study, argparse.Namespace(**places)).whole()


def _figures(found: dict[Any, dict], methods: Sequence[str], where: tuple[float, float], runs: int) -> np.ndarray:
    """Accuracies at a point of the map ``[methods, runs]``."""
    return np.array([[found[method, *where, run]["accuracy"] for run in range(runs)] for method in methods])


def _distance(figures: np.ndarray, methods: Sequence[str]) -> float:
    paper = np.array([COLUMN[name] for name in methods])
    return float(np.mean(np.abs(figures.mean(axis=1) - paper)))


def draw_map(
    panels: Mapping[str, Mapping[Point, float]],
    axes: tuple[tuple[str, Sequence[float]], tuple[str, Sequence[float]]],
    marked: Sequence[Point],
) -> Any:
    """Panels of squares, four to a row; dark squares hold large figures, squares without one are hatched.

    Args:
      panels: by title, a figure at each point that has one.
      axes: name and values of the horizontal and of the vertical axis.
      marked: points with a frame.

    Returns:
      A Matplotlib figure.
    """
    (across, columns), (up, rows) = axes
    wide = min(len(panels), 4)
    high = -(-len(panels) // wide)
    figure, grid = plt.subplots(high, wide, figsize=(3.4 * wide, 2.9 * high), squeeze=False)
    for axis in grid.ravel()[len(panels) :]:
        axis.axis("off")
    for axis, (title, figures) in zip(grid.ravel(), panels.items()):
        values = np.array([[figures.get((column, row), np.nan) for column in columns] for row in rows])
        axis.set_facecolor("0.97")
        axis.patch.set(hatch="////", edgecolor="0.8")
        most = 100.0 if np.nanmax(values, initial=0.0) > 50 else 50.0
        axis.imshow(values, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=most)
        for i, j in np.argwhere(np.isfinite(values)):
            shade = "white" if values[i, j] > 0.6 * most else "black"
            axis.text(j, i, f"{values[i, j]:.0f}", ha="center", va="center", fontsize=7, color=shade)
        for column, row in marked:
            corner = (list(columns).index(column) - 0.5, list(rows).index(row) - 0.5)
            axis.add_patch(plt.Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.6))
        axis.set_title(title)
        axis.set_xticks(range(len(columns)), [f"{value:g}" for value in columns], fontsize=7)
        axis.set_yticks(range(len(rows)), [f"{value:g}" for value in rows], fontsize=7)
        axis.set_xlabel(across)
        axis.set_ylabel(up)
    figure.tight_layout()
    return figure


def map_translation(options: argparse.Namespace) -> None:
    """Computes the map of translations, and writes its table and figure."""
    fields, methods = ("method", "direction", "length"), options.methods
    everywhere = [(direction, length) for direction in options.directions for length in options.lengths]
    held = _run("translation", fields, [(CONDITION, *where, 0) for where in everywhere], options)
    kept = [where for where in everywhere if held[CONDITION, *where, 0]["degenerate"]]
    first = [(method, *where, 0) for method in methods for where in kept]
    found = _run("translation", fields, first, options)
    figures = {where: _figures(found, methods, where, 1) for where in kept}
    fits = {where: _distance(figures[where], methods) for where in kept}
    closest = sorted(kept, key=lambda where: fits[where])[: options.closest]
    again = [(method, *where, run) for method in methods for where in closest for run in range(options.runs)]
    found = _run("translation", fields, again, options)
    rows: dict[str, Sequence[Any]] = {"the paper": [*(COLUMN[name] for name in methods), None]}
    settled = {where: _figures(found, methods, where, options.runs) for where in closest}
    for where in sorted(closest, key=lambda where: _distance(settled[where], methods)):
        rows[f"{where[0]:g}°, {where[1]:g}"] = [*settled[where], _distance(settled[where], methods)]
    text = (
        f"NN-MinCq is degenerate at {len(kept)} of {len(everywhere)} translations. Accuracy in per cent at those that "
        f"fit best, runs: {options.runs}, seed {options.seed}; fit: mean absolute difference to the paper\n\n"
    )
    text += as_table("direction, length", [*methods, "fit"], rows)

    def draw() -> Any:
        panels = {"fit: mean absolute difference": fits}
        panels |= {
            f"{name} (paper: {COLUMN[name]:.1f})": {where: float(figures[where][k, 0]) for where in kept}
            for k, name in enumerate(methods)
        }
        axes = (("direction, degrees", options.directions), ("length", options.lengths))
        return draw_map(panels, axes, closest[:1])

    write(Path(options.out), "translation_map", text, draw)


def map_moons(options: argparse.Namespace) -> None:
    """Computes the map of noises and gaps, and writes its table and figure."""
    everywhere = [(noise, gap) for noise in options.noises for gap in options.gaps]
    cells = [(*where, run) for where in everywhere for run in range(options.runs)]
    found = _run("moons", ("noise", "gap"), cells, options)
    figures = {
        where: np.array([found[*where, run]["accuracy"] for run in range(options.runs)]).T for where in everywhere
    }
    fits = {where: float(np.mean(np.abs(figures[where].mean(axis=1) - ROW))) for where in everywhere}
    closest = sorted(everywhere, key=lambda where: fits[where])[: options.closest]
    usual = [where for where in everywhere if where == (0.05, 0.0) and where not in closest]
    rows: dict[str, Sequence[Any]] = {"the paper": [*ROW, None]}
    rows |= {f"{where[0]:g}, {where[1]:g}": [*figures[where], fits[where]] for where in [*closest, *usual]}
    text = (
        f"The SVM's row over rotations, accuracy in per cent, {options.runs} runs, seed {options.seed}; the moons that "
        "fit best, and the table's; fit: mean absolute difference to the paper\n\n"
    )
    text += as_table("noise, gap", [*(f"{angle}°" for angle in ANGLES), "fit"], rows)

    def draw() -> Any:
        panels = {"fit of the SVM's row": fits}
        panels |= {
            f"{ANGLES[k]}° (paper: {ROW[k]:.1f})": {where: float(figures[where][k].mean()) for where in everywhere}
            for k in (0, 3, 6)
        }
        return draw_map(panels, (("noise", options.noises), ("gap", options.gaps)), closest[:1])

    write(Path(options.out), "moons_map", text, draw)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and writes the maps."""
    parser = Command("studies.translation_map", __doc__, USUAL, QUICK)
    parser.add_argument("--maps", nargs="+", action=names(MAPS), help=f"of {' '.join(MAPS)}{parser.default('maps')}")
    text = f"of the column{parser.default('methods')}"
    parser.add_argument("--methods", nargs="+", action=names(COMPARED), help=text)
    for name, least in {"directions": -360, "lengths": 0, "noises": 0, "gaps": -10}.items():
        parser.add_argument(f"--{name}", nargs="+", type=amount(least), help=f"of the map{parser.default(name)}")
    parser.add_argument("--closest", type=number(1), help=f"points of further runs{parser.default('closest')}")
    parser.add_argument("--per-class", type=number(5), help=f"source and target points{parser.default('per_class')}")
    parser.add_argument("--test-size", type=number(2), help=f"fresh target points{parser.default('test_size')}")
    options = parser.parse_args(arguments)
    if "translation" in options.maps:
        map_translation(options)
    if "moons" in options.maps:
        map_moons(options)


if __name__ == "__main__":
    main()
