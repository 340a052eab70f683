"""Small runs of the benchmarks: every row is there, and what is compared is equally right."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

pytest.importorskip("cvxopt")
pytest.importorskip("piqp")
pytest.importorskip("clarabel")

import pvmincq_jax
from experiments import benchmark
from experiments.bench import common, solvers
from pvmincq_jax.voting import programs
from tests.experiments.commands import check_refused


def _rows(capsys, *arguments):
    benchmark.main([*arguments, "--quick", "--json"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


PEERS = ("piqp", "cvxopt", "cvxopt_sparse", "clarabel")


def test_qp(capsys, one_call):
    rows = _rows(capsys, "qp", "--skip-boxosqp", "--repeats", "1", "--peers", *PEERS)
    compared = {row["solver"]: row for row in rows if "solver" in row}
    assert [*compared] == ["ours", "ours, votes as an argument", *PEERS]
    for name, row in compared.items():
        assert (row["voters"], row["gamma"], row["margins"]) == (100, 1.0, 6)
        assert row["times_ours"] == pytest.approx(row["ms"] / compared["ours"]["ms"])
        assert 0 <= row["error"] <= 1e-7
        assert ("scaling" in row and "tolerance" in row["settings"]) == (name in PEERS)
    assert compared["ours"]["first_call_seconds"] > 0
    growth = [row for row in rows if row["benchmark"] == "qp_growth"]
    assert [row["voters"] for row in growth if "voters" in row] == [200, 400]
    assert "exponent" in growth[-1]


@pytest.fixture(scope="module")
def program():
    """Twenty voters on thirty points, and the least objectives at three margins, by SciPy."""
    rng = np.random.default_rng(0)
    votes, labels = np.tanh(rng.normal(size=(30, 20))), np.sign(rng.normal(size=30))
    problem, fractions = solvers.Program(votes, labels), np.array([0.2, 0.5, 0.9])
    least = []
    for fraction in fractions:
        level = fraction * np.sum(np.abs(problem.normal))
        found = minimize(
            lambda v: np.mean((votes @ v) ** 2),
            fraction * np.sign(problem.normal),
            jac=lambda v: 2 * votes.T @ (votes @ v) / 30,
            bounds=[(-1, 1)] * 20,
            constraints={"type": "eq", "fun": lambda v, level=level: problem.normal @ v - level},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        least.append(problem.objective(found.x, fraction))
    return problem, fractions, np.array(least)


@pytest.mark.parametrize("name", solvers.PEERS)
def test_every_peer_solves_the_program_in_the_best_way(program, name, one_call):
    for package in solvers.PEERS[name].packages:
        pytest.importorskip(package)
    problem, fractions, least = program
    best = np.full(3, np.inf)
    way = solvers.best_way(solvers.PEERS[name], [(problem, fractions)], best)
    np.testing.assert_allclose(best, least, rtol=1e-7)
    solutions = solvers.solve(solvers.PEERS[name], way, problem, fractions)
    values = [problem.objective(v, fraction) for v, fraction in zip(solutions, fractions)]
    assert solvers.error(np.array(values), best) <= solvers.ACCURACY


def test_the_best_way_is_accurate_first_and_fast_second(program):
    problem, fractions, _ = program

    def make(hessian, normal, tolerance, slow):
        exact = solvers.PEERS["cvxopt"].make(hessian, normal, 1e-10)

        def solve(mu):
            time.sleep(0.02 * slow)
            if np.max(np.abs(hessian)) != 1:
                raise ArithmeticError("wants another scaling")
            return exact(mu) * (1 - tolerance)

        return solve

    families = [[{"tolerance": 0.1, "slow": 0}, {"tolerance": 0.0, "slow": 1}], [{"tolerance": 0.0, "slow": 0}]]
    way = solvers.best_way(solvers.Peer((), make, families), [(problem, fractions)], np.full(3, np.inf))
    assert way.scaling[0] == "largest 1"
    # A margin that is missed is made up for, and that costs: the first setting is fast and not accurate.
    assert way.settings == {"tolerance": 0.0, "slow": 0}
    assert way.named()["settings"] == "tolerance 0, slow 0"


def test_the_objective_is_of_a_feasible_vote(program):
    problem, fractions, least = program
    rng = np.random.default_rng(1)
    for fraction, value in zip(fractions, least):
        for v in rng.normal(size=(20, problem.normal.size)):
            assert problem.objective(v, fraction) >= value * (1 - 1e-7)
    assert problem.objective(np.full(20, np.nan), 0.5) == np.inf


def test_a_missing_solver_is_left_out_with_a_sentence(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "daqp", None)
    assert [*solvers.installed(["piqp", "daqp"])] == ["piqp"]
    assert "daqp is left out: daqp is not installed (pip install -e '.[test]')" in capsys.readouterr().err
    assert common.versions("numpy", "no-such-package")["no-such-package"] == "not installed"


def test_start(capsys):
    rows = _rows(capsys, "start")
    for row, name in zip(rows[1:], ("solution", "sweep"), strict=True):
        assert row[f"seconds_to_{name}"] > row["first_call_seconds"] > 0


def test_sweep(capsys, one_call):
    rows = _rows(capsys, "sweep", "--repeats", "1", "--peers", "piqp", "cvxopt")
    ours, *others = [row for row in rows if "solver" in row]
    assert ours["qps"] == 300
    assert ours["solved"] == 1.0
    assert ours["kkt_residual"] <= 1e-7
    assert [row["solver"] for row in others] == ["piqp", "cvxopt"]
    for row in others:
        assert row["qps"] == 300
        assert row["error"] <= 1e-6
        assert row["times_ours"] == pytest.approx(row["seconds"] / ours["seconds"])
        assert "Hessian" in row["scaling"]
    assert all(row["cores_used"] > 0 for row in (ours, *others))
    assert [row["points"] for row in rows if row["benchmark"] == "sweep_growth"] == [40]


@pytest.mark.long
def test_fit_beside_another_checkout(capsys):
    home = str(Path(pvmincq_jax.__file__).parents[1])
    rows = _rows(capsys, "fit", "--beside", home, "--rounds", "1", "--methods", "transport")[1:]
    assert [(row["points"], row["features"], row["form"]) for row in rows] == [(40, 2, "transport")]
    assert rows[0]["their_version"] == pvmincq_jax.__version__
    for figure in ("first_seconds", "second_seconds", "first_cpu_seconds", "second_cpu_seconds"):
        ours, theirs = rows[0][f"our_{figure}"], rows[0][f"their_{figure}"]
        assert ours > 0
        assert rows[0][f"{figure}_ratio"] == pytest.approx(ours / theirs)


def test_fit_beside_no_checkout_is_refused(capsys, tmp_path):
    check_refused(benchmark.main, ["fit", "--beside", str(tmp_path)], "--beside must be a checkout", capsys)


@pytest.mark.parametrize(
    ("methods", "sizes"),
    [
        (("transport",), (60,)),
        (("linear OT + SVC",), (60, 120)),
        pytest.param(("OT + SVC", "boosting"), (60, 120), marks=pytest.mark.long),
        pytest.param(("transport", "label", "SVC"), (60, 120), marks=pytest.mark.long),
    ],
)
def test_fit(capsys, methods, sizes):
    pytest.importorskip("skada")
    rows = _rows(capsys, "fit", "--methods", *methods, "--points", *map(str, sizes))
    fits = [row for row in rows if "points" in row]
    assert [(row["points"], row["method"]) for row in fits] == [
        (points, method) for points in sizes for method in methods
    ]
    for row in fits:
        assert row["seconds"] > 0
        assert row["peak_mb"] >= 0
        assert 50 < row["accuracy"] <= 100
    growth = [row for row in rows if row["benchmark"] == "fit_growth"]
    for row in growth:
        times = [fit["seconds"] for fit in fits if fit["method"] == row["method"]]
        assert row["exponent"] == pytest.approx(np.log2(times[1] / times[0]))
    assert [row["method"] for row in growth] == (list(methods) if len(sizes) == 2 else [])


def test_classes(capsys):
    rows = [row for row in _rows(capsys, "classes") if "classes" in row]
    assert [row["classes"] for row in rows] == [2, 3, 5]
    for row in rows:
        assert row["times_two_classes"] == pytest.approx(row["seconds"] / rows[0]["seconds"])
        assert row["accuracy"] > 80


def test_compile(capsys, monkeypatch, one_call):
    monkeypatch.setattr(programs, "_OPTIONS", {"xla_backend_optimization_level": 1, "xla_no_such_option": True})
    programs.known_options.cache_clear()
    rows = _rows(capsys, "compile")[1:]
    programs.known_options.cache_clear()
    names = [row["program"] for row in rows]
    assert names == sorted(names)
    assert set(names) == {"grid", "jit(vmap(mincq))"}
    for name in set(names):
        some = [row for row in rows if row["program"] == name]
        assert [row["options"] for row in some[:3]] == ["all", "without xla_backend_optimization_level", "none"]
        assert "with xla_backend_optimization_level 0" in [row["options"] for row in some]
        for row in some:
            assert row["times_all"] == pytest.approx(row["compile_cpu_seconds"] / some[0]["compile_cpu_seconds"])
            assert row["times_run_of_all"] == pytest.approx(row["run_ms"] / some[0]["run_ms"])


def test_devices(capsys, one_call):
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
