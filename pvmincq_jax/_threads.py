"""Cores: a device of JAX for each, and BLAS on one thread while our own work fills them."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import jax

__all__: list[str] = []

_lock = threading.Lock()
_inside = 0
_limit: Any = None


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_for_each_core() -> int:
    """Asks JAX for a CPU device for each core, if it has not started and the user has not asked for any.

    Grids go over all CPU devices. ``OMP_NUM_THREADS`` bounds them, which joblib sets for its workers. For commands and
    estimators: functions leave JAX's configuration alone.

    Returns: how many devices there are.
    """
    asked = jax.config.jax_num_cpu_devices != -1 or "device_count" in os.environ.get("XLA_FLAGS", "")  # type: ignore[attr-defined]
    cores = core_count()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    cores = min(cores, int(threads)) if threads.isdigit() else cores
    # JAX refuses once it has started: there is then what there is.
    with contextlib.suppress(RuntimeError):
        if not asked and cores > 1:
            jax.config.update("jax_num_cpu_devices", cores)
    return jax.local_device_count()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread, where threadpoolctl (a part of scikit-learn's installation) is there to see to it.

    Products and factorisations of some hundred rows gain nothing from BLAS's own threads, and take many times as long
    where these wait for a core that others use. The setting belongs to the whole process: the first to enter makes it,
    and the last to leave, in whichever thread, takes it back.
    """
    global _inside, _limit
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            _limit = threadpool_limits(1, "blas")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limit.restore_original_limits()
