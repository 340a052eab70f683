"""The command behind Table 1: cells, the file that they are kept in, stopping and going on, workers, leaks."""

import io
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments import methods, results, table1, workers
from experiments.methods import METHODS, grid_fingerprint
from experiments.results import Cell, Settings, open_results, run_cell
from pvmincq_jax.datasets import TASKS, draw_moons

SMALL = ["--per-class", "12", "--test-size", "60"]
SETTINGS = Settings(per_class=12, test_size=60)
KEYS = {
    "method",
    "task",
    "run",
    "accuracy",
    "params",
    "criterion",
    "seconds",
    "cpu_seconds",
    "seed",
    "versions",
    "settings",
    "fingerprint",
}


def lines_of(out):
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def cells_of(out):
    return [Cell(line["method"], line["task"], line["run"]) for line in lines_of(out)]


@pytest.fixture
def counted(monkeypatch):
    """The cells that are really computed, in this process."""
    seen = []

    def count(cell, settings, oracle=False):
        seen.append(cell)
        return run_cell(cell, settings, oracle)

    monkeypatch.setattr(workers, "run_cell", count)
    return seen


def run_small(out, *more):
    table1.main(["--methods", "SVM", "--tasks", "20", "80", *SMALL, "--jobs", "0", "--out", str(out), *more])


def test_a_small_table(tmp_path, capsys):
    run_small(tmp_path, "--runs", "2")
    records = lines_of(tmp_path)
    assert sorted(cells_of(tmp_path)) == sorted(Cell("SVM", task, run) for task in ("20", "80") for run in (0, 1))
    for record in records:
        assert set(record) == KEYS
        assert record["seed"] == 2014 + record["run"]
        assert 0 <= record["accuracy"] <= 100
        assert set(record["params"]) == {"gamma", "cost"}
        assert record["settings"]["grid"] == grid_fingerprint("SVM")
    shown = capsys.readouterr()
    assert "[4/4] SVM 80 run 1" in shown.err
    assert "left" in shown.err
    assert "(paper)" in shown.out
    assert "not published" in shown.out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"results.jsonl", "table1.md", "table1.csv", "table1.tex", "accuracy.png", "accuracy.pdf"}


def test_goes_on_and_repeats_nothing(tmp_path, counted):
    run_small(tmp_path, "--runs", "1")
    before = (tmp_path / "results.jsonl").read_bytes()
    counted.clear()
    run_small(tmp_path, "--runs", "1")
    assert counted == []
    run_small(tmp_path, "--runs", "2")
    assert counted == [Cell("SVM", "20", 1), Cell("SVM", "80", 1)]
    assert (tmp_path / "results.jsonl").read_bytes().startswith(before)


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_line_cut_short_is_computed_again(tmp_path, counted, cut):
    run_small(tmp_path, "--runs", "1")
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    counted.clear()
    run_small(tmp_path, "--runs", "1")
    assert counted == [Cell("SVM", "80", 0)]
    first, second = (line["accuracy"] for line in lines_of(tmp_path))
    assert [first, second] == [json.loads(line)["accuracy"] for line in whole.splitlines()]


def test_killed_and_started_again(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "experiments.table1", "--methods", "SVM", "--runs", "2", *SMALL]
    command += ["--jobs", "1", "--out", str(tmp_path)]
    path = tmp_path / "results.jsonl"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not path.exists() or path.read_bytes().count(b"\n") < 2):
        time.sleep(0.05)
    process.kill()
    process.wait()
    before = path.read_bytes()
    done = before.count(b"\n")
    assert 2 <= done < 2 * len(TASKS)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    found = cells_of(tmp_path)
    assert len(found) == len(set(found)) == 2 * len(TASKS)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads the state of a process in /proc")
def test_a_child_ends_with_its_parent(tmp_path):
    note = tmp_path / "pid"
    (tmp_path / "helper.py").write_text(
        f"import os, pathlib, time\n\ndef work():\n    pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(100)\n"
    )
    code = "import helper; from experiments.workers import on_one_core; on_one_core(helper.work)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (note.exists() and note.read_text()):
        time.sleep(0.05)
    child = int(note.read_text())
    process.kill()
    process.wait()

    def lives():
        try:
            with open(f"/proc/{child}/stat") as status:
                return status.read().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    while time.monotonic() < deadline and lives():
        time.sleep(0.05)
    assert not lives()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "7"], "seed is 2014 in the file and 7 now"),
        (["--per-class", "13"], "per_class is 12 in the file and 13 now"),
        (["--noise", "0.1"], "noise is 0.05 in the file and 0.1 now"),
    ],
)
def test_a_file_of_other_settings_is_refused(tmp_path, capsys, more, message):
    run_small(tmp_path, "--runs", "1")
    before = (tmp_path / "results.jsonl").read_bytes()
    with pytest.raises(SystemExit) as stop:
        run_small(tmp_path, "--runs", "1", *more)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "results.jsonl").read_bytes() == before


def refusal(path):
    with pytest.raises(ValueError, match=r".") as error, open_results(path, SETTINGS):
        pass
    return str(error.value)


def test_other_grids_versions_and_damage_are_refused(tmp_path):
    path = tmp_path / "results.jsonl"
    good = run_cell(Cell("SVM", "20", 0), SETTINGS)
    path.write_text(json.dumps({**good, "settings": {**good["settings"], "grid": "0"}}) + "\n")
    assert "the grid of SVM is 0 in the file" in refusal(path)
    path.write_text(json.dumps({**good, "versions": {**good["versions"], "pvmincq-jax": "0.0.1"}}) + "\n")
    assert "pvmincq-jax is 0.0.1 in the file" in refusal(path)
    path.write_text(json.dumps({**good, "method": "PV-Oracle"}) + "\n")
    assert "'PV-Oracle' is not known here" in refusal(path)
    path.write_text("not a cell\n" + json.dumps(good) + "\n")
    assert "line 1" in refusal(path)
    path.write_text(json.dumps(good) + "\n")
    with open_results(path, SETTINGS) as opened:
        assert list(opened.records) == [Cell("SVM", "20", 0)]
        assert "another run" in refusal(path)


def test_fingerprints_tell_grids_apart():
    prints = {name: grid_fingerprint(name) for name in METHODS}
    assert len(set(prints.values())) == len(METHODS)
    versions = results.library_versions()
    one = results.fingerprint("SVM", SETTINGS, versions)
    assert one != results.fingerprint("SVM", SETTINGS._replace(seed=1), versions)
    assert one == results.fingerprint("SVM", SETTINGS, versions)


def test_a_failed_cell_stops_nothing_and_is_tried_again(tmp_path, capsys, monkeypatch, counted):
    def broken(source, labels, target, seed):
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "PV-SVM", METHODS["PV-SVM"]._replace(fit=broken))
        with pytest.raises(SystemExit) as stop:
            run_small(tmp_path, "--runs", "1", "--methods", "SVM", "PV-SVM", "--tasks", "20")
    assert stop.value.code == 1
    shown = capsys.readouterr()
    assert "out of luck" in shown.err
    assert "0 of 1 runs are finished" in shown.out
    assert cells_of(tmp_path) == [Cell("SVM", "20", 0)]
    counted.clear()
    run_small(tmp_path, "--runs", "1", "--methods", "SVM", "PV-SVM", "--tasks", "20")
    assert counted == [Cell("PV-SVM", "20", 0)]


def test_workers_agree_with_this_process(tmp_path):
    cells = [Cell("SVM", task, 0) for task in ("20", "50", "80")]
    before = dict(os.environ)
    outcomes = {outcome.cell: outcome for outcome in workers.run_cells(cells, SETTINGS, 2)}
    assert os.environ == before
    assert set(outcomes) == set(cells)
    for cell in cells:
        here = run_cell(cell, SETTINGS)
        assert outcomes[cell].error == ""
        for name in KEYS - {"seconds", "cpu_seconds"}:
            assert outcomes[cell].record[name] == here[name]


def test_workers_stay_with_their_method():
    left = [Cell("SVM", "20", 0), Cell("TSVM", "20", 0), Cell("TSVM", "30", 0), Cell("PBDA", "20", 0)]
    assert workers.next_cell(left, [], "PBDA").method == "PBDA"
    assert workers.next_cell(left, [], None) == Cell("TSVM", "20", 0)
    assert workers.next_cell(left, [Cell("TSVM", "40", 0)], "DASF").method == "PBDA"
    assert workers.next_cell(left[1:3], [Cell("TSVM", "40", 0)], "DASF").method == "TSVM"
    left = [Cell("TSVM", "20", 0), Cell("PV-MinCq", "20", 0)]
    assert workers.next_cell(left, [], "PV-MinCq+").method == "PV-MinCq"


def test_a_bar_at_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    run_small(tmp_path, "--runs", "1")
    shown = sys.stderr.getvalue()
    assert "2/2" in shown
    assert "at SVM 80 run 0" in shown
    assert "left" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "SVN"], "'SVN' is not available; there are SVM, MinCq"),
        (["--tasks", "25"], "'25' is not available; there are 20, 30"),
        (["--runs", "0"], "whole number from 1 on"),
        (["--jobs", "many"], "whole number from 0 on"),
    ],
)
def test_bad_options_are_named(capsys, arguments, message):
    with pytest.raises(SystemExit):
        table1.main(arguments)
    assert message in capsys.readouterr().err


def test_quick_says_so(tmp_path, capsys):
    run_small(tmp_path, "--quick", "--methods", "SVM,PV-SVM", "--tasks", "20,translation")
    assert "Quick look, not the table" in capsys.readouterr().out
    assert len(lines_of(tmp_path)) == 4
    assert set(table1.QUICK_METHODS) < set(METHODS)
    assert set(table1.QUICK_TASKS) < set(TASKS)


@pytest.mark.parametrize("name", list(METHODS))
def test_rows_sorted_by_class_change_nothing(name, monkeypatch):
    # A quarter of each grid: what is tested is the order of the rows.
    for module in ("svm", "mincq", "tsvm", "dasvm", "pbda", "dasf", "pv_svm", "nn_mincq"):
        monkeypatch.setattr(methods._module(module), "GRID", methods._module(module).GRID[1::4])
    rng = np.random.default_rng(5)
    (source, labels), (target, hidden) = draw_moons(12, rng), draw_moons(12, rng, angle=50.0)
    points, _ = draw_moons(40, rng, angle=50.0)
    here, there = np.argsort(labels, kind="stable"), np.argsort(hidden, kind="stable")
    shuffled = METHODS[name].fit(source, labels, target, 3)
    by_class = METHODS[name].fit(source[here], labels[here], target[there], 3)
    assert by_class.params == pytest.approx(shuffled.params, rel=1e-12)
    assert by_class.criterion == pytest.approx(shuffled.criterion, abs=1e-7)
    np.testing.assert_allclose(by_class.decision(points), shuffled.decision(points), rtol=1e-5, atol=1e-6)


def test_hindsight_is_reported_and_changes_no_choice():
    cell = Cell("PV-MinCq", "50", 0)
    plain, with_oracle = run_cell(cell, SETTINGS), run_cell(cell, SETTINGS, oracle=True)
    best = with_oracle.pop("oracle_accuracy")
    assert best >= plain["accuracy"]
    for name in KEYS - {"seconds", "cpu_seconds"}:
        assert plain[name] == with_oracle[name]
    assert "oracle_accuracy" not in run_cell(Cell("SVM", "50", 0), SETTINGS, oracle=True)


def test_no_figure_where_all_self_labels_are_the_same():
    record = run_cell(Cell("NN-MinCq", "translation", 0), SETTINGS._replace(per_class=40))
    assert record["accuracy"] is None
    assert "same" in record["note"]
