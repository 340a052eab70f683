"""Where the kernels of PV-MinCq+ should sit: on the target points, on the source points, or on both; and how many.

  python -m experiments.voters --runs 3
  python -m experiments.voters --runs 3 --per-class 500 --most 25 100 300 1000      on target points, so many at most

Accuracy on fresh target points for each choice, mean and standard error over the runs. The seeds are not
those of the reported table: the default of the library was chosen by this command.
"""

from collections.abc import Sequence
from typing import Any, get_args

import pvmincq_jax as pvm
from experiments.cells import Settings, accuracy
from experiments.command import Command, as_table, names, number, write
from experiments.study import run_accuracies
from pvmincq_jax.adaptation.seats import Centers
from pvmincq_jax.datasets import TASKS

__all__ = ["compute", "main"]


def compute(settings: dict[str, Any], voters: str, task: str, run: int) -> dict[str, Any]:
    """Test accuracy of PV-MinCq+ with these voters, "target" or "target 300" at most, in per cent."""
    data, seed = Settings(**settings).draw(task, run), settings["seed"] + run
    centers, *most = voters.split()
    given: dict[str, Any] = {"centers": centers, "seed": seed, "progress": False}
    given |= {"most_voters": int(most[0])} if most else {}
    fit = pvm.fit_validated(data.source, data.source_labels, data.target, **given)
    return {"accuracy": float(accuracy(pvm.decision(fit.model, data.test), data.test_labels))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and writes a row for each choice of voters."""
    usual = {"tasks": ["40", "50", "60", "translation"], "runs": 3, "seed": 1000, "per_class": 150, "test_size": 1500}
    parser = Command("voters", __doc__, usual, {"tasks": ["50"], "runs": 1})
    parser.add_argument(
        "--tasks", nargs="+", action=names(TASKS), help=f"of {' '.join(TASKS)}{parser.default('tasks')}"
    )
    parser.add_argument("--per-class", type=number(5), help=f"source and target points{parser.default('per_class')}")
    parser.add_argument("--test-size", type=number(2), help=f"fresh target points{parser.default('test_size')}")
    parser.add_argument("--most", nargs="+", type=number(1), help="so many voters at most, on target points")
    options = parser.parse_args(arguments)
    settings = Settings(options.seed, options.per_class, options.test_size)._asdict()
    rows = [f"target {most}" for most in options.most] if options.most else get_args(Centers)
    found = run_accuracies("voters", ("voters", "task"), (rows, options.tasks), settings, options)
    table = {row: [[one["accuracy"] for one in found[row, task]] for task in options.tasks] for row in rows}
    text = f"Accuracy in per cent, mean ± standard error over {options.runs} runs, seed {options.seed}\n\n"
    write(options.out, "voters", text + as_table("voters", options.tasks, table))


if __name__ == "__main__":
    main()
