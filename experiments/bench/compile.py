"""What options of the compiler save: CPU seconds that it takes, and milliseconds that the program then runs.

Two programs: that of a default grid of one gamma, which learns one problem at all margins by quick steps, and a user's
own ``jit(vmap(mincq))`` on votes that it captures. Each is compiled with all options that the package sets, with each
of them left out, with none, and with each of those that were considered, too. It is traced anew each time, as JAX keeps
what it has compiled. Figures are the best of several turns; ratios are to all options.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.bench.common import best_seconds, emit, versions
from pvmincq_jax.datasets import draw_moons
from pvmincq_jax.voting.batch import problem_of_parts
from pvmincq_jax.voting.programs import Key, Program, accepted_options, known_options, padded_rows, padded_size

__all__ = ["add_arguments", "run"]

_MARGINS = np.geomspace(0.01, 0.5, 5)
# Options that do not pay, or not on their own.
_CONSIDERED: dict[str, Any] = {
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_backend_optimization_level": 0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark compile``."""
    parser.add_argument("--quick", action="store_true", help="40 points in place of 300, once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5, help="turns of each; the best counts (default: 5)")


# What is traced anew, and what its compiled program is called with.
Lower = Callable[[], jax.stages.Lowered]
Programs = dict[str, tuple[Lower, tuple[Any, ...]]]


def _programs(points: int, seed: int) -> Programs:
    x, labels = draw_moons(points // 2, np.random.default_rng(seed))
    votes, shares = np.asarray(pvm.rbf_votes(x, x, 1.0)), np.full(points, 1 / points)
    problem = problem_of_parts(lambda: [(votes, labels, shares)], np.arange(points), _MARGINS, "fraction", False)
    voters = padded_size(points)
    rows = padded_rows(len(problem.sample.rows), voters)
    key = Key(voters, rows, "quick", 1, votes.dtype, "interior_point", None, None)
    missing = rows - len(problem.sample.rows), voters - points
    arguments = (
        np.pad(problem.sample.rows, [(0, missing[0]), (0, missing[1])])[None],
        np.pad(problem.sample.labels, (0, missing[0]))[None],
        (np.arange(voters) < points)[None],
        problem.margins[None],
    )

    def users() -> jax.stages.Lowered:
        return jax.jit(jax.vmap(lambda margin: pvm.mincq(votes, labels, margin))).lower(problem.margins)

    return {
        "grid": (lambda: Program(key).lower(arguments), arguments),
        "jit(vmap(mincq))": (users, (problem.margins,)),
    }


def _option_sets() -> dict[str, dict[str, Any]]:
    """The options that this jaxlib knows, by what tells a set from all of the package's."""
    ours = known_options("cpu")
    sets = {"all": ours} | {f"without {name}": {k: v for k, v in ours.items() if k != name} for name in ours}
    sets["none"] = {}
    return sets | {
        f"with {name} {value}": {**ours, name: value} for name, value in accepted_options(_CONSIDERED).items()
    }


def run(arguments: argparse.Namespace) -> None:
    """Prints a row for each program and set of options."""
    emit({"benchmark": "compile", "seed": arguments.seed, **versions("jax", "jaxlib")}, arguments.json)
    points, repeats = (40, 1) if arguments.quick else (300, arguments.repeats)
    sets = _option_sets()
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        for name, (lower, inputs) in _programs(points, arguments.seed).items():
            seconds, compiled = dict.fromkeys(sets, np.inf), {}
            for _ in range(repeats):
                for chosen, options in sets.items():
                    lowered = lower()
                    start = time.process_time()
                    compiled[chosen] = lowered.compile(compiler_options=options)
                    seconds[chosen] = min(seconds[chosen], time.process_time() - start)
            ways = {chosen: _call(program, inputs) for chosen, program in compiled.items()}
            runs = best_seconds(ways, repeats, turn=0.1)
            for chosen in sets:
                row = {"benchmark": "compile", "program": name, "points": points, "options": chosen}
                row |= {"compile_cpu_seconds": seconds[chosen], "times_all": seconds[chosen] / seconds["all"]}
                row |= {"run_ms": 1e3 * runs[chosen], "times_run_of_all": runs[chosen] / runs["all"]}
                emit(row, arguments.json)


def _call(program: Any, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(program(*inputs))
