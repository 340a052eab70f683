"""Table 1 of the paper: every method on seven rotations and a translation of the moons, tuned without target labels.

  python -m experiments.table1                       the whole table, ten runs
  python -m experiments.table1 --quick               a small part of it, in some ten seconds
  python -m experiments.table1 --methods SVM PV-MinCq+ --tasks 50 translation --runs 3

A cell is a method on a task in a run. At the end, and from then on at each start, the command writes OUT/table1.md,
.csv and .tex and OUT/accuracy.png and .pdf, with the paper's figures beside ours; the paper's moons are not published,
so the two compare in shape only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.run.cells import Settings, TableCell, conditions
from experiments.run.command import Command, amount, names, needs, number
from experiments.run.engine import Order
from experiments.run.methods import METHODS, TASKS
from experiments.run.study import Study, run_study

__all__ = ["main"]

USUAL = {"methods": list(METHODS), "tasks": list(TASKS), "runs": 10, **Settings()._asdict()}
QUICK = {
    "methods": ["SVM", "MinCq", "NN-MinCq", "PV-MinCq", "PV-MinCq+"],
    "tasks": ["50", "translation"],
    "runs": 1,
    "out": Path("results/quick"),
}
ORDER = Order(weight=lambda cell: METHODS[str(cell[0])].weight)


def _parser() -> Command:
    parser = Command("table1", __doc__, USUAL, QUICK)
    parser.add_argument("--methods", nargs="+", action=names(METHODS), help=f"of {' '.join(METHODS)} (default: all)")
    parser.add_argument("--tasks", nargs="+", action=names(TASKS), help=f"of {' '.join(TASKS)} (default: all)")
    parser.add_argument(
        "--oracle",
        action="store_true",
        help="for the PV-MinCq rows, also the grid's best point in hindsight, found on the test sample after the "
        "choice is made; of the cells that are computed from now on",
    )
    sizes = parser.add_argument_group("sizes, other than the paper's")
    sizes.add_argument("--per-class", type=number(5), help=f"source and target points{parser.default('per_class')}")
    sizes.add_argument("--test-size", type=number(2), help=f"fresh target points{parser.default('test_size')}")
    sizes.add_argument("--noise", type=amount(0), help=f"of the moons{parser.default('noise')}")
    return parser


def _say(record: dict[str, Any]) -> str:
    return "no figure" if record["accuracy"] is None else f"{record['accuracy']:.1f} %"


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, computes what is missing, prints the table and writes the report."""
    options = _parser().parse_args(arguments)
    with needs("experiments"):
        from experiments.run.report import Report, write_report  # and Matplotlib, which workers do without
    methods, tasks, runs = options.methods, options.tasks, options.runs
    settings = Settings(options.seed, options.per_class, options.test_size, options.noise)
    study = Study(
        "experiments.run.cells:compute",
        TableCell._fields,
        settings._asdict(),
        [TableCell(method, task, run) for method in methods for task in tasks for run in range(runs)],
        _say,
        lambda cell: conditions(settings, str(cell[0])),
        {"oracle": options.oracle},
        ORDER,
        meanwhile=("experiments.run.report",),
    )
    finished = run_study(study, options)
    report = Report(methods, tasks, runs, settings, options.quick, finished.records)
    write_report(report, options.out, finished.seconds)
    finished.whole()


if __name__ == "__main__":
    main()
