"""Where the kernels of PV-MinCq+ should sit: on the target points, on the source points, or on both.

  python -m experiments.voters --runs 3

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


def compute(settings: dict[str, Any], voters: Centers, task: str, run: int) -> dict[str, Any]:
    """Test accuracy of PV-MinCq+ with these voters, in per cent."""
    data, seed = Settings(**settings).draw(task, run), settings["seed"] + run
    fit = pvm.fit_validated(data.source, data.source_labels, data.target, centers=voters, seed=seed, progress=False)
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
    options = parser.parse_args(arguments)
    settings = Settings(options.seed, options.per_class, options.test_size)._asdict()
    rows = get_args(Centers)
    found = run_accuracies("voters", ("voters", "task"), (rows, options.tasks), settings, options)
    table = {row: [[one["accuracy"] for one in found[row, task]] for task in options.tasks] for row in rows}
    text = f"Accuracy in per cent, mean ± standard error over {options.runs} runs, seed {options.seed}\n\n"
    write(options.out, "voters", text + as_table("voters", options.tasks, table))


if __name__ == "__main__":
    main()
