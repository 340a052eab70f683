"""What all long commands do: compute the cells that their file does not hold yet, and say how far they are."""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from experiments.run.cache import switch_cache_on
from experiments.run.command import end, missing
from experiments.run.engine import Cell, Order, Outcome, run_cells
from experiments.run.results import Lines, Ranges, ResultsFile, open_results, package_versions

__all__ = ["Finished", "Study", "run_accuracies", "run_study"]


class Study(NamedTuple):
    """A command's cells.

    Attributes:
      work: "package.module:function" of ``(settings, *cell)``, which returns figures, ready for JSON.
      fields: names of a cell's values.
      settings: what all cells share, and what must agree for their lines to stand in one file.
      cells: all that are asked for.
      say: the figures of a line in a few words.
      conditions: from a cell to what must agree besides, in place of ``settings``.
      options: for the work alone, without a part in the conditions.
      order: see `experiments.run.engine.Order`.
      ranges: of figures, by their names, in the file; accuracies are in per cent unless these say otherwise.
      meanwhile: modules that the command needs in the end, loaded while the workers start.
    """

    work: str
    fields: Sequence[str]
    settings: dict[str, Any]
    cells: Sequence[Cell]
    say: Callable[[dict[str, Any]], str]
    conditions: Callable[[Cell], dict[str, Any]] | None = None
    options: dict[str, Any] = {}  # noqa: RUF012
    order: Order = Order()
    ranges: Ranges = {"accuracy": (0.0, 100.0), "oracle_accuracy": (0.0, 100.0)}  # noqa: RUF012
    meanwhile: Sequence[str] = ()

    def name(self, cell: Cell) -> str:
        """A cell as the progress lines show it."""
        return " ".join(f"run {value}" if field == "run" else str(value) for field, value in zip(self.fields, cell))


class Finished(NamedTuple):
    """What a study has found.

    Attributes:
      records: lines of the results file by cell, of the cells that were asked for.
      failed: cells that ended in an error; they are tried again at the next start.
      seconds: since this start.
    """

    records: dict[Cell, dict[str, Any]]
    failed: dict[str, str]
    seconds: float

    def whole(self) -> dict[Cell, dict[str, Any]]:
        """All lines; ends the command with the errors' texts if any cell failed."""
        for name, error in self.failed.items():
            print(f"\n{name} failed:\n{error}", file=sys.stderr)
        if self.failed:
            raise SystemExit(1)
        return self.records


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class _Progress:
    """A bar at a terminal; elsewhere, a line for each finished cell."""

    def __init__(self, study: Study, missing: Sequence[Cell], done: dict[Cell, dict[str, Any]]) -> None:
        self.study, self.left, self.total, self.finished, self.jobs = study, set(missing), len(missing), 0, 1
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
        self.expected += self.study.order.weight(cell)
        self.taken += seconds

    def _time_left(self) -> str:
        if not self.expected:
            return "time left unknown yet"
        work = sum(map(self.study.order.weight, self.left)) * self.taken / self.expected
        return f"about {_clock(work / self.jobs)} left"

    def at_work(self, cells: list[Cell]) -> None:
        self.jobs = max(self.jobs, len(cells))
        if self.bar is not None:
            self.bar.set_postfix_str(f"{self._time_left()}; at {', '.join(map(self.study.name, cells))}")

    def finish(self, cell: Cell, record: dict[str, Any] | None, error: str) -> None:
        self.finished += 1
        self.left.discard(cell)
        if record is None:
            text = f"FAILED: {error.strip().splitlines()[-1]}"
        else:
            self._learn(cell, record["seconds"])
            text = f"{self.study.say(record)} in {record['seconds']:.1f} s"
        text = f"{self.study.name(cell)}: {text}"
        if self.bar is None:
            more = f"; {self._time_left()}" if self.left else ""
            print(f"[{self.finished}/{self.total}] {text}{more}", file=sys.stderr, flush=True)
        else:
            if record is None:
                self.bar.write(text, file=sys.stderr)
            self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _compute(study: Study, results: ResultsFile, options: argparse.Namespace) -> dict[str, str]:
    """Computes what the file does not hold and appends it; returns the errors of cells that failed, by name."""
    missing = [cell for cell in study.cells if cell not in results.records]
    print(f"{len(study.cells)} cells, {len(study.cells) - len(missing)} in {results.path} already", file=sys.stderr)
    failed: dict[str, str] = {}
    if not missing:
        return failed
    shared = {"work": study.work, "settings": study.settings | study.options, "cache": options.cache}
    progress = _Progress(study, missing, results.records)
    places = {"jobs": options.jobs, "dask": options.dask}

    def at_work(cells: list[Cell]) -> None:
        progress.at_work(cells)
        for module in study.meanwhile:
            importlib.import_module(module)

    run = run_cells(
        "experiments.run.results:measure", missing, shared=shared, order=study.order, at_work=at_work, **places
    )

    def keep(outcome: Outcome) -> tuple[dict[str, Any] | None, str]:
        if outcome.error:
            return None, outcome.error
        try:
            return results.append(outcome.cell, outcome.result), ""
        except ValueError as error:
            return None, str(error)

    try:
        with closing(run):
            for outcome in run:
                record, error = keep(outcome)
                if record is None:
                    failed[study.name(outcome.cell)] = error
                progress.finish(outcome.cell, record, error)
    finally:
        progress.close()
    return failed


def run_study(study: Study, options: argparse.Namespace) -> Finished:
    """Computes a study's missing cells, where the options say, and keeps them in OUT/results.jsonl.

    Args:
      study: what to compute.
      options: ``out``, ``jobs``, ``dask`` and ``cache``, as `experiments.run.command.Command` reads them.

    Returns:
      A `Finished`. What cannot be done at all ends the command with a sentence and exit code 2, Ctrl-C
      with 130.
    """
    began, path = time.perf_counter(), Path(options.out) / "results.jsonl"
    switch_cache_on(options.cache)
    try:
        package_versions()
        lines = Lines(study.fields, study.say, study.ranges)
        with open_results(path, lines, study.conditions or (lambda cell: study.settings)) as results:
            failed = _compute(study, results, options)
            found = {cell: results.records[cell] for cell in study.cells if cell in results.records}
    except KeyboardInterrupt:
        end(f"stopped; the finished cells are in {path}, and the same command goes on from there", 130)
    except ConnectionError as error:
        end(f"--dask: {error}; the finished cells are in {path}")
    except OSError as error:
        end(f"--out {options.out}: {error}")
    except ModuleNotFoundError as error:
        more = "; --jobs 0 computes in this process, without joblib" if (error.name or "").startswith("joblib") else ""
        end(missing(error, "experiments") + more)
    except ValueError as error:
        end(str(error))
    return Finished(found, failed, time.perf_counter() - began)


def run_accuracies(
    module: str,
    fields: tuple[str, str],
    names: tuple[Sequence[str], Sequence[str]],
    settings: dict[str, Any],
    options: argparse.Namespace,
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """A study of accuracies in per cent, by two names and the run.

    Args:
      module: under experiments, with ``compute(settings, first, second, run)``.
      fields: what the two names are.
      names: all of the first and all of the second.
      settings: see `Study`.
      options: see `run_study`, and ``runs``.

    Returns:
      The lines of all runs by the two names.
    """
    cells = [(first, second, run) for second in names[1] for first in names[0] for run in range(options.runs)]
    study = Study(
        f"experiments.{module}:compute", (*fields, "run"), settings, cells, lambda one: f"{one['accuracy']:.1f} %"
    )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (first, second, _), record in run_study(study, options).whole().items():
        found.setdefault((str(first), str(second)), []).append(record)
    return found
