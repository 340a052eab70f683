"""What `experiments.benchmark` runs: a module for each benchmark, with ``add_arguments`` and ``run``."""
