"""Which source points matter for the target: a ranking by how often maximum matchings pair them, put to the test.

  python -m experiments.shared_points            ten runs
  python -m experiments.shared_points --quick    two runs

The source are 200 points of the moons and 100 more that should not count: "stray", a cluster that the target does not
have, with labels at random; or "excess", further points of the moons' right end, which the target has only as many of
as of any other part. The target are 300 moons, turned by 40 degrees. First table: how many of the 100 are among
the 100 last of the ranking (a random ranking has a third of them), beside a ranking by the distance to the nearest
target point. Second table: accuracy on fresh target points when learning from the first, the last and a random half of
the ranking, and from all points: an SVM without adaptation, and PV-MinCq with parameters chosen without target labels.
Developed on seeds from 1000 on; the table's seed is 2014.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import matplotlib.pyplot as plt
import numpy as np

import pvmincq_jax as pvm
from experiments.directions import as_table, command, note, write
from experiments.figures_style import STYLE, bare
from experiments.methods import METHODS
from experiments.workers import on_one_core
from pvmincq_jax.datasets import draw_moons

__all__ = ["SCENES", "SharedTask", "main", "run", "shared_task"]

SCENES = ("stray", "excess")
ANGLE = 40
HALVES = ("all points", "first half of the ranking", "random half", "last half of the ranking")
# Coarser than the library's own grid: eight fits a run.
_GRID: dict[str, Any] = {
    "radii": (0.4, 0.2, 0.1, 0.0),
    "radius_unit": "pv",
    "margins": (0.05, 0.2, 0.5),
    "folds": 3,
    "progress": False,
}


class SharedTask(NamedTuple):
    """A source of which a third should not count; ``test_labels`` are for the final figure only.

    Attributes:
      source: ``[300, 2]``.
      source_labels: ``[300]`` in {-1, +1}.
      odd: which source points are stray or in excess ``[300]``.
      target: ``[300, 2]``.
      test: ``[1500, 2]``.
      test_labels: ``[1500]``.
    """

    source: np.ndarray
    source_labels: np.ndarray
    odd: np.ndarray
    target: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def shared_task(scene: str, seed: int) -> SharedTask:
    """Draws a task.

    Args:
      scene: "stray" or "excess".
      seed: of the draw.

    Returns:
      A `SharedTask`, rows in random order.
    """
    rng = np.random.default_rng(seed)
    moons, labels = draw_moons(100, rng)
    if scene == "stray":
        others, given = rng.normal((2.2, -1.5), 0.3, (100, 2)), rng.choice([-1.0, 1.0], 100)
    elif scene == "excess":
        many, all_labels = draw_moons(500, rng)
        right = np.flatnonzero(many[:, 0] > 0.6)[:100]
        others, given = many[right], all_labels[right]
    else:
        raise ValueError(f"scene must be one of {', '.join(SCENES)}; it is {scene!r}")
    target, _ = draw_moons(150, rng, angle=ANGLE)
    test, test_labels = draw_moons(750, rng, angle=ANGLE)
    order = rng.permutation(300)
    source, source_labels = np.concatenate([moons, others])[order], np.concatenate([labels, given])[order]
    return SharedTask(source, source_labels, (np.arange(300) >= 200)[order], target, test, test_labels)


def _svm(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int) -> Callable[[np.ndarray], Any]:
    return METHODS["SVM"].fit(source, labels, target, seed).decision


def _pv_mincq(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seed: int) -> Callable[[np.ndarray], Any]:
    gammas = pvm.default_gammas(target)[1:]
    options = {"criterion": pvm.rs_pv_cbound, "gammas": gammas, "seed": seed, **_GRID}
    model = pvm.fit_validated(source, labels, target, **options).model
    return lambda x: pvm.decision(model, x)


LEARNERS = {"SVM": _svm, "PV-MinCq": _pv_mincq}


def run(scene: str, runs: int, seed: int) -> dict[str, list[float]]:
    """Precision of the rankings and accuracy of the halves.

    Args:
      scene: see `shared_task`.
      runs: how many; run i has seed + i.
      seed: of the first.

    Returns:
      By name, in per cent, one figure per run.
    """
    found: dict[str, list[float]] = {}
    for number in range(runs):
        own = seed + number
        task = shared_task(scene, own)
        shared = pvm.shared_points(task.source, task.target, seed=own)
        rankings = {"by matchings": shared.ranking, "by nearest target point": np.argsort(shared.nearest)}
        for name, ranking in rankings.items():
            found.setdefault(name, []).append(float(100 * np.mean(task.odd[ranking[-100:]])))
        shuffled = np.random.default_rng([own, 1]).permutation(300)
        parts = dict(zip(HALVES, (shuffled, shared.ranking[:150], shuffled[:150], shared.ranking[150:])))
        for half, rows in parts.items():
            for learner, fit in LEARNERS.items():
                with jax.enable_x64(True):
                    decide = fit(task.source[rows], task.source_labels[rows], task.target, own)
                    right = np.asarray(decide(task.test)) * task.test_labels > 0
                found.setdefault(f"{learner}, {half}", []).append(float(100 * np.mean(right)))
        note(f"{scene}, run {number + 1} of {runs}: " + ", ".join(f"{k} {v[-1]:.1f}" for k, v in found.items()))
    return found


def draw(seed: int) -> Any:
    """The source points by their score, over the target."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4))
    for axis, scene in zip(axes, SCENES):
        task = shared_task(scene, seed)
        score = pvm.shared_points(task.source, task.target, seed=seed).score
        axis.scatter(*task.target.T, s=10, marker="x", color="0.6", linewidths=0.7, label="target")
        for odd, marker, name in ((False, "o", "source"), (True, "s", f"source, {scene}")):
            rows = task.odd == odd
            drawn = axis.scatter(
                *task.source[rows].T,
                c=score[rows],
                s=26,
                marker=marker,
                cmap="viridis",
                vmin=0,
                vmax=1,
                edgecolors="black",
                linewidths=0.4,
                label=name,
            )
        bare(axis)
        axis.set_title("a cluster that the target lacks" if scene == "stray" else "too many points at the right end")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3)
    figure.colorbar(drawn, ax=axes, label="how often matched, mean over radii", fraction=0.03, pad=0.02)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes tables and picture."""
    options = command("shared_points", __doc__, runs=10, quick="two runs").parse_args(arguments)
    runs = 2 if options.quick else options.runs
    found = {scene: run(scene, runs, options.seed) for scene in SCENES}
    rankings = {name: [found[scene][name] for scene in SCENES] for name in ("by matchings", "by nearest target point")}
    halves = {half: [found[scene][f"{learner}, {half}"] for scene in SCENES for learner in LEARNERS] for half in HALVES}
    text = "\n".join(
        [
            f"200 moons and 100 points that should not count, target turned by {ANGLE} degrees, {runs} runs, "
            f"seed {options.seed}; per cent, mean ± standard error",
            "",
            as_table("of the 100 last in the ranking", SCENES, rankings),
            "",
            as_table("accuracy, learnt from", [f"{scene}: {name}" for scene in SCENES for name in LEARNERS], halves),
        ]
    )
    record = {"settings": {"runs": runs, "seed": options.seed, "angle": ANGLE, "grid": _GRID}, "figures": found}
    with plt.rc_context(STYLE):
        write(options.out, "shared_points", text, record, draw(options.seed))


if __name__ == "__main__":
    sys.exit(on_one_core(main))
