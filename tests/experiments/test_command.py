"""What all commands share: options, tables and files."""

import importlib

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from experiments.run import command
from tests.experiments.commands import check_refused

COMMANDS = (
    "studies.label_study",
    "learned_metric",
    "penguins",
    "shared_points",
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
        ("figures", ["--task", "45"], "invalid choice: '45'"),
        ("figures", ["--only", "pictures"], "'pictures' is not available; there are domains"),
        ("figures", ["--per-class", "2"], "must be a whole number from 5 on; it is '2'"),
        ("learned_metric", ["--runs", "0"], "must be a whole number from 1 on; it is '0'"),
        ("learned_metric", ["--levels", "0"], "--levels must be finite and at least 0.001"),
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
