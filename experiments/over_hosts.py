"""One grid over the devices of several processes or machines, by jax.distributed.

Every process runs this same program. Each makes the whole grid's matchings for itself, solves its share of the
problems (one for each fold, radius and gamma) on its devices, and gets all figures: what is printed is the same
everywhere, and process 0 prints it. On a cluster that JAX knows (Slurm, Open MPI, GKE) nothing need be said: ::

    srun --ntasks 4 --cpus-per-task 8 python -m experiments.over_hosts --devices 8

Elsewhere, start one process on each machine, with the address of the first and a free port on it: ::

    python -m experiments.over_hosts --coordinator 10.0.0.1:9999 --processes 2 --process 0     # on 10.0.0.1
    python -m experiments.over_hosts --coordinator 10.0.0.1:9999 --processes 2 --process 1     # on the other

In a program of your own it takes three lines: ::

    jax.distributed.initialize()
    mesh = jax.sharding.Mesh(jax.devices(), ("problems",))
    fit = pvm.fit_validated(source, source_labels, target, mesh=mesh)
"""

import argparse
import time
from collections.abc import Sequence

import jax
import numpy as np

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Starts this process, learns over all devices, and prints what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.over_hosts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0; found by JAX on a known cluster")
    parser.add_argument("--processes", type=int, help="how many there are")
    parser.add_argument("--process", type=int, help="which one this is, from 0")
    parser.add_argument("--devices", type=int, default=1, help="CPU devices of this process (default 1)")
    parser.add_argument("--form", choices=["label", "transport"], default="label")
    parser.add_argument("--task", default="50", help="degrees of rotation, or translation (default 50)")
    parser.add_argument("--per-class", type=int, default=150, help="points of a class in each domain (default 150)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    jax.config.update("jax_num_cpu_devices", options.devices)
    try:
        jax.distributed.initialize(options.coordinator, options.processes, options.process)
    except ValueError as error:
        parser.error(f"JAX finds no cluster here ({error}): give --coordinator, --processes and --process")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("problems",))
    task = moons_task(options.task, options.seed, per_class=options.per_class)
    learn = pvm.fit_validated if options.form == "label" else pvm.fit_transport_validated
    start = time.perf_counter()
    given = {"seed": options.seed, "mesh": mesh, "progress": False}
    found = learn(task.source, task.source_labels, task.target, **given)
    seconds = time.perf_counter() - start
    if jax.process_index() == 0:
        choice = found.choice
        right = np.mean(pvm.predict(found.model, task.test) == task.test_labels)
        print(f"{jax.process_count()} processes, {jax.device_count()} devices, {seconds:.1f} s with compiling")
        print(f"chosen: radius {choice.radius:.6g}, gamma {choice.gamma:.6g}, margin {choice.margin:g}")
        print(f"criterion {choice.score:.9f}, C-bound {float(found.model.c_bound):.9f}, accuracy {100 * right:.2f} %")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
