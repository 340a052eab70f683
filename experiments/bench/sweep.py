"""The whole grid end to end, beside the same grid in a loop over general QP solvers, and as the samples grow.

The loops solve over the matched points alone, with one thread, at given radii; each solver is called at the scaling and
settings that suit it best on some of the grid's problems, see `experiments.bench.solvers`. Ours is given the same
radii, and uses all cores, as it does by default; beside it, with one call at a time (a mesh of one device) and with the
search of the radii. ``cores_used`` is the processor's time over the time taken.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

import pvmincq_jax as pvm
from experiments.bench.common import PeakMemory, best_seconds, cores_used, emit, versions
from experiments.bench.solvers import PEERS, Peer, Program, Way, best_way, installed, solve
from experiments.run.engine import available_cores
from pvmincq_jax.datasets import moons_task

__all__ = ["add_arguments", "run"]

_FOLDS = 5
# One in so many of the grid's programs, each at all margins, is what scalings are tried on.
_EVERY = 29


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark sweep``."""
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--repeats", type=int, default=5, help="runs of our sweep; the best counts")
    parser.add_argument("--seed", type=int, default=0)
    usual = ("piqp", "cvxopt", "cvxopt_sparse", "cvxopt_qpsolvers")
    text = f"other solvers, of {', '.join(PEERS)} (default: {', '.join(usual)})"
    parser.add_argument("--peers", nargs="*", choices=[*PEERS], default=usual, help=text)


class _Point(NamedTuple):
    """A fold (-1 for the whole source), radius and gamma of the grid."""

    fold: int
    r: int
    g: int
    labels: np.ndarray
    program: Program
    held_out_votes: np.ndarray


def _points(task: Any, grid: pvm.Sweep, seed: int) -> Iterator[_Point]:
    """Matching, votes and moments, one point after the other."""
    labels = task.source_labels
    fold_of = np.random.default_rng(seed).permutation(np.arange(len(labels)) % _FOLDS)
    for fold in range(-1, _FOLDS):
        kept = fold_of != fold
        held_out = task.source[~kept] if fold >= 0 else task.source[:1]
        for r, radius in enumerate(grid.radii):
            self_labels = pvm.self_label(task.source[kept], labels[kept], task.target, float(radius), seed=seed)
            rows = self_labels.weights > 0
            points, carried = task.target[rows], self_labels.labels[rows]
            square, cross = (np.sum((x[:, None] - points[None]) ** 2, axis=-1) for x in (points, held_out))
            for g, gamma in enumerate(grid.gammas):
                program = Program(np.exp(-gamma * square), carried)
                yield _Point(fold, r, g, carried, program, np.exp(-gamma * cross))


def _loop(task: Any, grid: pvm.Sweep, seed: int, peer: Peer, way: Way) -> tuple[int, np.ndarray]:
    """The same grid as a Python loop, with the held-out risk of every vote.

    Returns the number of QPs, and the C-bounds of the votes learnt from the whole samples ``[r, g, k]``.
    """
    bounds, count = np.full(grid.c_bound.shape, np.nan), 0
    for point in _points(task, grid, seed):
        solutions = solve(peer, way, point.program, grid.margins)
        count += len(solutions)
        for k, v in enumerate(solutions):
            np.mean(np.sign(point.held_out_votes @ v))
            if point.fold < 0:
                vote = point.program.votes @ v
                bounds[point.r, point.g, k] = 1 - np.mean(point.labels * vote) ** 2 / np.mean(vote**2)
    return count, bounds


def run(arguments: argparse.Namespace) -> None:
    """Prints the rows."""
    packages = versions("jax", "scipy", "cvxopt", "qpsolvers", "piqp", "clarabel", "daqp")
    emit({"benchmark": "sweep", "seed": arguments.seed, **packages}, arguments.json)
    per_class = 20 if arguments.quick else 150
    task = moons_task("40", arguments.seed, per_class=per_class)

    gammas = pvm.default_gammas(task.target)[: 1 if arguments.quick else None]
    one_device = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lanes",))

    def ours(**options: Any) -> pvm.Sweep:
        given: dict[str, Any] = {"gammas": gammas, "seed": arguments.seed, "progress": False, **options}
        return pvm.sweep(task.source, task.source_labels, task.target, **given)

    start = time.perf_counter()
    with PeakMemory() as memory:
        grid = ours()
    first = time.perf_counter() - start
    ways: dict[str, Callable[[], pvm.Sweep]] = {
        "seconds": lambda: ours(radii=grid.radii),
        "with_radii_seconds": ours,
        "one_at_a_time_seconds": lambda: ours(radii=grid.radii, mesh=one_device),
    }
    ours(mesh=one_device)
    best = best_seconds(ways, arguments.repeats)
    shared = {"benchmark": "sweep", "points": 2 * per_class}
    row: dict[str, Any] = {
        "solver": "ours",
        "qps": int(grid.status.size + grid.fold_status.size),
        **best,
        "first_call_seconds": first,
        "cores": len(available_cores()),
        "cores_used": cores_used(ways["seconds"])[1],
        "kkt_residual": float(np.nanmax(np.r_[grid.kkt_residual.ravel(), grid.fold_kkt_residual.ravel()])),
        "solved": float(np.mean(np.r_[grid.status.ravel(), grid.fold_status.ravel()] == pvm.Status.SOLVED)),
        "peak_mb": memory.megabytes,  # of the first call, compilation included
    }
    emit(shared | row, arguments.json)
    margins = np.asarray(grid.margins)
    tried = [(point.program, margins) for point in list(_points(task, grid, arguments.seed))[::_EVERY]]
    known = np.full(len(tried) * len(margins), np.inf)
    for name, peer in installed(arguments.peers).items():
        # On matrices of this size more threads only make the others slower.
        with threadpool_limits(1, "blas"):
            way = best_way(peer, tried, known)
            seconds, cores, (count, bounds) = cores_used(lambda: _loop(task, grid, arguments.seed, peer, way))  # noqa: B023
        row = {"solver": name, "qps": count, "seconds": seconds, "times_ours": seconds / best["seconds"]}
        # 1 - C-bound is the squared margin over the second moment: its relative difference is that of the objective.
        row |= {"cores_used": cores, "error": float(np.nanmax((1 - grid.c_bound) / (1 - bounds)) - 1)}
        emit(shared | row | way.named(), arguments.json)

    for size in (40,) if arguments.quick else (300, 1000, 3000):
        _growth(size, arguments)


def _growth(size: int, arguments: argparse.Namespace) -> None:
    """A smaller grid, at growing sample sizes."""
    task = moons_task("40", arguments.seed, per_class=size // 2)
    grid = {
        "radii": (0.3, 0.1),
        "radius_unit": "pv",
        "margins": (0.05, 0.2),
        "folds": 2,
        "seed": arguments.seed,
        "progress": False,
    }
    grid["gammas"] = pvm.default_gammas(task.target)[:1]
    seconds, peaks = [], []
    for _ in range(2):
        start = time.perf_counter()
        with PeakMemory() as memory:
            figures = pvm.sweep(task.source, task.source_labels, task.target, **grid)
        seconds.append(time.perf_counter() - start)
        peaks.append(memory.megabytes)
    emit(
        {
            "benchmark": "sweep_growth",
            "points": size,
            "qps": int(figures.status.size + figures.fold_status.size),
            "seconds": min(seconds),
            "peak_mb": max(peaks),
        },
        arguments.json,
    )
    jax.clear_caches()
