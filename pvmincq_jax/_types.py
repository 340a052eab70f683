"""Array aliases, and the codes by which traced functions report how they ended."""

import enum

import jax
import numpy as np

__all__ = ["Array", "ArrayLike", "Status"]

Array = jax.Array
ArrayLike = jax.Array | np.ndarray | float | int


class Status(enum.IntEnum):
    """How a traced computation ended: failure is data, one code per vmapped lane.

    Arrays of status hold plain integers, which compare equal to the members.

    Example:
      >>> int(Status.SOLVED), Status(1).sentence
      (0, 'the margin is not in (0, mu_max]: no weights inside the box reach it')
    """

    SOLVED = 0
    INFEASIBLE = 1
    MAX_ITERATIONS = 2
    BAD_INPUT = 3

    @property
    def sentence(self) -> str:
        """What the code means, for a person."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.SOLVED: "solved to the stated accuracy",
    Status.INFEASIBLE: "the margin is not in (0, mu_max]: no weights inside the box reach it",
    Status.MAX_ITERATIONS: "stopped before the stated accuracy was reached",
    Status.BAD_INPUT: "the input holds NaN or infinity, labels outside [-1, 1], negative sample weights, "
    "or no weight or voter at all",
}
