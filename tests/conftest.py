"""All tests run with 64-bit floats switched on; tests of float32 pass float32 arrays."""

import jax

jax.config.update("jax_enable_x64", True)
