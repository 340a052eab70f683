"""Tables and figure of `experiments.learned_metric`, from its records alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments.command import as_table, mean_and_error

__all__ = ["METHODS", "NOISE_FEATURES", "Settings", "as_markdown", "draw"]

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
