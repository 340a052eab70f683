"""The maps of translations and of moons: what a cell computes, and the command in its small case."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from experiments.run.cells import Settings, compute
from experiments.studies import translation_map
from pvmincq_jax.datasets import TRANSLATION, moons_task
from tests.experiments.commands import lines_of

SIZES = {"seed": 7000, "per_class": 20, "test_size": 100}


def test_a_translation_is_that_of_the_table():
    direction, length = np.rad2deg(np.arctan2(*TRANSLATION[::-1])), np.hypot(*TRANSLATION)
    found = translation_map.translation_cell(SIZES, "SVM", direction, length, 1)
    table = compute(Settings(**SIZES)._asdict(), "SVM", "translation", 1)
    assert found["accuracy"] == table["accuracy"]


@pytest.mark.parametrize("length", [0.5, 4.0])
def test_the_condition_is_that_nearest_neighbours_are_of_one_class(length):
    task = moons_task("translation", 7000, per_class=20, translation=(length, 0.0))
    labels = [KNeighborsClassifier(k).fit(task.source, task.source_labels).predict(task.target) for k in (1, 5, 15)]
    found = translation_map.translation_cell(SIZES, "NN-MinCq", 0.0, length, 0)
    assert found["degenerate"] == all(len(set(one)) == 1 for one in labels) == (length > 1)


def test_a_gap_moves_the_moons_apart():
    """Half-circles far apart stay on their sides of the source's boundary when they are turned."""
    wide = translation_map.moons_cell(SIZES, 0.05, 4.0, 0)["accuracy"]
    usual = translation_map.moons_cell(SIZES, 0.05, 0.0, 0)["accuracy"]
    assert len(wide) == len(usual) == 7
    assert wide[:4] == [100.0] * 4
    assert usual[3] < 100


@pytest.mark.long
def test_command(tmp_path, capsys):
    sizes = ["--per-class", "20", "--test-size", "100"]
    arguments = ["--quick", "--jobs", "0", "--out", str(tmp_path), *sizes]
    translation_map.main(arguments)
    shown = capsys.readouterr().out
    lines = lines_of(tmp_path / "translation")
    held = {(one["direction"], one["length"]) for one in lines if one.get("degenerate")}
    fitted = [one for one in lines if one["method"] == "SVM"]
    # The methods run where the condition holds, once; and at the closest point in all runs.
    assert {(one["direction"], one["length"]) for one in fitted} == held
    assert sum(one["run"] == 0 for one in fitted) == len(held)
    assert sum(one["run"] == 1 for one in fitted) == 1
    best = min((one for one in fitted if one["run"] == 0), key=lambda one: abs(one["accuracy"] - 50.6))
    assert f"{best['direction']:g}°, {best['length']:g}" in shown
    assert len(lines_of(tmp_path / "moons")) == 8
    for name in ("translation_map", "moons_map"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    translation_map.main(arguments)
    assert "4 in" in capsys.readouterr().err
