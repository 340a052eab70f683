"""Many problems of many sizes in one process: programs are few, and those that are dropped free their memory."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_SETUP = """
import gc, sys
import jax, numpy as np
import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.voting import programs

wide = sys.argv[2] == "float64"
jax.config.update("jax_enable_x64", wide)
rng = np.random.default_rng(0)

def maps():
    return len(open("/proc/self/maps").readlines())

def call(most):
    points, voters = rng.integers(20, most, 2)
    x, centers = rng.normal(size=(points, 2)), rng.normal(size=(voters, 2))
    squares = ((x[:, None] - centers) ** 2).sum(axis=2)
    votes = np.exp(-squares * rng.choice([0.5, 2.0, 20.0])).astype(sys.argv[2])
    labels = np.sign(x[:, 0]).astype(sys.argv[2])
    pvm.mincq(votes, labels, float(pvm.max_margin(votes, labels)) * rng.choice([0.05, 0.3, 0.9]))

def grid():
    task = moons_task("30", int(rng.integers(1000)), per_class=int(rng.integers(10, 100)), test_size=2)
    options = {"gammas": rng.uniform(0.2, 20, 1), "margins": np.geomspace(rng.uniform(0.01, 0.1), 0.5, 3), "folds": 2}
    pvm.sweep(task.source, task.source_labels, task.target, progress=False, **options)

def fit():
    task = moons_task("30", int(rng.integers(1000)), per_class=int(rng.integers(10, 100)), test_size=2)
    margins, gammas = np.geomspace(rng.uniform(0.01, 0.1), 0.5, rng.integers(2, 6)), rng.uniform(0.2, 20, 2)
    pvm.fit_validated(task.source, task.source_labels, task.target, margins=margins, gammas=gammas, progress=False)

def within_limits():
    resident = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 700_000, resident
    assert maps() < 20_000, maps()
"""
_CALLS = """
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
)
call(80), call(80)
assert compiled
before, at_first = maps(), len(compiled)
for _ in range(25):
    call(80)
assert len(compiled) <= at_first + 1, compiled  # one program, if one problem takes sure steps
programs.program.cache_clear()
gc.collect()
assert maps() < before - 100, (before, maps())
within_limits()
"""
_GRIDS = """
for turn in range(500):
    call(400)
    if turn % 20 == 0:
        grid()
        within_limits()
within_limits()
"""
_FITS = """
for turn in range(300):
    fit()
    if turn % 20 == 0:
        within_limits()
within_limits()
"""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "work", [_CALLS, pytest.param(_GRIDS, marks=pytest.mark.long), pytest.param(_FITS, marks=pytest.mark.long)],
    ids=["calls", "grids", "fits"],
)  # fmt: skip
def test_memory_is_bounded(work, dtype):
    script = _SETUP + work
    done = subprocess.run([sys.executable, "-c", script, "", dtype], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
