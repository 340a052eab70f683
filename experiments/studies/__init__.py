"""What settled a choice once: each is one page, run by hand as ``python -m experiments.studies.NAME``."""
