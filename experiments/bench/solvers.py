"""Other people's solvers on MinCq's quadratic program, each at the scaling and settings that suit it best.

In v = n w the program is: least v'Hv / 2 subject to a'v = mu and -1 <= v <= 1, with H = E h h' and a = E y h. How fast
and how exact a general solver is hangs on how H and a are scaled, by a factor of ten and more: `best_way` tries
them all on problems of the benchmark, and takes the fastest that is accurate enough.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from experiments.bench.common import best_seconds

__all__ = ["ACCURACY", "PEERS", "Peer", "Program", "Way", "best_way", "error", "installed", "solve"]

# What is asked of all: the relative objective of every problem above the best that is known.
ACCURACY = 1e-8

Solve = Callable[[float], np.ndarray]
# From all margins [k] to all solutions [k, n].
SolveAll = Callable[[np.ndarray], np.ndarray]

_HESSIANS: dict[str, Callable[[np.ndarray], float]] = {
    "trace 2n": lambda hessian: np.trace(hessian) / (2 * len(hessian)),
    "largest 1": lambda hessian: np.max(np.abs(hessian)),
    "1-norm 1": lambda hessian: float(np.linalg.norm(hessian, 1)),
}
_EQUALITIES: dict[str, Callable[[np.ndarray], float]] = {
    "largest 1": lambda normal: np.max(np.abs(normal)),
    "sum 1": lambda normal: np.sum(np.abs(normal)),
}
SCALINGS = tuple((hessian, equality) for hessian in _HESSIANS for equality in _EQUALITIES)


class Program:
    """MinCq on a sample, as general solvers take it.

    Args:
      votes: ``[m, n]``.
      labels: ``[m]``.
    """

    def __init__(self, votes: np.ndarray, labels: np.ndarray) -> None:
        """Computes the moments."""
        self.votes = votes
        self.hessian = votes.T @ votes / len(votes)
        self.normal = votes.T @ labels / len(votes)

    def scaled(self, scaling: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """Hessian and equality at one of `SCALINGS`."""
        hessian, equality = scaling
        return self.hessian / _HESSIANS[hessian](self.hessian), self.normal / _EQUALITIES[equality](self.normal)

    def objective(self, v: np.ndarray, fraction: float) -> float:
        """The second moment of the feasible vote next to v, at a fraction of the largest margin; infinite for NaN.

        What sticks out of the box is cut off. A margin that is too large is then reached by scaling, one that is too
        small by going towards the vote of the largest margin, which is sign(a).
        """
        if not np.all(np.isfinite(v)):
            return np.inf
        v = np.clip(v, -1, 1)
        reached = self.normal @ v / np.sum(np.abs(self.normal))
        if reached >= fraction:
            v = v * fraction / reached
        else:
            v = v + (fraction - reached) / (1 - reached) * (np.sign(self.normal) - v)
        return float(np.mean((self.votes @ v) ** 2))


def _cvxopt(hessian: np.ndarray, normal: np.ndarray, tolerance: float, sparse_box: bool = False) -> Solve:
    import cvxopt

    n, every = len(normal), np.arange(len(normal))
    box = cvxopt.spmatrix(np.r_[np.ones(n), -np.ones(n)], np.arange(2 * n), np.r_[every, every])
    P, q, G = cvxopt.matrix(hessian), cvxopt.matrix(np.zeros(n)), box if sparse_box else cvxopt.matrix(box)
    h, A = cvxopt.matrix(np.ones(2 * n)), cvxopt.matrix(normal[None])
    options = {"show_progress": False, "abstol": tolerance, "reltol": tolerance, "feastol": tolerance}
    return lambda mu: np.array(cvxopt.solvers.qp(P, q, G, h, A, cvxopt.matrix(mu), options=options)["x"]).ravel()


def _qpsolvers(hessian: np.ndarray, normal: np.ndarray, tolerance: float) -> Solve:
    import qpsolvers

    n = len(normal)
    given: dict[str, Any] = {"solver": "cvxopt", "lb": -np.ones(n), "ub": np.ones(n), "A": normal[None]}
    given |= {"abstol": tolerance, "reltol": tolerance, "feastol": tolerance}

    def solve(mu: float) -> np.ndarray:
        v = qpsolvers.solve_qp(hessian, np.zeros(n), b=np.array([mu]), **given)
        return np.full(n, np.nan) if v is None else v

    return solve


def _piqp(hessian: np.ndarray, normal: np.ndarray, tolerance: float, **settings: Any) -> Solve:
    import piqp

    n = len(normal)

    def solve(mu: float) -> np.ndarray:
        solver = piqp.DenseSolver()
        for name in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
            setattr(solver.settings, name, tolerance)
        for name, value in settings.items():
            setattr(solver.settings, name, value)
        solver.setup(hessian, np.zeros(n), normal[None], np.array([mu]), x_l=-np.ones(n), x_u=np.ones(n))
        solver.solve()
        return np.array(solver.result.x)

    return solve


def _clarabel(hessian: np.ndarray, normal: np.ndarray, tolerance: float) -> Solve:
    import clarabel

    n = len(normal)
    P, A = sparse.csc_matrix(np.triu(hessian)), sparse.csc_matrix(np.vstack([normal[None], np.eye(n), -np.eye(n)]))
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance

    def solve(mu: float) -> np.ndarray:
        return np.array(clarabel.DefaultSolver(P, np.zeros(n), A, np.r_[mu, np.ones(2 * n)], cones, settings).solve().x)

    return solve


def _daqp(hessian: np.ndarray, normal: np.ndarray, tolerance: float, eps_prox: float) -> Solve:
    import daqp

    n = len(normal)
    sense = np.zeros(n + 1, np.int32)
    sense[-1] = 5  # an equality
    settings = {"primal_tol": tolerance, "dual_tol": tolerance, "eps_prox": eps_prox, "iter_limit": 20 * n}

    def solve(mu: float) -> np.ndarray:
        most, least = np.r_[np.ones(n), mu], np.r_[-np.ones(n), mu]
        return np.array(daqp.solve(hessian, np.zeros(n), normal[None], most, least, sense, **settings)[0])

    return solve


@functools.lru_cache
def _qpax_program(tolerance: float) -> Callable[..., Any]:
    """qpax on all margins at once; compiled once for each tolerance and size."""
    import jax
    import jax.numpy as jnp
    import qpax

    def solve(hessian: Any, normal: Any, levels: Any) -> Any:
        n, box = len(normal), jnp.concatenate([jnp.eye(len(normal)), -jnp.eye(len(normal))])
        given = hessian, jnp.zeros(n), normal[None]
        options = {"solver_tol": tolerance, "max_iter": 100}
        return jax.vmap(lambda mu: qpax.solve_qp(*given, mu[None], box, jnp.ones(2 * n), **options)[0])(levels)

    return jax.jit(solve)


def _qpax(hessian: np.ndarray, normal: np.ndarray, tolerance: float) -> SolveAll:
    return lambda levels: np.asarray(_qpax_program(tolerance)(hessian, normal, levels))


@functools.lru_cache
def _moreau_program(n: int, active_set: bool, tolerance: float) -> Callable[..., Any]:
    """Moreau on all margins at once; set up once for each size and settings, as our own program is compiled once."""
    import jax
    import jax.numpy as jnp
    import moreau
    import moreau.jax

    rows = sparse.csr_array(np.vstack([np.ones((1, n)), np.eye(n), -np.eye(n)]))
    dense = np.arange(n + 1) * n, np.tile(np.arange(n), n)
    chosen: dict[str, Any] = {"solver": "active_set" if active_set else "ipm", "device": "cpu"}
    if active_set:
        chosen["active_set_settings"] = moreau.ActiveSetSettings(primal_tol=tolerance)
    else:
        tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        chosen["ipm_settings"] = moreau.IPMSettings(**tolerances)
    cones = moreau.Cones(num_zero_cones=1, num_nonneg_cones=2 * n)
    settings = moreau.Settings(**chosen)
    solver = moreau.jax.Solver(n, 2 * n + 1, *dense, rows.indptr, rows.indices, cones, settings)

    def solve(hessian: Any, normal: Any, levels: Any) -> Any:
        values = jnp.concatenate([normal, jnp.ones(n), -jnp.ones(n)])
        one = lambda mu: solver.solve(hessian.ravel(), values, jnp.zeros(n), jnp.append(mu, jnp.ones(2 * n))).x  # noqa: E731
        return jax.vmap(one)(levels)

    return jax.jit(solve)


def _moreau(hessian: np.ndarray, normal: np.ndarray, tolerance: float, active_set: bool) -> SolveAll:
    return lambda levels: np.asarray(_moreau_program(len(normal), active_set, tolerance)(hessian, normal, levels))


class Peer(NamedTuple):
    """A solver, as it is called.

    Attributes:
      packages: what has to be installed.
      make: from Hessian, equality and settings to a function of the margin in the units of the equality.
      settings: families of settings, each from the loosest to the tightest.
      together: whether that function takes all margins at once.
    """

    packages: tuple[str, ...]
    make: Callable[..., Any]
    settings: Sequence[Sequence[Mapping[str, Any]]]
    together: bool = False


def _tolerances(*values: float, **more: Any) -> list[dict[str, Any]]:
    return [{"tolerance": value, **more} for value in values]


_USUAL = _tolerances(1e-8, 1e-10, 1e-12)
# cvxopt comes three times: with the box as a dense matrix, as it comes from NumPy arrays; as a sparse one, which is the
# fastest way we know to call it; and as qpsolvers calls it. DAQP wants a positive definite Hessian, or eps_prox. qpax
# and Moreau take all margins in a vmap inside jit.
PEERS: dict[str, Peer] = {
    "piqp": Peer(("piqp",), _piqp, [_USUAL, [{"preconditioner_iter": 0, **one} for one in _USUAL]]),
    "cvxopt": Peer(("cvxopt",), _cvxopt, [_USUAL]),
    "cvxopt_sparse": Peer(("cvxopt",), _cvxopt, [[{"sparse_box": True, **one} for one in _USUAL]]),
    "cvxopt_qpsolvers": Peer(("cvxopt", "qpsolvers"), _qpsolvers, [_USUAL]),
    "clarabel": Peer(("clarabel",), _clarabel, [_USUAL]),
    "daqp": Peer(("daqp",), _daqp, [_tolerances(1e-6, 1e-9, eps_prox=eps) for eps in (1e-6, 1e-4)]),
    "qpax": Peer(("qpax",), _qpax, [_tolerances(1e-6, 1e-8, 1e-10)], together=True),
    "moreau": Peer(
        ("moreau", "moreau.jax"),
        _moreau,
        [_tolerances(1e-8, 1e-10, 1e-12, active_set=False), _tolerances(1e-6, 1e-9, active_set=True)],
        together=True,
    ),
}


def installed(names: Sequence[str]) -> dict[str, Peer]:
    """Those of `PEERS` whose packages are there; a sentence to standard error about each other one."""
    found = {}
    for name in names:
        missing = [package for package in PEERS[name].packages if not _there(package)]
        if missing:
            text = f"{name} is left out: {' and '.join(missing)} is not installed (pip install -e '.[test]')"
            print(text, file=sys.stderr, flush=True)
        else:
            found[name] = PEERS[name]
    return found


def _there(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


class Way(NamedTuple):
    """How a peer is called."""

    scaling: tuple[str, str]
    settings: Mapping[str, Any]

    def named(self) -> dict[str, str]:
        """For a row of figures."""
        settings = ", ".join(f"{name} {value:g}" for name, value in self.settings.items())
        return {"scaling": f"Hessian {self.scaling[0]}, equality {self.scaling[1]}", "settings": settings}


def solve(peer: Peer, way: Way, program: Program, fractions: Sequence[float] | np.ndarray) -> list[np.ndarray]:
    """The solutions at fractions of the largest margin; NaN where the solver ends in an error."""
    hessian, normal = program.scaled(way.scaling)
    one, most = peer.make(hessian, normal, **way.settings), np.sum(np.abs(normal))
    if peer.together:
        return list(one(np.asarray(fractions) * most))
    solutions = []
    for fraction in fractions:
        try:
            solutions.append(one(float(fraction * most)))
        except (ArithmeticError, ValueError, RuntimeError) as problem:
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
            solutions.append(np.full(len(normal), np.nan))
    return solutions


def error(values: np.ndarray, best: np.ndarray) -> float:
    """The largest relative objective above the best; infinite where a problem has no solution."""
    return float(np.max(values / best)) - 1 if np.all(np.isfinite(values)) else np.inf


def best_way(peer: Peer, problems: Sequence[tuple[Program, np.ndarray]], best: np.ndarray) -> Way:
    """The fastest way to call a solver that reaches `ACCURACY` on all problems.

    If none does, the fastest whose error is within a factor of two of the solver's best.

    Args:
      peer: the solver.
      problems: programs, and fractions of the largest margin of each.
      best: the least objectives known, problem after problem; lowered where the solver finds less. Infinite if none
        are known: the tightest settings then find them first.

    Returns:
      A `Way`.
    """
    found: list[tuple[Way, np.ndarray]] = []

    def run(way: Way) -> list[list[np.ndarray]]:
        return [solve(peer, way, program, fractions) for program, fractions in problems]

    def try_out(way: Way) -> float:
        values = [
            program.objective(v, fraction)
            for (program, fractions), solutions in zip(problems, run(way))
            for v, fraction in zip(solutions, fractions)
        ]
        found.append((way, np.array(values)))
        np.minimum(best, values, out=best)
        return error(found[-1][1], best)

    if not np.all(np.isfinite(best)):
        for scaling in SCALINGS:
            try_out(Way(scaling, peer.settings[0][-1]))
    for scaling in SCALINGS:
        for family in peer.settings:
            for settings in family:
                if try_out(Way(scaling, settings)) <= ACCURACY:
                    break  # a tighter one takes longer
    errors = [error(values, best) for _, values in found]
    enough = max(ACCURACY, 2 * min(errors))
    ways = [way for (way, _), one in zip(found, errors) if one <= enough]
    seconds = best_seconds({str(place): partial(run, way) for place, way in enumerate(ways)}, 1, turn=0.1)
    return ways[int(min(seconds, key=lambda place: seconds[place]))]
