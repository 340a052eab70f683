"""What the benchmarks share: timing side by side, peak memory, and printing rows as text or as JSON."""

import json
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

__all__ = ["PeakMemory", "best_seconds", "cores_used", "emit", "versions"]


def versions(*packages: str) -> dict[str, str]:
    """Installed versions, to stand beside the figures; of a package that is not there, that."""
    found = {"python": sys.version.split()[0]}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def best_seconds(functions: dict[str, Callable[[], Any]], repeats: int, turn: float = 0.5) -> dict[str, float]:
    """The shortest of several runs of each function, taken in turns so that a noisy moment hits all alike.

    A function that is done in less than ``turn`` seconds runs again until its turn is over.
    """
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            while True:
                start = time.perf_counter()
                function()
                now = time.perf_counter()
                best[name] = min(best[name], now - start)
                if now - began >= turn:
                    break
    return best


def cores_used(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of a call, the cores that it kept busy (the processor's time over the seconds), and what it returned."""
    start, busy = time.perf_counter(), time.process_time()
    result = function()
    seconds = time.perf_counter() - start
    return seconds, (time.process_time() - busy) / seconds, result


def _resident_bytes() -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise OSError("no VmRSS in /proc/self/status")


class PeakMemory:
    """Context manager: the most resident memory of this process inside the block, beyond what it had at the start.

    Sampled every 5 ms, so that, unlike the system's high-water mark, it speaks of this block alone. Linux only.
    """

    def __enter__(self) -> "PeakMemory":
        """Starts the sampling thread."""
        self.start = self._peak = _resident_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self._peak = max(self._peak, _resident_bytes())

    def __exit__(self, *_: object) -> None:
        """Stops sampling."""
        self._stop.set()
        self._thread.join()
        self._peak = max(self._peak, _resident_bytes())

    @property
    def megabytes(self) -> float:
        """Peak growth in MB (1e6 bytes)."""
        return (self._peak - self.start) / 1e6


def emit(row: dict[str, Any], as_json: bool) -> None:
    """Prints one row: a JSON object on a line, or ``name value`` pairs for a reader."""
    if as_json:
        print(json.dumps(row), flush=True)
        return
    cells = []
    for name, value in row.items():
        cells.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    print("  ".join(cells), flush=True)
