"""Work on several cores: how many there are, BLAS on one thread while the package's own fill them, a progress bar."""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from threadpoolctl import ThreadpoolController

__all__: list[str] = []

Progress = bool | None | Callable[[int, int], None]

# Work shorter than this shows no bar unless asked for.
_LONG = 3.0


@contextlib.contextmanager
def progress_bar(progress: Progress, total: int, name: str) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of steps just done; safe to call from several threads.

    Progress is True, False, None (long work at a terminal only), or a function of steps done and steps in all.
    """
    lock, start, done = threading.Lock(), time.monotonic(), 0

    def is_shown() -> bool:
        return progress is True or (progress is None and sys.stderr.isatty() and time.monotonic() - start > _LONG)

    def advance(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            if callable(progress):
                progress(done, total)
            elif is_shown():
                left = (time.monotonic() - start) / done * (total - done)
                bar = "#" * (24 * done // total)
                print(f"\r{name} [{bar:<24}] {done}/{total}  {left:4.0f} s left ", end="", file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if is_shown():
            print(file=sys.stderr)


_lock = threading.Lock()
_inside = 0
_limit: Any = None


def core_count() -> int:
    """How many cores this process may use; ``OMP_NUM_THREADS``, which joblib sets for its workers, bounds them.

    Example:
      >>> core_count() >= 1
      True
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(threads)) if threads.isdigit() and int(threads) > 0 else cores


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """The BLAS libraries of this process, which it takes milliseconds to look for; an import may bring further ones."""
    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keeps BLAS to one thread inside the block.

    Products and factorisations of some hundred rows gain nothing from BLAS's own threads, and take many times as long
    where these wait for a core that others use. The setting belongs to the whole process: the first to enter makes it,
    and the last to leave, in whichever thread, takes it back.
    """
    global _inside, _limit
    libraries = _libraries(len(sys.modules))
    with _lock:
        _inside += 1
        if _inside == 1:
            _limit = libraries.limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limit.restore_original_limits()


def on_all_cores(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """A function of each job, in their order; jobs go over all cores.

    Example:
      >>> on_all_cores(abs, [-1, 2])
      [1, 2]
    """
    with one_blas_thread(), ThreadPoolExecutor(core_count()) as pool:
        return list(pool.map(function, jobs))
