"""A learned distance on moons with noise features: accuracy before and after, as the noise grows.

  python -m experiments.learned_metric                 five levels of noise, ten runs
  python -m experiments.learned_metric --quick         two levels, two runs
  python -m experiments.learned_metric --form full     another form of the map

The source is the two moons, the target the same moons turned by 30 degrees. Eight features are added to every point of
both domains: Gaussian noise of one standard deviation, drawn afresh for each sample, level and run, with the same
distribution in both domains. Every PV-MinCq walks the same grid and chooses by R_S + PV + C-bound; they differ in the
map that source, target and test points go through first:

  Euclidean      none
  standardised   every feature over its standard deviation, where learning starts
  learned        pvmincq_jax.learn_map from the labelled source and the unlabelled target
  C-bound alone  the same, without the PV and eps_H terms: the source's labels alone
  noise removed  the two moon features, what a map could reach at best

Two source-only SVMs, on standardised and on mapped points, show what the map does without adaptation. Test points are
mapped and classified once, at the end. Objective and parameters were chosen on other draws, seeds 1000 to 1003 and
1010 to 1012, by the accuracy on their test points.

OUT/results.jsonl gets a line as soon as a run of a level is finished, and the same command goes on where the file ends.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np

import pvmincq_jax as pvm
from experiments.figures_style import STYLE
from experiments.learned_metric_report import METHODS, NOISE_FEATURES, Settings, as_markdown, draw
from experiments.methods import METHODS as TABLE1
from experiments.results import library_versions
from experiments.workers import on_one_core
from pvmincq_jax.datasets import DomainTask, moons_task

__all__ = ["main", "noisy_moons", "run_level"]

LEVELS = (0.1, 0.3, 0.6, 1.0, 3.0)
RUNS = 10
GRID: dict[str, Any] = {
    "radii": (0.4, 0.2, 0.1, 0.05),
    "radius_unit": "pv",
    "margins": (0.01, 0.1),
    "folds": 3,
    "draws": 16,
}


def noisy_moons(level: float, seed: int, settings: Settings) -> DomainTask:
    """The rotated moons with eight more features, Gaussian with the same deviation in both domains.

    Args:
      level: standard deviation of each.
      seed: of the moons and, with the level, of the noise.
      settings: angle and sizes.

    Returns:
      A `DomainTask` of ten features; the first two are the moons'.
    """
    task = moons_task(str(settings.angle), seed, per_class=settings.per_class, test_size=settings.test_size)
    rng = np.random.default_rng([seed, round(1000 * level)])

    def widen(points: np.ndarray) -> np.ndarray:
        return np.concatenate([points, rng.normal(0, level, (len(points), NOISE_FEATURES))], axis=1)

    return task._replace(source=widen(task.source), target=widen(task.target), test=widen(task.test))


def _through(matrix: np.ndarray, task: DomainTask) -> DomainTask:
    """The same task under a linear map ``[k, d]``."""
    mapped = {name: getattr(task, name) @ matrix.T for name in ("source", "target", "test")}
    return task._replace(**mapped)


def _accuracy(values: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float(np.mean(np.sign(values) == labels))


def _svm(task: DomainTask, seed: int) -> dict[str, Any]:
    found = TABLE1["SVM"].fit(task.source, task.source_labels, task.target, seed)
    return {"accuracy": _accuracy(found.decision(task.test), task.test_labels), **found.params}


def _pv_mincq(task: DomainTask, seed: int) -> dict[str, Any]:
    """PV-MinCq, tuned without target labels; with eps_H of its voters on its matched pairs."""
    options = {"criterion": pvm.rs_pv_cbound, "seed": seed, "progress": False, **GRID}
    fit = pvm.fit_validated(task.source, task.source_labels, task.target, **options)
    model = fit.model
    with jax.enable_x64(True):
        values = np.asarray(pvm.decision(model, task.test))
        pairs = task.source[model.pairs.source], task.target[model.pairs.target]
        moved = pvm.eps_h(*(pvm.rbf_votes(points, model.centers, model.gamma) for points in pairs))
    return {
        "accuracy": _accuracy(values, task.test_labels),
        "pv": float(model.pv),
        "eps_h": float(moved),
        "c_bound": float(model.c_bound),
        "radius": fit.choice.radius,
        "gamma": fit.choice.gamma,
        "margin": fit.choice.margin,
    }


def _learned_figures(learned: pvm.LearnedMap, task: DomainTask, seconds: float) -> dict[str, Any]:
    """What learning did: shares of the squared distance per feature, and the terms before and after."""
    spread = np.diag(learned.map.mahalanobis) * (np.var(task.source, axis=0) + np.var(task.target, axis=0))
    return {
        "shares": (spread / spread.sum()).tolist(),
        "pv": [learned.start_pv, learned.pv],
        **{f"soft_{name}": [float(v[0]), float(v[-1])] for name, v in learned.history._asdict().items()},
        "seconds": round(seconds, 2),
    }


def run_level(level: float, run: int, settings: Settings) -> dict[str, Any]:
    """All methods on one draw of one level.

    Args:
      level: of the noise.
      run: counted from 0.
      settings: of the table.

    Returns:
      Figures by method, ready for JSON.
    """
    seed = settings.seed + run
    task = noisy_moons(level, seed, settings)
    arguments = task.source, task.source_labels, task.target
    began = time.perf_counter()
    learned = pvm.learn_map(*arguments, form=settings.form)  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    labels_alone = pvm.learn_map(*arguments, form=settings.form, pv_weight=0, eps_h_weight=0)  # type: ignore[arg-type]
    maps = {
        "Euclidean": np.eye(task.source.shape[1]),
        "standardised": np.asarray(learned.start.matrix),
        "C-bound alone": np.asarray(labels_alone.map.matrix),
        "learned": np.asarray(learned.map.matrix),
        "noise removed": np.eye(task.source.shape[1])[:2],
    }
    fits: dict[str, Callable[[DomainTask, int], dict[str, Any]]] = {"SVM": _svm, "PV-MinCq": _pv_mincq}
    figures = {}
    for method in METHODS:
        fit, name = method.split(", ")
        figures[method] = fits[fit](_through(maps[name], task), seed)
    return {
        "level": level,
        "run": run,
        "settings": settings._asdict(),
        "versions": library_versions(),
        "map": _learned_figures(learned, task, seconds),
        "figures": figures,
    }


def _read(path: Path, settings: Settings) -> list[dict[str, Any]]:
    """Records of an earlier start; a last line that was cut short is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    if any(record["settings"] != settings._asdict() for record in records):
        raise ValueError(f"{path} is from other settings; take another --out")
    return records


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.learned_metric",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = Settings()
    parser.add_argument("--levels", type=float, nargs="+", help=f"of the noise (default {LEVELS})")
    parser.add_argument("--runs", type=int, help=f"how many; run i has seed + i (default {RUNS})")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="(default %(default)s)")
    parser.add_argument("--angle", type=float, default=defaults.angle, help="of the target (default %(default)s)")
    parser.add_argument("--form", default=defaults.form, choices=("diagonal", "full", "low_rank"), help="of the map")
    parser.add_argument("--per-class", type=int, default=defaults.per_class, help="points (default %(default)s)")
    parser.add_argument("--test-size", type=int, default=defaults.test_size, help="points (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="levels 0.3 and 3 in two runs, unless others are given")
    parser.add_argument("--out", type=Path, help="folder (default results/learned_metric, or .._quick)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, computes what is missing, prints the tables and writes them with the figure."""
    parser = _parser()
    given = parser.parse_args(arguments)
    levels = sorted(given.levels or ((0.3, 3.0) if given.quick else LEVELS))
    runs = given.runs if given.runs is not None else (2 if given.quick else RUNS)
    for name, value, least in (
        ("runs", runs, 1),
        ("seed", given.seed, 0),
        ("per-class", given.per_class, 10),
        ("test-size", given.test_size, 2),
    ):
        if value < least:
            parser.error(f"--{name} must be at least {least}; it is {value}")
    if not all(0.001 <= level < np.inf for level in levels):
        parser.error(f"--levels must be finite and at least 0.001; they are {levels}")
    out = given.out or Path("results") / ("learned_metric_quick" if given.quick else "learned_metric")
    settings = Settings(given.seed, given.angle, given.per_class, given.test_size, given.form)
    path = out / "results.jsonl"
    try:
        out.mkdir(parents=True, exist_ok=True)
        records = _read(path, settings)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    done = {(record["level"], record["run"]) for record in records}
    wanted = [(level, run) for run in range(runs) for level in levels]
    # Rewritten first, so that a line that was cut short does not run into the next one.
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    missing = [cell for cell in wanted if cell not in done]
    for number, (level, run) in enumerate(missing, 1):
        began = time.perf_counter()
        record = run_level(level, run, settings)
        records.append(record)
        with path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        accuracy = {m: f"{record['figures'][m]['accuracy']:.1f}" for m in METHODS if m.startswith("PV")}
        told = ", ".join(f"{m.split(', ')[1]} {a}" for m, a in accuracy.items())
        seconds = time.perf_counter() - began
        print(
            f"[{number}/{len(missing)}] noise {level:g} run {run}: {told}; {seconds:.0f} s", file=sys.stderr, flush=True
        )
    chosen = [record for record in records if (record["level"], record["run"]) in set(wanted)]
    text = as_markdown(chosen, levels, settings)
    (out / "learned_metric.md").write_text(text)
    print(text)
    with plt.rc_context(STYLE):
        figure = draw(chosen, levels)
        for ending in ("png", "pdf"):
            figure.savefig(out / f"learned_metric.{ending}")
        plt.close(figure)
    print(f"{path}, learned_metric.md, .png, .pdf", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(on_one_core(main))
