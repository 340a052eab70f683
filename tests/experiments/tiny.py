"""Cells that are computed at once and import nothing, for the tests of what computes and keeps them."""

import os
import signal
import time
from pathlib import Path
from typing import Any


def act(folder: str, cell: Any) -> dict[str, Any]:
    """What a cell does is its first value; a file in the folder says that it was begun, and in which processes."""
    deed, number = cell
    begun = Path(folder) / f"{deed}-{number}"
    before = begun.read_text().split() if begun.exists() else []
    begun.write_text("\n".join([*before, str(os.getpid())]))
    if deed == "fail" or (deed == "fail once" and not before):
        raise RuntimeError("out of luck")
    if deed == "die" or (deed == "die once" and not before):
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "hang once" and not before:
        time.sleep(120)
    if deed == "sleep":
        time.sleep(0.2)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    threads = [os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
    return {"square": number**2, "cores": cores, "threads": threads, "process": os.getpid()}


def compute(settings: dict[str, Any], deed: str, number: int) -> dict[str, Any]:
    """The work of a small study."""
    return {"figure": settings["factor"] * act(settings["folder"], (deed, number))["square"]}
