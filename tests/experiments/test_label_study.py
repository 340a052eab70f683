"""The study of the labelled form's criterion: every rule, the accuracies, and the command."""

import json

import pytest

import pvmincq_jax as pvm
from experiments.run.shifts import Shift
from experiments.studies import label_study
from tests.experiments.commands import check_chosen_rule

SMALL = Shift("moons", 40, noise=0.07, per_class=20, seed=1234)


@pytest.fixture(scope="module")
def found(one_gamma):
    return label_study.look(SMALL)


def test_the_chosen_rule_is_the_default(found):
    check_chosen_rule(label_study, found, SMALL, pvm.fit_validated)


def test_drawn_species():
    tasks = label_study.drawn_tasks()
    assert len(tasks) == len(set(tasks)) == 18
    assert {task.group for task in tasks} == {"drawn species"}
    assert all(task.seed not in range(2014, 2024) for task in tasks)


def test_command(found, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(label_study.SETS, "first", lambda: [SMALL])
    label_study.main(["--sets", "first", "--jobs", "0", "--out", str(tmp_path)])
    record = json.loads((tmp_path / "results.jsonl").read_text())
    assert record["accuracy"] == found
    assert record["settings"]["seed"] == SMALL.seed
    assert record["settings"]["draw_seed"] == 3
    assert "| chosen " in (tmp_path / "label_study.md").read_text()
    assert "[1/1] first 0: moons" in capsys.readouterr().err
