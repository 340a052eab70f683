"""The example that follows the gradient of the held-out C-bound past the best point of the grid."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from experiments import differentiate
from pvmincq_jax.datasets import moons_task

STEPS = 12


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One run of the command, and the problem that it solved."""
    path = tmp_path_factory.mktemp("differentiate") / "made" / "way.json"
    command = ["--task", "30", "--seed", "1", "--per-class", "8", "--steps", str(STEPS), "--out", str(path)]
    differentiate.main(command)
    result = json.loads(path.read_text())
    task = moons_task("30", 1, per_class=8)
    found = pvm.self_label(task.source, task.source_labels, task.target, result["radius"], draws=16, seed=1)
    problem = differentiate.make_problem(task.target, found, 3, 1)
    return SimpleNamespace(result=result, task=task, found=found, problem=problem)


def test_ends_below_the_best_of_the_grid(done):
    result = done.result
    grid = np.array(result["grid"])
    assert grid.shape == (len(result["gammas"]), len(result["margins"]))
    assert result["grid_best"] == np.nanmin(grid)
    # It starts at the grid's best point, and what it says of its last one is true of the problem.
    assert result["values"][0] == pytest.approx(result["grid_best"], abs=1e-9)
    assert result["followed_best"] < result["grid_best"] - 1e-4
    end = differentiate.to_point(result["after"]["gamma"], result["after"]["margin"])
    value, _ = differentiate.value_and_slope(end, done.problem)
    assert float(value) == pytest.approx(result["followed_best"], abs=1e-8)
    assert len(result["values"]) == STEPS + 1
    assert result["settings"] == {"task": "30", "seed": 1, "per_class": 8, "folds": 3, "steps": STEPS}


def test_gradient_agrees_with_central_differences(done):
    for point in np.array(done.result["points"])[[0, STEPS // 2, STEPS]]:
        _, slope = differentiate.value_and_slope(point, done.problem)
        step = 1e-5
        differences = [
            (
                differentiate.value_and_slope(point + step * axis, done.problem)[0]
                - differentiate.value_and_slope(point - step * axis, done.problem)[0]
            )
            / (2 * step)
            for axis in np.eye(2)
        ]
        assert np.linalg.norm(slope) > 1e-4
        np.testing.assert_allclose(slope, differences, atol=1e-4 * np.linalg.norm(slope))


def test_judged_on_what_was_learnt_it_is_the_model_s_own_c_bound(done):
    weights = np.broadcast_to(done.found.weights, done.problem.learning.shape)
    problem = done.problem._replace(learning=weights, judging=weights)
    gamma, margin = done.result["before"]["gamma"], done.result["before"]["margin"]
    value, _ = differentiate.value_and_slope(differentiate.to_point(gamma, margin), problem)
    model = pvm.pv_mincq(
        done.task.source,
        done.task.source_labels,
        done.task.target,
        radius=done.result["radius"],
        gamma=gamma,
        margin=margin,
        margin_unit="fraction",
        draws=16,
        seed=1,
    )
    assert float(value) == pytest.approx(float(model.c_bound), abs=1e-7)


def test_folds_share_no_point_and_cover_the_matched_ones(done):
    learning, judging = done.problem.learning, done.problem.judging
    assert learning.shape == judging.shape == (3, len(done.task.target))
    assert not np.any((learning > 0) & (judging > 0))
    np.testing.assert_array_equal(learning + judging, np.broadcast_to(done.found.weights, learning.shape))
    np.testing.assert_array_equal(np.sum(judging, axis=0), done.found.weights)
    order = np.random.default_rng(0).permutation(len(done.task.target))
    found = done.found._replace(labels=done.found.labels[order], weights=done.found.weights[order])
    moved = differentiate.make_problem(done.task.target[order], found, 3, 1)
    np.testing.assert_array_equal(moved.judging, judging[:, order])
    without = differentiate.make_problem(done.task.target, done.found, 0, 1)
    np.testing.assert_array_equal(without.learning, done.found.weights[None])
    np.testing.assert_array_equal(without.judging, done.found.weights[None])


def test_configuration_is_left_alone(done, capsys):
    with jax.enable_x64(False):
        differentiate.main(["--task", "30", "--seed", "1", "--per-class", "8", "--steps", "1"])
        assert not jax.config.jax_enable_x64
    out = capsys.readouterr().out
    assert "grid's best" in out
    assert f"{done.result['grid_best']:.5f}" in out


def test_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        differentiate.main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert all(option in out for option in ("--task", "--seed", "--steps", "--out"))
