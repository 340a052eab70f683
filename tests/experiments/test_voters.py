"""The command that compares where the kernels sit."""

import pytest

import pvmincq_jax as pvm
from experiments import voters
from tests.experiments.commands import lines_of


def test_a_small_comparison(tmp_path, capsys, monkeypatch):
    fit = pvm.fit_validated
    small = {"radii": (0.2,), "margins": (0.1,), "gammas": (2.0,), "folds": 2, "draws": 2}
    monkeypatch.setattr(pvm, "fit_validated", lambda *data, **options: fit(*data, **options, **small))
    sizes = ["--tasks", "20", "--runs", "1", "--per-class", "20", "--test-size", "100"]
    voters.main([*sizes, "--jobs", "0", "--out", str(tmp_path)])
    records = lines_of(tmp_path)
    assert [record["voters"] for record in records] == ["target", "source", "both"]
    assert all(85 <= record["accuracy"] <= 100 for record in records)
    shown = capsys.readouterr().out
    assert all(f"{record['accuracy']:.1f}" in shown for record in records)


@pytest.mark.long
def test_a_small_comparison_of_caps(tmp_path, capsys, one_gamma):
    most = ["--runs", "1", "--most", "8", "40", "--capped", "Adelie to Gentoo"]
    voters.main([*most, "--jobs", "0", "--out", str(tmp_path)])
    records = lines_of(tmp_path)
    assert [record["voters"] for record in records] == ["label, 8", "label, 40", "transport, 8", "transport, 40"]
    assert all(60 <= record["accuracy"] <= 100 for record in records)
    shown = capsys.readouterr().out
    assert all(f"{record['accuracy']:.1f}" in shown for record in records)
