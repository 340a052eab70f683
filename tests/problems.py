"""Random MinCq problems of every kind, and another solver's answer to them."""

import numpy as np

from experiments.run.problems import (
    FRACTIONS,
    HARD_KINDS,
    KINDS,
    Problem,
    clarabel_solution,
    kernel,
    moments,
    random_problem,
)

__all__ = ["FRACTIONS", "HARD_KINDS", "KINDS", "Problem", "clarabel_objective", "kernel", "moments", "random_problem"]


def clarabel_objective(root: np.ndarray, margins: np.ndarray, fraction: float) -> float:
    """The least w'Mw over mu^2, by Clarabel."""
    x, _ = clarabel_solution(root, margins, fraction)
    return float(np.sum((root @ x) ** 2)) / float(margins @ x) ** 2
