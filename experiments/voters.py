"""Where the kernels of PV-MinCq+ should sit: on the target points, on the source points, or on both.

  python -m experiments.voters --runs 3

Prints the accuracy on fresh target points for each choice, mean and standard error over the runs. The seeds are not
those of the reported table: the default of the library was chosen by this command.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import get_args

import numpy as np

import pvmincq_jax as pvm
from experiments.bench_common import versions
from experiments.workers import on_one_core
from pvmincq_jax.adaptation.sweeps import Centers
from pvmincq_jax.datasets import TASKS, moons_task

__all__ = ["accuracies", "main"]


def accuracies(
    tasks: Sequence[str], voters: Centers, runs: int, seed: int, per_class: int, test_size: int
) -> np.ndarray:
    """Test accuracy of PV-MinCq+ with these voters, in per cent ``[tasks, runs]``."""
    found = np.zeros((len(tasks), runs))
    for t, task in enumerate(tasks):
        for run in range(runs):
            own = moons_task(task, seed + run, per_class=per_class, test_size=test_size)
            fit = pvm.fit_validated(
                own.source, own.source_labels, own.target, centers=voters, seed=seed + run, progress=False
            )
            values = np.asarray(pvm.decision(fit.model, own.test))
            found[t, run] = 100 * np.mean(values * own.test_labels > 0)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and prints a line for each choice of voters."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.voters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["40", "50", "60", "translation"], help=f"of {' '.join(TASKS)}")
    parser.add_argument("--runs", type=int, default=3, help="run i has seed + i (default 3)")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--per-class", type=int, default=150, help="source and target points")
    parser.add_argument("--test-size", type=int, default=1500, help="fresh target points")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {options.runs} runs, {versions('jax', 'numpy', 'scipy')}")
    print("voters".ljust(8) + "".join(task.rjust(16) for task in options.tasks), flush=True)
    for voters in get_args(Centers):
        found = accuracies(options.tasks, voters, options.runs, options.seed, options.per_class, options.test_size)
        error = found.std(axis=1, ddof=1) / np.sqrt(options.runs) if options.runs > 1 else np.full(len(found), np.nan)
        cells = [f"{mean:.1f} ± {spread:.1f}".rjust(16) for mean, spread in zip(found.mean(axis=1), error)]
        print(voters.ljust(8) + "".join(cells), flush=True)


if __name__ == "__main__":
    sys.exit(on_one_core(main))
