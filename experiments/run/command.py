"""What all commands share: options, tables of mean and standard error as Markdown, and the files that they write."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from experiments.run.cache import OFF, cache_folder
from experiments.run.engine import available_cores

__all__ = [
    "Command",
    "amount",
    "as_table",
    "end",
    "mean_and_error",
    "missing",
    "names",
    "needs",
    "new_file",
    "note",
    "number",
    "write",
]

_EPILOG = """\
OUT/results.jsonl gets a line as soon as a cell is finished, and the tables are made of its lines alone. Started again
after being stopped in any way, or with more runs, the command goes on where the file ends; at most the cells at work
are lost. A file from other settings or versions is refused.

Several machines: `python -m dask scheduler` on one, `python -m dask worker ADDRESS --nthreads 1` in a checkout on each,
as many as it has cores, and --dask ADDRESS here.
"""


def number(least: int) -> Any:
    """The type of an option that is a whole number."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on; it is {text!r}")
        return int(text)

    return read


def amount(least: float) -> Any:
    """The type of an option that is a finite number."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = np.nan
        if not least <= value < np.inf:
            raise argparse.ArgumentTypeError(f"must be a finite number from {least:g} on; it is {text!r}")
        return value

    return read


def names(known: Sequence[str] | Mapping[str, Any]) -> type[argparse.Action]:
    """The action of an option that takes names, with spaces or commas between them, and puts them into their order."""

    class Names(argparse.Action):
        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
            given = [name for value in values for name in ([value] if value in known else value.split(",")) if name]
            for name in given:
                if name not in known:
                    parser.error(f"{option_string}: {name!r} is not available; there are {', '.join(known)}")
            setattr(namespace, self.dest, [name for name in known if name in given])

    return Names


class Command(argparse.ArgumentParser):
    """The parser of a long command: --runs, --seed, --out, --quick, --jobs, --dask and --cache; further ones are added.

    Options that are not given take their value from ``usual`` and, with --quick, from ``quick``.
    """

    def __init__(self, name: str, description: str | None, usual: dict[str, Any], quick: dict[str, Any]) -> None:
        """Begins the parser.

        Args:
          name: of the module, under experiments; its last part names the folder of the results.
          description: its docstring.
          usual: values of options that are not given; ``runs`` and ``seed`` are options if they are here.
          quick: those that differ with --quick.
        """
        shape = argparse.RawDescriptionHelpFormatter
        prog, name = f"python -m experiments.{name}", name.rpartition(".")[2]
        super().__init__(prog=prog, description=description, epilog=_EPILOG, formatter_class=shape, allow_abbrev=False)
        self.usual = {"out": Path("results") / name} | usual
        self.quick = {"out": Path("results") / f"{name}_quick"} | quick
        add, cores = self.add_argument, len(available_cores())
        if "runs" in usual:
            add("--runs", type=number(1), help=f"how many; run i has seed + i{self.default('runs')}")
        if "seed" in usual:
            add("--seed", type=number(0), help=f"of everything random{self.default('seed')}")
        given = "; ".join(f"{key} {_plain(value)}" for key, value in quick.items() if key != "out")
        add(
            "--quick",
            action="store_true",
            help=f"a small part, as a first look, unless other values are given: {given}",
        )
        add("--out", type=Path, help=f"folder{self.default('out')}")
        where = self.add_argument_group("where it is computed")
        text = f"worker processes, each on one core (default: all cores, {cores} here); 0 computes in this process"
        where.add_argument("--jobs", type=number(0), default=cores, help=text)
        where.add_argument(
            "--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers compute in their place"
        )
        text = f"of compiled programs, kept between runs (default: PVMINCQ_JAX_CACHE or {cache_folder()}); {OFF}: none"
        where.add_argument("--cache", metavar="DIR", help=text)

    def default(self, name: str) -> str:
        """What an option's help says of its default."""
        usual, quick = self.usual[name], self.quick.get(name, self.usual[name])
        more = "" if usual == quick else f"; with --quick {_plain(quick)}"
        return f" (default {_plain(usual)}{more})"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ever, with the defaults of the command filled in."""
        options = super().parse_args(args, namespace)
        for name, value in (self.usual | (self.quick if options.quick else {})).items():
            if getattr(options, name, None) is None:
                setattr(options, name, value)
        return options


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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


def _cell(value: Any, digits: int) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    mean, error = mean_and_error(np.atleast_1d(value))
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def as_table(corner: str, columns: Sequence[str], rows: Mapping[str, Sequence[Any]], digits: int = 1) -> str:
    """A Markdown table whose columns are aligned as text too.

    Args:
      corner: heading of the row names.
      columns: headings.
      rows: by name, one cell per column: text, None for an empty one, a figure, or runs of one ``[runs]``, which show
        as mean and standard error.
      digits: of figures.

    Returns:
      Lines of text.
    """
    lines = [[corner, *columns], *([name, *(_cell(value, digits) for value in cells)] for name, cells in rows.items())]
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns) + 1)]
    padded = [
        "| " + " | ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:]))]) + " |"
        for line in lines
    ]
    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def write(out: Path, name: str, text: str, draw: Any = None) -> None:
    """Prints the tables and writes them, and a picture, to OUT/NAME.md, .png and .pdf.

    Args:
      out: folder.
      name: of the files.
      text: Markdown.
      draw: makes the figure, in the style of all figures; None for no picture.
    """
    print(text)
    with new_file(out / f"{name}.md") as path:
        path.write_text(text + "\n", encoding="utf-8")
    if draw is not None:
        with needs("experiments"):
            from experiments.run.style import save  # and Matplotlib, which workers do without

        save(out, name, draw)
    note(f"written to {out / name}.md" + (" .png .pdf" if draw is not None else ""))


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path to write to inside the block; what was written takes the place of ``path`` once all of it is there.

    A disk that is full, or a folder that cannot be written to, ends the command with a sentence; an older file stays.
    """
    fresh = path.with_name(f"new-{path.name}")
    try:
        yield fresh
        os.replace(fresh, path)
    except OSError as error:
        end(f"{path} could not be written: {error.strerror or error}" + ("; it is as it was" if path.exists() else ""))
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def missing(error: ImportError, extra: str) -> str:
    """Which package could not be imported, and how to install it."""
    package = (error.name or "").partition(".")[0]
    return f"{package} is missing or too old: pip install -e '.[{extra}]'"


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Ends the command with a sentence if a package of an extra cannot be imported inside the block."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("", "experiments", "pvmincq_jax"):
            raise  # a mistake of ours, which no installation mends
        end(missing(error, extra))


def end(message: str, code: int = 2) -> NoReturn:
    """Ends the command with a sentence."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def note(text: str) -> None:
    """A line on how far the work is, to standard error."""
    print(text, file=sys.stderr, flush=True)
