"""The file that a command keeps its cells in, one JSON object a line, and how a line comes about.

A cell is the smallest piece of a command: one method on one task in one run, say. The file is append-only and each line
is on the disk before the next cell counts as begun, so a run that is killed loses at most the cells at work. Every line
carries the settings and versions behind it, and a file from other ones is refused.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from experiments.run.cache import switch_cache_on
from experiments.run.engine import Cell, lock

__all__ = ["Lines", "ResultsFile", "fingerprint", "library_versions", "measure", "open_results", "package_versions"]

Conditions = Callable[[Cell], dict[str, Any]]
# From the least to the largest value.
Range = tuple[float, float]
Ranges = Mapping[str, Range]


@functools.cache
def package_versions() -> dict[str, str]:
    """Versions of other packages that can change a figure; nothing is imported, and what is missing is an error."""
    return {name: version(name) for name in ("jax", "numpy", "optax", "scipy", "scikit-learn", "skada")}


@functools.cache
def library_versions() -> dict[str, str]:
    """Versions of everything that can change a figure."""
    import pvmincq_jax

    own = {"pvmincq-jax": pvmincq_jax.__version__, "python": platform.python_version()}
    return own | package_versions()


def fingerprint(conditions: dict[str, Any], versions: dict[str, str]) -> str:
    """Sixteen hexadecimal digits of a cell's conditions and versions."""
    text = json.dumps([conditions, versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure(shared: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """Computes a cell where it is called: see `experiments.run.engine.run_cells`.

    Args:
      shared: ``work``, the "package.module:function" of ``(settings, *cell)``; its ``settings``; and the ``cache``.
      cell: which.

    Returns:
      The figures that the function returns, with the seconds that they took and the versions behind them.
    """
    switch_cache_on(shared["cache"])
    module, name = shared["work"].split(":")
    function = getattr(importlib.import_module(module), name)
    began, began_cpu = time.perf_counter(), time.process_time()
    figures = function(shared["settings"], *cell)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return {**figures, "seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3), "versions": library_versions()}


class Lines(NamedTuple):
    """What every line of a results file must hold.

    Attributes:
      fields: names of a cell's values.
      say: reads the figures of a line; an error says that they are not there.
      ranges: of figures by their names, wherever these stand in a line.
    """

    fields: Sequence[str]
    say: Callable[[dict[str, Any]], Any] = lambda record: None
    ranges: Ranges = {}  # noqa: RUF012


class ResultsFile(NamedTuple):
    """An open results file: what it held, and how to add to it."""

    path: Path
    fields: Sequence[str]
    conditions: Conditions
    records: dict[Cell, dict[str, Any]]
    stream: Any

    def append(self, cell: Cell, figures: dict[str, Any]) -> dict[str, Any]:
        """Adds a line for a measured cell and waits until it is on the disk; returns what the line holds."""
        conditions = self.conditions(cell)
        record = dict(zip(self.fields, cell)) | figures
        record |= {"settings": conditions, "fingerprint": fingerprint(conditions, figures["versions"])}
        reasons = list(_differences(record, conditions))
        if reasons:
            raise ValueError(
                f"the worker is not like this process: {'; '.join(reasons)}".replace("in the file", "there")
            )
        self.stream.write(json.dumps(record).encode() + b"\n")
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.records[cell] = record
        return record


def _check_range(name: str, value: Any, limits: Range | None, ranges: Ranges) -> None:
    """Of a figure, or of the lists and objects that it is made of, which are all in its range; None is no figure."""
    if isinstance(value, dict):
        for part, figure in value.items():
            _check_range(part, figure, ranges.get(part, limits), ranges)
    elif isinstance(value, list):
        for figure in value:
            _check_range(name, figure, limits, ranges)
    elif limits and value is not None and (isinstance(value, bool | str) or not limits[0] <= value <= limits[1]):
        raise ValueError(f"its {name} is {value!r:.60}, and must be from {limits[0]:g} to {limits[1]:g}")


def _read_line(line: bytes, lines: Lines) -> tuple[Cell, dict[str, Any]]:
    """A cell and its record; a ValueError says what is wrong with the line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(record, dict):
        raise ValueError("it is no object")
    kinds: dict[str, Any] = dict.fromkeys(lines.fields, str | int | float)
    kinds |= {"settings": dict, "versions": dict, "seconds": int | float}
    for name, kind in kinds.items():
        if name not in record:
            raise ValueError(f"it has no {name}")
        if not isinstance(record[name], kind) or isinstance(record[name], bool):
            raise ValueError(f"its {name} is {record[name]!r:.60}")
    _check_range("", record, None, {"seconds": (0.0, 1e9), **lines.ranges})
    try:
        lines.say(record)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"its figures cannot be read ({type(error).__name__}: {error})") from None
    return tuple(record[name] for name in lines.fields), record


def _read(path: Path, lines: Lines, content: bytes) -> tuple[dict[Cell, dict[str, Any]], int]:
    """The cells of a file, and how many of its bytes are whole lines; a last line that was cut short is left out."""
    records: dict[Cell, dict[str, Any]] = {}
    whole = 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            cell, record = _read_line(line, lines)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}, is not a finished cell: {error}; mend or remove it") from None
        records[cell] = record
        whole += len(line)
    return records, whole


def _differences(record: dict[str, Any], conditions: dict[str, Any]) -> Iterator[str]:
    wanted = {**json.loads(json.dumps(conditions)), **library_versions()}
    found = {**record.get("settings", {}), **record.get("versions", {})}
    for name in dict.fromkeys([*wanted, *found]):
        if json.loads(json.dumps(found.get(name))) != wanted.get(name):
            yield f"{name} is {found.get(name)} in the file and {wanted.get(name)} now"


@contextlib.contextmanager
def open_results(path: Path, lines: Lines, conditions: Conditions) -> Iterator[ResultsFile]:
    """Opens a results file, or begins one, for as long as the block lasts; nobody else may write to it meanwhile.

    A last line that was cut short is removed, and its cell counts as not done.

    Args:
      path: of the file; its folder is made.
      lines: what a line must hold.
      conditions: from a cell to what must agree for two lines to stand in one table; a ValueError says why a cell of
        the file is none of this command.

    Yields:
      A `ResultsFile`.

    Raises:
      ValueError: the file is from other settings, is damaged, or another run has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as stream:
        if not lock(stream):
            raise ValueError(f"{path} is being written by another run")
        stream.seek(0)
        records, whole = _read(path, lines, stream.read())
        for cell, record in records.items():
            try:
                reasons = list(_differences(record, conditions(cell)))
            except (LookupError, ValueError, TypeError, AttributeError) as error:
                reasons = [f"{cell} is not known here: {error}"]
            if reasons:
                raise ValueError(
                    f"{path} holds results of other settings: {'; '.join(reasons)}. "
                    "Give another --out, or the settings of the file, or remove it"
                )
        stream.truncate(whole)
        yield ResultsFile(path, lines.fields, conditions, records, stream)
