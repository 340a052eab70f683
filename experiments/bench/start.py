"""How long a fresh process takes from its first import to its first answer; compilation is most of it."""

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
assert int(pvm.mincq(pvm.rbf_votes(x, x, 1.0), y, 0.05).status) == pvm.Status.SOLVED
""",
    "sweep": """
from pvmincq_jax.datasets import moons_task
task = moons_task("30", 0, per_class={points} // 2, test_size=2)
pvm.sweep(task.source, task.source_labels, task.target)
""",
}
_PRINT = "print(time.perf_counter() - start)"


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
        emit({"benchmark": "start", "points": points, f"seconds_to_{name}": float(done.stdout)}, arguments.json)
