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

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.cells import accuracy
from experiments.run.command import Command, as_table, needs, write
from experiments.run.methods import METHODS
from experiments.run.study import Study, run_study
from pvmincq_jax.datasets import draw_moons

with needs("experiments"):
    import matplotlib.pyplot as plt

    from experiments.run.style import bare

__all__ = ["SCENES", "SharedTask", "compute", "main", "shared_task"]

SCENES = ("stray", "excess")
ANGLE = 40
RANKINGS = ("by matchings", "by nearest target point")
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
    """Draws a task of the scene "stray" or "excess", rows in random order."""
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


def compute(settings: dict[str, Any], scene: str, run: int) -> dict[str, Any]:
    """Precision of the rankings and accuracy of the halves, in per cent, by name; ``seed`` is that of run 0."""
    own = settings["seed"] + run
    task = shared_task(scene, own)
    shared = pvm.shared_points(task.source, task.target, seed=own)
    rankings = dict(zip(RANKINGS, (shared.ranking, np.argsort(shared.nearest))))
    found = {name: float(100 * np.mean(task.odd[ranking[-100:]])) for name, ranking in rankings.items()}
    shuffled = np.random.default_rng([own, 1]).permutation(300)
    parts = dict(zip(HALVES, (shuffled, shared.ranking[:150], shuffled[:150], shared.ranking[150:])))
    for half, rows in parts.items():
        for learner, fit in LEARNERS.items():
            with jax.enable_x64(True):
                decide = fit(task.source[rows], task.source_labels[rows], task.target, own)
                found[f"{learner}, {half}"] = float(accuracy(decide(task.test), task.test_labels))
    return {"figures": found}


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
    options = Command("shared_points", __doc__, {"runs": 10, "seed": 2014}, {"runs": 2}).parse_args(arguments)
    runs, seed = options.runs, options.seed
    settings = {"seed": seed, "angle": ANGLE, "grid": _GRID}
    cells = [(scene, run) for run in range(runs) for scene in SCENES]

    def say(one: dict[str, Any]) -> str:
        return ", ".join(f"{name} {figure:.1f}" for name, figure in one["figures"].items())

    ranges = {"figures": (0.0, 100.0)}
    study = Study("experiments.shared_points:compute", ("scene", "run"), settings, cells, say, ranges=ranges)
    records = run_study(study, options).whole()

    def runs_of(scene: str, name: str) -> list[float]:
        return [records[scene, run]["figures"][name] for run in range(runs)]

    rankings = {name: [runs_of(scene, name) for scene in SCENES] for name in RANKINGS}
    halves = {half: [runs_of(scene, f"{name}, {half}") for scene in SCENES for name in LEARNERS] for half in HALVES}
    text = [
        f"200 moons and 100 points that should not count, target turned by {ANGLE} degrees, {runs} runs, "
        f"seed {seed}; per cent, mean ± standard error",
        "",
        as_table("of the 100 last in the ranking", SCENES, rankings),
        "",
        as_table("accuracy, learnt from", [f"{scene}: {name}" for scene in SCENES for name in LEARNERS], halves),
    ]
    write(options.out, "shared_points", "\n".join(text), partial(draw, seed))


if __name__ == "__main__":
    main()
