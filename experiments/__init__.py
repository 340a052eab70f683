"""The experiments: data, methods, tables, figures and benchmarks, each a command with ``--help``.

They run XLA on one thread, unless XLA_FLAGS says otherwise: several computations at once on a small pool of threads can
lock each other out for ever (batched LAPACK calls of jaxlib 0.10), and the problems are too small for threads to pay.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
