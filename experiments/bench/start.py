"""How long a fresh process takes from its first import to its first answer, and the call alone: mostly compiling."""

import argparse
import subprocess
import sys

from experiments.bench.common import emit, versions

__all__ = ["add_arguments", "run"]

_SETUP = """
import time; start = time.perf_counter()
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np, pvmincq_jax as pvm
"""
_ANSWERS = {
    "solution": """
x = np.random.default_rng(0).normal(size=({points}, 2)); y = np.sign(x[:, 0])
votes = np.asarray(pvm.rbf_votes(x, x, 1.0))
mu = float(pvm.max_margin(votes, y)) * np.geomspace(0.05, 0.9, 16)
called = time.perf_counter()
assert (jax.jit(jax.vmap(lambda margin: pvm.mincq(votes, y, margin)))(mu).status == pvm.Status.SOLVED).all()
""",
    "sweep": """
from pvmincq_jax.datasets import moons_task
task = moons_task("30", 0, per_class={points} // 2, test_size=2)
called = time.perf_counter()
pvm.sweep(task.source, task.source_labels, task.target)
""",
}
_PRINT = "now = time.perf_counter(); print(now - start, now - called)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark start``."""
    parser.add_argument("--quick", action="store_true", help="40 points in place of 300")


def run(arguments: argparse.Namespace) -> None:
    """Prints the rows, each from a process of its own that finds nothing compiled."""
    emit({"benchmark": "start", **versions("jax", "jaxlib")}, arguments.json)
    points = 40 if arguments.quick else 300
    for name, answer in _ANSWERS.items():
        # Without JAX's cache on disk, which the caller may have switched on.
        script = _SETUP + 'jax.config.update("jax_enable_compilation_cache", False)' + answer.format(points=points)
        done = subprocess.run([sys.executable, "-c", f"{script}\n{_PRINT}"], capture_output=True, text=True, check=True)
        seconds, call = map(float, done.stdout.split())
        row = {"benchmark": "start", "points": points, f"seconds_to_{name}": seconds, "first_call_seconds": call}
        emit(row, arguments.json)
