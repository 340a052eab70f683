"""SKADA-Bench's simulated shifts: tasks by its protocol, and the command keeps its figures."""

import json

import numpy as np
import pytest
from skada.datasets import make_shifted_datasets

from experiments import skada_bench


@pytest.mark.filterwarnings("ignore:The `return_X_y` parameter is deprecated")
@pytest.mark.parametrize("shift", skada_bench.SHIFTS)
def test_tasks_are_splits_of_skada_s_samples(shift):
    kind, noise, size = skada_bench.SHIFTS[shift]
    x, y, domain = make_shifted_datasets(
        size, size, shift=kind, noise=noise, center_cov_shift=(-0.4, 3), random_state=103
    )
    points = {tuple(row): (label, place >= 0) for row, label, place in zip(x, y, domain)}
    first, second = (skada_bench.task(shift, 103, split) for split in (0, 1))
    assert len(first.source) == len(first.target) == 0.8 * len(x) / 2
    assert [points[tuple(row)] for row in first.source] == [(label > 0, True) for label in first.source_labels]
    assert [points[tuple(row)] for row in first.test] == [(label > 0, False) for label in first.test_labels]
    # Nothing of the test sample is learnt from, and both halves have the target's class ratio.
    assert not {tuple(row) for row in first.test} & {tuple(row) for row in first.target}
    assert np.mean(first.test_labels > 0) == pytest.approx(np.mean(y[domain < 0] > 0), abs=0.01)
    assert {tuple(row) for row in first.test} != {tuple(row) for row in second.test}


def test_the_command(tmp_path, capsys):
    methods, options = ["PV-Transport", "SVM"], ["--runs", "1", "--seed", "103", "--jobs", "0", "--out", str(tmp_path)]
    skada_bench.main(["--methods", *methods, "--shifts", "class ratio", *options])
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(one["method"], one["shift"]) for one in records] == [(method, "class ratio") for method in methods]
    ours, svm = records
    assert ours["kind"] == "ratio"
    assert not ours["adapted"]
    assert "nothing is moved" in ours["sentence"]
    assert ours["accuracy"] > svm["accuracy"] - 3
    out = capsys.readouterr().out
    assert "published: trained on the source" in out
    assert f"{ours['accuracy']:.1f}" in out
    assert "class ratio: ratio 1" in out
    assert (tmp_path / "skada_bench.png").exists()
