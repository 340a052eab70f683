"""Figures of the data: the domains, labels carried over a matching, and the principle of reverse validation."""

from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionPatch

import pvmincq_jax as pvm
from experiments.figures_style import Scene, bare, points, task_name

__all__ = ["domains", "reverse", "transfer"]

# So many points of each domain can be told apart once they are joined by arrows.
_SHOWN = 100
_LEVELS = (0.5, 0.15)


def domains(scene: Scene) -> Any:
    """The source, the target turned by 40 degrees and the translated one, all to one scale."""
    turned, moved = scene.draw("40"), scene.draw("translation")
    panels = [
        ("source", turned.source, turned.source_labels, None),
        ("target: 40° rotation", turned.test, turned.test_labels, turned.source),
        ("target: translation", moved.test, moved.test_labels, moved.source),
    ]
    shown = len(turned.source)
    spans = []
    for _, x, _, behind in panels:
        every = x if behind is None else np.concatenate([x, behind])
        spans.append((every.min(axis=0) - 0.3, every.max(axis=0) + 0.3))
    low, high = min(span[0][1] for span in spans), max(span[1][1] for span in spans)
    widths = [span[1][0] - span[0][0] for span in spans]
    figure, axes = plt.subplots(1, 3, figsize=(11, 11 * (high - low) / sum(widths) + 0.7), width_ratios=widths)
    for axis, (title, x, labels, behind), span in zip(axes, panels, spans):
        if behind is not None:
            points(axis, behind, size=8, color="0.75", marker=".")
        points(axis, x[:shown], labels[:shown])
        axis.set_aspect("equal")
        axis.set(xlim=(span[0][0], span[1][0]), ylim=(low, high), xticks=[], yticks=[], title=title)
    handles, names = axes[0].get_legend_handles_labels()
    handles.append(Line2D([], [], marker=".", linestyle="none", color="0.7"))
    figure.legend(handles, [*names, "the source, for comparison"], loc="lower center", ncols=3)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.9, bottom=0.12, wspace=0.04)
    return figure


def transfer(scene: Scene) -> Any:
    """Labels carried from source to target over a maximum matching, at a short and at a longer radius."""
    data = scene.data
    source, labels, target = data.source[:_SHOWN], data.source_labels[:_SHOWN], data.target[:_SHOWN]
    figure, axes = plt.subplots(1, 2, figsize=(11, 5.4))
    for axis, level in zip(axes, _LEVELS):
        radius = pvm.bottleneck_radius(source, target, level)
        matching = pvm.match(source, target, radius, seed=scene.settings.seed)
        lonely_source = np.setdiff1d(np.arange(len(source)), matching.source)
        lonely_target = np.setdiff1d(np.arange(len(target)), matching.target)
        starts, ends = source[matching.source], target[matching.target]
        points(axis, source[lonely_source], labels[lonely_source], size=16, alpha=0.2)
        points(axis, target[lonely_target], size=18, alpha=0.35)
        points(axis, starts, labels[matching.source], size=22)
        points(axis, ends, size=26, color="black")
        axis.quiver(
            *starts.T, *(ends - starts).T, angles="xy", scale_units="xy", scale=1, color="0.45", width=0.0022, zorder=0
        )
        bare(axis)
        pairs = f"{len(matching.source)} of {len(target)} target points labelled"
        axis.set_title(f"radius {radius:.2f}: PV = {matching.pv:.2f}\n{pairs}")
    handles = [
        Line2D([], [], marker="o", linestyle="none", color="#08306b", label="source, class +1"),
        Line2D([], [], marker="s", linestyle="none", color="#fdae6b", markeredgecolor="#7f2704", label="class -1"),
        Line2D([], [], marker="x", linestyle="none", color="black", label="target, no label"),
        Line2D(
            [], [], marker=r"$\rightarrow$", markersize=14, linestyle="none", color="0.45", label="carries its label"
        ),
        Line2D([], [], marker="x", linestyle="none", color="0.75", label="faded: without a partner"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=5)
    figure.suptitle(f"Self-labelling by perturbed variation, {task_name(scene.task)}")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return figure


def _boundary(axis: Any, model: pvm.PVMinCq, **style: Any) -> None:
    """The line where a vote changes its mind, over the whole panel."""
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    first, second = np.meshgrid(np.linspace(left, right, 200), np.linspace(bottom, top, 200))
    with jax.enable_x64(True):
        values = np.asarray(pvm.decision(model, np.stack([first.ravel(), second.ravel()], axis=1)))
    axis.contour(first, second, values.reshape(first.shape), levels=[0], colors="black", **style)


def reverse(scene: Scene) -> Any:
    """Reverse validation in four steps, with a fold held out and PV-MinCq in both directions."""
    data, seed = scene.data, scene.settings.seed
    params = scene.fitted("PV-MinCq+").params
    given: dict[str, Any] = {
        "margin": params["margin"],
        "gamma": params["gamma"],
        "margin_unit": "fraction",
        "draws": 16,
        "seed": seed,
    }
    held = np.arange(len(data.source)) % 5 == 0  # rows come in random order
    source, labels = data.source[~held], data.source_labels[~held]
    # A smaller sample leaves larger gaps: the radius of the same level of PV, not the same radius.
    radius = float(pvm.grid_radii(source, data.target, np.array([params["pv"]]), "pv")[0])
    forward = pvm.pv_mincq(source, labels, data.target, radius=radius, **given)
    with jax.enable_x64(True):
        target_labels = np.asarray(pvm.predict(forward, data.target))
        target_labels = np.where(target_labels == 0, 1.0, target_labels)
        back = pvm.pv_mincq(data.target, target_labels, source, radius=radius, **given)
        judged = np.asarray(pvm.predict(back, data.source[held]))
    wrong = judged != data.source_labels[held]

    figure, axes = plt.subplots(2, 2, figsize=(9.5, 8.4))
    panels = axes[0, 0], axes[0, 1], axes[1, 1], axes[1, 0]
    every = np.concatenate([data.source, data.target])
    low, high = every.min(axis=0) - 0.3, every.max(axis=0) + 0.3
    for axis in panels:
        axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        axis.set_aspect("equal")
    points(panels[0], source, labels)
    points(panels[0], data.target, size=10, color="0.6")
    panels[0].set_title("1. Labelled source without one fold,\nunlabelled target")
    points(panels[1], data.target, target_labels)
    _boundary(panels[1], forward, linestyles="-")
    panels[1].set_title("2. The vote learnt from them (line)\nlabels the target")
    points(panels[2], data.target, target_labels)
    points(panels[2], source, size=10, color="0.6")
    panels[2].set_title("3. These labels, and the source\nwithout its labels: roles reversed")
    points(panels[3], data.source[held], data.source_labels[held], size=20)
    _boundary(panels[3], back, linestyles="--")
    panels[3].scatter(*data.source[held][wrong].T, s=110, facecolors="none", edgecolors="black", linewidths=1.2)
    count = f"{int(np.sum(wrong))} of {len(wrong)} wrong" + (" (circled)" if np.any(wrong) else "")
    panels[3].set_title(f"4. The reverse vote (dashed) on\nthe fold held out: {count}")
    figure.subplots_adjust(left=0.02, right=0.98, top=0.93, bottom=0.06, wspace=0.14, hspace=0.32)
    joints = [(0, (1, 0.5), 1, (0, 0.5)), (1, (0.5, 0), 2, (0.5, 1.16)), (2, (0, 0.5), 3, (1, 0.5))]
    for begin, here, end, there in joints:
        figure.add_artist(
            ConnectionPatch(
                here,
                there,
                "axes fraction",
                "axes fraction",
                axesA=panels[begin],
                axesB=panels[end],
                arrowstyle="-|>",
                mutation_scale=18,
                shrinkA=4,
                shrinkB=4,
                color="0.3",
            )
        )
    handles, names = panels[0].get_legend_handles_labels()
    handles.append(Line2D([], [], marker="x", linestyle="none", color="0.6"))
    figure.legend(handles, [*names, "no label"], loc="lower center", ncols=3)
    return figure
