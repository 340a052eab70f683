"""Grids over two devices and over two processes give what one device gives."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def start(*command):
    return subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def end(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    # What connects the processes announces itself.
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith("[Gloo]"))


def test_two_devices_give_what_one_gives():
    found = json.loads(end(start("tests/adaptation/over_devices.py")))
    assert found.pop("devices") == 2
    assert set(found) == {"label", "transport", "fit", "explicit axes", "a mesh that is set", "a user's jit"}
    assert max(found.values()) < 1e-7


# What compiles fast, and one gamma in place of three.
QUICK = """
from pvmincq_jax.voting import programs, voters
programs._OPTIONS = {}
voters.GAMMA_MULTIPLES = (2.0,)
"""
COMMAND = f"{QUICK}\nfrom experiments import over_hosts\nover_hosts.main()"


@pytest.mark.parametrize("form", ["label", pytest.param("transport", marks=pytest.mark.long)])
def test_two_processes_give_what_one_gives(form):
    def run(count):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        given = ["--coordinator", address, "--processes", str(count), "--form", form, "--per-class", "10"]
        started = [start("-c", COMMAND, *given, "--process", str(i)) for i in range(count)]
        return [end(process) for process in started]

    (alone,), (first, second) = run(1), run(2)
    assert second == ""
    assert first.startswith("2 processes, 2 devices")
    numbers = [re.findall(r"-?\d+\.\d+", text.split("\n", 1)[1]) for text in (alone, first)]
    assert len(numbers[0]) >= 5
    for one, other in zip(*numbers, strict=True):
        assert float(one) == pytest.approx(float(other), abs=1e-7)


ALONE = """
import sys, jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import pvmincq_jax as pvm
task = pvm.datasets.moons_task("40", 3, per_class=15, test_size=10)
fit = pvm.fit_validated(*task[:3], radii=[0.6], margins=[0.1, 0.4], gammas=[6.0], folds=2)
print(f"{float(fit.model.c_bound):.12f}")
"""


def test_without_a_mesh_every_process_solves_for_itself():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    first, second = [end(process) for process in [start("-c", QUICK + ALONE, address, str(i)) for i in range(2)]]
    assert first == second != ""
