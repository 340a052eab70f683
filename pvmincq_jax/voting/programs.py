"""The compiled programs of `pvmincq_jax.voting.batch`: their sizes, how they are compiled, and which are kept."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._types import Array, precision
from pvmincq_jax.voting.program import Solver, Steps, learn, sample_of

__all__ = ["Key", "Program", "accepted_options", "known_options", "padded_rows", "padded_size"]

# Compiled programs that are kept. One takes 10 MB and some hundred memory maps.
_KEPT = 24
# The smallest number of voters that programs are compiled for, and of rows.
_SMALLEST = 80
# Options that shorten compiling by more than 15 %, see `experiments.benchmark compile`. Not every jaxlib knows them.
_OPTIONS: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
    "xla_backend_optimization_level": 1,
}


class Key(NamedTuple):
    """What tells programs apart."""

    voters: int
    rows: int
    steps: Steps
    batch: int
    dtype: np.dtype
    solver: Solver
    mesh: jax.sharding.Mesh | None
    device: Any


def padded_size(size: int) -> int:
    """The next number of voters for which programs are compiled: 80, 160, 320, 640, and so on.

    Example:
      >>> [padded_size(size) for size in (10, 80, 81, 200, 300, 1000)]
      [80, 80, 160, 320, 320, 1280]
    """
    return _SMALLEST << max((size - 1) // _SMALLEST, 0).bit_length()


def padded_rows(rows: int, voters: int) -> int:
    """The next number of rows for which programs of so many voters are compiled: a quarter of the voters, or all.

    Example:
      >>> [padded_rows(rows, 320) for rows in (20, 81, 89, 321)]
      [88, 88, 336, 336]
    """
    # A small sample may have one row more, for the labels.
    few = max(_SMALLEST, voters // 4) + 8
    return few if rows <= few else voters + 16


@functools.lru_cache
def known_options(platform: str) -> dict[str, Any]:
    """Those of our options that this jaxlib accepts."""
    return accepted_options(_OPTIONS) if platform == "cpu" else {}


def accepted_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those of some options that this jaxlib accepts, each tried on a program of one addition."""
    lowered = jax.jit(lambda x: x + 1).lower(0.0)

    def accepts(name: str) -> bool:
        try:
            lowered.compile(compiler_options={name: options[name]})
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" in str(error):
                return False
            raise
        return True

    return {name: value for name, value in options.items() if accepts(name)}


def _in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jax.vmap`, one after the other."""
    return lambda *arrays: jax.lax.map(lambda each: function(*each), arrays)


class Program:
    """MinCq on a batch of padded small samples: rows ``[b, r, n]``, labels ``[b, r]``, masks ``[b, n]``, margins."""

    def __init__(self, key: Key) -> None:
        """Compiles nothing yet."""
        self.key, self._lock = key, threading.Lock()
        self._compiled: Any = None

    def __call__(self, *arguments: np.ndarray) -> Any:
        """What `learn` finds, for each problem and margin. Threads that ask for it at once compile it once."""
        key = self.key
        with precision(key.dtype), jax.default_device(key.device):
            with self._lock:
                if self._compiled is None:
                    options = known_options(platform_of(key.mesh, key.device))
                    self._compiled = self.lower(arguments).compile(compiler_options=options)
            return _fetch(self._compiled(*_put(arguments, key.mesh)), key.mesh)

    def lower(self, arguments: Sequence[np.ndarray]) -> jax.stages.Lowered:
        """Traced for arrays of these shapes, anew each time."""
        key = self.key
        # A CPU would take the problems of a vmap in turn, too. Said at once, that is traced in a fifth of the time.
        over = _in_turn if platform_of(key.mesh, key.device) == "cpu" else jax.vmap

        def one(rows: Array, labels: Array, mask: Array, margins: Array) -> Any:
            sample = sample_of(rows, labels, jax.numpy.ones_like(labels), mask, None)
            return over(lambda mu: learn(sample, mu, key.solver, key.steps))(margins)

        function, sharding = over(one), None
        if key.mesh is not None:
            split = jax.sharding.PartitionSpec(key.mesh.axis_names[0])
            sharding = jax.sharding.NamedSharding(key.mesh, split)
            function = jax.shard_map(function, mesh=key.mesh, in_specs=(split,) * 4, out_specs=split)
        shapes = [jax.ShapeDtypeStruct(part.shape, part.dtype, sharding=sharding) for part in arguments]
        return jax.jit(function).lower(*shapes)


program = functools.lru_cache(maxsize=_KEPT)(Program)


def platform_of(mesh: jax.sharding.Mesh | None, device: Any) -> str:
    """Of a mesh, of the device that a caller's scope names, or JAX's own."""
    if mesh is not None:
        return mesh.devices.flat[0].platform
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def _put(arrays: Sequence[np.ndarray], mesh: jax.sharding.Mesh | None) -> Sequence[Any]:
    """Arrays as they are, or split over the devices of a mesh, in whichever process."""
    if mesh is None:
        return arrays
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names[0]))
    return tuple(
        jax.make_array_from_callback(array.shape, sharding, lambda index, array=array: array[index])  # type: ignore[misc]
        for array in arrays
    )


def _fetch(solution: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Results as NumPy arrays, from all processes if there are several."""
    if mesh is not None and jax.process_count() > 1:
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(solution, tiled=True)
    return jax.device_get(solution)
