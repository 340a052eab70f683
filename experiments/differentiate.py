"""Past the grid by gradient: gamma and margin of PV-MinCq, followed from the grid's best point to a better one.

MinCq's solution is differentiable in the votes and in the margin, so anything smooth that is computed from it can be
followed. Here that is the C-bound of Corollary 1 on self-labelled points that were held out, the smooth part of the
criterion R_S + PV + C-bound: the self-labelled target sample is dealt into folds, the vote learnt without a fold is
judged on it, and the mean over the folds is differentiated with respect to log gamma and to the logit of the margin as
a fraction of mu_max. The radius, on which nothing depends smoothly, is the one that the sweep chose.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import pvmincq_jax as pvm
from experiments.run.command import new_file, number
from pvmincq_jax.datasets import moons_task

__all__ = [
    "Followed",
    "Problem",
    "criterion",
    "follow",
    "grid_values",
    "main",
    "make_problem",
    "to_point",
    "value_and_slope",
]


class Problem(NamedTuple):
    """A self-labelled sample and its folds.

    Attributes:
      target: ``[m, d]``.
      labels: self-labels ``[m]`` in [-1, 1].
      learning: weights of the points to learn from ``[folds, m]``; 0 for unmatched and for held-out points.
      judging: weights of the points to be judged on ``[folds, m]``.
    """

    target: Any
    labels: Any
    learning: Any
    judging: Any


class Followed(NamedTuple):
    """Where the gradient led.

    Attributes:
      points: (log gamma, logit of the margin's fraction) ``[steps + 1, 2]``.
      values: of the criterion there ``[steps + 1]``.
    """

    points: np.ndarray
    values: np.ndarray


def make_problem(target: np.ndarray, found: pvm.SelfLabels, folds: int, seed: int) -> Problem:
    """Deals the self-labelled points ``[m, d]`` into folds; with 0 of them, those learnt from are those judged on."""
    if not folds:
        return Problem(target, found.labels, found.weights[None], found.weights[None])
    numbers = np.full(len(target), -1)
    matched = found.weights > 0
    # By coordinates first, so that the folds do not depend on the order of the rows.
    rows = np.flatnonzero(matched)[np.lexsort(target[matched].T)]
    numbers[np.random.default_rng(seed).permutation(rows)] = np.arange(len(rows)) % folds
    held = numbers[None] == np.arange(folds)[:, None]
    return Problem(target, found.labels, np.where(held, 0.0, found.weights), np.where(held, found.weights, 0.0))


def to_point(gamma: float, fraction: float) -> jax.Array:
    """(log gamma, logit of the fraction): coordinates without bounds."""
    return jnp.array([np.log(gamma), np.log(fraction / (1 - fraction))])


def criterion(point: jax.Array, problem: Problem) -> jax.Array:
    """Mean over the folds of the C-bound on the fold, at MinCq's solution on the others; NaN if one is not solved.

    The point is (log gamma, logit of the margin as a fraction of mu_max) ``[2]``.
    """
    gamma, fraction = jnp.exp(point[0]), jax.nn.sigmoid(point[1])
    votes = pvm.rbf_votes(problem.target, problem.target, gamma)
    # One factor serves all folds; derivatives go through the votes themselves.
    factor = pvm.vote_factor(votes)

    def one_fold(learning: jax.Array, judging: jax.Array) -> jax.Array:
        mask = learning > 0
        margin = fraction * pvm.max_margin(votes, problem.labels, sample_weights=learning, voter_mask=mask)
        solution = pvm.mincq(votes, problem.labels, margin, sample_weights=learning, voter_mask=mask, factor=factor)
        return pvm.c_bound(votes, problem.labels, solution.weights, sample_weights=judging)

    return jnp.mean(jax.vmap(one_fold)(problem.learning, problem.judging))


value_and_slope = jax.jit(jax.value_and_grad(criterion))


def grid_values(problem: Problem, gammas: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """The criterion over a grid ``[gammas, fractions]``."""
    return np.array([[float(value_and_slope(to_point(g, f), problem)[0]) for f in fractions] for g in gammas])


def follow(start: jax.Array, problem: Problem, steps: int, rate: float = 0.1) -> Followed:
    """Follows the gradient by Adam, with steps that shrink to nothing; ends early where the criterion is no number."""
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps))
    state, point = optimiser.init(start), start
    points, values = [], []
    for _ in range(steps + 1):
        value, slope = value_and_slope(point, problem)
        if not np.isfinite(float(value)):
            break
        points.append(np.asarray(point))
        values.append(float(value))
        updates, state = optimiser.update(slope, state)
        point = optax.apply_updates(point, updates)
    return Followed(np.array(points), np.array(values))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.differentiate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--task", default="40", help="degrees of rotation, or 'translation' (default: %(default)s)")
    parser.add_argument(
        "--seed", type=number(0), default=0, help="of samples, matchings and folds (default: %(default)s)"
    )
    parser.add_argument(
        "--per-class", type=number(5), default=40, help="points per class and domain (default: %(default)s)"
    )
    parser.add_argument(
        "--folds",
        type=int,
        default=3,
        help="of the self-labelled points; 0 judges the vote on the points that it learnt from (default: %(default)s)",
    )
    parser.add_argument("--steps", type=number(1), default=60, help="of the gradient (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the grid and the way as JSON to this file")
    return parser


def run(task: str, seed: int, per_class: int, folds: int, steps: int) -> dict[str, Any]:
    """Sweeps, chooses the radius, and follows the gradient from the grid's best gamma and margin; figures by name."""
    sample = moons_task(task, seed, per_class=per_class)
    arguments = sample.source, sample.source_labels, sample.target
    with jax.enable_x64(True):
        figures = pvm.sweep(*arguments, draws=16, seed=seed)
        choice = pvm.choose(figures, pvm.rs_pv_cbound(figures))
        problem = make_problem(sample.target, figures.self_labels[choice.grid_index[0]], folds, seed)
        values = grid_values(problem, figures.gammas, figures.margins)
        if not np.any(np.isfinite(values)):
            raise ValueError(f"task {task!r}: the criterion is no number anywhere on the grid; take fewer folds")
        g, k = np.unravel_index(np.nanargmin(values), values.shape)
        followed = follow(to_point(figures.gammas[g], figures.margins[k]), problem, steps)
        best = int(np.argmin(followed.values))
        found = [(float(np.exp(a)), float(1 / (1 + np.exp(-b)))) for a, b in followed.points[[0, best]]]

        def accuracy(gamma: float, fraction: float) -> float:
            model = pvm.pv_mincq(
                *arguments,
                radius=choice.radius,
                gamma=gamma,
                margin=fraction,
                margin_unit="fraction",
                draws=16,
                seed=seed,
            )
            return float(np.mean(np.asarray(pvm.predict(model, sample.test)) == sample.test_labels))

        return {
            "settings": {"task": task, "seed": seed, "per_class": per_class, "folds": folds, "steps": steps},
            "versions": {"jax": jax.__version__, "optax": optax.__version__, "pvmincq_jax": pvm.__version__},
            "radius": choice.radius,
            "gammas": figures.gammas.tolist(),
            "margins": figures.margins.tolist(),
            "grid": values.tolist(),
            "grid_best": float(values[g, k]),
            "before": {"gamma": found[0][0], "margin": found[0][1], "accuracy": accuracy(*found[0])},
            "after": {"gamma": found[1][0], "margin": found[1][1], "accuracy": accuracy(*found[1])},
            "followed_best": float(followed.values[best]),
            "steps_to_best": best,
            "points": followed.points.tolist(),
            "values": followed.values.tolist(),
        }


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.folds < 0 or given.folds == 1:
        parser.error(f"--folds must be 0 or at least 2; it is {given.folds}")
    try:
        result = run(given.task, given.seed, given.per_class, given.folds, given.steps)
    except ValueError as error:
        parser.error(str(error))
    where = f"held-out self-labels, {given.folds} folds" if given.folds else "the self-labels learnt from"
    print(f"moons, task {given.task}, seed {given.seed}, {2 * given.per_class} points a domain")
    print(f"radius {result['radius']:.4f}, chosen by the sweep; C-bound on {where}")
    print(f"{'':14}{'C-bound':>10}{'gamma':>10}{'margin':>20}{'test accuracy':>16}")
    for title, value, point in (
        ("grid's best", result["grid_best"], result["before"]),
        ("by gradient", result["followed_best"], result["after"]),
    ):
        margin = f"{point['margin']:.4f} mu_max"
        print(f"{title:14}{value:10.5f}{point['gamma']:10.4f}{margin:>20}{100 * point['accuracy']:14.1f} %")
    print(
        f"found after {result['steps_to_best']} of {len(result['values']) - 1} steps; the grid has "
        f"{len(result['gammas'])} gammas and {len(result['margins'])} margins"
    )
    if given.out:
        with new_file(given.out) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {given.out}")


if __name__ == "__main__":
    main()
