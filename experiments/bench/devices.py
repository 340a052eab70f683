"""One grid on one device, and over a mesh of a device for each core: how much faster several devices are.

The default grid of one gamma, and one of sixteen margins. Radii are given, as their search is the same on any device.

One CPU device is more than one core: XLA splits the large operations of a program over threads of its own. So it comes
twice: with the process kept to one core, on which ``times_faster`` is based (on Linux, which can do that), and left
alone. ``cores_used`` is the processor's time over the time taken.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.bench.common import best_seconds, cores_used, emit, versions
from experiments.run.engine import available_cores
from pvmincq_jax.datasets import moons_task

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark devices``."""
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each; the best counts")
    parser.add_argument("--seed", type=int, default=0)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """All threads of this process on one core, those that XLA started before included."""
    cores = available_cores()

    def keep_to(cores: set[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.sched_setaffinity(int(thread), cores)

    keep_to({min(cores)})
    try:
        yield
    finally:
        keep_to(set(cores))


def run(arguments: argparse.Namespace) -> None:
    """Prints the rows."""
    with contextlib.suppress(RuntimeError):  # JAX has started: there is what there is
        jax.config.update("jax_num_cpu_devices", len(available_cores()))
    cores = jax.device_count()
    emit({"benchmark": "devices", "seed": arguments.seed, "cores": cores, **versions("jax")}, arguments.json)
    task = moons_task("40", arguments.seed, per_class=20 if arguments.quick else 150)
    # The narrowest of the default kernels, whose votes have the highest rank.
    given: dict[str, Any] = {"gammas": pvm.default_gammas(task.target)[2:], "seed": arguments.seed, "progress": False}
    given["radii"] = pvm.grid_radii(task.source, task.target, np.arange(2 if arguments.quick else 10) / 20, "pv")
    several = partial(pvm.sweep, task.source, task.source_labels, task.target, **given)

    def mesh(devices: int) -> jax.sharding.Mesh:
        return jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lanes",))

    for margins in (5, 16):
        over = partial(several, margins=np.geomspace(0.01, 0.5, margins))
        ways: dict[str, Callable[[], pvm.Sweep]] = {}
        if sys.platform == "linux":
            ways["one device, one core"] = _one_core()(partial(over, mesh=mesh(1)))
        ways |= {
            "one device": partial(over, mesh=mesh(1)),
            f"mesh of {cores}": partial(over, mesh=mesh(cores)),
            "threads": over,
        }
        found = {name: way() for name, way in ways.items()}
        best = best_seconds(ways, arguments.repeats)
        one = next(iter(ways))
        for name, figures in found.items():
            row = {
                "benchmark": "devices",
                "way": name,
                "qps": int(figures.status.size + figures.fold_status.size),
                "seconds": best[name],
                "cores_used": cores_used(ways[name])[1],
                "times_faster": best[one] / best[name],
                "c_bound_apart": float(np.max(np.abs(figures.c_bound - found[one].c_bound))),
            }
            emit(row, arguments.json)
