"""Squared distances between two samples."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from pvmincq_jax._checks import is_traced

__all__: list[str] = []


def squared_distances(x: Any, y: Any) -> Any:
    """|x_i - y_j|^2 ``[m, n]``, in JAX where something is traced, else in NumPy, in the points' own precision."""
    if is_traced(x, y):
        x, y = jnp.asarray(x), jnp.asarray(y)
        dtype = jnp.result_type(x, y, float if jnp.issubdtype(x.dtype, jnp.integer) else x)
        return jnp.sum((x[:, None, :].astype(dtype) - y[None, :, :]) ** 2, axis=-1)
    x, y = np.asarray(x), np.asarray(y)
    dtype = np.result_type(x, y)
    return cdist(x, y, "sqeuclidean").astype(dtype if np.issubdtype(dtype, np.floating) else float)
