"""Factorisations under vmap: one matrix after the other on a CPU, batched elsewhere.

jaxlib's batched LAPACK kernels on the CPU share a pool of threads, and when several computations are in flight they may
wait for each other for ever; called matrix by matrix they do not, at the same speed. So a batch is a loop on a CPU, in
which no problem waits for a slower one, and a batch of kernels on an accelerator.

The results are constants to JAX: MinCq takes its derivatives from the implicit function theorem, never through a
factorisation.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array

__all__: list[str] = []


def loop_on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of pytrees of arrays, with this batching rule."""
    batchable = jax.custom_batching.custom_vmap(function)

    @batchable.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *arguments: Any) -> tuple[Any, Any]:
        del axis_size
        leaves, structure = jax.tree.flatten(arguments)
        batched = jax.tree.leaves(in_batched)

        def in_turn(*leaves: Array) -> Any:
            def one(mapped: list[Array]) -> Any:
                rest = iter(mapped)
                whole = [next(rest) if flag else leaf for leaf, flag in zip(leaves, batched)]
                return batchable(*jax.tree.unflatten(structure, whole))

            return jax.lax.map(one, [leaf for leaf, flag in zip(leaves, batched) if flag])

        def together(*leaves: Array) -> Any:
            axes = [0 if flag else None for flag in batched]
            return jax.vmap(lambda *each: function(*jax.tree.unflatten(structure, each)), axes)(*leaves)

        results = jax.lax.platform_dependent(*leaves, cpu=in_turn, default=together)
        return results, jax.tree.map(lambda _: True, results)

    return batchable


@loop_on_cpu
def _qr(matrix: Array) -> Array:
    return jnp.linalg.qr(matrix)[0]


@loop_on_cpu
def _svd(matrix: Array) -> tuple[Array, Array, Array]:
    left, singular, right = jnp.linalg.svd(matrix, full_matrices=False)
    return left, singular, right


def orthonormal_columns(matrix: Array) -> Array:
    """Q ``[m, r]`` of the thin QR factorisation of a matrix ``[m, r]``."""
    return _qr(jax.lax.stop_gradient(matrix))


def thin_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Left vectors ``[m, k]``, singular values ``[k]`` and right vectors ``[k, n]``, with k the smaller side."""
    return _svd(jax.lax.stop_gradient(matrix))
