"""Where cells are computed: in this process, on the cores of this machine (joblib's loky), or on a Dask cluster.

A worker keeps to one core and one thread, since XLA's threads in two processes on two cores only wait for each other.
That has to be settled before JAX and NumPy are loaded: nothing here imports them, and work is named, as
"package.module:function", and looked up by the worker itself.
"""

import contextlib
import functools
import importlib
import os
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, Any, NamedTuple

from threadpoolctl import threadpool_limits

__all__ = ["Cell", "Order", "Outcome", "available_cores", "lock", "next_cell", "on_one_core", "run_cells"]

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PJRT_NPROC": "1",
    "JAX_PLATFORMS": "cpu",
}
# A cell is plain values, so that it needs no import to be sent, and can be a key.
Cell = tuple[str | int | float, ...]
# JAX is one to a process: a Dask worker of several threads computes one cell at a time.
_one_at_a_time = threading.Lock()
_held: list[IO[Any]] = []


class Outcome(NamedTuple):
    """How a cell ended: with what the work returned, or with an error's text."""

    cell: Cell
    result: Any
    error: str


class Order(NamedTuple):
    """What decides which cell is next.

    Attributes:
      family: cells of one family share compiled programs, so that workers do better at different ones.
      weight: how long a cell takes beside the others.
    """

    family: Callable[[Cell], str] = lambda cell: str(cell[0])
    weight: Callable[[Cell], float] = lambda cell: 1.0


def available_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def next_cell(left: Sequence[Cell], busy: Sequence[Cell], order: Order) -> Cell:
    """The cell to begin next: of a family that nobody is at; of these, the one with the most work left.

    So two workers seldom compile the same program at once, and the long ones do not come last.

    Args:
      left: cells that nobody has taken, at least one.
      busy: cells at work.
      order: families and weights.

    Returns:
      One of ``left``.
    """
    work: dict[str, float] = {}
    for cell in left:
        work[order.family(cell)] = work.get(order.family(cell), 0.0) + order.weight(cell)
    taken = {order.family(cell) for cell in busy}
    family = max([name for name in work if name not in taken] or work, key=lambda name: work[name])
    return next(cell for cell in left if order.family(cell) == family)


def lock(stream: IO[Any]) -> bool:
    """Takes a file for this process alone, until it is closed; False if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open_own(path: Path) -> IO[Any] | None:
    """A file of this user, made if there is none; None for a link, or a file that another user has put there."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid() or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb+")


def _claim_core() -> None:
    """Keeps this thread, and those that it starts, to a core that no other worker on this machine has, if any."""
    if not hasattr(os, "sched_setaffinity"):
        return
    for core in available_cores():
        # In a folder where anybody may put files: nothing is written to this one, and it must be our own.
        stream = _open_own(Path(tempfile.gettempdir()) / f"pvmincq-jax-{os.getuid()}-core-{core}")
        if stream is None:
            continue
        if lock(stream):
            _held.append(stream)
            os.sched_setaffinity(0, {core})
            return
        stream.close()


@functools.cache
def _settle() -> None:
    """One core and one thread, once in a worker's life and before its first cell."""
    os.environ.update(ONE_THREAD)
    threadpool_limits(1)  # of what the pool's own imports have loaded
    _claim_core()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _begin(parent: int) -> None:
    """The start of a worker on this machine: the parent sees to Ctrl-C, and a parent that is killed ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _settle()


def _call(work: str, shared: Any, cell: Cell) -> Outcome:
    module, name = work.split(":")
    try:
        return Outcome(cell, getattr(importlib.import_module(module), name)(shared, cell), "")
    except Exception:
        return Outcome(cell, None, traceback.format_exc())


def _attempt(work: str, shared: Any, cell: Cell) -> Outcome:
    """One cell in a worker's life."""
    with _one_at_a_time:
        _settle()
        return _call(work, shared, cell)


@contextlib.contextmanager
def _processes(jobs: int) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """Worker processes on this machine, and how many there are."""
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(jobs, initializer=_begin, initargs=(os.getpid(),))
    try:
        yield pool, lambda: jobs
    finally:
        pool.shutdown(kill_workers=True)


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """The workers of a Dask cluster, and how many there are now."""
    from distributed import Client

    try:
        with Client(address) as client:
            executor = client.get_executor(pure=False)
            try:
                yield executor, lambda: len(client.nthreads())
            finally:
                executor.shutdown(wait=False)
    except (OSError, CancelledError) as error:
        raise ConnectionError(f"no Dask scheduler at {address}: {str(error) or 'it has ended'}") from None


def run_cells(
    work: str,
    cells: Sequence[Cell],
    *,
    shared: Any = None,
    jobs: int = 1,
    dask: str | None = None,
    order: Order | None = None,
    at_work: Callable[[list[Cell]], None] = lambda cells: None,
) -> Generator[Outcome]:
    """Computes cells, in an order that suits the workers.

    Args:
      work: "package.module:function" of ``(shared, cell)``, importable where the workers run.
      cells: to compute.
      shared: what all cells are given, plain values.
      jobs: worker processes; 0 computes in this process.
      dask: address of a Dask scheduler, whose workers then compute; ``jobs`` has no part in it.
      order: families and weights; by default a family is a cell's first value.
      at_work: told which cells are being computed, whenever that changes.

    Yields:
      An `Outcome` for each cell, as they finish. The cell of a worker that dies is computed again by another.

    Raises:
      ConnectionError: there is no Dask scheduler at the address, or none any more.
    """
    if dask is None and jobs == 0:
        for cell in cells:
            at_work([cell])
            yield _call(work, shared, cell)
        return
    left, begin = list(cells), functools.partial(_attempt, work, shared)
    while left:
        with _cluster(dask) if dask is not None else _processes(min(jobs, len(cells))) as (executor, workers):
            dead = yield from _until_broken(executor, workers, left, begin, order or Order(), at_work)
        for cell in dead:
            at_work([cell])
            yield _alone(cell, begin)


def _until_broken(
    executor: Executor,
    workers: Callable[[], int],
    left: list[Cell],
    begin: Callable[[Cell], Outcome],
    order: Order,
    at_work: Callable[[list[Cell]], None],
) -> Generator[Outcome, None, list[Cell]]:
    """Computes what is left, or until a process dies, which ends a pool; returns the cells that were at work then."""
    busy: dict[Future[Outcome], Cell] = {}
    dead: list[Cell] = []
    while not dead and (left or busy):
        while left and len(busy) < max(workers(), 1):
            cell = next_cell(left, list(busy.values()), order)
            try:
                busy[executor.submit(begin, cell)] = cell
            except BrokenProcessPool:  # a process died that had nothing to do
                return [*busy.values()]
            left.remove(cell)
        at_work(list(busy.values()))
        # Not for ever: further workers may join a cluster.
        done = wait(busy, timeout=5, return_when="FIRST_COMPLETED").done
        if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
            done = wait(busy).done  # the others are told in a moment, or have finished
        for future in done:
            cell, error = busy.pop(future), future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, BrokenProcessPool):
                dead.append(cell)
            else:
                yield Outcome(cell, None, f"{type(error).__name__}: {error}")
    return dead


def _alone(cell: Cell, begin: Callable[[Cell], Outcome]) -> Outcome:
    """Once more, in a process of its own, so that a cell that takes its worker down takes no other cell with it."""
    with _processes(1) as (executor, _):
        try:
            return executor.submit(begin, cell).result()
        except BrokenProcessPool:
            return Outcome(cell, None, "its worker died, and died again where it was alone")


def on_one_core(function: Callable[[], None]) -> int:
    """Calls a command, which reads its own options, with one thread on one core; returns 0.

    It is started anew in this process, since its libraries have counted the cores by now.
    """
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.environ.update(ONE_THREAD)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {available_cores()[-1]})
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    function()
    return 0
