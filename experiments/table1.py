"""Table 1 of the paper: every method on seven rotations and a translation of the moons, tuned without target labels.

  python -m experiments.table1                       the whole table, ten runs
  python -m experiments.table1 --quick               a small part of it, in about a minute
  python -m experiments.table1 --methods SVM PV-MinCq+ --tasks 50 translation --runs 3

OUT/results.jsonl gets a line as soon as a cell (a method on a task in a run) is finished. Started again after being
stopped in any way, or with more runs, tasks or methods, the command goes on where the file ends. A file from another
seed, size, grid or version is refused. At the end, and from then on at each start, it writes OUT/table1.md, .csv and
.tex and OUT/accuracy.png and .pdf, with the paper's figures beside ours; the paper's moons are not published, so the
two compare in shape only.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from experiments.methods import METHODS
from experiments.report import Report, write_report
from experiments.results import Cell, ResultsFile, Settings, open_results
from experiments.workers import Outcome, available_cores, run_cells
from pvmincq_jax.datasets import TASKS

__all__ = ["main", "run"]

RUNS = 10
QUICK_METHODS = ("SVM", "MinCq", "NN-MinCq", "PV-MinCq", "PV-MinCq+")
QUICK_TASKS = ("50", "translation")


class _Names(argparse.Action):
    """Names with spaces or commas between them, each one of a known few, put into the known order."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        known = METHODS if self.dest == "methods" else TASKS
        given = [name for value in values for name in value.split(",") if name]
        for name in given:
            if name not in known:
                parser.error(f"{option_string}: {name!r} is not available; there are {', '.join(known)}")
        setattr(namespace, self.dest, [name for name in known if name in given])


def _count(least: int) -> Any:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on; it is {text!r}")
        return number

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.table1", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = Settings()
    cores = len(available_cores())
    parser.add_argument("--methods", nargs="+", action=_Names, metavar="NAME", help=f"of {' '.join(METHODS)}")
    parser.add_argument("--tasks", nargs="+", action=_Names, metavar="TASK", help=f"of {' '.join(TASKS)}")
    parser.add_argument("--runs", type=_count(1), help=f"how many; run i has seed + i (default {RUNS})")
    parser.add_argument(
        "--seed", type=_count(0), default=defaults.seed, help=f"of data, folds, matchings (default {defaults.seed})"
    )
    parser.add_argument(
        "--jobs",
        type=_count(0),
        default=cores,
        help=f"worker processes, each on one core (default: all cores, {cores} here); 0 computes in this process",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one run of {', '.join(QUICK_METHODS)} on {', '.join(QUICK_TASKS)}, full-size samples: a part of the "
        "table, unless other methods, tasks or runs are given",
    )
    parser.add_argument("--out", type=Path, help="folder (default results/table1, with --quick results/quick)")
    parser.add_argument(
        "--oracle",
        action="store_true",
        help="for the PV-MinCq rows, also the grid's best point in hindsight, found on the test sample after the "
        "choice is made; of the cells that are computed from now on",
    )
    sizes = parser.add_argument_group("sizes, other than the paper's")
    sizes.add_argument("--per-class", type=_count(5), default=defaults.per_class, help="source and target points")
    sizes.add_argument("--test-size", type=_count(2), default=defaults.test_size, help="fresh target points")
    sizes.add_argument("--noise", type=float, default=defaults.noise, help="of the moons")
    return parser


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class _Progress:
    """A bar at a terminal; elsewhere, a line for each finished cell."""

    def __init__(self, cells: Sequence[Cell], done: dict[Cell, dict[str, Any]], jobs: int) -> None:
        self.left, self.jobs, self.total, self.finished = set(cells), max(jobs, 1), len(cells), 0
        # Seconds that cells have taken over the seconds they were expected to: what the machine adds or spares.
        self.expected = self.taken = 0.0
        for cell, record in done.items():
            self._learn(cell, record["seconds"])
        self.bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            shape = "{n_fmt}/{total_fmt} {bar:20} {elapsed}, {postfix}"
            self.bar = tqdm(total=self.total, bar_format=shape, dynamic_ncols=True)

    def _learn(self, cell: Cell, seconds: float) -> None:
        self.expected += METHODS[cell.method].weight
        self.taken += seconds

    def _time_left(self) -> str:
        if not self.expected:
            return "time left unknown yet"
        work = sum(METHODS[cell.method].weight for cell in self.left) * self.taken / self.expected
        return f"about {_clock(work / self.jobs)} left"

    def at_work(self, cells: list[Cell]) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(f"{self._time_left()}; at {', '.join(map(str, cells))}")

    def finish(self, outcome: Outcome) -> None:
        self.finished += 1
        self.left.discard(outcome.cell)
        record = outcome.record
        if record is None:
            text = f"FAILED: {outcome.error.strip().splitlines()[-1]}"
        else:
            self._learn(outcome.cell, record["seconds"])
            accuracy = record["accuracy"]
            figure = "no figure" if accuracy is None else f"{accuracy:.1f} %"
            text = f"{figure} in {record['seconds']:.1f} s"
        if self.bar is None:
            more = f"; {self._time_left()}" if self.left else ""
            print(f"[{self.finished}/{self.total}] {outcome.cell}: {text}{more}", file=sys.stderr, flush=True)
        else:
            if record is None:
                self.bar.write(f"{outcome.cell}: {text}", file=sys.stderr)
            self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def run(
    cells: Sequence[Cell], settings: Settings, results: ResultsFile, jobs: int, oracle: bool = False
) -> list[Outcome]:
    """Computes the cells that the file does not hold yet and appends them to it.

    Args:
      cells: of the table.
      settings: of the table.
      results: an open results file.
      jobs: worker processes, or 0.
      oracle: see `run_cell`.

    Returns:
      The outcomes of cells that failed; the others go on, and a failed cell is tried again at the next start.
    """
    missing = [cell for cell in cells if cell not in results.records]
    failed: list[Outcome] = []
    if not missing:
        return failed
    progress = _Progress(missing, results.records, jobs)
    try:
        for outcome in run_cells(missing, settings, jobs, oracle=oracle, at_work=progress.at_work):
            if outcome.record is None:
                failed.append(outcome)
            else:
                results.append(outcome.record)
            progress.finish(outcome)
    finally:
        progress.close()
    return failed


def _fail(message: str) -> NoReturn:
    print(f"python -m experiments.table1: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, computes what is missing, prints the table and writes the report."""
    options = _parser().parse_args(arguments)
    quick = options.quick
    methods = options.methods or list(QUICK_METHODS if quick else METHODS)
    tasks = options.tasks or list(QUICK_TASKS if quick else TASKS)
    runs = options.runs or (1 if quick else RUNS)
    out = options.out or Path("results") / ("quick" if quick else "table1")
    settings = Settings(options.seed, options.per_class, options.test_size, options.noise)
    cells = [Cell(method, task, run) for method in methods for task in tasks for run in range(runs)]
    began = time.perf_counter()
    try:
        with open_results(out / "results.jsonl", settings) as results:
            there = sum(cell in results.records for cell in cells)
            kind = "quick look, a part of the table" if quick else "table 1"
            print(f"{kind}: {len(cells)} cells, {there} of them in {results.path} already", file=sys.stderr)
            failed = run(cells, settings, results, options.jobs, options.oracle)
            found = {cell: results.records[cell] for cell in cells if cell in results.records}
    except ValueError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail(f"stopped; the finished cells are in {out / 'results.jsonl'}, and the same command goes on from there")
    except OSError as error:
        _fail(f"--out {out}: {error}")
    report = Report(methods, tasks, runs, settings, quick, found)
    write_report(report, out, time.perf_counter() - began)
    for outcome in failed:
        print(f"\n{outcome.cell} failed:\n{outcome.error}", file=sys.stderr)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
