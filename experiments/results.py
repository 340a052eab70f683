"""The cells of Table 1 and the file that they are kept in, one JSON object a line.

A cell is one method on one task in one run. The file is append-only and each line is on the disk before the next cell
counts as begun, so a run that is killed loses at most the cells at work. Every line carries the settings and versions
behind it, and a file from other ones is refused.
"""

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pvmincq_jax as pvm
from experiments.methods import METHODS, grid_fingerprint
from pvmincq_jax.datasets import TRANSLATION, moons_task

__all__ = ["Cell", "ResultsFile", "Settings", "fingerprint", "library_versions", "open_results", "run_cell"]


class Cell(NamedTuple):
    """One method on one task in one run, counted from 0."""

    method: str
    task: str
    run: int

    def __str__(self) -> str:
        """As the progress lines show it."""
        return f"{self.method} {self.task} run {self.run}"


class Settings(NamedTuple):
    """What all cells of a table share.

    Attributes:
      seed: run i draws data, folds and matchings from seed + i.
      per_class: points of each class in the source, and in the target.
      test_size: fresh target points.
      noise: of the moons.
    """

    seed: int = 2014
    per_class: int = 150
    test_size: int = 1500
    noise: float = 0.05


def library_versions() -> dict[str, str]:
    """Versions of everything that can change a figure."""
    others = {name: version(name) for name in ("jax", "numpy", "optax", "scipy", "scikit-learn", "skada")}
    return {"pvmincq-jax": pvm.__version__, "python": platform.python_version(), **others}


def _conditions(method: str, settings: Settings) -> dict[str, Any]:
    """What must agree for two cells of a method to stand in one table."""
    return {**settings._asdict(), "translation": list(TRANSLATION), "grid": grid_fingerprint(method)}


def fingerprint(method: str, settings: Settings, versions: dict[str, str]) -> str:
    """Sixteen hexadecimal digits of a cell's settings, grid and versions."""
    text = json.dumps([_conditions(method, settings), versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _accuracy(values: np.ndarray, labels: np.ndarray) -> Any:
    """In per cent, over the last axis; a value of 0 or NaN is wrong."""
    return 100 * np.mean(values * labels > 0, axis=-1)


def run_cell(cell: Cell, settings: Settings, oracle: bool = False) -> dict[str, Any]:
    """Draws the task, tunes the method, and only then looks at the test sample.

    Args:
      cell: which.
      settings: of the table.
      oracle: also find the best point of the grid in hindsight, for methods that offer it.

    Returns:
      The cell's line of the results file. ``accuracy`` is in per cent; it is None, with a ``note``, where all
      self-labels were the same. ``seconds`` and ``cpu_seconds`` cover tuning and fitting.
    """
    seed = settings.seed + cell.run
    data = moons_task(cell.task, seed, per_class=settings.per_class, test_size=settings.test_size, noise=settings.noise)
    began, began_cpu = time.perf_counter(), time.process_time()
    fitted = METHODS[cell.method].fit(data.source, data.source_labels, data.target, seed)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    accuracy = float(_accuracy(fitted.decision(data.test), data.test_labels))
    versions = library_versions()
    record: dict[str, Any] = {
        **cell._asdict(),
        "accuracy": None if fitted.degenerate else accuracy,
        "params": fitted.params,
        "criterion": fitted.criterion,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "seed": seed,
        "versions": versions,
        "settings": _conditions(cell.method, settings),
        "fingerprint": fingerprint(cell.method, settings, versions),
    }
    if fitted.degenerate:
        record["note"] = "all self-labels are the same: nothing to learn"
    if oracle and fitted.grid_values is not None:
        record["oracle_accuracy"] = float(np.max(_accuracy(fitted.grid_values(data.test), data.test_labels)))
    return record


class ResultsFile(NamedTuple):
    """An open results file: what it held, and how to add to it."""

    path: Path
    records: dict[Cell, dict[str, Any]]
    stream: Any

    def append(self, record: dict[str, Any]) -> None:
        """Adds one line and waits until it is on the disk."""
        self.stream.write(json.dumps(record).encode() + b"\n")
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.records[Cell(record["method"], record["task"], record["run"])] = record


def _read(path: Path, content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The objects of a file, and how many of its bytes are whole lines; a broken last line is left out."""
    records: list[dict[str, Any]] = []
    whole = 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            Cell(record["method"], record["task"], record["run"])
            complete = line.endswith(b"\n")
        except (ValueError, KeyError, TypeError):
            complete = False
        if not complete:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number}, is not a finished cell: mend or remove the file")
        records.append(record)
        whole += len(line)
    return records, whole


def _differences(record: dict[str, Any], settings: Settings, versions: dict[str, str]) -> Iterator[str]:
    method = record["method"]
    if method not in METHODS:
        yield f"method {method!r} is not known here"
        return
    wanted = {**_conditions(method, settings), **versions}
    found = {**record.get("settings", {}), **record.get("versions", {})}
    for name in dict.fromkeys([*wanted, *found]):
        if wanted.get(name) != found.get(name):
            label = f"the grid of {method}" if name == "grid" else name
            yield f"{label} is {found.get(name)} in the file and {wanted.get(name)} now"


def _check(path: Path, records: Iterable[dict[str, Any]], settings: Settings) -> None:
    versions = library_versions()
    for record in records:
        reasons = list(_differences(record, settings, versions))
        if reasons:
            raise ValueError(
                f"{path} holds results of other settings: {'; '.join(reasons)}. "
                "Give another --out, or the settings of the file, or remove it"
            )


@contextlib.contextmanager
def open_results(path: Path, settings: Settings) -> Iterator[ResultsFile]:
    """Opens a results file, or begins one, for as long as the block lasts; nobody else may write to it meanwhile.

    A last line that was cut short is removed, and its cell counts as not done.

    Args:
      path: of the file; its folder is made.
      settings: those of the run that is about to add to it.

    Yields:
      A `ResultsFile`.

    Raises:
      ValueError: the file is from other settings, is damaged, or another run has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as stream:
        _lock(path, stream)
        stream.seek(0)
        records, whole = _read(path, stream.read())
        _check(path, records, settings)
        stream.truncate(whole)
        cells = {Cell(record["method"], record["task"], record["run"]): record for record in records}
        yield ResultsFile(path, cells, stream)


def _lock(path: Path, stream: Any) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(f"{path} is being written by another run") from None
