"""The command behind Table 1: its cells, its options, leaks; what all commands do is tested in test_study.py."""

import json
import subprocess
import sys

import numpy as np
import pytest

from experiments import table1
from experiments.run import cells, methods
from experiments.run.cells import Settings, TableCell
from experiments.run.methods import METHODS, grid_fingerprint
from experiments.run.results import measure
from pvmincq_jax.datasets import TASKS, draw_moons
from tests.experiments.commands import lines_of

SMALL = ["--per-class", "12", "--test-size", "60"]
SETTINGS = Settings(per_class=12, test_size=60)._asdict()


def run_small(out, *more, jobs="0"):
    table1.main(["--methods", "SVM", "--tasks", "20", "80", *SMALL, "--jobs", jobs, "--out", str(out), *more])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A table of two processes."""
    out = tmp_path_factory.mktemp("table")
    run_small(out, "--runs", "2", jobs="2")
    return out


def test_a_small_table(small, capsys):
    records = lines_of(small)
    found = {(line["method"], line["task"], line["run"]) for line in records}
    assert len(records) == 4
    assert found == {TableCell("SVM", task, run) for task in ("20", "80") for run in (0, 1)}
    for record in records:
        figures = {"accuracy", "params", "criterion", "seed"}
        kept = {"seconds", "cpu_seconds", "versions", "settings", "fingerprint"}
        assert set(record) == {"method", "task", "run"} | figures | kept
        assert record["seed"] == 2014 + record["run"]
        assert 0 <= record["accuracy"] <= 100
        assert set(record["params"]) == {"gamma", "cost"}
        assert record["settings"]["the grid of SVM"] == grid_fingerprint("SVM")
    names = {path.name for path in small.iterdir()}
    assert names == {"results.jsonl", "table1.md", "table1.csv", "table1.tex", "accuracy.png", "accuracy.pdf"}
    # Once more: nothing is computed, and the table is printed.
    run_small(small, "--runs", "2")
    shown = capsys.readouterr()
    assert "4 cells, 4 in" in shown.err
    assert "(paper)" in shown.out
    assert "not published" in shown.out
    assert lines_of(small) == records


def test_workers_agree_with_this_process(small):
    for record in lines_of(small):
        here = cells.compute(SETTINGS, record["method"], record["task"], record["run"])
        assert here == {name: record[name] for name in here}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "7"], "seed is 2014 in the file and 7 now"),
        (["--per-class", "13"], "per_class is 12 in the file and 13 now"),
        (["--noise", "0.1"], "noise is 0.05 in the file and 0.1 now"),
    ],
)
def test_a_file_of_other_settings_is_refused(small, capsys, more, message):
    with pytest.raises(SystemExit) as stop:
        run_small(small, *more)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_other_grids_and_methods_are_refused(small, tmp_path, capsys):
    record = lines_of(small)[0]
    for other, message in (
        ({"settings": {**record["settings"], "the grid of SVM": "0"}}, "the grid of SVM is 0 in the file"),
        ({"method": "PV-Oracle"}, "is not known here: 'PV-Oracle'"),
    ):
        (tmp_path / "results.jsonl").write_text(json.dumps({**record, **other}) + "\n")
        with pytest.raises(SystemExit):
            run_small(tmp_path)
        assert message in capsys.readouterr().err


def test_workers_start_before_jax_is_loaded():
    code = "import sys, experiments.table1; sys.exit(bool({'jax', 'scipy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert methods.TASKS == TASKS


def test_fingerprints_tell_grids_apart():
    assert len({grid_fingerprint(name) for name in METHODS}) == len(METHODS)


def test_a_failed_cell_is_said_beside_the_table(tmp_path, capsys, monkeypatch):
    def broken(source, labels, target, seed):
        raise RuntimeError("out of luck")

    monkeypatch.setitem(METHODS, "PV-SVM", METHODS["PV-SVM"]._replace(fit=broken))
    with pytest.raises(SystemExit) as stop:
        run_small(tmp_path, "--quick", "--methods", "SVM,PV-SVM", "--tasks", "20")
    assert stop.value.code == 1
    shown = capsys.readouterr()
    assert "out of luck" in shown.err
    assert "0 of 1 runs are finished" in shown.out
    assert "Quick look, not the table" in shown.out
    assert [record["method"] for record in lines_of(tmp_path)] == ["SVM"]


def test_what_a_quick_look_has():
    options = table1._parser().parse_args(["--quick"])
    assert (options.runs, len(options.methods), len(options.tasks), str(options.out)) == (1, 5, 2, "results/quick")
    assert set(options.methods) < set(METHODS)
    assert set(options.tasks) < set(TASKS)
    options = table1._parser().parse_args(["--quick", "--runs", "3", "--tasks", "80,20"])
    assert (options.runs, options.tasks, options.seed) == (3, ["20", "80"], 2014)


@pytest.mark.usefixtures("one_gamma")
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


@pytest.mark.usefixtures("one_gamma")
def test_hindsight_is_reported_and_changes_no_choice():
    cell = TableCell("PV-MinCq", "50", 0)
    plain, with_oracle = cells.compute(SETTINGS, *cell), cells.compute({**SETTINGS, "oracle": True}, *cell)
    assert with_oracle.pop("oracle_accuracy") >= plain["accuracy"]
    assert plain == with_oracle
    assert "oracle_accuracy" not in cells.compute({**SETTINGS, "oracle": True}, "SVM", "50", 0)


def test_no_figure_where_all_self_labels_are_the_same():
    shared = {"work": "experiments.run.cells:compute", "settings": {**SETTINGS, "per_class": 40}, "cache": "off"}
    record = measure(shared, TableCell("NN-MinCq", "translation", 0))
    assert record["accuracy"] is None
    assert "same" in record["note"]
    assert 0 <= record["cpu_seconds"] <= 2 * record["seconds"] + 1
