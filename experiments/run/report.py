"""The table as text, Markdown, CSV and LaTeX, and the plot of accuracy over the angle.

Every figure comes from the results file of the run; the paper's stand beside them. The best mean of a column is bold,
and so are others that print the same.
"""

import csv
import io
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments.run.cells import Settings, TableCell
from experiments.run.command import as_table, mean_and_error, new_file
from experiments.run.engine import Cell
from experiments.run.methods import METHODS, PAPER, TASKS
from experiments.run.results import library_versions

__all__ = ["Report", "Summary", "as_csv", "as_latex", "as_markdown", "as_text", "plot", "summarise", "write_report"]

COMPARABLE = (
    "The paper's generator, grids and translation are not published: ours and its figures compare in shape, row "
    "against row and column against column, and no figure is to be reproduced exactly."
)


class Report(NamedTuple):
    """What a table is made of.

    Attributes:
      methods: its rows.
      tasks: its columns.
      runs: per cell.
      settings: of all cells.
      quick: whether it is a quick look only.
      records: the finished cells' lines of the results file.
    """

    methods: Sequence[str]
    tasks: Sequence[str]
    runs: int
    settings: Settings
    quick: bool
    records: Mapping[Cell, dict[str, Any]]


class Summary(NamedTuple):
    """One method on one task.

    Attributes:
      finished: runs that are in the file.
      empty: of these, runs in which all self-labels were the same.
      mean: accuracy over the others, in per cent; NaN if there is none.
      error: its standard error; NaN below two runs.
      paper: the paper's figure; None for its empty-set sign, NaN if it has none.
      best: whether no other method's mean of this task prints higher.
      oracle: mean of the grid's best point in hindsight; NaN unless all runs have it.
    """

    finished: int
    empty: int
    mean: float
    error: float
    paper: float | None
    best: bool
    oracle: float


def summarise(report: Report) -> dict[tuple[str, str], Summary]:
    """Means, standard errors and bests of every method and task."""
    table = {}
    for method in report.methods:
        for task in report.tasks:
            cells = [TableCell(method, task, run) for run in range(report.runs)]
            records = [report.records[cell] for cell in cells if cell in report.records]
            figures = [record["accuracy"] for record in records if record["accuracy"] is not None]
            mean, error = mean_and_error(figures) if figures else (np.nan, np.nan)
            oracles = [record.get("oracle_accuracy", np.nan) for record in records]
            table[method, task] = Summary(
                finished=len(records),
                empty=len(records) - len(figures),
                mean=mean,
                error=error,
                paper=PAPER[method][TASKS.index(task)] if method in PAPER else np.nan,
                best=False,
                oracle=float(np.mean(oracles)) if oracles else np.nan,
            )
    for task in report.tasks:
        means = {method: round(table[method, task].mean, 1) for method in report.methods}
        highest = max((mean for mean in means.values() if not np.isnan(mean)), default=np.nan)
        for method, mean in means.items():
            table[method, task] = table[method, task]._replace(best=mean == highest)
    return table


def _ours(summary: Summary, plus_minus: str = "±", empty: str = "∅") -> str:
    if np.isnan(summary.mean):
        return empty if summary.empty else "-"
    return f"{summary.mean:.1f}" + ("" if np.isnan(summary.error) else f"{plus_minus}{summary.error:.1f}")


def _theirs(summary: Summary, empty: str = "∅") -> str:
    if summary.paper is None:
        return empty
    return "-" if np.isnan(summary.paper) else f"{summary.paper:.1f}"


def _title(report: Report) -> str:
    settings = report.settings
    runs = "one run" if report.runs == 1 else f"{report.runs} runs"
    usual = settings._replace(seed=0) == Settings(seed=0)
    sizes = "" if usual else ", sizes or noise other than the paper's"
    kind = "Quick look, not the table: a part of its methods and tasks" if report.quick else "Table 1"
    return f"{kind}. Accuracy in %, mean and standard error of {runs}{sizes}"


def _notes(report: Report) -> list[str]:
    """What has to be said beside the figures."""
    settings = report.settings
    versions = ", ".join(f"{name} {value}" for name, value in library_versions().items())
    notes = [
        COMPARABLE,
        "PV-MinCq is the paper's rule (one matching, chosen by R_S + PV); PV-MinCq+ is ours (the mean of 16 matchings, "
        "chosen by R_S + PV + C-bound + 4 cut + 4 gap^2, see pvmincq_jax.label_criterion). No choice of parameters has "
        "seen a target label; how the grids themselves came about is said in the methods' files.",
        f"Seeds {settings.seed} to {settings.seed + report.runs - 1}; {settings.per_class} points per class in source "
        f"and target, {settings.test_size} fresh test points, noise {settings.noise:g}; {versions}.",
    ]
    table = summarise(report)
    if any(summary.empty for summary in table.values()):
        notes.append("∅: all self-labels are the same, so there is nothing to learn; such runs have no figure.")
    for (method, task), summary in table.items():
        if 0 < summary.empty < summary.finished:
            notes.append(f"{method}, {task}: ∅ in {summary.empty} of {summary.finished} runs, left out of the mean.")
        if summary.finished < report.runs:
            notes.append(f"{method}, {task}: {summary.finished} of {report.runs} runs are finished.")
    for method in report.methods:
        oracles = [table[method, task].oracle for task in report.tasks]
        if not np.all(np.isnan(oracles)):
            text = ", ".join(f"{task}: {value:.1f}" for task, value in zip(report.tasks, oracles) if value == value)
            notes.append(f"{method}, best point of the grid in hindsight, found with the test labels: {text}.")
    return notes


def _seconds(report: Report, method: str) -> np.ndarray:
    return np.array([record["seconds"] for cell, record in report.records.items() if cell[0] == method])


def _times(report: Report) -> list[tuple[str, str, str, str]]:
    """Method, mean and longest seconds of a cell, minutes of all its cells."""
    rows = []
    for method in report.methods:
        seconds = _seconds(report, method)
        if seconds.size:
            total = f"{seconds.sum() / 60:.1f}"
            rows.append((method, f"{seconds.mean():.1f}", f"{seconds.max():.1f}", total))
    every = sum(float(np.sum(_seconds(report, method))) for method in report.methods)
    return [*rows, ("all", "", "", f"{every / 60:.1f}")]


_TIMES_HEAD = ("method", "mean s", "longest s", "all min")


def as_text(report: Report, bold: Callable[[str], str] = lambda text: f"*{text}*") -> str:
    """For a terminal: two lines a method, ours and the paper's; then the times and the notes."""
    table, width = summarise(report), 12
    lines = [_title(report), "", " " * 10 + "".join(f"{task:>{width}}" for task in report.tasks)]
    for method in report.methods:
        cells = []
        for task in report.tasks:
            summary = table[method, task]
            text = _ours(summary)
            marked = bold(text) if summary.best else text
            # What makes it bold may have no width on the screen.
            visible = len(text) if "\x1b" in marked else len(marked)
            cells.append(" " * (width - visible) + marked)
        lines.append(f"{method:10}" + "".join(cells))
        if method in PAPER:
            lines.append(
                "   (paper) " + "".join(f"{_theirs(table[method, task]):>{width}}" for task in report.tasks)[1:]
            )
    lines += ["", "Time of a cell, grid and validation included:", "{:10}{:>10}{:>11}{:>10}".format(*_TIMES_HEAD)]
    lines += ["{:10}{:>10}{:>11}{:>10}".format(*row) for row in _times(report)]
    return "\n".join([*lines, "", *(textwrap.fill(note, 106) for note in _notes(report))]) + "\n"


def as_markdown(report: Report) -> str:
    """One row a method, the paper's figure in brackets."""
    table = summarise(report)
    rows: dict[str, list[str]] = {}
    for method in report.methods:
        cells = rows[method] = []
        for task in report.tasks:
            summary = table[method, task]
            text = f"**{_ours(summary, ' ± ')}**" if summary.best else _ours(summary, " ± ")
            cells.append(f"{text} ({_theirs(summary)})" if method in PAPER else text)
    parts = [
        f"**{_title(report)}; in brackets, the paper's figure.**",
        as_table("method", [_degrees(task, "°") for task in report.tasks], rows),
        "Time of a cell, grid and validation included:",
        as_table(_TIMES_HEAD[0], _TIMES_HEAD[1:], {name: times for name, *times in _times(report)}),
        "\n".join(f"- {note}" for note in _notes(report)),
    ]
    return "\n\n".join(parts) + "\n"


def as_csv(report: Report) -> str:
    """One line per method and task; an empty field is a figure that does not exist."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["method", "task", "runs", "empty_runs", "mean", "standard_error", "best", "paper", "oracle", "mean_seconds"]
    )

    def number(value: float | None) -> str:
        return "" if value is None or np.isnan(value) else f"{value:.6g}"

    for (method, task), summary in summarise(report).items():
        own = [record["seconds"] for cell, record in report.records.items() if cell[:2] == (method, task)]
        figures = [number(value) for value in (summary.mean, summary.error)]
        last = [number(summary.paper), number(summary.oracle), number(float(np.mean(own)) if own else None)]
        writer.writerow([method, task, summary.finished, summary.empty, *figures, int(summary.best), *last])
    return stream.getvalue()


def as_latex(report: Report) -> str:
    """A booktabs table; notes as comments and in the caption."""
    table = summarise(report)
    sign = r"$\varnothing$"
    lines = [*(f"% {note}" for note in _notes(report)), r"\begin{table}", r"\centering\scriptsize"]
    caption = f"{_title(report)}; in brackets, the paper's figure. {COMPARABLE}".replace("%", r"\%")
    lines += [rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{l{'c' * len(report.tasks)}}}", r"\toprule"]
    lines += [" & ".join(["", *(_degrees(task, r"$^\circ$") for task in report.tasks)]) + r" \\", r"\midrule"]
    for method in report.methods:
        cells = []
        for task in report.tasks:
            summary = table[method, task]
            text = _ours(summary, r" \pm ", r"\varnothing")
            text = rf"$\mathbf{{{text}}}$" if summary.best else f"${text}$"
            cells.append(f"{text} ({_theirs(summary, sign)})" if method in PAPER else text)
        lines.append(" & ".join([method, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _degrees(task: str, sign: str) -> str:
    return task if task == "translation" else f"{task}{sign}"


def plot(report: Report) -> Any:
    """One panel a method over one shared pair of axes: ours as a line, the paper's as marks, the others' in grey."""
    table = summarise(report)
    columns = min(5, len(report.methods))
    rows = -(-len(report.methods) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(max(2.5 * columns + 0.6, 8), 2.3 * rows + 1.0), sharex=True, sharey=True, squeeze=False
    )
    angles = [task for task in report.tasks if task != "translation"]
    # The translation stands apart, on the right of the angles.
    places = {task: index for index, task in enumerate(angles)} | {"translation": len(angles) + 0.5}

    def draw(axis: Any, method: str, **style: Any) -> None:
        for tasks in (angles, [task for task in report.tasks if task == "translation"]):
            means = [table[method, task].mean for task in tasks]
            axis.plot([places[task] for task in tasks], means, **style)

    for axis, method in zip(axes.flat, report.methods):
        for other in report.methods:
            draw(axis, other, color="0.85", linewidth=1, marker=".", markersize=3, zorder=1)
        draw(axis, method, color="black", linewidth=1.8, marker="o", markersize=4, zorder=3)
        summaries = {task: table[method, task] for task in report.tasks}
        axis.errorbar(
            [places[task] for task in summaries],
            [summary.mean for summary in summaries.values()],
            [np.nan_to_num(summary.error) for summary in summaries.values()],
            fmt="none",
            ecolor="black",
            capsize=2,
            zorder=3,
        )
        paper = [(places[task], s.paper) for task, s in summaries.items() if s.paper is not None]
        axis.plot(*zip(*paper), linestyle="none", marker="x", markersize=6, color="tab:red", zorder=2)
        empty = [task for task, s in summaries.items() if s.empty and np.isnan(s.mean)]
        for task in empty:
            axis.text(places[task], 50, r"$\varnothing$", ha="center", va="center", fontsize=12)
        axis.set_title(method, fontsize=10)
        axis.set_xticks([places[task] for task in report.tasks])
        axis.set_xticklabels(["tr." if task == "translation" else task for task in report.tasks], fontsize=8)
        axis.set_ylim(0, 104)
        axis.grid(axis="y", color="0.93")
    for axis in axes.flat[len(report.methods) :]:
        axis.set_visible(False)
    # The lowest of each column says what its ticks are, also where the last row has no picture below it.
    for axis in axes.flat[max(0, len(report.methods) - columns) : len(report.methods)]:
        axis.tick_params(labelbottom=True)
    handles = [
        plt.Line2D([], [], color="black", marker="o", markersize=4, linewidth=1.8, label="ours, mean ± standard error"),
        plt.Line2D([], [], color="tab:red", marker="x", linestyle="none", label="the paper (other moons)"),
        plt.Line2D([], [], color="0.8", marker=".", label="the other methods, ours"),
    ]
    figure.supylabel("accuracy on the target, %", fontsize=10)
    figure.supxlabel("angle in degrees; tr.: translation", fontsize=10)
    figure.legend(handles=handles, loc="upper center", ncols=3, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / figure.get_size_inches()[1]))
    return figure


def write_report(report: Report, out: Path, seconds: float) -> None:
    """Prints the table, with the seconds that this start took, and writes its files."""
    bold = (lambda text: f"\x1b[1m{text}\x1b[0m") if sys.stdout.isatty() else (lambda text: f"*{text}*")
    print("\n" + as_text(report, bold))
    for ending, text in {"md": as_markdown(report), "csv": as_csv(report), "tex": as_latex(report)}.items():
        with new_file(out / f"table1.{ending}") as path:
            path.write_text(text, encoding="utf-8")
    figure = plot(report)
    for ending in ("png", "pdf"):
        with new_file(out / f"accuracy.{ending}") as path:
            figure.savefig(path, dpi=150)
    plt.close(figure)
    done, asked = len(report.records), len(report.methods) * len(report.tasks) * report.runs
    print(f"{done} of {asked} cells; {seconds / 60:.1f} min since this start. Written: {out}/table1.md .csv .tex,")
    print(f"{out}/accuracy.png .pdf")
    if set(report.methods) != set(METHODS) or set(report.tasks) != set(TASKS):
        print("The whole table: python -m experiments.table1")
