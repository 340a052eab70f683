"""The cache of compiled programs: where it is, that commands switch it on and the library does not."""

import os
import subprocess
import sys
from pathlib import Path

from experiments.run.cache import cache_folder, switch_cache_on

ROOT = Path(__file__).parents[2]


def test_where(monkeypatch):
    monkeypatch.delenv("PVMINCQ_JAX_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/pvmincq-jax")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "pvmincq-jax"
    monkeypatch.setenv("PVMINCQ_JAX_CACHE", "/set")
    assert cache_folder() == Path("/set")
    assert cache_folder("/given") == Path("/given")


def test_the_second_process_reads_what_the_first_compiled(tmp_path):
    """Switched on before JAX is loaded, as in a worker, and after it, as in a command; never by the library."""
    # As a process leaves it that is killed between the two files of a program: JAX would write no more.
    left = tmp_path / "left-cache"
    left.touch()
    os.utime(left, (0, 0))
    program = """
import sys
from experiments.run.cache import switch_cache_on
if "after" in sys.argv:
    import pvmincq_jax, jax
    assert jax.config.jax_compilation_cache_dir is None
switch_cache_on(sys.argv[1])
import jax, jax.monitoring
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
jax.jit(lambda x: x @ x + 1)(jax.numpy.ones((3, 3)))
print(jax.config.jax_compilation_cache_max_size, "/jax/compilation_cache/cache_hits" in hits)
"""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMP")}
    said = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), when],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env=surroundings,
        ).stdout.split()
        for when in ("before", "after")
    ]
    assert said == [[str(2**30), "False"], [str(2**30), "True"]]
    assert not left.exists()


def test_a_cache_of_the_users_own_stays(monkeypatch, tmp_path):
    switch_cache_on.cache_clear()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/own")
    monkeypatch.setenv("PVMINCQ_JAX_CACHE", str(tmp_path / "made"))
    before = dict(os.environ)
    switch_cache_on()
    switch_cache_on("off")
    assert os.environ == before
    assert not (tmp_path / "made").exists()
    switch_cache_on.cache_clear()
