"""How fast MinCq is solved: beside other solvers at equal accuracy, and as the number of voters grows.

Everything runs in one process on one core. cvxopt comes twice: ``cvxopt`` is given the box as a dense matrix, as it
comes from NumPy arrays, and ``cvxopt_sparse`` as a sparse one, which is the fastest way we know to call it.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import pvmincq_jax as pvm
from experiments.bench.common import PeakMemory, best_seconds, cvxopt_box, emit, versions
from pvmincq_jax.datasets import draw_moons

__all__ = ["add_arguments", "run"]

# What "equal accuracy" means: the relative objective of every margin, above the best that any solver found.
ACCURACY = 1e-7
# What the other solvers are given in turn; a hundred times tighter costs an interior-point method a step or two.
_TOLERANCES = (1e-8, 1e-10, 1e-12)
_ROWS = ("300", "1000", "growth")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark qp``."""
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each solver; the best counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", choices=_ROWS, default=_ROWS, help="voters beside others, or their growth")
    parser.add_argument("--gammas", nargs="+", type=float, default=(0.5, 1.0, 8.0), help="of the rows beside others")
    parser.add_argument("--skip-boxosqp", action="store_true", help="leave out BoxOSQP, which takes minutes")


class _Dense:
    """The program as general solvers take it: Hessian, equality and box, in v = n w, scaled to order one."""

    def __init__(self, votes: np.ndarray, labels: np.ndarray) -> None:
        count, self.size = votes.shape
        self.votes = votes
        self.margins = votes.T @ labels / count
        self.hessian = votes.T @ votes / count
        self.hessian /= np.linalg.norm(self.hessian, 2)
        self.normal = self.margins / np.sum(np.abs(self.margins))

    def objective(self, v: np.ndarray, fraction: float) -> float:
        """The second moment over the squared margin, with what is missing of the margin or sticks out of the box."""
        error = max(abs(self.normal @ v / fraction - 1), np.max(np.abs(v)) - 1)
        vote = self.votes @ v / self.size
        return float(np.mean(vote**2) / (fraction * np.mean(np.abs(self.margins))) ** 2) + 2 * max(error, 0)


def _cvxopt(problem: _Dense, fractions: np.ndarray, dense: bool = True) -> Callable[[float], list[np.ndarray]]:
    import cvxopt

    n = problem.size
    G = cvxopt_box(n, dense)
    P, q = cvxopt.matrix(problem.hessian), cvxopt.matrix(np.zeros(n))
    h, A = cvxopt.matrix(np.ones(2 * n)), cvxopt.matrix(problem.normal[None])

    def solve(tolerance: float) -> list[np.ndarray]:
        options = {"show_progress": False, "abstol": tolerance, "reltol": tolerance, "feastol": tolerance}
        return [
            np.array(cvxopt.solvers.qp(P, q, G, h, A, cvxopt.matrix(float(f)), options=options)["x"]).ravel()
            for f in fractions
        ]

    return solve


def _piqp(problem: _Dense, fractions: np.ndarray) -> Callable[[float], list[np.ndarray]]:
    import piqp

    n = problem.size

    def solve(tolerance: float) -> list[np.ndarray]:
        found = []
        for f in fractions:
            solver = piqp.DenseSolver()
            solver.settings.eps_abs = solver.settings.eps_duality_gap_abs = tolerance
            solver.settings.eps_rel = solver.settings.eps_duality_gap_rel = tolerance
            solver.setup(
                problem.hessian, np.zeros(n), problem.normal[None], np.array([f]), x_l=-np.ones(n), x_u=np.ones(n)
            )
            solver.solve()
            found.append(np.array(solver.result.x))
        return found

    return solve


def _clarabel(problem: _Dense, fractions: np.ndarray) -> Callable[[float], list[np.ndarray]]:
    import clarabel

    n = problem.size
    P = sparse.csc_matrix(np.triu(problem.hessian))
    A = sparse.csc_matrix(np.vstack([problem.normal[None], np.eye(n), -np.eye(n)]))
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]

    def solve(tolerance: float) -> list[np.ndarray]:
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        return [
            np.array(clarabel.DefaultSolver(P, np.zeros(n), A, np.r_[f, np.ones(2 * n)], cones, settings).solve().x)
            for f in fractions
        ]

    return solve


def _loosest(
    solve: Callable[[float], list[np.ndarray]], judge: Callable[[list[np.ndarray]], float]
) -> tuple[float, float]:
    """The loosest tolerance at which a solver is accurate enough, so that none pays for digits that do not count.

    If it never is, the loosest at which it comes within a factor of two of its own best.
    """
    errors: dict[float, float] = {}
    for tolerance in _TOLERANCES:
        errors[tolerance] = judge(solve(tolerance))
        if errors[tolerance] <= ACCURACY:
            return tolerance, errors[tolerance]
    least = min(errors.values())
    return next((tolerance, error) for tolerance, error in errors.items() if error <= 2 * least)


def _compare(n: int, gamma: float, count: int, arguments: argparse.Namespace) -> None:
    points, labels = draw_moons(n // 2, np.random.default_rng(arguments.seed))
    votes = np.asarray(pvm.rbf_votes(points, points, gamma))
    problem = _Dense(votes, labels)
    fractions = np.geomspace(0.01, 0.9, count)
    mu = jnp.asarray(fractions * float(pvm.max_margin(votes, labels)))
    # As `vote_factor` says: 1e-4 of the smallest margin is enough for 1e-7 in the objective.
    tolerance = 1e-4 * float(mu[0])

    def ours() -> pvm.MinCqSolution:
        factor = pvm.vote_factor(votes, tolerance=tolerance)
        return jax.block_until_ready(_shared(votes, labels, factor, mu))

    reference = [np.asarray(w) * n for w in jax.vmap(lambda m: pvm.mincq(votes, labels, m))(mu).weights]
    best = np.array([problem.objective(v, f) for v, f in zip(reference, fractions)])

    def judge(found: list[np.ndarray]) -> float:
        values = np.array(
            [problem.objective(v, f) if np.all(np.isfinite(v)) else np.inf for v, f in zip(found, fractions)]
        )
        return float(np.max(values / best)) - 1

    solvers: dict[str, Callable[[_Dense, np.ndarray], Callable[[float], list[np.ndarray]]]] = {
        "cvxopt": _cvxopt,
        "cvxopt_sparse": functools.partial(_cvxopt, dense=False),
        "piqp": _piqp,
        "clarabel": _clarabel,
    }
    if n > 300:
        del solvers["clarabel"]  # minutes, and no target is set beside it
    row: dict[str, Any] = {"benchmark": "qp", "voters": n, "gamma": gamma, "margins": count}
    row["rank"] = rank = int(pvm.vote_factor(votes, tolerance=tolerance).right.shape[0])
    row["captured_rank"] = int(pvm.vote_factor(votes).right.shape[0])
    captured, argument, gammas = _jitted(votes, points, labels, rank)
    # Widths around this one, each with the same margins, which count as QPs of their own.
    widths = gamma * np.array([0.9, 0.95, 1.0])
    runs: dict[str, Callable[[], Any]] = {
        "ours": ours,
        "captured": lambda: jax.block_until_ready(captured(mu)),
        "argument": lambda: jax.block_until_ready(argument(votes, mu)),
        "gammas": lambda: jax.block_until_ready(gammas(widths, mu)),
    }
    for name in ("ours", "captured", "argument"):
        row[f"{name}_error"] = judge([np.asarray(w) * n for w in runs[name]().weights])
    row["gammas_solved"] = bool(np.all(runs["gammas"]().status == pvm.Status.SOLVED))
    for name, make in solvers.items():
        solve = make(problem, fractions)
        loosest, row[f"{name}_error"] = _loosest(solve, judge)
        row[f"{name}_tolerance"] = loosest
        runs[name] = functools.partial(solve, loosest)
    # With more voters a loop takes half a minute, and one turn is enough.
    seconds = best_seconds(runs, arguments.repeats if n <= 300 else 1)
    for name, value in seconds.items():
        row[f"{name}_ms"] = 1e3 * value / count / (len(widths) if name == "gammas" else 1)
    for name in solvers:
        row[f"ratio_{name}"] = row[f"{name}_ms"] / row["ours_ms"]
        row[f"ratio_{name}_captured"] = row[f"{name}_ms"] / row["captured_ms"]
    if not arguments.skip_boxosqp:
        # One margin, the largest, which is the easiest for it; compilation counts, and is nothing beside the rest.
        start = time.perf_counter()
        factor = pvm.vote_factor(votes, tolerance=tolerance)
        osqp = jax.block_until_ready(pvm.mincq(votes, labels, mu[-1], factor=factor, solver="jaxopt"))
        row["boxosqp_ms"] = 1e3 * (time.perf_counter() - start)
        row["boxosqp_steps"] = int(osqp.iterations)
        row["boxosqp_solved"] = bool(osqp.status == pvm.Status.SOLVED)
        row["boxosqp_error"] = float(osqp.kkt_residual)
        row["ratio_boxosqp"] = row["boxosqp_ms"] / row["ours_ms"]
    emit(row, arguments.json)


def _jitted(votes: np.ndarray, points: np.ndarray, labels: np.ndarray, rank: int) -> tuple[Callable, ...]:
    """Margins in lanes inside jit: over votes that it captures, votes as an argument, and votes of gammas in lanes.

    Captured votes are factored while they are traced, at the default tolerance; the others are given a rank.
    """

    @jax.jit
    def captured(mu: jax.Array) -> pvm.MinCqSolution:
        return jax.vmap(lambda margin: pvm.mincq(votes, labels, margin))(mu)

    @jax.jit
    def argument(votes: jax.Array, mu: jax.Array) -> pvm.MinCqSolution:
        return jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, rank=rank))(mu)

    @jax.jit
    def gammas(gamma: jax.Array, mu: jax.Array) -> pvm.MinCqSolution:
        return jax.vmap(lambda one: argument(pvm.rbf_votes(points, points, one), mu))(gamma)

    return captured, argument, gammas


@jax.jit
def _shared(votes: jax.Array, labels: jax.Array, factor: pvm.VoteFactor, mu: jax.Array) -> pvm.MinCqSolution:
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


def _pad(factor: pvm.VoteFactor, rank: int) -> pvm.VoteFactor:
    """The same factor at exactly this rank, so that all sizes do the same work a step."""
    left, right = np.asarray(factor.left)[:, :rank], np.asarray(factor.right)[:rank]
    missing = rank - right.shape[0]
    return pvm.VoteFactor(
        jnp.asarray(np.pad(left, ((0, 0), (0, missing)))), jnp.asarray(np.pad(right, ((0, missing), (0, 0))))
    )


def run(arguments: argparse.Namespace) -> None:
    """Prints the rows."""
    with jax.enable_x64(True):
        emit(
            {
                "benchmark": "qp",
                "seed": arguments.seed,
                "accuracy": ACCURACY,
                **versions("jax", "jaxopt", "cvxopt", "piqp", "clarabel", "scipy"),
            },
            arguments.json,
        )
        if arguments.quick:
            _compare(100, 1.0, 4, arguments)
            _growth([200, 400], 100, 1.0, 2, arguments)
            return
        for row in arguments.rows:
            if row == "growth":
                _growth([1000, 3000, 10_000, 30_000, 100_000], 2000, 1.0, 4, arguments)
                continue
            for gamma in arguments.gammas:
                _compare(int(row), gamma, 16, arguments)
