"""Run by test_in_flight.py in a process of its own: many MinCq at once, in one of the ways that users have."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

# All cores: a test worker has pinned itself to one, where no two computations ever meet.
if __name__ == "__main__" and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, range(os.cpu_count() or 1))

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import pvmincq_jax as pvm

VOTERS, LANES, RANK = 300, 4, 112


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.resize([-1.0, 1.0], VOTERS)
    points = rng.normal(size=(VOTERS, 2)) + 0.7 * labels[:, None]
    votes = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1))
    return votes, labels, np.linspace(0.2, 0.8, LANES) * float(pvm.max_margin(votes, labels))


def check(solution: pvm.MinCqSolution, reference: pvm.MinCqSolution) -> None:
    assert np.all(np.asarray(solution.status) == pvm.Status.SOLVED)
    np.testing.assert_allclose(solution.c_bound, reference.c_bound, rtol=0, atol=1e-7)


def main(way: str, calls: int) -> None:
    jax.config.update("jax_enable_x64", True)
    if "shard" in way:
        jax.config.update("jax_num_cpu_devices", 2)
    votes, labels, margins = problem()
    factor = pvm.vote_factor(votes, rank=RANK)

    def lanes(margins: jax.Array) -> pvm.MinCqSolution:
        return jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, factor=factor))(margins)

    solve = jax.jit(lanes)
    reference = jax.block_until_ready(solve(margins))
    check(reference, reference)
    if way == "dispatches":
        for solution in [solve(margins) for _ in range(calls)]:
            check(solution, reference)
    elif way == "threads":
        with ThreadPoolExecutor(4) as pool:
            for solution in pool.map(solve, [margins] * calls):
                check(solution, reference)
    elif way == "gradients":
        # The votes are traced here: SVD and QR are in flight as well, and so is the SVD of the derivative.
        def total(votes: jax.Array, margins: jax.Array) -> jax.Array:
            return jnp.sum(jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, rank=RANK).c_bound)(margins))

        gradient = jax.jit(jax.vmap(jax.grad(total), in_axes=(0, None)))
        both = np.stack([votes, votes[::-1]])
        first, *others = [gradient(both, margins) for _ in range(calls)]
        assert np.all(np.isfinite(first))
        for other in others:
            np.testing.assert_array_equal(other, first)
    else:
        mesh = Mesh(np.array(jax.devices()), ("lane",))
        spec = PartitionSpec("lane")
        if way == "shard_map":
            split = jax.jit(jax.shard_map(lanes, mesh=mesh, in_specs=spec, out_specs=spec))
        else:
            split = jax.jit(lanes, in_shardings=NamedSharding(mesh, spec), out_shardings=NamedSharding(mesh, spec))
        for solution in [split(margins) for _ in range(calls)]:
            assert len(solution.weights.sharding.device_set) == 2
            check(solution, reference)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
