"""Host functions compute in the precision of what they are given, whatever the caller's JAX configuration."""

import contextlib

import jax
import numpy as np

from pvmincq_jax._types import ArrayLike

__all__: list[str] = []


def common_dtype(*arrays: ArrayLike) -> np.dtype:
    """float32 if all floating arrays are at most that wide, else float64."""
    kinds = [np.asarray(array).dtype for array in arrays]
    floats = [kind for kind in kinds if np.issubdtype(kind, np.floating)]
    narrow = bool(floats) and all(kind.itemsize <= 4 for kind in floats)
    return np.dtype(np.float32 if narrow else np.float64)


def precision(dtype: np.dtype) -> contextlib.AbstractContextManager:
    """A scope, of this thread alone, in which JAX keeps arrays of this dtype as they are."""
    return jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext()
