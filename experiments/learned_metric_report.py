"""Tables and figure of `experiments.learned_metric`, from its records alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

__all__ = ["METHODS", "NOISE_FEATURES", "Settings", "as_markdown", "draw", "summary"]

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


def summary(records: Sequence[dict[str, Any]], method: str, level: float, figure: str) -> tuple[float, float]:
    """Mean and standard error of a figure over the runs of a level; NaN for the error of a single run."""
    values = np.array([r["figures"][method][figure] for r in records if r["level"] == level])
    error = np.std(values, ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return float(np.mean(values)), float(error)


def as_markdown(records: Sequence[dict[str, Any]], levels: Sequence[float], settings: Settings) -> str:
    """The tables: accuracy, and what the matching looks like under each map.

    Args:
      records: of `run_level`.
      levels: the columns.
      settings: of the records.

    Returns:
      Markdown.
    """
    runs = len({record["run"] for record in records})
    head = [f"| | {' | '.join(f'{level:g}' for level in levels)} |", f"|---|{'---|' * len(levels)}"]

    def rows(methods: Sequence[str], figure: str, digits: int) -> list[str]:
        lines = []
        for method in methods:
            found = [summary(records, method, level, figure) for level in levels]
            errors = [f" ± {error:.{digits}f}" if np.isfinite(error) else "" for _, error in found]
            cells = " | ".join(f"{mean:.{digits}f}{error}" for (mean, _), error in zip(found, errors))
            lines.append(f"| {method} | {cells} |")
        return lines

    def of_maps(name: str) -> str:
        values = [[r["map"][name] for r in records if r["level"] == level] for level in levels]
        return " | ".join("{:.2f} to {:.2f}".format(*np.mean(v, axis=0)) for v in values)

    voting = [method for method in METHODS if method.startswith("PV")]
    sizes = f"{2 * settings.per_class} points a domain, {settings.test_size} test points"
    return "\n".join(
        [
            f"Moons turned by {settings.angle:g} degrees, {NOISE_FEATURES} noise features; columns are their standard "
            f"deviation. {sizes}, {runs} runs from seed {settings.seed}, {settings.form} map; mean ± standard error.",
            "",
            "Accuracy on the test sample, per cent:",
            "",
            *head,
            *rows(METHODS, "accuracy", 1),
            "",
            "PV at the chosen radius:",
            "",
            *head,
            *rows(voting, "pv", 2),
            "",
            "eps_H of the chosen voters on matched pairs:",
            "",
            *head,
            *rows(voting, "eps_h", 2),
            "",
            "Learning, from the standardised to the learned map, at the radius and width that it uses:",
            "",
            *head,
            f"| exact PV | {of_maps('pv')} |",
            f"| soft PV | {of_maps('soft_pv')} |",
            f"| soft eps_H | {of_maps('soft_eps_h')} |",
            f"| C-bound of the source's own vote | {of_maps('soft_c_bound')} |",
            "",
        ]
    )


def draw(records: Sequence[dict[str, Any]], levels: Sequence[float]) -> Any:
    """Accuracy over the noise, and the shares of the features in the learned distance."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.3), width_ratios=(3, 2), layout="constrained")
    for method in METHODS:
        found = np.array([summary(records, method, level, "accuracy") for level in levels])
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
