"""Pictures of a fitted classifier of two domains: who labelled whom, and what the choice was made by.

matplotlib, of the extra ``[plots]``, is imported when a picture is drawn. Classes are told apart by shape as well as by
colour.
"""

from typing import Any

import numpy as np

from pvmincq_jax._extras import needs_extra

__all__ = ["plot_criterion", "plot_transfer"]

# Marker and colours of the classes: dark circles against light squares with an edge where there are two.
_TWO = (
    {"marker": "s", "color": "#fdae6b", "edgecolor": "#7f2704"},
    {"marker": "o", "color": "#08306b", "edgecolor": "#08306b"},
)
_MARKERS = "osD^v<>pP*hX"
# By how much scores differ that have a logarithmic scale, and up to which multiple of the least it goes.
_WIDE, _MOST = 10, 1000


def _axis(ax: Any, size: tuple[float, float]) -> Any:
    """The axis given, or one of a new figure."""
    with needs_extra("plots"):
        import matplotlib.pyplot as plt
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def _fitted(estimator: Any) -> None:
    if not hasattr(estimator, "pairs_"):
        raise ValueError(
            f"estimator must be a fitted PVMinCqClassifier or PVTransportClassifier; this {type(estimator).__name__} "
            "has no pairs_. Call fit or fit_domains first"
        )


def _classes(estimator: Any) -> list[tuple[str, np.ndarray, dict[str, str]]]:
    """Of each class its name, which source points are of it ``[m_s]``, and how they look."""
    import matplotlib

    two = len(estimator.classes_) == 2
    numbers = estimator.source_labels_ > 0 if two else estimator.source_labels_
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 1, len(estimator.classes_)))
    classes = []
    for k, (label, shade) in enumerate(zip(estimator.classes_, shades)):
        # As a reader would write it: 1, not 1.0.
        name = f"{label:g}" if isinstance(label, float | np.floating) else str(label)
        look = {"marker": _MARKERS[k % len(_MARKERS)], "color": matplotlib.colors.to_hex(shade), "edgecolor": "black"}
        classes.append((name, numbers == k, _TWO[k] if two else look))
    return classes[::-1] if two else classes


def plot_transfer(estimator: Any, *, features: tuple[int, int] = (0, 1), ax: Any = None) -> Any:
    """Draws how labels went from source to target: an arrow for each matched pair, the darker the more often drawn.

    Source points carry their class; target points are crosses, faint where no label arrived (section 3.2). Of a
    committee it is the map of the best member; where nobody was matched, there is no arrow.

    Args:
      estimator: a fitted `pvmincq_jax.estimators.PVMinCqClassifier` or `pvmincq_jax.estimators.PVTransportClassifier`.
      features: the two columns to draw.
      ax: a matplotlib axis, or None for a new figure.

    Returns: the axis.

    Example:
      >>> from pvmincq_jax.estimators import PVMinCqClassifier
      >>> Xs, ys = np.array([[0.0, 0.0], [0.1, 0.2], [1.0, 1.0], [1.1, 0.9]]), np.array(["a", "a", "b", "b"])
      >>> model = PVMinCqClassifier(radius=0.3, margin=0.5, gamma=1.0).fit_domains(Xs, ys, Xs + 0.1)
      >>> plot_transfer(model).get_title()
      'radius 0.30: PV = 0.00, 4 of 4 target points matched'
    """
    _fitted(estimator)
    count = estimator.n_features_in_
    if len(features) != 2 or not all(0 <= feature < count for feature in features):
        raise ValueError(f"features must be two columns in [0, {count - 1}]; they are {features}")
    ax = _axis(ax, (6.4, 5.2))
    source, target, pairs = estimator.source_[:, features], estimator.target_[:, features], estimator.pairs_
    matched = np.isin(np.arange(len(target)), pairs.target)
    if np.any(matched):
        starts, ends = source[pairs.source], target[pairs.target]
        shade = 0.15 + 0.75 * pairs.weights / np.max(pairs.weights)
        arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.0025}
        ax.quiver(*starts.T, *(ends - starts).T, color="black", alpha=shade, zorder=0, **arrows)
    for name, rows, look in _classes(estimator):
        ax.scatter(*source[rows].T, s=22, linewidths=0.5, label=f"source, class {name}", **look)
    crosses: dict[str, Any] = {"marker": "x", "s": 24, "linewidths": 0.9}
    for rows, shown, told in ((matched, "black", "matched"), (~matched, "0.7", "unmatched")):
        if np.any(rows):
            ax.scatter(*target[rows].T, color=shown, label=f"target, {told}", **crosses)
    names = getattr(estimator, "feature_names_in_", [f"feature {i}" for i in range(count)])
    ax.set(xlabel=str(names[features[0]]), ylabel=str(names[features[1]]))
    if np.any(matched):
        told = f"{int(np.sum(matched))} of {len(target)} target points matched"
        title = f"radius {estimator.choice_.radius:.2f}: PV = {estimator.pv_:.2f}, {told}"
    else:
        title = "nobody is matched: the source " + ("on the target's scale" if estimator.adapted_ else "as it is")
    ax.set_title(title, fontsize="medium")
    legend = ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize="small")
    for text in (ax.xaxis.label, ax.yaxis.label, *legend.get_texts()):
        # Names of classes and features: a $ in them begins no formula.
        text.set_parse_math(False)
    return ax


def plot_criterion(estimator: Any, *, ax: Any = None) -> Any:
    """Draws the criterion over radii and margins, at the chosen gamma; the chosen point is framed (section 3.4).

    Rows are in the order of the radii. Those of the transport form come in two runs, the upper one of maps from the
    source on the target's scale, marked by a star. Scores above 0 that differ by more than ten times have a logarithmic
    scale, and all that are more than a thousand times the least one colour.

    Args:
      estimator: a fitted `pvmincq_jax.estimators.PVMinCqClassifier` or `pvmincq_jax.estimators.PVTransportClassifier`
        that had something to choose, and kept its sweep.
      ax: a matplotlib axis, or None for a new figure.

    Returns: the axis.

    Example:
      >>> from pvmincq_jax.estimators import PVMinCqClassifier
      >>> Xs, ys = np.array([[0.0], [0.1], [0.3], [1.0], [1.1], [1.4]]), np.repeat(["a", "b"], 3)
      >>> model = PVMinCqClassifier(radius=[0.1, 0.3], margin=0.5, gamma=1.0).fit_domains(Xs, ys, Xs + 0.05)
      >>> [text.get_text() for text in plot_criterion(model).get_xticklabels()]
      ['0.5']
    """
    _fitted(estimator)
    choice, sweep = estimator.choice_, estimator.sweep_
    if sweep is None:
        raise ValueError("estimator has not kept its grid: fit it with keep_sweep=True")
    scaled = [bool(one.match_moments) for one in sweep.transports] or [False] * len(sweep.radii)
    order = np.lexsort((sweep.radii, scaled))
    row, gamma, column = choice.grid_index
    row = int(np.flatnonzero(order == row)[0])
    scores = np.where(np.isfinite(choice.scores), choice.scores, np.nan)[order, gamma, :]
    if np.all(np.isnan(scores)):
        raise ValueError(
            "there is no criterion to draw: radius, margin and gamma were given. Leave one of them out, or list values"
        )
    ax = _axis(ax, (1.6 + 1.1 * scores.shape[1] + 1.6, 1.4 + 0.42 * scores.shape[0]))
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.patches import Rectangle

    least, most = float(np.nanmin(scores)), float(np.nanmax(scores))
    wide = least > 0 and most > _WIDE * least
    norm = LogNorm(least, min(most, _MOST * least), clip=True) if wide else Normalize(least, most)
    image = ax.imshow(scores, origin="lower", aspect="auto", cmap="Greys", norm=norm)
    for (r, k), score in np.ndenumerate(scores):
        text = "-" if np.isnan(score) else f"{score:.3f}" if score < 10 else f"{score:.2g}"
        dark = not np.isnan(score) and float(norm(score)) > 0.55
        ax.text(k, r, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")

    frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, linewidth=2.5, edgecolor="tab:red", clip_on=False)
    ax.add_patch(frame)
    ax.set_xticks(range(len(sweep.margins)), [f"{margin:g}" for margin in sweep.margins])
    rows = [f"{sweep.radii[r]:.2f} ({sweep.pv[r]:.2f})" if sweep.radii[r] else "none" for r in order]
    ax.set_yticks(range(len(order)), [name + "*" * scaled[r] for r, name in zip(order, rows)])
    of = ", as a fraction of the largest" if sweep.margin_unit == "fraction" else ""
    ax.set(xlabel=f"margin{of}", ylabel="radius (and its PV)" + (", *on the target's scale" if any(scaled) else ""))
    at = "" if np.isnan(choice.gamma) else f" at gamma {choice.gamma:.3g}"
    ax.set_title(f"criterion{at}; framed: chosen", fontsize="medium")
    ax.figure.colorbar(image, ax=ax, pad=0.02, extend="max" if wide and most > _MOST * least else "neither")
    return ax
