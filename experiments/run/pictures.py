"""The figures of `experiments.figures`: of the data, and of what was learnt.

Domains, labels carried over a matching, reverse validation; PV curve and chosen radii, criteria over the grid, voters'
weights, regions.
"""

from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionPatch

import pvmincq_jax as pvm
from experiments.run.style import Scene, bare, points, task_name

__all__ = ["criterion", "domains", "pv_curve", "regions", "reverse", "transfer", "weights"]

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


OURS = ("PV-MinCq", "PV-MinCq+")
_RULES = {"PV-MinCq": "R_S + PV", "PV-MinCq+": "R_S + PV + C-bound + 4 cut + 4 gap²"}
_TEST_POINTS = 200


def pv_curve(scene: Scene) -> Any:
    """Every step of PV as the radius grows, the radii of the grid, and the chosen ones."""
    curve = pvm.pv_curve(scene.data.source, scene.data.target)
    last = float(curve.radii[-1])
    figure, axis = plt.subplots(figsize=(7, 4.2))
    axis.step([0, *curve.radii, 1.15 * last], [1, *curve.pv, curve.pv[-1]], where="post", color="black", linewidth=1.5)
    grid = scene.fitted(OURS[0]).details.sweep.radii
    axis.plot(grid, curve.at(grid), "o", color="white", markeredgecolor="black", markersize=5)
    handles = [
        Line2D([], [], color="black", label="PV, exact"),
        Line2D([], [], color="white", marker="o", markeredgecolor="black", label="radii of the grid"),
    ]
    looks: tuple[Any, ...] = ({"linestyle": "--", "linewidth": 1.4}, {"linestyle": ":", "linewidth": 2.2})
    for method, look in zip(OURS, looks):
        params = scene.fitted(method).params
        axis.axvline(params["radius"], color="0.35", **look)
        label = f"chosen by {method}: {params['radius']:.2f}, PV = {params['pv']:.2f}"
        handles.append(Line2D([], [], color="0.35", label=label, **look))
    axis.legend(handles=handles, loc="upper right", frameon=True, framealpha=1)
    axis.set(xlabel="radius", ylabel="perturbed variation", xlim=(0, 1.15 * last), ylim=(-0.02, 1.02))
    axis.set_title(f"Perturbed variation of source and target, {task_name(scene.task)}")
    figure.tight_layout()
    return figure


def criterion(scene: Scene) -> Any:
    """Both criteria over radius and margin, at the gamma that each rule chose; the chosen point is framed."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 5))
    for axis, method in zip(axes, OURS):
        found = scene.fitted(method).details
        sweep, choice = found.sweep, found.choice
        row, gamma, column = choice.grid_index
        scores = choice.scores[:, gamma, :]
        finite = np.where(np.isfinite(scores), scores, np.nan)
        image = axis.imshow(finite, origin="lower", aspect="auto", cmap="Greys")
        middle = np.nanmin(finite) + 0.55 * (np.nanmax(finite) - np.nanmin(finite))
        for (r, k), score in np.ndenumerate(finite):
            text = "no\nsolution" if np.isnan(score) else f"{score:.3f}"
            axis.text(k, r, text, ha="center", va="center", fontsize=8, color="white" if score > middle else "black")
        frame = plt.Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, linewidth=2.5, edgecolor="tab:red", zorder=3)
        frame.set_clip_on(False)
        axis.add_patch(frame)
        axis.set_xticks(range(len(sweep.margins)), [f"{margin:g}" for margin in sweep.margins])
        axis.set_yticks(range(len(sweep.radii)), [f"{r:.2f} ({pv:.2f})" for r, pv in zip(sweep.radii, sweep.pv)])
        axis.set(xlabel="margin, as a fraction of the largest", ylabel="radius (and its PV)")
        axis.set_title(
            f"{method}: {_RULES[method]}\nthe lower the better; at its gamma, {choice.gamma:.2f}; framed: chosen"
        )
        figure.colorbar(image, ax=axis, pad=0.02)
    figure.suptitle(f"What the choice is made by, {task_name(scene.task)}: no target label in it")
    figure.tight_layout()
    return figure


def weights(scene: Scene) -> Any:
    """Where the voters sit and how much each says, and the weights in order, against their bounds."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.2), width_ratios=(1.15, 1))
    for (left, right), method in zip(axes, OURS):
        model = scene.fitted(method).details.model
        voting = model.label_weights > 0
        # A voter's weight is within one over their number.
        scaled = model.weights * np.sum(voting)
        points(left, model.centers[~voting], size=10, color="0.75")
        for sign, marker, color, edge in ((1, "o", "#08306b", "#08306b"), (-1, "s", "#fdae6b", "#7f2704")):
            rows = voting & (np.sign(scaled) == sign)
            left.scatter(
                *model.centers[rows].T,
                s=1 + 20 * np.abs(scaled[rows]),
                marker=marker,
                color=color,
                edgecolor=edge,
                linewidths=0.5,
            )
        bare(left)
        left.set_title(f"{method}: voters, sized by weight")
        ordered = np.sort(scaled[voting])
        place = np.arange(1, len(ordered) + 1)
        right.axhline(0, color="0.6", linewidth=0.8)
        for bound in (-1, 1):
            right.axhline(bound, color="0.4", linestyle="--", linewidth=1)
        right.fill_between(place, ordered, step="mid", color="0.85")
        right.plot(place, ordered, drawstyle="steps-mid", color="black", linewidth=1.5)
        at_bound = int(np.sum(np.abs(ordered) > 1 - 1e-6))
        right.set_title(f"weights in order: {at_bound} of {len(ordered)} at a bound (dashed)")
        right.set(xlabel="voter", ylabel="weight x number of voters", ylim=(-1.15, 1.15), xlim=(0, len(ordered) + 1))
    handles = [
        Line2D([], [], marker="o", linestyle="none", color="#08306b", label="votes for +1"),
        Line2D([], [], marker="s", linestyle="none", color="#fdae6b", markeredgecolor="#7f2704", label="for -1"),
        Line2D([], [], marker="x", linestyle="none", color="0.7", label="target point without a partner"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=3)
    figure.suptitle(f"Weights of the voters, {task_name(scene.task)}")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    return figure


def regions(scene: Scene) -> Any:
    """What each tuned method says around the target, with test points, which none of them has seen."""
    data = scene.data
    columns = min(5, len(scene.methods))
    rows = -(-len(scene.methods) // columns)
    low, high = data.test.min(axis=0) - 0.35, data.test.max(axis=0) + 0.35
    width = max(2.6, 6 / columns)
    height = width * (high[1] - low[1]) / (high[0] - low[0]) + 0.3
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows + 0.8), squeeze=False, layout="constrained"
    )
    first, second = np.meshgrid(np.linspace(low[0], high[0], 160), np.linspace(low[1], high[1], 160))
    around = np.stack([first.ravel(), second.ravel()], axis=1)
    for axis, method in zip(axes.flat, scene.methods):
        fitted = scene.fitted(method)
        values = fitted.decision(around).reshape(first.shape)
        axis.contourf(
            first, second, np.sign(values), levels=[-2, 0, 2], colors=["#fee6ce", "#d6e3f3"], hatches=["", "////"]
        )
        if np.min(values) < 0 < np.max(values):
            axis.contour(first, second, values, levels=[0], colors="black", linewidths=1.2)
        points(axis, data.test[:_TEST_POINTS], data.test_labels[:_TEST_POINTS], size=7)
        accuracy = 100 * np.mean(fitted.decision(data.test) * data.test_labels > 0)
        text = "∅" if fitted.degenerate else f"{accuracy:.1f} %"
        axis.set(xticks=[], yticks=[], title=f"{method}  {text}", xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axis.set_aspect("equal")
    for axis in axes.flat[len(scene.methods) :]:
        axis.set_visible(False)
    handles, names = axes.flat[0].get_legend_handles_labels()
    handles += [
        plt.Rectangle((0, 0), 1, 1, facecolor="#d6e3f3", edgecolor="0.3", hatch="////"),
        plt.Rectangle((0, 0), 1, 1, facecolor="#fee6ce", edgecolor="0.3"),
    ]
    figure.suptitle(
        f"Decision regions on the target, {task_name(scene.task)}; accuracy on {len(data.test)} test points"
    )
    figure.legend(handles, [*names, "region of +1", "region of -1"], loc="outside lower center", ncols=4)
    return figure
