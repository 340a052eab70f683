"""A device for each core, where nobody has asked for another number of them."""

import os
import subprocess
import sys

import jax
import pytest

from pvmincq_jax._threads import device_for_each_core

PROGRAM = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, range(os.cpu_count()))
import jax
{first}
from pvmincq_jax._threads import device_for_each_core
print(device_for_each_core(), jax.local_device_count(), len(os.sched_getaffinity(0)))
"""


def devices(first="", **environment):
    """What a new process finds: devices as told, devices of JAX, cores."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "XLA_FLAGS")}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [int(count) for count in ran.stdout.split()]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_each_core_has_a_device_unless_someone_says_otherwise():
    told, there, cores = devices()
    assert told == there == cores
    assert devices(OMP_NUM_THREADS="1")[:2] == [1, 1]
    assert devices('jax.config.update("jax_num_cpu_devices", 3)')[:2] == [3, 3]


def test_once_jax_has_started_there_is_what_there_is():
    before = jax.local_device_count()
    assert device_for_each_core() == before == jax.local_device_count()
