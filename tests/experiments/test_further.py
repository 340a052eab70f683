"""The commands on further directions, each in one small run: what they compute, keep and draw."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from experiments import shared_points, views
from tests.experiments.commands import lines_of


@pytest.mark.usefixtures("one_gamma")
def test_views(tmp_path, capsys, monkeypatch):
    small = {"levels": (0.2,), "margins": (0.2,), "folds": 2}
    monkeypatch.setattr(views, "_GRID", small)
    row = "A and B as views, each matched"
    monkeypatch.setattr(views, "ROWS", {row: views.ROWS[row]})
    views.main(["--quick", "--runs", "1", "--size", "16", "--jobs", "0", "--out", str(tmp_path)])
    (line,) = lines_of(tmp_path)
    without, adapted = line["accuracy"]
    assert (line["row"], line["run"], without) == (row, 0, None)
    # Better than chance, from 16 digits a domain.
    assert 50 < adapted <= 100
    assert f"{adapted:.1f}" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"results.jsonl", "views.md", "views.png", "views.pdf"}


def test_shared_points(tmp_path, capsys, monkeypatch):
    def nearest(source, labels, target, seed):
        return KNeighborsClassifier(1).fit(source, labels).predict

    monkeypatch.setattr(shared_points, "LEARNERS", {"1-NN": nearest})
    shared_points.main(["--runs", "1", "--jobs", "0", "--out", str(tmp_path)])
    stray = [line["figures"] for line in lines_of(tmp_path) if line["scene"] == "stray"]
    assert len(stray) == 1
    # A cluster that the target lacks is found by both rankings, far better than by chance.
    assert all(one[name] > 80 for one in stray for name in shared_points.RANKINGS)
    task = shared_points.shared_task("stray", 2014)
    right = nearest(task.source, task.source_labels, None, 0)(task.test) == task.test_labels
    assert stray[0]["1-NN, all points"] == pytest.approx(100 * np.mean(right))
    assert "first half of the ranking" in capsys.readouterr().out
    assert (tmp_path / "shared_points.png").stat().st_size > 5000
