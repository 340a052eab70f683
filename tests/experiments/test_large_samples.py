"""Parts of large samples beside all points, in a small case."""

import numpy as np
import pytest

import pvmincq_jax as pvm
from experiments.studies import large_samples
from tests.experiments.commands import lines_of


def test_pv_of_parts_is_larger_and_that_of_all_points_as_asked_for():
    found = large_samples.pv_of_parts("moons", 120, [30, 60], seed=0)
    np.testing.assert_allclose(found["120"], [0.4, 0.2, 0.1], atol=0.01)
    assert np.all(np.array(found["30"]) > found["60"])
    assert np.all(np.array(found["60"]) > found["120"])


@pytest.mark.parametrize("kind", list(large_samples.TASKS))
def test_tasks_have_their_size_and_differ_between_domains(kind):
    task = large_samples.TASKS[kind](80, np.random.default_rng(0))
    assert task.source.shape == task.target.shape
    assert len(task.source) == 80
    assert set(task.source_labels) == {-1.0, 1.0}
    assert pvm.label_shift(task.source, task.source_labels, task.target).p_value < 0.05


def test_command(tmp_path, capsys):
    options = ["--tasks", "moons", "--sizes", "60", "--part", "24", "--runs", "1", "--jobs", "0", "--cache", "off"]
    large_samples.main([*options, "--out", str(tmp_path)])
    assert "form, points matched" in capsys.readouterr().out
    lines = lines_of(tmp_path)
    assert {line["road"] for line in lines} == set(large_samples.ROADS)
    assert all(50 < line["accuracy"] <= 100 for line in lines)
