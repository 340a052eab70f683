"""The tutorial runs from the first step to the last, and is a notebook as well as a script."""

import re
import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest

from experiments import __file__ as package
from tests.experiments.commands import check_refused

TEXT = (Path(package).parent / "tutorial.py").read_text()


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["tutorial", *arguments])
    return runpy.run_module("experiments.tutorial", run_name="__main__")


@pytest.mark.usefixtures("one_gamma")
def test_ten_steps(monkeypatch, tmp_path, capsys):
    before = plt.get_fignums()
    names = run(monkeypatch, "--task", "30", "--per-class", "10", "--out", str(tmp_path / "new"))
    out = capsys.readouterr().out
    assert [int(number) for number in re.findall(r"^ ?(\d+)\. ", out, flags=re.MULTILINE)] == [
        *range(1, 7),
        *range(6, 11),
    ]
    assert "nan" not in out
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"tutorial.png", "tutorial.pdf"}
    # What it shows is true: the gradient is that of the differences, the bound holds, and all ways choose alike.
    assert float(names["slope"][0]) == pytest.approx(float(names["difference"]), abs=1e-5)
    assert abs(names["risks"][0] - names["risks"][1]) <= names["bound"]
    choice, classifier = names["choice"], names["classifier"]
    assert (choice.radius, choice.gamma) == (classifier.radius_, classifier.gamma_)
    assert choice.margin == pytest.approx(classifier.margin_fraction_)
    assert plt.get_fignums() == before


def test_cells():
    kinds = re.findall(r"^# %%( \[markdown\])?$", TEXT, flags=re.MULTILINE)
    assert kinds == [" [markdown]", ""] * 11
    assert re.findall(r"^# ## (\d+)\.", TEXT, flags=re.MULTILINE) == [str(step) for step in range(1, 11)]
    cells = re.split(r"^# %%.*$", TEXT, flags=re.MULTILINE)[1:]
    for number, cell in enumerate(cells):
        compile(cell, f"cell {number}", "exec")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "sideways"], "task must be a number of degrees"),
        (["--per-class", "2"], "--per-class at least 8"),
        (["--unknown"], "unrecognized arguments"),
    ],
)
def test_bad_options_are_named(monkeypatch, capsys, arguments, message):
    check_refused(lambda given: run(monkeypatch, *given), arguments, message, capsys)


def test_help(monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "--help")
    assert stopped.value.code == 0
    assert "ten steps" in capsys.readouterr().out
