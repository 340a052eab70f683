"""Worker processes for the cells of a table, each on one core with one thread.

XLA's own threads get in each other's way when two processes share two cores, so a worker keeps to one core and its
libraries to one thread; that has to be settled before they are imported. A worker stays with a method, and then with
those that share its compiled programs, as long as it can.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from experiments.methods import METHODS
from experiments.results import Cell, Settings, run_cell

__all__ = ["Outcome", "available_cores", "next_cell", "on_one_core", "run_cells"]

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


class Outcome(NamedTuple):
    """How a cell ended: with a line for the results file, or with an error's text."""

    cell: Cell
    record: dict[str, Any] | None
    error: str


def available_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def next_cell(left: Sequence[Cell], busy: Sequence[Cell], last: str | None) -> Cell:
    """The cell that a free worker should take.

    One of its last method's family, if there are any left; else of a family that no other worker is at; of these, the
    one with the most work left, so that the long ones do not come last.

    Args:
      left: cells that nobody has taken, at least one.
      busy: cells at work elsewhere.
      last: the worker's last method.

    Returns:
      One of ``left``.
    """
    work: dict[str, float] = {}
    for cell in left:
        method = METHODS[cell.method]
        work[method.family] = work.get(method.family, 0.0) + method.weight
    taken = {METHODS[cell.method].family for cell in busy}
    if last is not None and METHODS[last].family in work:
        family = METHODS[last].family
    else:
        family = max([name for name in work if name not in taken] or work, key=lambda name: work[name])
    own = [cell for cell in left if METHODS[cell.method].family == family]
    return next((cell for cell in own if cell.method == last), own[0])


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """These variables for whatever is started inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _try(cell: Cell, settings: Settings, oracle: bool) -> Outcome:
    try:
        return Outcome(cell, run_cell(cell, settings, oracle), "")
    except Exception:
        return Outcome(cell, None, traceback.format_exc())


def _keep_to(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _end_with_the_parent() -> None:
    """A parent that is killed outright cannot stop its children: they watch it themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _alone(function: Callable[[], None], core: int) -> None:
    _keep_to(core)
    _end_with_the_parent()
    function()


def on_one_core(function: Callable[[], None]) -> int:
    """Calls a function in a process of its own, with one thread on one core, and waits for it.

    Args:
      function: of a module, without arguments; the command line is the same there.

    Returns:
      The exit code.
    """
    process = multiprocessing.get_context("spawn").Process(target=_alone, args=(function, available_cores()[-1]))
    with _environment(_ONE_THREAD):
        process.start()
    process.join()
    return process.exitcode or 0


def _work(pipe: Connection, core: int, settings: Settings, oracle: bool) -> None:
    """The life of a worker: takes cells until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent sees to it
    _keep_to(core)
    _end_with_the_parent()
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(_try(Cell(*pipe.recv()), settings, oracle))


class _Worker:
    """A process, its end of the pipe, and what it is at."""

    def __init__(self, core: int, settings: Settings, oracle: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, core, settings, oracle), daemon=True)
        with _environment(_ONE_THREAD):
            self.process.start()
        theirs.close()
        self.cell: Cell | None = None
        self.last: str | None = None

    def take(self, cell: Cell) -> None:
        self.cell, self.last = cell, cell.method
        # One that has died is found out at the next receipt.
        with contextlib.suppress(BrokenPipeError):
            self.pipe.send(tuple(cell))

    def receive(self) -> Outcome:
        assert self.cell is not None
        try:
            outcome = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"a worker died at {self.cell} (exit code {self.process.exitcode})") from None
        self.cell = None
        return outcome


def run_cells(
    cells: Sequence[Cell],
    settings: Settings,
    jobs: int,
    *,
    oracle: bool = False,
    at_work: Callable[[list[Cell]], None] = lambda cells: None,
) -> Iterator[Outcome]:
    """Computes cells, in an order that suits the workers.

    Args:
      cells: to compute.
      settings: of the table.
      jobs: worker processes; 0 computes in this process.
      oracle: see `run_cell`.
      at_work: told which cells are being computed, whenever that changes.

    Yields:
      An `Outcome` for each cell, as they finish.
    """
    left = list(cells)
    if jobs == 0:
        for cell in left:
            at_work([cell])
            yield _try(cell, settings, oracle)
        return
    cores = available_cores()
    workers = [_Worker(cores[i % len(cores)], settings, oracle) for i in range(min(jobs, len(left)))]
    try:
        while left or any(worker.cell for worker in workers):
            for worker in workers:
                if worker.cell is None and left:
                    busy = [other.cell for other in workers if other.cell is not None]
                    cell = next_cell(left, busy, worker.last)
                    left.remove(cell)
                    worker.take(cell)
            at_work([worker.cell for worker in workers if worker.cell is not None])
            ready = wait([worker.pipe for worker in workers if worker.cell is not None])
            for worker in workers:
                if worker.pipe in ready:
                    yield worker.receive()
    finally:
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
