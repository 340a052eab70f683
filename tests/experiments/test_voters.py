"""The command that compares where the kernels sit."""

import re

import pvmincq_jax as pvm
from experiments import voters


def test_a_small_comparison(capsys, monkeypatch):
    fit = pvm.fit_validated
    small = {"radii": (0.2,), "margins": (0.1,), "gammas": (2.0,), "folds": 2, "draws": 2}
    monkeypatch.setattr(pvm, "fit_validated", lambda *data, **options: fit(*data, **options, **small))
    voters.main(["--tasks", "20", "--runs", "1", "--per-class", "20", "--test-size", "100"])
    rows = [re.match(r"(target|source|both)\s+([\d.]+)", line) for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row.group(1) for row in rows] == ["target", "source", "both"]
    assert all(85 <= float(row.group(2)) <= 100 for row in rows)
