"""Where cells are computed: here, in processes of this machine, on a Dask cluster; workers that are killed."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import dask
import pytest

from experiments.run.engine import ONE_THREAD, Order, _open_own, available_cores, next_cell, run_cells

WORK = "tests.experiments.tiny:act"
ROOT = Path(__file__).parents[2]


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


def begun(folder, name):
    """The processes in which a cell was begun, one after the other."""
    path = folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def outcomes(folder, cells, **options):
    return {one.cell: one for one in run_cells(WORK, cells, shared=str(folder), **options)}


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """Workers find this checkout, and no core is claimed by workers of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("cores")))
        yield


def test_processes_on_one_core_each(tmp_path):
    cells = [("plain", number) for number in range(3)] + [("fail", 0), ("die once", 5)]
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    found = outcomes(tmp_path, cells, jobs=2)
    assert {name: os.environ.get(name) for name in before} == before
    assert set(found) == set(cells)
    # The one that died was computed again.
    assert len(begun(tmp_path, "die once-5")) == 2
    assert "RuntimeError: out of luck" in found["fail", 0].error
    for deed, number in [*cells[:3], cells[-1]]:
        result = found[deed, number].result
        assert result["square"] == number**2
        assert result["threads"] == ["1", "1"]
        assert result["cores"] == 1
        assert result["process"] != os.getpid()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no cores to keep to")
def test_locks_of_cores_are_files_of_this_user(tmp_path, monkeypatch):
    """In a folder that all users share, a link leads nowhere, and pipes and files of others are left alone."""
    cells = [("plain", number) for number in range(2)]
    first, *others = available_cores()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    name, victim = tmp_path / f"pvmincq-jax-{os.getuid()}-core-{first}", tmp_path / "victim"
    name.symlink_to(victim)
    for core in others:
        os.mkfifo(tmp_path / f"pvmincq-jax-{os.getuid()}-core-{core}")
    (tmp_path / "work").mkdir()
    found = outcomes(tmp_path / "work", cells, jobs=1)
    assert [found[cell].result["square"] for cell in cells] == [0, 1]
    assert not victim.exists()
    name.unlink()
    found = outcomes(tmp_path / "work", [("plain", 3)], jobs=1)
    assert found["plain", 3].result["cores"] == 1
    assert stat.S_IMODE(name.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser makes files of others")
def test_a_file_of_another_user_is_not_opened(tmp_path):
    _open_own(tmp_path / "own").close()
    (tmp_path / "other").touch()
    os.chown(tmp_path / "other", 65534, 65534)
    assert _open_own(tmp_path / "other") is None


def test_a_cell_that_always_kills_its_worker_fails_alone(tmp_path):
    found = outcomes(tmp_path, [("die", 0), ("sleep", 1)], jobs=2)
    assert found["sleep", 1].result["square"] == 1
    assert "its worker died, and died again" in found["die", 0].error


def test_here(tmp_path):
    seen = []
    found = outcomes(tmp_path, [("plain", 2), ("fail", 0)], jobs=0, at_work=seen.append)
    assert found["plain", 2].result["process"] == os.getpid()
    assert "out of luck" in found["fail", 0].error
    assert seen == [[("plain", 2)], [("fail", 0)]]


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads the state of a process in /proc")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_command(tmp_path, end):
    # A suite that runs in the background of a shell ignores Ctrl-C, and so would what it starts.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from experiments.run.engine import *; list(run_cells({WORK!r}, [('hang once', 0)], shared={str(tmp_path)!r}))"
    )
    # As at a terminal, where Ctrl-C reaches the command and its workers alike.
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.PIPE) as process:
        until(lambda: begun(tmp_path, "hang once-0"))
        (worker,) = begun(tmp_path, "hang once-0")
        (os.killpg if end == signal.SIGINT else os.kill)(process.pid, end)
        said = process.communicate(timeout=60)[1].decode()
    until(lambda: not lives(worker))
    # The interrupted command says so once; its worker has nothing to say.
    assert said.count("Traceback") == (end == signal.SIGINT)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads the state of a process in /proc")
def test_an_abandoned_run_leaves_no_worker(tmp_path):
    with closing(run_cells(WORK, [("plain", 0), ("hang once", 1)], shared=str(tmp_path), jobs=2)) as run:
        assert next(run).cell == ("plain", 0)
        until(lambda: begun(tmp_path, "hang once-1"))
    assert not lives(begun(tmp_path, "hang once-1")[0])


@pytest.fixture
def cluster(tmp_path_factory):
    """A scheduler's address, and the processes: itself and two workers."""
    folder = tmp_path_factory.mktemp("dask")
    told = folder / "scheduler.json"

    def start(*arguments):
        command = [sys.executable, "-W", "ignore", "-m", "dask", *arguments, "--scheduler-file", str(told)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)

    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    until(told.exists)
    options = ("--nthreads", "1", "--host", "127.0.0.1", "--no-nanny", "--no-dashboard")
    workers = [start("worker", *options) for _ in range(2)]
    yield json.loads(told.read_text())["address"], scheduler, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_a_cluster_of_which_a_worker_is_killed_and_then_the_scheduler(tmp_path, cluster):
    address, scheduler, workers = cluster
    cells = [("sleep", number) for number in range(4)] + [("hang once", 9), ("fail", 0)]
    found = {}
    for one in run_cells(WORK, cells, shared=str(tmp_path), dask=address):
        found[one.cell] = one
        if len(found) == 3:
            until(lambda: begun(tmp_path, "hang once-9"))
            dying = begun(tmp_path, "hang once-9")[0]
            os.kill(dying, signal.SIGKILL)
    assert set(found) == set(cells)
    assert "out of luck" in found["fail", 0].error
    # The cell that went down with its worker was computed by the other one.
    (other,) = {worker.pid for worker in workers} - {dying}
    assert begun(tmp_path, "hang once-9") == [dying, other]
    for cell in cells[:-1]:
        assert found[cell].result["square"] == cell[1] ** 2
        assert found[cell].result["threads"] == ["1", "1"]
        assert found[cell].result["cores"] == 1

    def end():
        until(lambda: begun(tmp_path, "hang once-8"))
        scheduler.kill()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(ConnectionError, match="it has ended"):
        outcomes(tmp_path, [("hang once", 8)], dask=address)
    thread.join()


def test_no_scheduler(tmp_path):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.3s"}),
        pytest.raises(ConnectionError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"),
    ):
        outcomes(tmp_path, [("plain", 0)], dask="tcp://127.0.0.1:9")


def test_workers_take_different_families_and_the_long_ones_first():
    order = Order(weight=lambda cell: {"SVM": 0.5, "TSVM": 6.0, "PBDA": 5.0}[cell[0]])
    left = [("SVM", 0), ("TSVM", 0), ("TSVM", 1), ("PBDA", 0)]
    assert next_cell(left, [], order) == ("TSVM", 0)
    assert next_cell(left, [("TSVM", 2)], order) == ("PBDA", 0)
    assert next_cell(left[1:3], [("TSVM", 2)], order) == ("TSVM", 0)
    assert next_cell(left, [("SVM", 2)], Order(family=lambda cell: "one")) == ("SVM", 0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no cores to keep to")
def test_one_core():
    said = "print(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    code = f"import os; from experiments.run.engine import on_one_core; on_one_core(lambda: {said})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1\n"
