"""Small runs of the benchmarks: every row is there, and what is compared is equally right."""

import json

import numpy as np
import pytest

pytest.importorskip("cvxopt")
pytest.importorskip("piqp")
pytest.importorskip("clarabel")

from experiments import benchmark


def _rows(capsys, *arguments):
    benchmark.main([*arguments, "--quick", "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_qp(capsys):
    rows = _rows(capsys, "qp", "--skip-boxosqp", "--repeats", "1")
    compared = [row for row in rows if "ratio_cvxopt" in row]
    assert [row["gamma"] for row in compared] == [1.0]
    for row in compared:
        for name in ("ours", "captured", "argument", "cvxopt", "cvxopt_sparse"):
            assert row[f"{name}_error"] <= 1e-7
        assert row["gammas_solved"]
        for name in ("cvxopt", "cvxopt_sparse", "piqp", "clarabel"):
            assert row[f"ratio_{name}"] == pytest.approx(row[f"{name}_ms"] / row["ours_ms"])
    growth = [row for row in rows if row["benchmark"] == "qp_growth"]
    assert [row["voters"] for row in growth if "voters" in row] == [200, 400]
    assert "exponent" in growth[-1]


def test_start(capsys):
    rows = _rows(capsys, "start")
    assert rows[1]["seconds_to_solution"] > 0
    assert rows[2]["seconds_to_sweep"] > 0


def test_sweep(capsys):
    rows = _rows(capsys, "sweep", "--repeats", "1")
    main = next(row for row in rows if "ratio_cvxopt" in row)
    assert main["qps"] == main["cvxopt_qps"] == main["piqp_qps"] == 300
    assert main["solved"] == 1.0
    assert main["kkt_residual"] <= 1e-7
    assert main["cvxopt_error"] <= 1e-6
    assert main["ratio_piqp"] == pytest.approx(main["piqp_seconds"] / main["seconds"])
    assert [row["points"] for row in rows if row["benchmark"] == "sweep_growth"] == [40]


@pytest.mark.parametrize("methods", [("transport", "OT + SVC"), pytest.param(("label", "SVC"), marks=pytest.mark.long)])
def test_fit(capsys, methods):
    pytest.importorskip("skada")
    rows = _rows(capsys, "fit", "--methods", *methods)
    fits = [row for row in rows if "points" in row]
    assert [(row["points"], row["method"]) for row in fits] == [
        (points, method) for points in (60, 120) for method in methods
    ]
    for row in fits:
        assert row["seconds"] > 0
        assert row["peak_mb"] >= 0
        assert 50 < row["accuracy"] <= 100
    growth = [row for row in rows if row["benchmark"] == "fit_growth"]
    for row in growth:
        times = [fit["seconds"] for fit in fits if fit["method"] == row["method"]]
        assert row["exponent"] == pytest.approx(np.log2(times[1] / times[0]))
    assert len(growth) == 2


def test_classes(capsys):
    rows = [row for row in _rows(capsys, "classes") if "classes" in row]
    assert [row["classes"] for row in rows] == [2, 3, 5]
    for row in rows:
        assert row["times_two_classes"] == pytest.approx(row["seconds"] / rows[0]["seconds"])
        assert row["accuracy"] > 80


def test_devices(capsys):
    rows = _rows(capsys, "devices", "--repeats", "1")
    small, large = rows[1:5], rows[5:]
    ways = ["one device, one core", "one device", f"mesh of {rows[0]['cores']}", "threads"]
    for part, count in ((small, 60), (large, 192)):
        assert [row["way"] for row in part] == ways
        for row in part:
            assert row["qps"] == count
            assert row["c_bound_apart"] < 1e-7
            assert row["times_faster"] == pytest.approx(part[0]["seconds"] / row["seconds"])
            assert row["cores_used"] > 0
