"""How fast MinCq is solved: beside other solvers at equal accuracy, and as the number of voters grows.

Everything runs in one process on one core. Our row is the call that a user writes, margins in a vmap inside jit over
votes that the function captures; the seconds of its first call, compiling included, stand beside it. Each other solver
is called in a loop over the margins, or in a vmap inside jit if it is a function of JAX. Its scaling and settings are
those at which it is fastest among those that are accurate enough, see `experiments.bench.solvers`; they were tried on
every fifth margin, and stand in its row.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pvmincq_jax as pvm
from experiments.bench.common import PeakMemory, best_seconds, emit, versions
from experiments.bench.solvers import ACCURACY, PEERS, Program, best_way, error, installed, solve
from experiments.run.command import amount
from experiments.run.engine import available_cores
from pvmincq_jax.datasets import draw_moons
from pvmincq_jax.voting.factor import VoteFactor

__all__ = ["add_arguments", "run"]

_ROWS = ("300", "1000", "growth")
_MARGINS = (0.05, 0.9)
_EVERY = 5
# Of 1 000 voters they take minutes, and no target is set beside them.
_SMALL_ONLY = ("clarabel", "daqp", "qpax", "moreau")
# Timed where they are asked for.
_SLOW = ("qpax", "moreau")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark qp``."""
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each solver; the best counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", choices=_ROWS, default=_ROWS, help="voters beside others, or their growth")
    text = "of the rows beside others (default: 1 and 8, with 1000 voters 1)"
    parser.add_argument("--gammas", nargs="+", type=amount(1e-6), help=text)
    text = f"other solvers (default: all but {' and '.join(_SLOW)}, which take many minutes)"
    usual = [name for name in PEERS if name not in _SLOW]
    parser.add_argument("--peers", nargs="*", choices=[*PEERS], default=usual, help=text)
    parser.add_argument("--skip-boxosqp", action="store_true", help="leave out BoxOSQP, which takes minutes")


def _compare(n: int, gamma: float, count: int, arguments: argparse.Namespace) -> None:
    points, labels = draw_moons(n // 2, np.random.default_rng(arguments.seed))
    votes = np.asarray(pvm.rbf_votes(points, points, gamma))
    fractions = np.geomspace(*_MARGINS, count)
    mu = jnp.asarray(fractions * float(pvm.max_margin(votes, labels)))

    captured = jax.jit(jax.vmap(lambda margin: pvm.mincq(votes, labels, margin)))
    argument = jax.jit(jax.vmap(lambda votes, margin: pvm.mincq(votes, labels, margin), (None, 0)))
    start = time.perf_counter()
    jax.block_until_ready(captured(mu))
    first = time.perf_counter() - start
    ours: dict[str, Callable[[], pvm.MinCqSolution]] = {
        "ours": lambda: jax.block_until_ready(captured(mu)),
        "ours, votes as an argument": lambda: jax.block_until_ready(argument(votes, mu)),
    }

    program = Program(votes, labels)

    def values(solutions: Any) -> np.ndarray:
        return np.array([program.objective(np.asarray(v), f) for v, f in zip(solutions, fractions)])

    solved = {name: call() for name, call in ours.items()}
    reached = {name: values(n * solution.weights) for name, solution in solved.items()}
    peers = installed([name for name in arguments.peers if n <= 300 or name not in _SMALL_ONLY])
    best = reached["ours"].copy()
    ways = {name: best_way(peer, [(program, fractions[::_EVERY])], best[::_EVERY]) for name, peer in peers.items()}
    runs: dict[str, Callable[[], Any]] = {**ours}
    for name, way in ways.items():
        runs[name] = partial(solve, peers[name], way, program, fractions)
        reached[name] = values(runs[name]())
    best = np.min([best, *reached.values()], axis=0)
    # With more voters a loop takes half a minute, and one turn is enough.
    seconds = best_seconds(runs, arguments.repeats if n <= 300 else 1)
    shared = {"benchmark": "qp", "voters": n, "gamma": gamma, "margins": count}
    for name, one in seconds.items():
        row = {"solver": name, "ms": 1e3 * one / count, "times_ours": one / seconds["ours"]}
        row["error"] = error(reached[name], best)
        if name in ours:
            steps = np.asarray(solved[name].iterations)
            row |= {"steps": f"{steps.min()} to {steps.max()}"} | (
                {"first_call_seconds": first} if name == "ours" else {}
            )
        else:
            row |= ways[name].named()
        emit(shared | row, arguments.json)
    if not arguments.skip_boxosqp:
        # One margin, the largest, which is the easiest for it; compilation counts, and is nothing beside the rest.
        start = time.perf_counter()
        osqp = jax.block_until_ready(pvm.mincq(votes, labels, mu[-1], solver="jaxopt"))
        one = time.perf_counter() - start
        row = {"solver": "boxosqp", "ms": 1e3 * one, "times_ours": one * count / seconds["ours"]}
        row |= {"steps": int(osqp.iterations), "kkt_residual": float(osqp.kkt_residual)}
        emit(shared | row | {"solved": bool(osqp.status == pvm.Status.SOLVED)}, arguments.json)


@jax.jit
def _shared(votes: jax.Array, labels: jax.Array, factor: VoteFactor, mu: jax.Array) -> pvm.MinCqSolution:
    return jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, factor=factor))(mu)


def _growth(sizes: list[int], samples: int, gamma: float, margins: int, arguments: argparse.Namespace) -> None:
    """Time and memory over the number of voters, at one rank and one sample size."""
    rng = np.random.default_rng(arguments.seed)
    points, labels = draw_moons(samples // 2, rng)
    rank, seconds = 48, []
    for n in sizes:
        centers, _ = draw_moons(n // 2, rng)
        votes = jax.block_until_ready(pvm.rbf_votes(points, centers, gamma))
        mu = float(pvm.max_margin(votes, labels)) * jnp.linspace(0.1, 0.8, margins)

        def solve(votes: jax.Array = votes, mu: jax.Array = mu) -> pvm.MinCqSolution:
            factor = pvm.vote_factor(votes, tolerance=1e-6)
            padded = jax.tree.map(jnp.asarray, _pad(factor, rank))
            return jax.block_until_ready(_shared(votes, labels, padded, mu))

        with PeakMemory() as memory:
            solution = solve()
        best = best_seconds({"ours": solve}, arguments.repeats)["ours"]
        seconds.append(best)
        emit(
            {
                "benchmark": "qp_growth",
                "voters": n,
                "samples": samples,
                "rank": rank,
                "margins": margins,
                "seconds": best,
                "iterations": int(np.max(np.asarray(solution.iterations))),
                "kkt_residual": float(np.max(np.asarray(solution.kkt_residual))),
                "votes_mb": votes.nbytes / 1e6,
                "peak_mb_beyond_votes": memory.megabytes,
            },
            arguments.json,
        )
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    emit({"benchmark": "qp_growth", "exponent": float(exponent), "from": sizes[0], "to": sizes[-1]}, arguments.json)


def _pad(factor: VoteFactor, rank: int) -> VoteFactor:
    """The same factor at exactly this rank, so that all sizes do the same work a step."""
    left, right = np.asarray(factor.left)[:, :rank], np.asarray(factor.right)[:rank]
    missing = rank - right.shape[0]
    return VoteFactor(
        jnp.asarray(np.pad(left, ((0, 0), (0, missing)))), jnp.asarray(np.pad(right, ((0, missing), (0, 0))))
    )


def run(arguments: argparse.Namespace) -> None:
    """Prints the rows."""
    with jax.enable_x64(True):
        packages = versions(
            "jax", "jaxopt", "cvxopt", "qpsolvers", "piqp", "clarabel", "daqp", "qpax", "moreau", "scipy"
        )
        title = {"benchmark": "qp", "seed": arguments.seed, "accuracy": ACCURACY, "cores": len(available_cores())}
        emit(title | packages, arguments.json)
        if arguments.quick:
            _compare(100, 1.0, 6, arguments)
            _growth([200, 400], 100, 1.0, 2, arguments)
            return
        for row in arguments.rows:
            if row == "growth":
                _growth([1000, 3000, 10_000, 30_000, 100_000], 2000, 1.0, 4, arguments)
                continue
            for gamma in arguments.gammas or ((1.0, 8.0) if row == "300" else (1.0,)):
                _compare(int(row), gamma, 16, arguments)
