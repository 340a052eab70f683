"""The study of the labelled form's criterion: every rule, the accuracies, and the command."""

import json

import numpy as np
import pytest

import pvmincq_jax as pvm
from experiments import label_study
from experiments.shifts import Shift, shifted_task

SMALL = Shift("moons", 40, noise=0.07, per_class=20, seed=1234)


@pytest.fixture(scope="module")
def found(one_gamma):
    return label_study.look(SMALL)


def test_the_chosen_rule_is_the_default(found):
    assert set(found) == {*label_study.RULES, "best of the grid", "median of the grid"}
    assert all(0 <= value <= found["best of the grid"] for value in found.values())
    data = shifted_task(SMALL)
    fitted = pvm.fit_validated(data.source, data.source_labels, data.target, seed=3)
    accuracy = np.mean(np.asarray(pvm.predict(fitted.model, data.test)) == data.test_labels)
    assert found["chosen"] == pytest.approx(accuracy)


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
