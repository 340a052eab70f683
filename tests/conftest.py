"""All tests run with 64-bit floats switched on; tests of float32 pass float32 arrays."""

import os

# One core per worker, taken before JAX counts them: threads of two workers on two cores only wait for each other.
worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if worker and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
