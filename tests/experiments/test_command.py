"""What all commands share: options, tables and files."""

import importlib

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from experiments.figures import FIGURES
from experiments.run import command
from experiments.run.methods import METHODS, TASKS
from experiments.run.tasks import REPORTED, STUDIED
from experiments.voters import CAPPED
from tests.experiments.commands import check_refused

COMMANDS = (
    "studies.label_study",
    "learned_metric",
    "penguins",
    "shared_points",
    "studies.solver_fuzz",
    "table1",
    "studies.translation_map",
    "studies.transport_laws",
    "studies.transport_limits",
    "studies.transport_study",
    "views",
    "voters",
)


def test_mean_and_error_agree_with_scipy():
    values = np.random.default_rng(0).normal(size=9)
    mean, error = command.mean_and_error(values)
    assert mean == pytest.approx(np.mean(values))
    assert error == pytest.approx(stats.sem(values))
    assert np.isnan(command.mean_and_error([3.0])[1])


def test_table_is_aligned_and_shows_every_kind_of_cell():
    rows = {"short": [[1.0, 3.0], None, 7.25], "a longer name": ["text", np.array([50.0, 50.0]), [4.0]]}
    lines = command.as_table("name", ["first", "second", "third"], rows, 2).splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["name", "first", "second", "third"]
    assert cells[2:] == [["short", "2.00 ± 1.00", "", "7.25"], ["a longer name", "text", "50.00 ± 0.00", "4.00"]]


def test_files_hold_what_is_printed(tmp_path, capsys):
    command.write(tmp_path, "thing", "a table ±", lambda: plt.subplots()[0])
    assert capsys.readouterr().out == "a table ±\n"
    assert (tmp_path / "thing.md").read_text(encoding="utf-8") == "a table ±\n"
    assert {path.name for path in tmp_path.iterdir()} == {"thing.md", "thing.png", "thing.pdf"}
    assert plt.get_fignums() == []


def test_a_full_disk_leaves_the_older_file(tmp_path, capsys):
    """A limit on the size of files is a disk that is full, as far as a command can see."""
    resource = pytest.importorskip("resource")
    command.write(tmp_path, "thing", "an older table")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    for draw in (None, lambda: plt.subplots()[0]):
        text = "a table\n" * (1000 if draw is None else 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
        try:
            with pytest.raises(SystemExit) as stopped:
                command.write(tmp_path, "thing", text, draw)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert stopped.value.code == 2
        assert "could not be written: File too large" in capsys.readouterr().err
    # The second time the text had room, and the picture had not.
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"thing.md": "a table\n\n"}
    plt.close("all")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("figures", [*FIGURES, *METHODS, *TASKS]),
        ("real_shifts", [*REPORTED, *STUDIED]),
        ("studies.transport_limits", METHODS),
        ("table1", [*METHODS, *TASKS]),
        ("voters", [*CAPPED, *TASKS]),
    ],
)
def test_help_lists_every_choice(name, known, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"experiments.{name}").main(["--help"])
    out = "".join(capsys.readouterr().out.split())
    assert not [choice for choice in known if choice.replace(" ", "") not in out]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_bad_options(name, capsys):
    module = importlib.import_module(f"experiments.{name}")
    with pytest.raises(SystemExit) as stopped:
        module.main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"python -m experiments.{name}" in out
    assert all(option in out for option in ("--out", "--quick", "--jobs", "--dask", "--cache", "results.jsonl"))
    check_refused(module.main, ["--jobs", "-3"], "--jobs", capsys)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("differentiate", ["--folds", "1"], "--folds must be 0 or at least 2"),
        ("differentiate", ["--steps", "0"], "--steps: must be a whole number from 1 on"),
        ("differentiate", ["--seed", "-1"], "--seed: must be a whole number from 0 on"),
        ("differentiate", ["--task", "sideways"], "task must be a number of degrees"),
        ("table1", ["--methods", "SVN"], "'SVN' is not available; there are SVM, MinCq"),
        ("table1", ["--tasks", "25"], "'25' is not available; there are 20, 30"),
        ("table1", ["--runs", "0"], "whole number from 1 on"),
        ("table1", ["--jobs", "many"], "whole number from 0 on"),
        ("table1", ["--noise", "-1"], "--noise: must be a finite number from 0 on; it is '-1'"),
        ("table1", ["--noise", "nan"], "--noise: must be a finite number from 0 on; it is 'nan'"),
        ("studies.translation_map", ["--noises", "0.1", "-2"], "--noises: must be a finite number from 0 on"),
        ("figures", ["--task", "45"], "invalid choice: '45'"),
        ("figures", ["--only", "pictures"], "'pictures' is not available; there are domains"),
        ("figures", ["--per-class", "2"], "must be a whole number from 5 on; it is '2'"),
        ("learned_metric", ["--runs", "0"], "must be a whole number from 1 on; it is '0'"),
        ("learned_metric", ["--levels", "0"], "--levels: must be a finite number from 0.001 on"),
        ("learned_metric", ["--form", "round"], "invalid choice"),
    ],
)
def test_bad_arguments_are_named(name, arguments, message, capsys):
    check_refused(importlib.import_module(f"experiments.{name}").main, arguments, message, capsys)


def test_names_keep_their_commas():
    parser = command.Command("thing", "A thing.", {"of": ["a"]}, {})
    parser.add_argument("--of", nargs="+", action=command.names(["a", "a, twice", "b"]))
    assert parser.parse_args([]).of == ["a"]
    assert parser.parse_args(["--of", "b", "a, twice"]).of == ["a, twice", "b"]
    assert parser.parse_args(["--of", "b,a"]).of == ["a", "b"]
