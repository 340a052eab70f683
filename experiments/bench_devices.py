"""One grid on one device, and over a mesh of a device for each core: how much faster several cores are."""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pvmincq_jax as pvm
from experiments.bench_common import device_for_each_core, emit, versions
from pvmincq_jax.datasets import moons_task

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark devices``."""
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each; the best counts")
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> None:
    """Prints the rows."""
    cores = device_for_each_core()
    emit({"benchmark": "devices", "seed": arguments.seed, "cores": cores, **versions("jax")}, arguments.json)
    task = moons_task("40", arguments.seed, per_class=20 if arguments.quick else 150)
    # The narrowest of the default kernels, whose votes have the highest rank; radii that need no search.
    given: dict[str, Any] = {"gammas": pvm.default_gammas(task.target)[2:], "seed": arguments.seed, "progress": False}
    given["radii"] = pvm.grid_radii(task.source, task.target, np.arange(10) / 20, "pv")

    def mesh(devices: int) -> jax.sharding.Mesh:
        return jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("lanes",))

    ways: dict[str, Callable[[], pvm.Sweep]] = {
        name: lambda over=over: pvm.sweep(task.source, task.source_labels, task.target, **given, mesh=over)  # type: ignore[misc]
        for name, over in (("one device", mesh(1)), (f"mesh of {cores}", mesh(cores)))
    }
    found = {name: way() for name, way in ways.items()}
    best = dict.fromkeys(ways, np.inf)
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    one = found["one device"]
    for name, figures in found.items():
        row = {
            "benchmark": "devices",
            "way": name,
            "qps": int(figures.status.size + figures.fold_status.size),
            "seconds": best[name],
            "times_faster": best["one device"] / best[name],
            "c_bound_apart": float(np.max(np.abs(figures.c_bound - one.c_bound))),
        }
        emit(row, arguments.json)
