"""All tests run with 64-bit floats switched on; tests of float32 pass float32 arrays."""

import os

# One thread per worker: the suite runs in as many workers as there are cores.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax

jax.config.update("jax_enable_x64", True)
