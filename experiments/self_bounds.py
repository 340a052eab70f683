"""Majority votes that minimise their own PAC-Bayes bound, beside MinCq and beside published figures.

  python -m experiments.self_bounds                           two data sets, ten splits
  python -m experiments.self_bounds --methods joint MinCq     some of the methods
  python -m experiments.self_bounds --quick                   two splits of three methods

WDBC (569 tumours, 30 features; scikit-learn ships it) and tic-tac-toe (does x win? its 958 final boards are enumerated)
by the protocol of Viallard, Germain, Habrard, Morvant (ECML 2021) and their public code: half of the points are the
test sample; of the rest the first half is for the voters, 100 decision trees (``max_features="sqrt"``), and the second
for posterior and bound, delta 0.05. They report one split; here a run is a split.

Methods: `pvmincq_jax.self_bound` with each of its bounds; MinCq with the margin of least bound
(`pvmincq_jax.mincq_path`); CB-Boost (Bauvin et al. 2020), which adds the voter of least C-bound, one after the other,
as the published comparison has it; and equal weights. All are given PAC-Bound 2, and those that minimise another bound
that one as well. Times are of the processor, for a fit after compiling.
"""

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.command import Command, as_table, names, write
from experiments.run.study import Study, run_study
from pvmincq_jax.voting.cbound import expected_disagreement

__all__ = ["METHODS", "PUBLISHED", "TASKS", "cb_boost", "compute", "main", "split", "tic_tac_toe"]

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
# PAC-Bound 2 and test error, as the results of the public code have them, by data set and method.
PUBLISHED = {
    "WDBC": {"joint": (0.523, 0.032), "seeger": (0.567, 0.053), "mcallester": (0.564, 0.060), "tandem": (0.532, 0.035),
             "MinCq": (0.992, 0.039), "CB-Boost": (0.591, 0.025)},
    "tic-tac-toe": {"joint": (0.610, 0.056), "seeger": (0.653, 0.084), "mcallester": (0.624, 0.063),
                    "tandem": (0.620, 0.058), "MinCq": (0.782, 0.071), "CB-Boost": (0.649, 0.063)},
}  # fmt: skip


def tic_tac_toe() -> tuple[np.ndarray, np.ndarray]:
    """All final boards of games that x begins.

    Returns:
      Boards ``[958, 9]``, 1 for x, -1 for o and 0 for an empty field, and labels ``[958]``, +1 where x has three in a
      row.
    """
    boards = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=9)))
    x, o = (boards == 1).sum(axis=1), (boards == -1).sum(axis=1)
    wins = {who: np.any([(boards[:, line] == who).all(axis=1) for line in LINES], axis=0) for who in (1, -1)}
    # Whoever won had the last move; without a winner the board is full.
    final = np.where(wins[1], ~wins[-1] & (x == o + 1), np.where(wins[-1], x == o, (x == 5) & (o == 4)))
    return boards[final], np.where(wins[1][final], 1.0, -1.0)


def wdbc() -> tuple[np.ndarray, np.ndarray]:
    """The tumours of Wisconsin, +1 for benign ones."""
    from sklearn.datasets import load_breast_cancer

    points, labels = load_breast_cancer(return_X_y=True)
    return points, 2.0 * labels - 1


TASKS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {"WDBC": wdbc, "tic-tac-toe": tic_tac_toe}


class Split(NamedTuple):
    """Votes of trees on points that they were not learnt from."""

    votes: np.ndarray
    labels: np.ndarray
    test_votes: np.ndarray
    test_labels: np.ndarray


def split(task: str, seed: int, voters: int = 100) -> Split:
    """One split of a data set by the published protocol."""
    from sklearn.tree import DecisionTreeClassifier

    points, labels = TASKS[task]()
    order = np.random.default_rng(seed).permutation(len(labels))
    test, rest = np.split(order, [len(order) // 2])
    first, second = np.split(rest, [len(rest) // 2])
    trees = [
        DecisionTreeClassifier(max_features="sqrt", random_state=k).fit(points[first], labels[first])
        for k in range(voters)
    ]
    votes = np.stack([tree.predict(points) for tree in trees], axis=1)
    return Split(votes[second], labels[second], votes[test], labels[test])


class Fitted(NamedTuple):
    """Weights of the voters, and PAC-Bound 2 of their posterior."""

    weights: Any
    joint: Any
    own: Any


def _of_posterior(votes: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Fitted:
    kept = weights[weights > 0]
    kl = max(float(np.sum(kept * np.log(kept * len(weights)))), 0.0)
    risk, disagreement = pvm.gibbs_risk(votes, labels, weights), expected_disagreement(votes, weights)
    bound = pvm.pac_bound_2(risk, disagreement, len(labels), kl)
    return Fitted(weights, bound, bound)


def _self_bound(bound: str, votes: np.ndarray, labels: np.ndarray) -> Fitted:
    fitted = pvm.self_bound(votes, labels, bound=bound)
    joint = pvm.pac_bound_2(fitted.gibbs_risk, fitted.disagreement, len(labels), fitted.kl)
    return Fitted(fitted.weights, joint, fitted.bound)


def _mincq(votes: np.ndarray, labels: np.ndarray) -> Fitted:
    path = pvm.mincq_path(votes, labels)
    return Fitted(path.weights[path.best], path.bound[path.best], path.bound[path.best])


def cb_boost(votes: np.ndarray, labels: np.ndarray, rounds: int = 100) -> np.ndarray:
    """CB-Boost (Bauvin, Capponi, Roy, Laviolette 2020): each round adds the voter whose best weight lowers the C-bound.

    For a vote F and a voter h, E (F + a h)^2 / (E y (F + a h))^2 is least at
    a = (E yh E F^2 - E yF E Fh) / (E yF E h^2 - E yh E Fh), if that is positive.

    Args:
      votes: ``[m, n]``.
      labels: ``[m]``.
      rounds: at most so many.

    Returns:
      A distribution over the voters ``[n]``.
    """
    margins, squares = labels @ votes / len(labels), np.mean(votes**2, axis=0)
    weights = np.zeros(votes.shape[1])
    weights[np.argmax(margins)] = 1.0
    for _ in range(rounds - 1):
        vote = votes @ weights
        first, second, cross = np.mean(labels * vote), np.mean(vote**2), vote @ votes / len(labels)
        below = first * squares - margins * cross
        usable = (margins > 0) & (np.abs(below) > 1e-12)
        steps = np.where(usable, (margins * second - first * cross) / np.where(usable, below, 1.0), 0.0)
        steps = np.maximum(steps, 0.0)
        ratio = (second + 2 * steps * cross + steps**2 * squares) / (first + steps * margins) ** 2
        best = np.argmin(ratio)
        if not ratio[best] < second / first**2 * (1 - 1e-9):
            break
        weights[best] += steps[best]
    return weights / weights.sum()


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Fitted]] = {
    **{name: functools.partial(_self_bound, name) for name in ("joint", "tandem", "c_tandem", "seeger", "mcallester")},
    "MinCq": _mincq,
    "CB-Boost": lambda votes, labels: _of_posterior(votes, labels, cb_boost(votes, labels)),
    "equal weights": lambda votes, labels: _of_posterior(votes, labels, np.full(votes.shape[1], 1 / votes.shape[1])),
}


def compute(settings: dict[str, Any], method: str, task: str, run: int) -> dict[str, Any]:
    """PAC-Bound 2, the ``own`` bound of a method, its test ``error`` and the seconds of a ``fit``.

    Settings are the ``seed`` of run 0 and the number of ``voters``.
    """
    data = split(task, settings["seed"] + run, settings["voters"])
    with jax.enable_x64(True):
        METHODS[method](data.votes, data.labels)  # compiles
        began = time.process_time()
        fitted = jax.block_until_ready(METHODS[method](data.votes, data.labels))
        seconds = time.process_time() - began
    wrong = data.test_labels * (data.test_votes @ np.asarray(fitted.weights)) <= 0
    return {"joint": float(fitted.joint), "own": float(fitted.own), "error": float(wrong.mean()), "fit": seconds}


def draw(figures: dict[str, dict[str, dict[str, list[float]]]]) -> Any:
    """PAC-Bound 2 and test error of each method, ours filled and published ones hollow."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(figures), figsize=(9.5, 3.6), sharey=True, squeeze=False)
    for axis, (task, rows) in zip(axes[0], figures.items()):
        for place, (method, runs) in enumerate(rows.items()):
            for values, look in ((runs["joint"], "o"), (runs["error"], "s")):
                colour = "#08306b" if look == "o" else "#d94801"
                axis.plot(values, np.full(len(values), place), "|", color=colour, alpha=0.5, markersize=9)
                axis.plot(np.mean(values), place, look, color=colour, label=None if place else _LOOKS[look])
            bound, error = PUBLISHED[task].get(method, (np.nan, np.nan))
            axis.plot(bound, place - 0.25, "o", mfc="none", color="#08306b", label=None if place else _LOOKS["(o)"])
            axis.plot(error, place - 0.25, "s", mfc="none", color="#d94801", label=None if place else _LOOKS["(s)"])
        axis.set(title=task, xlim=(0, 1.02), yticks=range(len(rows)), yticklabels=list(rows), xlabel="risk")
        axis.grid(axis="x", color="0.9")
    axes[0][0].invert_yaxis()
    handles, texts = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="lower center", ncols=4)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    return figure


_LOOKS = {"o": "PAC-Bound 2", "s": "test error", "(o)": "PAC-Bound 2, published", "(s)": "test error, published"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes table and picture."""
    usual = {"methods": list(METHODS), "runs": 10, "seed": 2021, "voters": 100}
    quick = {"methods": ["joint", "MinCq", "equal weights"], "runs": 2}
    parser = Command("self_bounds", __doc__, usual, quick)
    parser.add_argument("--methods", nargs="+", action=names(METHODS), help=f"of {'; '.join(METHODS)} (default: all)")
    parser.add_argument("--voters", type=int, help=f"trees{parser.default('voters')}")
    options = parser.parse_args(arguments)
    settings = {"seed": options.seed, "voters": options.voters}
    cells = [(method, task, run) for task in TASKS for method in options.methods for run in range(options.runs)]
    study = Study(
        "experiments.self_bounds:compute",
        ("method", "task", "run"),
        settings,
        cells,
        lambda one: f"bound {one['joint']:.3f}, error {one['error']:.3f}",
        ranges={"error": (0.0, 1.0)},
    )
    records = run_study(study, options).whole()
    figures: dict[str, dict[str, dict[str, list[float]]]] = {task: {} for task in TASKS}
    text = [f"Mean ± standard error over {options.runs} splits, seed {options.seed}; published: one split"]
    for task in TASKS:
        rows: dict[str, Sequence[Any]] = {}
        for method in options.methods:
            lines = [records[method, task, run] for run in range(options.runs)]
            runs = {name: [line[name] for line in lines] for name in ("joint", "own", "error", "fit")}
            figures[task][method] = runs
            published = [f"{value:.3f}" for value in PUBLISHED[task].get(method, ())] or ["", ""]
            milliseconds = f"{1000 * np.median(runs['fit']):.0f}"
            rows[method] = [runs["joint"], runs["own"], runs["error"], milliseconds, *published]
        columns = ["PAC-Bound 2", "own bound", "test error", "CPU ms", "published bound", "published error"]
        text += ["", f"{task}, {len(TASKS[task]()[1])} points", "", as_table("method", columns, rows, digits=3)]
    write(options.out, "self_bounds", "\n".join(text), functools.partial(draw, figures))


if __name__ == "__main__":
    main()
