"""A progress bar without dependencies, on standard error."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

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
    shown = progress is True or (progress is None and sys.stderr.isatty())

    def advance(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            elapsed = time.monotonic() - start
            if callable(progress):
                progress(done, total)
            elif shown and (progress is True or elapsed > _LONG):
                left = elapsed / done * (total - done)
                bar = "#" * (24 * done // total)
                print(f"\r{name} [{bar:<24}] {done}/{total}  {left:4.0f} s left ", end="", file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if shown and not callable(progress) and (progress is True or time.monotonic() - start > _LONG):
            print(file=sys.stderr)
