"""Maps over two parameters, as `experiments.translation_map` draws them: squares with the figures in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

__all__ = ["draw_map"]

Point = tuple[float, float]


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
