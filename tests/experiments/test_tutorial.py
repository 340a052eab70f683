"""The tutorial is a notebook as well as a script, and runs from its first cell to its last."""

import ast
import json
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


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The cells that ``--notebook`` writes."""
    folder = tmp_path_factory.mktemp("tutorial") / "book"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stopped:
        run(patch, "--notebook", "--out", str(folder))
    assert stopped.value.code == 0
    written = json.loads((folder / "tutorial.ipynb").read_text())
    assert written["nbformat"] == 4
    return [(cell["cell_type"], "".join(cell["source"])) for cell in written["cells"]]


@pytest.mark.usefixtures("one_gamma")
def test_ten_steps(tmp_path, capsys, notebook):
    before = plt.get_fignums()
    names = {"__name__": "__main__"}
    first, *others = [source for kind, source in notebook if kind == "code"]
    exec(first, names)
    names |= {"angle": "30", "per_class": 10, "folder": tmp_path / "new"}
    for source in others:
        exec(source, names)
    plt.close(names["figure"])  # which a notebook shows
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


def test_cells(notebook):
    assert [kind for kind, _ in notebook] == ["markdown", "code"] * 11
    assert notebook[0][1].startswith("PV-MinCq in ten steps")
    assert [text.split(".")[0] for _, text in notebook[2::2]] == [f"## {step}" for step in range(1, 11)]
    # Nothing of the script is lost but what is for the command line: the other lines are those of the cells of code.
    code = "\n".join(source for _, source in notebook[1::2])
    script = re.sub(r"^# %% \[script\]\n.*?(?=^# %%|\Z)", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert ast.unparse(ast.parse(script).body[1:]) == ast.unparse(ast.parse(code))
    assert len(script) < len(TEXT)
    assert not any(word in code for word in ("argparse", "options", "__file__", "sys."))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "sideways"], "task must be a number of degrees"),
        (["--per-class", "2"], "must be a whole number from 8 on"),
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
