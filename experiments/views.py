"""Two views of handwritten digits: a majority vote over both, with and without adaptation.

  python -m experiments.views                  even against odd digits, in the light of a lamp; ten runs
  python -m experiments.views --shift moved    the camera moved by a pixel instead
  python -m experiments.views --quick          two small runs

The source are scikit-learn's 8 x 8 digits as they are. In the target, other digits are seen in less contrast and
under a lamp that makes one side brighter, or moved sideways. View A is the image itself, view B says how much of
which direction of edges each quarter of the image holds. Every vote is MinCq's over Gaussian kernels: of one view, of
both features in one vector, or of both as views with a bandwidth each. Without adaptation it is learnt on the source,
parameters by cross-validation; with adaptation by PV-MinCq, parameters without target labels (R_S + PV + C-bound). The
last rows weigh given classifiers, SVMs learnt on the source from each view. Developed on seeds from 1000 on; the
table's seed is 2014.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from scipy import ndimage

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, mean_and_error, needs, number, write
from experiments.run.study import Study, run_study
from pvmincq_jax.adaptation.views import stack_views, view_scales

with needs("experiments"):
    import matplotlib.pyplot as plt
    from sklearn.datasets import load_digits
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.svm import SVC

__all__ = ["ROWS", "SHIFTS", "ViewsTask", "compute", "edges", "main", "views_task"]

SHIFTS = ("lamp", "moved")
_DIRECTIONS = 8
# Coarser than the library's own grid, so that the whole command takes minutes: with as many voters as target points in
# each view, and votes of full rank, a fit takes much longer than on the moons.
_GRID: dict[str, Any] = {"levels": (0.5, 0.3, 0.2, 0.1, 0.05, 0.0), "margins": (0.05, 0.2, 0.5), "folds": 3}
_WITHOUT: dict[str, Any] = {**_GRID, "levels": (0.0,), "draws": 1, "criterion": pvm.rs}


class ViewsTask(NamedTuple):
    """Two views of three disjoint samples; ``test_labels`` are for the final figure only.

    Attributes:
      source: two arrays ``[m_s, d_v]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: two arrays, unlabelled.
      test: two arrays of other objects of the target domain.
      test_labels: +1 for even digits, -1 for odd ones.
      pictures: some source images and some target images ``[2, 8, 8, 8]``.
    """

    source: list[np.ndarray]
    source_labels: np.ndarray
    target: list[np.ndarray]
    test: list[np.ndarray]
    test_labels: np.ndarray
    pictures: np.ndarray


def edges(images: np.ndarray) -> np.ndarray:
    """Histograms ``[m, 32]`` of the directions of grey-level gradients in the quarters of images ``[m, 8, 8]``.

    Eight directions a quarter, all of length 1; a gradient counts by its length, shared between the two nearest.
    """
    down, right = np.gradient(images, axis=(1, 2))
    length = np.hypot(right, down)
    place = np.mod(np.arctan2(down, right), 2 * np.pi) / (2 * np.pi) * _DIRECTIONS
    share = np.maximum(0, 1 - np.abs(place[..., None] - np.arange(_DIRECTIONS + 1)))
    share = np.concatenate([share[..., :1] + share[..., -1:], share[..., 1:-1]], axis=-1)
    weighted = length[..., None] * share
    quarters = weighted.reshape(len(images), 2, 4, 2, 4, _DIRECTIONS).sum(axis=(2, 4))
    flat = quarters.reshape(len(images), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)


def _shifted(images: np.ndarray, shift: str) -> np.ndarray:
    if shift == "lamp":
        return 0.4 * images + 0.6 * np.linspace(0, 1, 8)
    if shift == "moved":
        return ndimage.shift(images, (0, 0, 1), order=0)
    raise ValueError(f"shift must be one of {', '.join(SHIFTS)}; it is {shift!r}")


def views_task(shift: str, seed: int, size: int = 150) -> ViewsTask:
    """Draws so many digits for source and target, and all others for the test, under the shift "lamp" or "moved"."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images, labels = data.images[order] / 16.0, np.where(data.target[order] % 2 == 0, 1.0, -1.0)
    parts = [images[:size], _shifted(images[size : 2 * size], shift), _shifted(images[2 * size :], shift)]
    source, target, test = ([part.reshape(len(part), -1), edges(part)] for part in parts)
    pictures = np.stack([parts[0][:8], parts[1][:8]])
    return ViewsTask(source, labels[:size], target, test, labels[2 * size :], pictures)


def _chosen(task: ViewsTask, views: Sequence[int] | str, scaled_by: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Some views of source, target and test; or both in one vector, on the scales of the sample with the kernels."""
    parts = task.source, task.target, task.test
    if views == "stacked":
        scales = view_scales(scaled_by)
        return [[stack_views(part, scales)] for part in parts]
    return [[part[int(v)] for v in views] for part in parts]


def _without(task: ViewsTask, views: Any, seed: int) -> float:
    """MinCq on the source. With the source as its own target, every point is its own match and R_S cross-validates."""
    source, _, test = _chosen(task, views, task.source)
    found = pvm.fit_views_validated(source, task.source_labels, source, seed=seed, **_WITHOUT)
    return accuracy(pvm.decision(found.model, test), task.test_labels)


def _adapted(task: ViewsTask, views: Any, seed: int, matching: Literal["joint", "each"] = "joint") -> float:
    source, target, test = _chosen(task, views, task.target)
    found = pvm.fit_views_validated(source, task.source_labels, target, matching=matching, seed=seed, **_GRID)
    return accuracy(pvm.decision(found.model, test), task.test_labels)


def _given(task: ViewsTask, seed: int) -> tuple[float, float]:
    """Votes over three SVMs of each view, learnt on the source: weighed on the source, and on the self-labels."""
    source_votes, target_votes, test_votes = [], [], []
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    for source, target, test in zip(task.source, task.target, task.test):
        for gamma in pvm.default_gammas(source):
            machine = SVC(C=10.0, gamma=gamma)
            labels = task.source_labels
            held_out = cross_val_predict(machine, source, labels, cv=folds, method="decision_function")
            machine.fit(source, labels)
            source_votes.append(np.tanh(held_out))
            target_votes.append(np.tanh(machine.decision_function(target)))
            test_votes.append(np.tanh(machine.decision_function(test)))
    on_source, on_target, on_test = (
        np.asarray(pvm.classifier_votes(np.stack(votes, axis=1))) for votes in (source_votes, target_votes, test_votes)
    )
    scales = view_scales(task.target)
    stacks = (
        stack_views(task.source, scales),
        stack_views(task.target, scales),
    )
    labels = task.source_labels
    plain = pvm.fit_votes_validated(stacks[0], labels, stacks[0], on_source, on_source, seed=seed, **_WITHOUT)
    adapted = pvm.fit_votes_validated(stacks[0], labels, stacks[1], on_source, on_target, seed=seed, **_GRID)
    return (
        accuracy(pvm.vote_margin(on_test, plain.model.weights), task.test_labels),
        accuracy(pvm.vote_margin(on_test, adapted.model.weights), task.test_labels),
    )


def _both(views: Any) -> Callable[[ViewsTask, int], tuple[float, float]]:
    return lambda task, seed: (_without(task, views, seed), _adapted(task, views, seed))


ROWS: dict[str, Callable[[ViewsTask, int], tuple[float | None, float]]] = {
    "A: pixels": _both([0]),
    "B: edges": _both([1]),
    "A and B in one vector": _both("stacked"),
    "A and B as views": _both([0, 1]),
    "A and B as views, each matched": lambda task, seed: (None, _adapted(task, [0, 1], seed, "each")),
    "given SVMs of A and B": _given,
}


def compute(settings: dict[str, Any], row: str, run: int) -> dict[str, Any]:
    """Accuracies on the test digits, in per cent, without and with adaptation, of one of `ROWS`, or None.

    Settings are ``shift`` and ``size``, see `views_task`, and the ``seed`` of run 0.
    """
    seed = settings["seed"] + run
    with jax.enable_x64(True):
        found = ROWS[row](views_task(settings["shift"], seed, settings["size"]), seed)
    return {"accuracy": [None if figure is None else float(figure) for figure in found]}


def draw(found: dict[str, list[tuple[float, ...]]], task: ViewsTask) -> Any:
    """Digits of both domains, and the accuracies."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1, 1.25))
    rows = [np.concatenate(list(row), axis=1) for row in task.pictures]
    left.imshow(np.concatenate([rows[0], np.ones((2, rows[0].shape[1])), rows[1]]), cmap="gray", vmin=0, vmax=1)
    left.set(xticks=[], yticks=[3.5, 13.5], yticklabels=["source", "target"], title="Digits of the two domains")
    left.tick_params(length=0)
    names = list(found)
    for offset, column, marker, fill, label in (
        (-0.13, 0, "o", "white", "learnt on the source"),
        (0.13, 1, "s", "black", "adapted by PV-MinCq"),
    ):
        figures = np.array([mean_and_error(found[name][column]) for name in names])
        right.errorbar(
            figures[:, 0],
            np.arange(len(names)) + offset,
            xerr=figures[:, 1],
            fmt=marker,
            color="black",
            markerfacecolor=fill,
            capsize=2,
            label=label,
        )
    right.set(
        yticks=range(len(names)), yticklabels=names, xlabel="accuracy on the target (%)", ylim=(len(names) - 0.5, -0.5)
    )
    right.grid(axis="x", color="0.9")
    right.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
    figure.tight_layout()
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes table and picture."""
    parser = Command("views", __doc__, {"runs": 10, "seed": 2014, "size": 150}, {"runs": 2, "size": 40})
    parser.add_argument("--shift", choices=SHIFTS, default="lamp", help="between the domains (default: %(default)s)")
    parser.add_argument("--size", type=number(10), help=f"digits a domain{parser.default('size')}")
    options = parser.parse_args(arguments)
    runs, seed, size, shift = options.runs, options.seed, options.size, options.shift
    cells = [(row, run) for run in range(runs) for row in ROWS]
    study = Study(
        "experiments.views:compute",
        ("row", "run"),
        {"shift": shift, "seed": seed, "size": size, "grid": _GRID},
        cells,
        lambda one: " and ".join("-" if figure is None else f"{figure:.1f} %" for figure in one["accuracy"]),
    )
    records = run_study(study, options).whole()
    found = {row: list(zip(*(records[row, run]["accuracy"] for run in range(runs)))) for row in ROWS}
    rows = {row: [None if column[0] is None else column for column in columns] for row, columns in found.items()}
    text = [
        f"Even against odd digits, {shift}, {size} + {size} digits, {runs} runs, seed {seed}:",
        "accuracy in per cent on the other digits, mean ± standard error",
        "",
        as_table("voters", ["learnt on the source", "adapted"], rows),
    ]
    write(options.out, "views", "\n".join(text), lambda: draw(found, views_task(shift, seed, size)))


if __name__ == "__main__":
    main()
