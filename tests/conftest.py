"""All tests run with 64-bit floats switched on; tests of float32 pass float32 arrays."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if not worker and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # What one process has compiled, the others of this run need not compile again.
    shared = tempfile.mkdtemp(prefix="pvmincq-jax-tests-")
    atexit.register(shutil.rmtree, shared, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = shared
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# Most of the suite's time is compiling. Without LLVM's optimisation a program compiles five times faster, does the same
# in the same dtype, and on problems of these sizes is as fast; without fusion emitters it compiles twice as fast. A set
# XLA_FLAGS, even an empty one, is left alone.
FLAGS = "--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false"


def known_flags():
    """Those of FLAGS that this jaxlib knows: any other one would end the process. Tried once, then kept in a file."""
    kept = Path(tempfile.gettempdir()) / f"pvmincq-jax-tests-flags-jaxlib-{version('jaxlib')}"
    if not kept.exists():
        command = [sys.executable, "-c", "import jax; jax.devices()"]
        found = [
            flag
            for flag in FLAGS
            if not subprocess.run(command, env=os.environ | {"XLA_FLAGS": flag}, capture_output=True).returncode
        ]
        kept.write_text(" ".join(found))
    return kept.read_text()


if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = known_flags()

# One core per worker, taken before JAX counts them: threads of two workers on two cores only wait for each other.
if worker and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from pvmincq_jax.voting import programs, voters  # noqa: E402

jax.config.update("jax_enable_x64", True)
programs._OPTIONS = {}  # They would go before XLA_FLAGS.


@pytest.fixture(scope="module")
def one_gamma():
    """Default grids with one gamma in place of three: a third of the programs to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voters, "GAMMA_MULTIPLES", (2.0,))
        yield


@pytest.fixture
def one_call(monkeypatch):
    """Benchmarks call what they time once a turn, and keep what is compiled."""
    from experiments.bench import common, solvers

    monkeypatch.setattr(common.best_seconds, "__defaults__", (0.0,))
    monkeypatch.setattr(solvers, "best_seconds", lambda functions, repeats, turn: common.best_seconds(functions, 1, 0))
    monkeypatch.setattr(jax, "clear_caches", lambda: None)


@pytest.fixture(scope="module")
def both(task):
    """X, y and sample_domain of the module's ``task``; target rows lie between source rows, classes are 3 and 7."""
    sizes = len(task.source), len(task.target)
    order = np.random.default_rng(0).permutation(sum(sizes))
    x = np.concatenate([task.source, task.target])[order]
    y = np.concatenate([np.where(task.source_labels > 0, 7, 3), np.full(sizes[1], -1)])[order]
    return x, y, np.repeat([1, -2], sizes)[order]
