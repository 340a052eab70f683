"""What all long commands do: cells kept in a file, stopping and going on, other settings refused, progress."""

import io
import json
import subprocess
import sys
from argparse import Namespace
from importlib import metadata
from pathlib import Path

import pytest

from experiments.run import results
from experiments.run.results import Lines, open_results
from experiments.run.study import Study, run_study
from tests.experiments.test_engine import until

CELLS = [("plain", 2), ("plain", 3)]


def study(folder, cells=CELLS, **settings):
    shared = {"factor": 10, "folder": str(folder), **settings}
    fields = ("deed", "number")
    return Study("tests.experiments.tiny:compute", fields, shared, cells, lambda one: f"{one['figure']:.0f}")


def run(folder, *more, jobs=0, **settings):
    options = Namespace(out=folder, jobs=jobs, dask=None, cache="off")
    return run_study(study(folder, *more, **settings), options)


def times(folder, cell):
    """How often a cell was computed."""
    return len((folder / "{}-{}".format(*cell)).read_text().split())


def lines(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_lines(tmp_path, capsys):
    finished = run(tmp_path)
    assert [line["figure"] for line in lines(tmp_path)] == [40, 90]
    assert finished.whole() == dict(zip(CELLS, lines(tmp_path)))
    for line in lines(tmp_path):
        names = {"deed", "number", "figure", "seconds", "cpu_seconds", "settings", "versions", "fingerprint"}
        assert set(line) == names
        assert line["settings"] == {"factor": 10, "folder": str(tmp_path)}
        assert {"jax", "numpy", "pvmincq-jax"} <= set(line["versions"])
    shown = capsys.readouterr().err
    assert "2 cells, 0 in" in shown
    assert "[1/2] plain 2: 40 in" in shown
    assert "left" in shown


def test_what_the_end_needs_is_loaded_while_cells_are_computed(tmp_path, monkeypatch):
    (tmp_path / "needed_in_the_end.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    options, one = Namespace(out=tmp_path, jobs=0, dask=None, cache="off"), study(tmp_path, CELLS[:1])
    run_study(one, options)
    assert "needed_in_the_end" not in sys.modules
    run_study(study(tmp_path)._replace(meanwhile=("needed_in_the_end",)), options)
    assert sys.modules.pop("needed_in_the_end")


def test_goes_on_and_repeats_nothing(tmp_path):
    run(tmp_path, CELLS[:1])
    before = (tmp_path / "results.jsonl").read_bytes()
    run(tmp_path, CELLS[:1])
    assert run(tmp_path).records.keys() == set(CELLS)
    assert [times(tmp_path, cell) for cell in CELLS] == [1, 1]
    assert (tmp_path / "results.jsonl").read_bytes().startswith(before)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_line_cut_short_is_computed_again(tmp_path, cut):
    run(tmp_path)
    path = tmp_path / "results.jsonl"
    figures = [line["figure"] for line in lines(tmp_path)]
    path.write_bytes(path.read_bytes()[:-cut])
    run(tmp_path)
    assert [times(tmp_path, cell) for cell in CELLS] == [1, 2]
    assert [line["figure"] for line in lines(tmp_path)] == figures


def test_killed_and_started_again(tmp_path):
    """At most the cell at work is lost, also when the process is killed outright."""
    cells = [("plain", 1), ("plain", 2), ("hang once", 3), ("plain", 4)]
    code = f"""
from pathlib import Path
from tests.experiments.test_study import run
run(Path({str(tmp_path)!r}), {cells!r}, jobs=1)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    until((tmp_path / "hang once-3").exists)
    process.kill()
    process.wait()
    before = (tmp_path / "results.jsonl").read_bytes()
    run(tmp_path, cells)
    assert (tmp_path / "results.jsonl").read_bytes().startswith(before)
    done = [(line["deed"], line["number"]) for line in lines(tmp_path)]
    assert sorted(done) == sorted(cells)
    assert [times(tmp_path, cell) for cell in cells] == [1, 1, 2, 1]


def refused(capsys, *arguments, code=2, **settings):
    with pytest.raises(SystemExit) as stop:
        run(*arguments, **settings)
    assert stop.value.code == code
    return capsys.readouterr().err


def test_other_settings_versions_and_damage_are_refused(tmp_path, capsys):
    run(tmp_path)
    path = tmp_path / "results.jsonl"
    whole, (good, _) = path.read_text(), lines(tmp_path)
    assert "factor is 10 in the file and 7 now" in refused(capsys, tmp_path, factor=7)
    assert path.read_text() == whole
    path.write_text(json.dumps({**good, "versions": {**good["versions"], "pvmincq-jax": "0.0.1"}}) + "\n")
    assert "pvmincq-jax is 0.0.1 in the file" in refused(capsys, tmp_path)
    path.write_text("not a cell\n" + json.dumps(good) + "\n")
    assert "line 1, is not a finished cell" in refused(capsys, tmp_path)
    path.write_text(whole)
    with open_results(path, Lines(("deed", "number")), lambda cell: study(tmp_path).settings) as opened:
        assert list(opened.records) == CELLS
        assert "another run" in refused(capsys, tmp_path)
    (tmp_path / "file").touch()
    assert "--out" in refused(capsys, tmp_path / "file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accuracy": 250}, "its accuracy is 250, and must be from 0 to 100"),
        ({"accuracy": float("nan")}, "its accuracy is nan"),
        ({"accuracy": [50, "60"]}, "its accuracy is '60'"),
        ({"more": {"accuracy": {"one": -1}}}, "its one is -1"),
        ({"figure": None}, "its figures cannot be read"),
        ({"seconds": "soon"}, "its seconds is 'soon'"),
        ({"seconds": -1.0}, "its seconds is -1.0"),
        ({"seconds": ...}, "it has no seconds"),
        ({"figure": ...}, "its figures cannot be read"),
        ({"versions": [1]}, "its versions is [1]"),
        ({"settings": None}, "its settings is None"),
        ({"number": [2]}, "its number is [2]"),
        ({"number": ...}, "it has no number"),
        ([], "it is no object"),
        (7, "it is no object"),
        ("[" * 100_000, "it is no JSON"),
        ("{'deed': 1}", "it is no JSON"),
        ("\xff", "it is no JSON"),
        ("", "it is no JSON"),
    ],
)
def test_lines_that_were_changed_by_hand_are_named(tmp_path, capsys, change, message):
    cells = [*CELLS, ("plain", 4)]
    run(tmp_path, cells)
    capsys.readouterr()
    path, whole = tmp_path / "results.jsonl", lines(tmp_path)
    for number in (1, 3):  # the last one too, as long as it ends like a line
        if isinstance(change, dict):
            changed = {name: value for name, value in (whole[number - 1] | change).items() if value is not ...}
            changed = json.dumps(changed)
        else:
            changed = change if isinstance(change, str) else json.dumps(change)
        texts = [json.dumps(line) for line in whole]
        texts[number - 1] = changed
        path.write_text("\n".join(texts) + "\n", encoding="latin-1")
        before = path.read_bytes()
        said = refused(capsys, tmp_path, cells)
        assert f"{path}, line {number}, is not a finished cell: {message}" in said
        assert len(said.splitlines()) == 1
        assert path.read_bytes() == before


def test_a_worker_of_other_versions_is_refused(tmp_path, capsys):
    with open_results(tmp_path / "results.jsonl", Lines(("deed", "number")), lambda cell: {}) as opened:
        with pytest.raises(ValueError, match=r"worker is not like this process: jax is 0\.1 there"):
            opened.append(("plain", 2), {"figure": 1.0, "versions": {**results.library_versions(), "jax": "0.1"}})
        assert opened.records == {}


def test_fingerprints_tell_conditions_and_versions_apart():
    one = results.fingerprint({"seed": 1}, {"jax": "1"})
    assert one == results.fingerprint({"seed": 1}, {"jax": "1"})
    assert (
        len({one, results.fingerprint({"seed": 2}, {"jax": "1"}), results.fingerprint({"seed": 1}, {"jax": "2"})}) == 3
    )


def test_a_failed_cell_stops_nothing_and_is_tried_again(tmp_path, capsys):
    cells = [("fail once", 1), ("plain", 2)]
    finished = run(tmp_path, cells)
    assert "[1/2] fail once 1: FAILED: RuntimeError: out of luck" in capsys.readouterr().err
    assert list(finished.records) == [("plain", 2)]
    with pytest.raises(SystemExit) as stop:
        finished.whole()
    assert stop.value.code == 1
    assert "Traceback" in capsys.readouterr().err
    assert run(tmp_path, cells).whole().keys() == set(cells)
    assert [times(tmp_path, cell) for cell in cells] == [2, 1]


def test_interrupted(tmp_path, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    run(tmp_path, CELLS[:1])
    monkeypatch.setattr("experiments.run.engine._call", stop)
    assert "the same command goes on from there" in refused(capsys, tmp_path, code=130)
    monkeypatch.undo()
    assert run(tmp_path).whole().keys() == set(CELLS)


@pytest.mark.parametrize(
    ("package", "more"), [("joblib", "--jobs 0 computes in this process, without joblib"), ("skada", "")]
)
def test_a_missing_package_is_named(tmp_path, capsys, monkeypatch, package, more):
    if package == "joblib":
        for name in [name for name in sys.modules if name.split(".")[0] == "joblib"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "joblib", None)
    else:

        def version(name):
            if name == "skada":
                raise metadata.PackageNotFoundError(name)
            return "1"

        results.package_versions.cache_clear()
        monkeypatch.setattr(results, "version", version)
    said = refused(capsys, tmp_path, jobs=1 if package == "joblib" else 0)
    assert f"error: {package} is missing or too old: pip install -e '.[experiments]'" in said
    assert more in said


def test_a_full_disk_is_said_and_loses_no_line(tmp_path, capsys):
    resource = pytest.importorskip("resource")
    run(tmp_path, CELLS[:1])
    before = (tmp_path / "results.jsonl").read_bytes()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 9, usual[1]))
    try:
        assert "File too large" in refused(capsys, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert (tmp_path / "results.jsonl").read_bytes().startswith(before)
    assert run(tmp_path).whole().keys() == set(CELLS)


def test_a_bar_at_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    run(tmp_path, [*CELLS, ("fail", 1)])
    shown = sys.stderr.getvalue()
    assert "3/3" in shown
    assert "at plain 3" in shown
    assert "fail 1: FAILED" in shown
    assert "left" in shown
