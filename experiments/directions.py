"""What the commands on the paper's further directions share: options, tables of mean and standard error, output."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments.results import library_versions

__all__ = ["as_table", "command", "mean_and_error", "note", "write"]

SEED = 2014


def _count(least: int) -> Any:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on; it is {text!r}")
        return int(text)

    return read


def command(name: str, description: str | None, *, runs: int, quick: str) -> argparse.ArgumentParser:
    """The options of all commands.

    Args:
      name: of the module, under experiments.
      description: its docstring.
      runs: the default number.
      quick: what ``--quick`` does.

    Returns:
      A parser, to add to.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=_count(2), default=runs, help="run i has seed + i (default: %(default)s)")
    parser.add_argument("--seed", type=_count(0), default=SEED, help="of everything random (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results") / name,
        help="folder for table, figures, JSON (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def note(text: str) -> None:
    """A line on how far the work is, to standard error."""
    print(text, file=sys.stderr, flush=True)


def mean_and_error(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and standard error of the mean; NaN for the error of a single value.

    Args:
      values: ``[runs]``.

    Returns:
      Two numbers.

    Example:
      >>> print(mean_and_error([1.0, 3.0]))
      (2.0, 1.0)
    """
    array = np.asarray(values, float)
    error = float(np.std(array, ddof=1) / np.sqrt(array.size)) if array.size > 1 else float("nan")
    return float(np.mean(array)), error


def as_table(corner: str, columns: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> str:
    """A Markdown table whose columns are aligned as text too.

    Args:
      corner: heading of the row names.
      columns: headings.
      rows: by name, one cell per column: text, None for an empty one, or runs of a figure in per cent ``[runs]``, which
        show as mean and standard error.

    Returns:
      Lines of text.
    """

    def cell(value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        mean, error = mean_and_error(value)
        return f"{mean:.1f} ± {error:.1f}"

    lines = [[corner, *columns], *([name, *map(cell, cells)] for name, cells in rows.items())]
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns) + 1)]
    padded = [
        "| " + " | ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:]))]) + " |"
        for line in lines
    ]
    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def write(out: Path, name: str, text: str, record: Mapping[str, Any], figure: Any) -> None:
    """Prints the table and writes it with the figure and all that is behind it.

    Args:
      out: folder, made if need be.
      name: of the files: .md, .json, .png and .pdf.
      text: Markdown.
      record: settings and figures, ready for JSON; the versions are added.
      figure: of Matplotlib; closed.
    """
    print(text)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text + "\n")
    (out / f"{name}.json").write_text(json.dumps({**record, "versions": library_versions()}, indent=1) + "\n")
    for ending in ("png", "pdf"):
        figure.savefig(out / f"{name}.{ending}")
    plt.close(figure)
    note(f"written to {out / name}.md .json .png .pdf")
