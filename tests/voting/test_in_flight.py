"""Many MinCq in flight at once end, and end right: 300 voters at a rank at which batched LAPACK kernels hang."""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.voting.mincq import Solver

# Seconds; ten times what the longest takes on two cores.
TIME_OUT = 200


SHORT = ("dispatches", 30), ("threads", 24), ("gradients", 4), ("shard_map", 3)
LONG = ("dispatches", 80), ("threads", 40), ("shard_map", 20), ("sharded_jit", 20)


@pytest.mark.parametrize(("way", "calls"), [*SHORT, *(pytest.param(*one, marks=pytest.mark.long) for one in LONG)])
def test_many_at_once(way: str, calls: int) -> None:
    # OpenBLAS's own threads, which a busy machine makes very slow, have no part in this.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    script = [sys.executable, "-m", "tests.voting.in_flight", way, str(calls)]
    subprocess.run(script, check=True, timeout=TIME_OUT, env=environment)


@pytest.mark.parametrize("solver", ["interior_point", "jaxopt"])
def test_no_lapack_kernel_is_batched(solver: Solver) -> None:
    """Votes, masks and margins in lanes, with derivatives: every kernel of LAPACK sees one matrix."""
    rng = np.random.default_rng(0)
    labels = np.resize([-1.0, 1.0], 12)
    votes = np.tanh(rng.normal(size=(3, 12, 6)) + labels[:, None])

    def weights(votes, mask, margin):
        return pvm.mincq(votes, labels, margin, voter_mask=mask, solver=solver).weights

    arguments = votes, np.ones((3, 6), bool), np.full(3, 0.1)
    text = jax.jit(jax.vmap(jax.jacfwd(weights, argnums=(0, 2)))).lower(*arguments).compile().as_text()
    kernels = re.findall(r"= (.*) custom-call\(.*custom_call_target=\"lapack_(\w+)\"", text)
    assert {name[1:].removesuffix("_ffi") for _, name in kernels} >= {"geqrf", "gesdd"}
    for shapes, name in kernels:
        for dimensions in re.findall(r"\[([\d,]*)\]", shapes):
            # Matrices have rank 2; a third dimension is the batch, of one.
            assert dimensions.count(",") < 2 or dimensions.startswith("1,"), (name, shapes)
