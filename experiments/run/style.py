"""What the figures share: the task that they show, fitted methods, and marks that are told apart without colour."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments.run.cells import Settings
from experiments.run.command import new_file
from experiments.run.methods import METHODS, Fitted
from pvmincq_jax.datasets import DomainTask

__all__ = ["CLASSES", "STYLE", "Scene", "bare", "points", "save", "task_name"]

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
}
# Label, name, marker and colours: dark filled circles against light squares with an edge.
CLASSES = (
    (1.0, "class +1", {"marker": "o", "color": "#08306b", "edgecolor": "#08306b"}),
    (-1.0, "class -1", {"marker": "s", "color": "#fdae6b", "edgecolor": "#7f2704"}),
)


def task_name(task: str) -> str:
    """As a title says it."""
    return "translation" if task == "translation" else f"{task}° rotation"


class Scene:
    """One draw of one task, and the methods tuned on it, each once and only when asked for."""

    def __init__(self, task: str, settings: Settings, methods: tuple[str, ...]) -> None:
        """Draws the task."""
        self.task, self.settings, self.methods = task, settings, methods
        self.data = self.draw(task)
        self._fitted: dict[str, Fitted] = {}

    def draw(self, task: str) -> DomainTask:
        """Any task with this scene's seed and sizes."""
        return self.settings.draw(task)

    def fitted(self, method: str) -> Fitted:
        """A method tuned on the scene's task, without target labels."""
        if method not in self._fitted:
            data = self.data
            self._fitted[method] = METHODS[method].fit(data.source, data.source_labels, data.target, self.settings.seed)
        return self._fitted[method]


def bare(axis: Any) -> None:
    """Equal scales and no ticks: positions matter, coordinates do not."""
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])


def points(axis: Any, x: np.ndarray, labels: np.ndarray | None = None, *, size: float = 14, **style: Any) -> None:
    """A sample: its classes as circles and squares, or without labels as grey crosses."""
    if labels is None:
        axis.scatter(*x.T, **{"s": size, "marker": "x", "color": "0.35", "linewidths": 0.8, **style})
        return
    for label, name, look in CLASSES:
        rows = labels == label
        axis.scatter(*x[rows].T, **{"s": size, "linewidths": 0.5, "label": name, **look, **style})


def save(out: Path, name: str, draw: Callable[[], Any]) -> None:
    """Draws a figure in the style of all and writes it to OUT/NAME.png and .pdf."""
    with plt.rc_context(STYLE):
        figure = draw()
        for ending in ("png", "pdf"):
            with new_file(out / f"{name}.{ending}") as path:
                figure.savefig(path)
        plt.close(figure)
