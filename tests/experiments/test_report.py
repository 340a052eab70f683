"""The report: means, standard errors, bests and empty cells, in four formats and a plot."""

import csv
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.run.cells import Settings
from experiments.run.cells import TableCell as Cell
from experiments.run.report import Report, as_csv, as_latex, as_markdown, as_text, plot, summarise

FIGURES = {
    ("SVM", "20"): [90.0, 92.0],
    ("SVM", "translation"): [50.0, 50.0],
    ("NN-MinCq", "20"): [91.04, 91.04],
    ("NN-MinCq", "translation"): [None, None],
    ("PV-MinCq+", "20"): [80.0, 90.0],
    ("PV-MinCq+", "translation"): [97.0, None],
}


@pytest.fixture
def report():
    records = {
        Cell(method, task, run): {"accuracy": accuracy, "seconds": 60.0}
        for (method, task), values in FIGURES.items()
        for run, accuracy in enumerate(values)
    }
    for run in range(2):
        records["PV-MinCq+", "20", run] = {**records[Cell("PV-MinCq+", "20", run)], "oracle_accuracy": 99.0}
    return Report(["SVM", "NN-MinCq", "PV-MinCq+"], ["20", "translation"], 2, Settings(), False, records)


def test_summaries(report):
    table = summarise(report)
    svm = table["SVM", "20"]
    assert (svm.mean, svm.error, svm.paper, svm.finished) == (91.0, pytest.approx(1.0), 89.6, 2)
    # 91.04 prints as 91.0 too, so both are bold.
    assert svm.best
    assert table["NN-MinCq", "20"].best
    assert not table["PV-MinCq+", "20"].best
    nothing = table["NN-MinCq", "translation"]
    assert (nothing.empty, nothing.paper, nothing.best) == (2, None, False)
    assert np.isnan(nothing.mean)
    some = table["PV-MinCq+", "translation"]
    assert (some.empty, some.mean, some.best) == (1, 97.0, True)
    assert np.isnan(some.error)
    assert np.isnan(some.paper)
    assert table["PV-MinCq+", "20"].oracle == 99.0


def test_text(report):
    text = as_text(report)
    for part in (
        "*91.0±1.0*",
        "mean and standard error of 2 runs",
        "(paper)        89.6        50.6",
        "∅ in 1 of 2 runs",
        "in hindsight, found with the test labels: 20: 99.0.",
        "Seeds 2014 to 2015",
        "jax 0.",
    ):
        assert part in text
    rows = [line for line in text.splitlines() if line.startswith(("SVM ", "NN-MinCq ", "PV-MinCq+ "))]
    assert rows[3:] == ["{:10}{:>10}{:>11}{:>10}".format(m, "60.0", "60.0", "4.0") for m in report.methods]
    coloured = as_text(report, lambda cell: f"\x1b[1m{cell}\x1b[0m")
    assert coloured.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()[3].endswith(" 50.0±0.0")


def test_markdown(report):
    text = as_markdown(report)
    rows = [" | ".join(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines()]
    assert "method | 20° | translation" in rows
    assert "SVM | **91.0 ± 1.0** (89.6) | 50.0 ± 0.0 (50.6)" in rows
    assert "NN-MinCq | **91.0 ± 0.0** (97.7) | ∅ (∅)" in rows
    assert "PV-MinCq+ | 85.0 ± 5.0 | **97.0**" in rows
    assert "PV-MinCq+ | 60.0 | 60.0 | 4.0" in rows
    assert "not published" in text


def test_csv(report):
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert len(rows) == len(FIGURES)
    first = rows[0]
    assert (first["method"], first["task"], first["mean"], first["standard_error"]) == ("SVM", "20", "91", "1")
    assert (first["paper"], first["best"], first["oracle"], first["mean_seconds"]) == ("89.6", "1", "", "60")
    assert (rows[3]["mean"], rows[3]["paper"], rows[3]["empty_runs"]) == ("", "", "2")


def test_latex(report):
    text = as_latex(report)
    assert r"SVM & $\mathbf{91.0 \pm 1.0}$ (89.6) & $50.0 \pm 0.0$ (50.6) \\" in text
    assert r"NN-MinCq & $\mathbf{91.0 \pm 0.0}$ (97.7) & $\varnothing$ ($\varnothing$) \\" in text
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert body[0] == r"\begin{table}"
    assert all(line.isascii() for line in body)


def test_plot_has_lines_and_marks(report):
    figure = plot(report)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == list(report.methods)
    marks = [line for line in shown[0].lines if line.get_marker() == "x"]
    np.testing.assert_allclose(marks[0].get_ydata(), [89.6, 50.6])
    plt.close(figure)


def test_missing_cells_are_said(report):
    report.records.pop(Cell("SVM", "20", 1))
    text = as_text(report)
    assert "SVM, 20: 1 of 2 runs are finished." in text
    lonely = report._replace(records={})
    assert "-" in as_text(lonely)
    assert as_csv(lonely).count("\n") == 7
