"""Cores are counted as the process may use them, and BLAS gets its threads back."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from pvmincq_jax._threads import core_count, one_blas_thread
from pvmincq_jax.estimators import MinCqClassifier

PROGRAM = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, [0])
from pvmincq_jax._threads import core_count
print(core_count())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_a_process_on_one_core_counts_one():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert int(ran.stdout) == 1


def test_workers_are_told_how_many(monkeypatch):
    for given, expected in (("1", 1), ("", core_count()), ("4,2", core_count()), ("0", core_count())):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert core_count() == expected


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_is_left_as_it_was_found():
    before = blas_threads()
    with one_blas_thread():
        assert set(blas_threads()) == {1}
        with one_blas_thread():
            pass
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_fits_in_threads_are_those_of_one_thread():
    rng = np.random.default_rng(0)
    samples = [(rng.normal(size=(40, 3)), np.repeat([0, 1], 20)) for _ in range(4)]

    def weights(sample):
        return MinCqClassifier(gamma=0.5, margin=[0.1, 0.3]).fit(*sample).weights_

    alone = [weights(sample) for sample in samples]
    with ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(weights, samples))
    np.testing.assert_allclose(beside, alone, atol=1e-12)


FAILS = """
import pvmincq_jax as pvm
source, labels, target, *_ = pvm.datasets.moons_task("30", 0, per_class=60)
pvm.sweep(source, labels, target, radii=[-1.0])
"""


def test_an_error_while_xla_compiles_ends_the_process_with_the_error_alone():
    ran = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("ValueError: radii")
