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
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.command import Command, amount, as_table, mean_and_error, needs, number, write
from experiments.run.methods import METHODS as TABLE1
from experiments.run.study import Study, run_study
from pvmincq_jax.datasets import DomainTask, moons_task

with needs("experiments"):
    import matplotlib.pyplot as plt

__all__ = ["METHODS", "NOISE_FEATURES", "Settings", "as_markdown", "compute", "draw", "main", "noisy_moons"]

NOISE_FEATURES = 8
METHODS = (
    "SVM, standardised",
    "SVM, learned",
    "PV-MinCq, Euclidean",
    "PV-MinCq, standardised",
    "PV-MinCq, C-bound alone",
    "PV-MinCq, learned",
    "PV-MinCq, noise removed",
)
_LINES: dict[str, dict[str, Any]] = {
    "SVM, standardised": {"color": "0.65", "linestyle": ":", "marker": "v"},
    "SVM, learned": {"color": "0.45", "linestyle": ":", "marker": "^"},
    "PV-MinCq, Euclidean": {"color": "#a63603", "linestyle": "--", "marker": "x"},
    "PV-MinCq, standardised": {"color": "#e6850e", "linestyle": "--", "marker": "s"},
    "PV-MinCq, C-bound alone": {"color": "#4292c6", "linestyle": "-.", "marker": "D", "markerfacecolor": "white"},
    "PV-MinCq, learned": {"color": "#08306b", "linestyle": "-", "marker": "o"},
    "PV-MinCq, noise removed": {"color": "black", "linestyle": (0, (1, 1)), "marker": "*"},
}
GRID: dict[str, Any] = {
    "radii": (0.4, 0.2, 0.1, 0.05),
    "radius_unit": "pv",
    "margins": (0.01, 0.1),
    "folds": 3,
    "draws": 16,
}


class Settings(NamedTuple):
    """What all runs of a table share.

    Attributes:
      seed: run i draws everything from seed + i.
      angle: of the target, in degrees.
      per_class: points of each class in the source, and in the target.
      test_size: fresh target points.
      form: of the map, see `pvmincq_jax.learn_map`.
    """

    seed: int = 2014
    angle: float = 30.0
    per_class: int = 75
    test_size: int = 1500
    form: str = "diagonal"


def noisy_moons(level: float, seed: int, settings: Settings) -> DomainTask:
    """The rotated moons with eight more features, Gaussian with the same deviation in both domains.

    The level is that deviation; the seed is of the moons and, with the level, of the noise. The first two of the ten
    features are the moons'.
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


def compute(settings: dict[str, Any], level: float, run: int) -> dict[str, Any]:
    """All methods on one draw of one level of noise, counted from 0, and what learning did to the map."""
    form, seed = settings["form"], settings["seed"] + run
    task = noisy_moons(level, seed, Settings(**{name: settings[name] for name in Settings._fields}))
    arguments = task.source, task.source_labels, task.target
    began = time.perf_counter()
    learned = pvm.learn_map(*arguments, form=form)
    seconds = time.perf_counter() - began
    labels_alone = pvm.learn_map(*arguments, form=form, pv_weight=0, eps_h_weight=0)
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
    return {"map": _learned_figures(learned, task, seconds), "figures": figures}


def _say(record: dict[str, Any]) -> str:
    told = {name.split(", ")[1]: found for name, found in record["figures"].items() if name.startswith("PV")}
    return ", ".join(f"{name} {found['accuracy']:.1f}" for name, found in told.items())


def _runs(records: Sequence[dict[str, Any]], method: str, level: float, figure: str) -> list[float]:
    return [record["figures"][method][figure] for record in records if record["level"] == level]


def as_markdown(records: Sequence[dict[str, Any]], levels: Sequence[float], settings: Settings) -> str:
    """Tables of accuracy, PV, eps_H and of what learning did, a column a level of noise."""
    columns = [f"{level:g}" for level in levels]

    def table(methods: Sequence[str], figure: str, digits: int) -> str:
        rows = {method: [_runs(records, method, level, figure) for level in levels] for method in methods}
        return as_table("noise", columns, rows, digits)

    def of_maps(figure: str) -> list[str]:
        values = [[record["map"][figure] for record in records if record["level"] == level] for level in levels]
        return ["{:.2f} to {:.2f}".format(*np.mean(pairs, axis=0)) for pairs in values]

    voting = [method for method in METHODS if method.startswith("PV")]
    learning = {
        "exact PV": of_maps("pv"),
        "soft PV": of_maps("soft_pv"),
        "soft eps_H": of_maps("soft_eps_h"),
        "C-bound of the source's own vote": of_maps("soft_c_bound"),
    }
    runs = len(records) // len(levels)
    parts = [
        f"Moons turned by {settings.angle:g} degrees, {NOISE_FEATURES} noise features; columns are their standard "
        f"deviation. {2 * settings.per_class} points a domain, {settings.test_size} test points, {runs} runs from seed "
        f"{settings.seed}, {settings.form} map; mean ± standard error.",
        "Accuracy on the test sample, per cent:",
        table(METHODS, "accuracy", 1),
        "PV at the chosen radius:",
        table(voting, "pv", 2),
        "eps_H of the chosen voters on matched pairs:",
        table(voting, "eps_h", 2),
        "Learning, from the standardised to the learned map, at the radius and width that it uses:",
        as_table("noise", columns, learning),
    ]
    return "\n\n".join(parts)


def draw(records: Sequence[dict[str, Any]], levels: Sequence[float]) -> Any:
    """Accuracy over the noise, and the shares of the features in the learned distance."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.3), width_ratios=(3, 2), layout="constrained")
    for method in METHODS:
        found = np.array([mean_and_error(_runs(records, method, level, "accuracy")) for level in levels])
        left.errorbar(levels, found[:, 0], np.nan_to_num(found[:, 1]), label=method, capsize=2, **_LINES[method])
    left.set_xscale("log")
    left.set_xticks(levels, [f"{level:g}" for level in levels])
    left.minorticks_off()
    left.set_xlabel("standard deviation of the 8 noise features")
    left.set_ylabel("test accuracy (%)")
    left.set_title("Accuracy on the rotated moons")
    shares = np.array([record["map"]["shares"] for record in records])
    places = np.arange(shares.shape[1])
    right.bar(places, shares.mean(axis=0), color=["#08306b"] * 2 + ["#fdae6b"] * NOISE_FEATURES, edgecolor="black")
    right.axhline(1 / shares.shape[1], color="0.4", linestyle="--", label="standardised, where it starts")
    right.set_xticks(places, ["x", "y", *(f"n{i}" for i in range(1, NOISE_FEATURES + 1))])
    right.set_xlabel("moon features x, y and noise features")
    right.set_ylabel("share of the mean squared distance")
    right.set_title("What the learned distance looks at")
    right.legend(fontsize=8)
    figure.legend(handles=left.get_legend_handles_labels()[0], loc="outside lower center", ncols=4, fontsize=8)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, computes what is missing, prints the tables and writes them with the figure."""
    usual = {"levels": [0.1, 0.3, 0.6, 1.0, 3.0], "runs": 10, **Settings()._asdict()}
    parser = Command("learned_metric", __doc__, usual, {"levels": [0.3, 3.0], "runs": 2})
    add = parser.add_argument
    add("--levels", type=amount(0.001), nargs="+", help=f"of the noise{parser.default('levels')}")
    add("--angle", type=amount(-360), help=f"of the target{parser.default('angle')}")
    add("--form", choices=("diagonal", "full", "low_rank"), help=f"of the map{parser.default('form')}")
    add("--per-class", type=number(10), help=f"points{parser.default('per_class')}")
    add("--test-size", type=number(2), help=f"points{parser.default('test_size')}")
    options = parser.parse_args(arguments)
    levels = sorted(options.levels)
    settings = Settings(options.seed, options.angle, options.per_class, options.test_size, options.form)
    cells = [(level, run) for run in range(options.runs) for level in levels]
    shared = settings._asdict() | {"grid": GRID}
    study = Study("experiments.learned_metric:compute", ("level", "run"), shared, cells, _say)
    records = list(run_study(study, options).whole().values())
    write(options.out, "learned_metric", as_markdown(records, levels, settings), partial(draw, records, levels))


if __name__ == "__main__":
    main()
