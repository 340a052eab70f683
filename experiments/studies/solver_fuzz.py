"""How many of many random MinCq problems the solver solves, and whether what it calls solved is optimal.

  python -m experiments.studies.solver_fuzz --problems 50000      all kinds of votes, sizes and margins
  python -m experiments.studies.solver_fuzz --quick               about 1 000 problems

Problems go through three doors: "eager" is `mincq` on concrete arrays, "captured" a jitted vmap over margins with votes
that it captures, and "traced" a jitted vmap whose votes, labels, weights and masks are arguments. Each cell has one
problem of every kind at 24 margins, from 1e-6 mu_max to mu_max itself.

Solved problems are judged in NumPy's long doubles, on the votes: the weights have to meet the margin and the box, and
a lower bound on the least second moment, from dual vectors near to the weights' votes, has to be within the tolerance.
Where that bound is not close enough, and for one problem in 20 besides, Clarabel solves the problem, too. A problem is
wrong if the weights are infeasible or Clarabel's are feasible and better by more than the tolerance; it is unproved if
neither bound is close enough.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.run.command import Command, as_table, needs, number, write
from experiments.run.problems import (
    FRACTIONS,
    HARD_KINDS,
    KINDS,
    Problem,
    clarabel_solution,
    dual_vectors,
    lower_bound,
    moments,
    random_problem,
)
from experiments.run.study import Study, run_study

with needs("test"):
    import clarabel  # noqa: F401

__all__ = ["DOORS", "FUZZED", "compute", "judge", "main", "solve", "verdicts"]

# Of 15 cells of a shape, so many.
DOORS = {"traced": 9, "eager": 4, "captured": 2}
SHAPES = ("40x60", "120x60", "60x150", "12x100", "150x20", "150x150")
# Kinds that differ in more than their size.
FUZZED = tuple(kind for kind in KINDS if kind not in ("single", "few_samples", "many_samples")) + HARD_KINDS
# Those that single precision cannot hold.
_DOUBLE = "tiny", "huge", "far"
MARGINS = 2 * len(FRACTIONS)
# Relative second moment above the least one, and error in the margin and the box: those that SOLVED allows, twice,
# for the rounding of weights.
TOLERANCE = {"float64": 2e-7, "float32": 2e-4}
_CHECKED = 20
_COUNTS = "solved", "proved", "unproved", "wrong", "max_iterations", "infeasible", "bad_input"


@jax.jit
@jax.vmap
def _traced(votes: Any, labels: Any, sample_weights: Any, voter_mask: Any, margins: Any) -> pvm.MinCqSolution:
    """Problems side by side, each at all its margins."""
    return jax.vmap(
        lambda margin: pvm.mincq(votes, labels, margin, sample_weights=sample_weights, voter_mask=voter_mask)
    )(margins)


def solve(door: str, problems: Sequence[Problem], margins: np.ndarray, dtype: str) -> tuple[np.ndarray, ...]:
    """Weights ``[p, k, n]``, status and residual ``[p, k]`` of problems of one shape at margins ``[p, k]``."""
    (count, voters), real = problems[0].votes.shape, np.dtype(dtype)
    margins = margins.astype(real)
    if door == "traced":
        solution = _traced(
            np.stack([one.votes for one in problems]).astype(real),
            np.stack([one.labels for one in problems]).astype(real),
            np.stack([np.ones(count) if one.sample_weights is None else one.sample_weights for one in problems]),
            np.stack([np.ones(voters, bool) if one.voter_mask is None else one.voter_mask for one in problems]),
            margins,
        )
        return tuple(map(np.asarray, (solution.weights, solution.status, solution.kkt_residual)))
    found = []
    for one, some in zip(problems, margins):

        def learn(margin: Any, one: Problem = one) -> Any:
            votes, labels = one.votes.astype(real), one.labels.astype(real)
            solution = pvm.mincq(votes, labels, margin, sample_weights=one.sample_weights, voter_mask=one.voter_mask)
            return solution.weights, solution.status, solution.kkt_residual

        if door == "captured":
            found.append(jax.jit(jax.vmap(learn))(some))
        else:
            found.append(tuple(map(np.stack, zip(*map(learn, some)))))
    return tuple(np.stack(part) for part in zip(*found))


def judge(problem: Problem, weights: np.ndarray, mu: float, tolerance: float, check: bool) -> tuple[str, float]:
    """Whether weights that count as solved are "proved", "unproved" or "wrong", and by how much they may be off.

    Args:
      problem: whose labels and votes have no more digits than the solver was given.
      weights: of the voters that take part ``[n]``.
      mu: the margin.
      tolerance: relative.
      check: whether Clarabel is asked in any case.

    Returns: the verdict, and the objective over the lower bound, less 1; infeasible weights have their error.
    """
    # Long doubles have enough range for the squares of any double; factorisations get votes of size 1.
    root, margins, target = exact_moments(problem)
    size = np.ldexp(1.0, int(np.frexp(np.max(np.abs(problem.votes)))[1]))
    least = np.longdouble(mu) / size
    root, margins = root / size, margins / size
    exact = weights.astype(np.longdouble)
    infeasible = max(abs(margins @ exact - least) / least, np.max(np.abs(exact)) * len(exact) - 1)
    if not infeasible <= tolerance:
        return "wrong", float(infeasible)
    # At the margin that the weights have; that is within the tolerance.
    reached = margins @ exact
    objective = np.sum((root @ exact) ** 2)
    rounded = root.astype(float)
    duals = dual_vectors(rounded, target.astype(float), weights.astype(float), float(reached))
    bound = max(lower_bound(root, margins, reached, z) for z in duals)
    excess = float(objective / bound - 1) if bound > 0 else np.inf
    if excess <= tolerance and not check:
        return "proved", excess
    x, z = clarabel_solution(rounded, margins.astype(float), float(reached / np.mean(np.abs(margins))))
    bound = max(bound, lower_bound(root, margins, reached, z))
    excess = float(objective / bound - 1) if bound > 0 else np.inf
    # Clarabel's weights, stretched to the same margin. Where they leave the box, they say nothing.
    stretched = x * (reached / (margins @ x))
    inside = np.max(np.abs(stretched)) * len(x) <= 1 + tolerance / 10
    if inside and objective > np.sum((root @ stretched) ** 2) * (1 + tolerance):
        return "wrong", excess
    return ("proved" if excess <= tolerance else "unproved"), excess


def exact_moments(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Root-weighted votes F, margins m and root-weighted labels q of the voters that take part, in long doubles."""
    votes = problem.votes if problem.voter_mask is None else problem.votes[:, problem.voter_mask]
    weights = np.ones(len(votes)) if problem.sample_weights is None else problem.sample_weights
    shares = weights.astype(np.longdouble) / np.sum(weights.astype(np.longdouble))
    root = np.sqrt(shares)
    return root[:, None] * votes, (shares * problem.labels) @ votes.astype(np.longdouble), root * problem.labels


def verdicts(
    door: str, problems: Sequence[Problem], fractions: np.ndarray, dtype: str = "float64"
) -> list[list[tuple[str, float]]]:
    """For each problem and each fraction of its mu_max: "proved", "unproved", "wrong" or a status; and a figure."""
    real, tolerance = np.dtype(dtype), TOLERANCE[dtype]
    # What the solver sees is the problem: votes and labels as they are rounded.
    problems = [
        one._replace(votes=one.votes.astype(real).astype(float), labels=one.labels.astype(real).astype(float))
        for one in problems
    ]
    largest = np.array([np.mean(np.abs(moments(one)[1])) for one in problems])
    margins = (largest[:, None] * fractions).astype(real)
    weights, status, residual = solve(door, problems, margins, dtype)
    found = []
    for p, one in enumerate(problems):
        line = []
        for k, mu in enumerate(margins[p]):
            if status[p, k] != pvm.Status.SOLVED:
                line.append((pvm.Status(int(status[p, k])).name.lower(), float(residual[p, k])))
                continue
            active = weights[p, k] if one.voter_mask is None else weights[p, k][one.voter_mask]
            line.append(judge(one, active, float(mu), tolerance, (p * len(fractions) + k) % _CHECKED == 0))
        found.append(line)
    return found


def _kinds(dtype: str) -> list[str]:
    return [kind for kind in FUZZED if dtype == "float64" or kind not in _DOUBLE]


def compute(settings: dict[str, Any], door: str, shape: str, number: int) -> dict[str, Any]:
    """Counts of a cell by kind, and each problem that is not proved: kind, seed, fraction, verdict and figure."""
    count, voters = map(int, shape.split("x"))
    seed = [settings["seed"], SHAPES.index(shape), list(DOORS).index(door), number]
    rng = np.random.default_rng(seed)
    half = len(FRACTIONS) // 2
    drawn = np.concatenate([1 - 10 ** rng.uniform(-8, -1, half), 10 ** rng.uniform(-6, 0, half)])
    fractions = np.concatenate([FRACTIONS, drawn])
    kinds = _kinds(settings["dtype"])
    seeds = rng.integers(1 << 31, size=len(kinds)).tolist()
    problems = [random_problem(kind, one, count, voters) for kind, one in zip(kinds, seeds)]
    with jax.enable_x64(settings["dtype"] == "float64"):
        found = verdicts(door, problems, fractions, settings["dtype"])
    tally, odd = {}, []
    for kind, one, line in zip(kinds, seeds, found):
        counts = Counter(verdict for verdict, _ in line)
        tally[kind] = {"solved": sum(counts[name] for name in _COUNTS[1:4]), **counts}
        odd += [
            [kind, one, float(fraction), verdict, figure if np.isfinite(figure) else None]
            for fraction, (verdict, figure) in zip(fractions, line)
            if verdict != "proved"
        ]
    return {"kinds": tally, "odd": odd}


def _said(record: dict[str, Any]) -> str:
    total: Counter[str] = sum(map(Counter, record["kinds"].values()), Counter())
    return ", ".join(f"{total[name]} {name}" for name in _COUNTS if total[name])


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, runs, and writes the counts by kind."""
    usual = {"problems": 50_000, "seed": 0, "dtype": "float64"}
    parser = Command("studies.solver_fuzz", __doc__, usual, {"problems": 1000})
    parser.add_argument("--problems", type=number(1), help="at least so many" + parser.default("problems"))
    parser.add_argument("--dtype", choices=list(TOLERANCE), help="of votes" + parser.default("dtype"))
    options = parser.parse_args(arguments)
    rounds = [door for door, times in DOORS.items() for _ in range(times)]
    needed = -(-options.problems // (len(_kinds(options.dtype)) * MARGINS))
    # Doors in turn, each at all shapes.
    order = sorted(range(len(rounds)), key=lambda i: (rounds[: i + 1].count(rounds[i]) - 0.5) / DOORS[rounds[i]])
    cells = [(rounds[i], shape, turn * len(rounds) + i) for turn in range(needed) for i in order for shape in SHAPES][
        :needed
    ]
    study = Study(
        work="experiments.studies.solver_fuzz:compute",
        fields=("door", "shape", "number"),
        settings={"seed": options.seed, "dtype": options.dtype},
        cells=cells,
        say=_said,
    )
    records = run_study(study, options).whole()
    rows = {}
    for kind in (*_kinds(options.dtype), "all"):
        total: Counter[str] = Counter()
        for record in records.values():
            for one in record["kinds"] if kind == "all" else [kind]:
                total.update(record["kinds"][one])
        problems = total["solved"] + sum(total[name] for name in _COUNTS[4:])
        rows[kind] = [str(problems), *(str(total[name]) for name in _COUNTS)]
    text = [
        f"Random problems in {options.dtype}, seed {options.seed}; tolerance {TOLERANCE[options.dtype]:g}.",
        "",
        as_table("votes", ["problems", *(name.replace("_", " ") for name in _COUNTS)], rows),
    ]
    odd = [[*cell, *one] for cell, record in records.items() for one in record["odd"]]
    if odd:
        text += [
            "",
            "Those that are not proved optimal: door, shape, votes, seed, fraction of mu_max, verdict, figure:",
            "",
        ]
        text += [f"    {d} {s} {kind} {seed} {f:.9g} {v} {x}" for d, s, _, kind, seed, f, v, x in odd]
    write(options.out, "solver_fuzz", "\n".join(text))


if __name__ == "__main__":
    main()
