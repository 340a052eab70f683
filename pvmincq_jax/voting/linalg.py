"""Factorisations of one matrix at a time, under vmap too.

jaxlib's batched LAPACK kernels on the CPU share a pool of threads, and when several computations are in flight they may
wait for each other for ever. Called matrix by matrix they do not, at the same speed. The results are constants to JAX:
MinCq takes its derivatives from the implicit function theorem, never through a factorisation.
"""

import jax
import jax.numpy as jnp

from pvmincq_jax._types import Array

__all__: list[str] = []


@jax.custom_batching.sequential_vmap
def _qr(matrix: Array) -> Array:
    return jnp.linalg.qr(matrix)[0]


@jax.custom_batching.sequential_vmap
def _svd(matrix: Array) -> tuple[Array, Array, Array]:
    left, singular, right = jnp.linalg.svd(matrix, full_matrices=False)
    return left, singular, right


@jax.custom_batching.sequential_vmap
def cholesky(matrix: Array) -> Array:
    """L ``[r, r]`` with L L' = matrix, of which the lower triangle alone is read."""
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


@jax.custom_batching.sequential_vmap
def cholesky_solve(lower: Array, right_side: Array) -> Array:
    """(L L')^-1 right_side ``[r]``."""
    return jax.scipy.linalg.cho_solve((lower, True), right_side)


def orthonormal_columns(matrix: Array) -> Array:
    """Q ``[m, r]`` of the thin QR factorisation of a matrix ``[m, r]``."""
    return _qr(jax.lax.stop_gradient(matrix))


def thin_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Left vectors ``[m, k]``, singular values ``[k]`` and right vectors ``[k, n]``, with k the smaller side."""
    return _svd(jax.lax.stop_gradient(matrix))
