"""Whether JAX can compute in this process: not where it was forked from one in which JAX had begun to."""

import os

import jax

__all__: list[str] = []

_forked = False


def jax_has_begun() -> bool:
    """Whether JAX has chosen its devices, which its first computation does.

    From then on it refuses another number of devices.
    """
    count = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_num_cpu_devices", 2 if count == 1 else 1)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", count)
    return False


def _after_fork() -> None:
    global _forked
    _forked = jax_has_begun()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Raises an error where a computation would wait for ever: a fork copies no threads, and JAX's are missing."""
    if _forked:
        raise RuntimeError(
            "this process was forked from one in which JAX had computed, and would wait for JAX's threads for ever: "
            "start it by multiprocessing.get_context('spawn') or 'forkserver', or before the first computation"
        )
