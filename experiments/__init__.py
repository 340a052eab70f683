"""The experiments: data, methods, tables, figures and benchmarks, each a command with ``--help``."""
