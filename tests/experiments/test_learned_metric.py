"""The command on the learned distance: one small honest run, and what surrounds it."""

import functools

import numpy as np
import pytest
from scipy.stats import sem

import pvmincq_jax as pvm
from experiments import learned_metric
from experiments.learned_metric import METHODS, NOISE_FEATURES, Settings, noisy_moons
from tests.experiments.commands import check_refused, lines_of

SMALL = ["--jobs", "0", "--levels", "1", "--runs", "2", "--seed", "1001", "--per-class", "30", "--test-size", "200"]


POINT = {"radii": (0.2,), "radius_unit": "pv", "margins": (0.1,), "folds": 2}


@pytest.mark.long
def test_the_command(tmp_path, monkeypatch, capsys):
    """Two runs in one test, with one point of the grid and few steps of learning: it compiles for most of the time."""
    folder = tmp_path / "made"
    monkeypatch.setattr(learned_metric, "GRID", {**POINT, "gammas": (4.0,)})
    monkeypatch.setattr(pvm, "learn_map", functools.partial(pvm.learn_map, steps=60))
    learned_metric.main([*SMALL, "--out", str(folder)])
    check_records_and_table(folder)
    check_that_finished_runs_are_not_computed_again(folder, monkeypatch, capsys)
    check_that_results_of_other_settings_are_refused(folder, capsys)


def test_noise_has_its_level_in_both_domains_and_nothing_else_changes():
    settings = Settings(per_class=500, test_size=1000)
    small, large = noisy_moons(0.1, 1000, settings), noisy_moons(3.0, 1000, settings)
    for name in ("source", "target", "test"):
        points = getattr(large, name)
        assert points.shape == (1000, 2 + NOISE_FEATURES)
        np.testing.assert_allclose(points[:, 2:].std(axis=0), 3, rtol=0.1)
        np.testing.assert_allclose(points[:, 2:].mean(axis=0), 0, atol=0.4)
        np.testing.assert_array_equal(points[:, :2], getattr(small, name)[:, :2])
    correlation = np.corrcoef(large.source[:, 2:].T, large.target[:, 2:].T)
    assert np.abs(correlation - np.eye(16)).max() < 0.2
    # A drawing of its own for each level: not the same noise made larger.
    assert np.abs(np.corrcoef(small.source[:, 2], large.source[:, 2])[0, 1]) < 0.2


def check_records_and_table(folder):
    records = lines_of(folder)
    assert [(r["level"], r["run"]) for r in records] == [(1.0, 0), (1.0, 1)]
    table = (folder / "learned_metric.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    for method in METHODS:
        values = [r["figures"][method]["accuracy"] for r in records]
        assert [method, f"{np.mean(values):.1f} ± {sem(values):.1f}"] in rows
    for record in records:
        shares = record["map"]["shares"]
        assert sum(shares) == pytest.approx(1)
        # The map finds the two features of ten that the labels depend on, and brings the samples together.
        assert sum(shares[:2]) > 0.6
        assert record["map"]["pv"][1] < record["map"]["pv"][0]
    for ending in ("png", "pdf"):
        assert (folder / f"learned_metric.{ending}").stat().st_size > 5000


def check_that_finished_runs_are_not_computed_again(folder, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(learned_metric, "compute", lambda *cell: asked.append(cell))
    path = folder / "results.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"level": 1.0, "ru')  # as if stopped while writing
    learned_metric.main([*SMALL, "--out", str(folder)])
    assert asked == []
    assert path.read_text() == whole
    assert "PV-MinCq, learned" in capsys.readouterr().out


def check_that_results_of_other_settings_are_refused(folder, capsys):
    message = "holds results of other settings: angle is 30.0 in the file and 50.0 now"
    check_refused(learned_metric.main, [*SMALL, "--angle", "50", "--out", str(folder)], message, capsys)
