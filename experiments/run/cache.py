"""JAX's persistent compilation cache, for commands: what one worker or yesterday's run has compiled is read from disk.

The library itself never switches it on.
"""

import functools
import os
import sys
import time
from pathlib import Path

__all__ = ["OFF", "cache_folder", "switch_cache_on"]

OFF = "off"
# In bytes; JAX removes what was not used for longest. A program of this library takes some 100 kB.
_LIMIT = 2**30
# Seconds: of a program that compiles faster, reading it from disk would gain little.
_WORTHWHILE = 0.05


def cache_folder(given: str | None = None) -> Path:
    """Where programs are kept: the given folder, else PVMINCQ_JAX_CACHE, else one in the user's cache directory."""
    folder = given or os.environ.get("PVMINCQ_JAX_CACHE")
    return Path(folder or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "pvmincq-jax").expanduser()


def _mend(folder: Path) -> None:
    """Removes programs that a killed process left without the second file that JAX wants for each."""
    for program in folder.glob("*-cache"):
        used = program.with_name(program.name.removesuffix("-cache") + "-atime")
        if not used.exists() and time.time() - program.stat().st_mtime > 5:
            program.unlink(missing_ok=True)


@functools.cache
def switch_cache_on(given: str | None = None) -> None:
    """Switches the cache on in this process, before or after JAX was loaded.

    A cache that JAX's own variable JAX_COMPILATION_CACHE_DIR names stays as it is, unless a folder is given, and
    JAX_COMPILATION_CACHE_MAX_SIZE sets another limit than 1 GB.

    Args:
      given: the folder; "off" for none.
    """
    if given == OFF or (given is None and "JAX_COMPILATION_CACHE_DIR" in os.environ):
        return
    folder = cache_folder(given)
    _mend(folder)
    values = {
        "JAX_COMPILATION_CACHE_MAX_SIZE": os.environ.get("JAX_COMPILATION_CACHE_MAX_SIZE", str(_LIMIT)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(_WORTHWHILE),
        "JAX_COMPILATION_CACHE_DIR": str(folder),
    }
    os.environ.update(values)
    if "jax" in sys.modules:
        import jax

        jax.config.update("jax_compilation_cache_max_size", int(values["JAX_COMPILATION_CACHE_MAX_SIZE"]))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTHWHILE)
        jax.config.update("jax_compilation_cache_dir", str(folder))
