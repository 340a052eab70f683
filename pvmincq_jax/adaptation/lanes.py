"""What a compiled program takes: lanes on their voters, at sizes of a short ladder.

A problem is a lane: the labels and weights of the learning points, and the voters that take part. Points, voters and
ranks are rounded up to a few sizes and filled with points of weight 0, masked voters and directions that need not have
been kept, which change nothing in the result. Nearby problems then share a compiled program: compiling takes seconds,
solving milliseconds. The factor's tolerance follows from the margins, see `factor_tolerance`: first the one that is
enough as a rule, as the certificate of each solution says whether it was.
"""

from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._types import MarginUnit
from pvmincq_jax.voting.factor import ladder_rank, row_basis

__all__: list[str] = []

# Roundings of the votes that a largest margin has to be above.
_ROUNDED = 64

# The relative change of the second moment that a factor may cause; 1e-7 counts as solved.
_DROPPED = 2e-8
# Up to this size a program of higher rank than needed takes milliseconds longer, and seconds less to compile.
_SMALL_SIZE, _SMALL_RANK = 256, 128


class Lanes(NamedTuple):
    """Problems over the same points and voters, one a row.

    Attributes:
      labels: of the learning points ``[L, m]``, in [-1, 1].
      weights: ``[L, m]``, 0 for a point that is not learnt from.
      mask: which voters take part ``[L, n]``.
    """

    labels: np.ndarray
    weights: np.ndarray
    mask: np.ndarray

    def part(self, numbers: np.ndarray | list[int]) -> "Lanes":
        """Some of the lanes."""
        return Lanes(*(field[numbers] for field in self))

    def padded(self) -> "Lanes":
        """The same, at the sizes of a compiled program."""
        return Lanes(*(pad(field, len(field), ladder_size(field.shape[1])) for field in self))


def ladder_size(size: int) -> int:
    """The number of points or voters of a compiled program.

    Example:
      >>> [ladder_size(size) for size in (10, 64, 65, 300, 1000, 1100)]
      [64, 64, 128, 320, 1024, 1280]
    """
    step = max(64, 1 << max(int(size - 1).bit_length() - 3, 0))
    return 256 if 128 < size <= 256 else -(-size // step) * step


def program_rank(rank: int, points: int, voters: int) -> int:
    """The rank of a compiled program, at most that of its points and voters.

    Example:
      >>> [program_rank(rank, 320, 320) for rank in (20, 52, 70, 200, 300)], program_rank(20, 128, 128)
      ([24, 64, 92, 200, 320], 128)
    """
    least = _SMALL_RANK if max(points, voters) <= _SMALL_SIZE else 1
    return min(max(ladder_rank(rank), least), points, voters)


def _shares(weights: np.ndarray) -> np.ndarray:
    """Weights that add up to 1 along the last axis; NaN without any."""
    with np.errstate(invalid="ignore"):
        return weights / np.sum(weights, axis=-1, keepdims=True)


def above_rounding(mu_max: Any, size: float, dtype: Any) -> Any:
    """mu_max, or 0 where it is no more than the rounding of votes of this size: the labels of all voters cancel.

    Example:
      >>> above_rounding(np.array([1e-17, 0.25]), 0.5, np.dtype(float))
      array([0.  , 0.25])
    """
    return np.where(mu_max <= _ROUNDED * np.finfo(dtype).eps * size, 0.0, mu_max)


def _largest_margins(votes: np.ndarray, lanes: Lanes) -> np.ndarray:
    """mu_max of each lane ``[L]``."""
    each = np.abs((_shares(lanes.weights) * lanes.labels) @ votes)
    size = float(np.sqrt(np.mean(votes**2)))
    with np.errstate(invalid="ignore"):
        mu_max = np.sum(each, axis=1, where=lanes.mask) / np.sum(lanes.mask, axis=1)
        return above_rounding(mu_max, size, votes.dtype)


def factor_tolerance(votes: np.ndarray, lanes: Lanes, margins: np.ndarray, sure: bool) -> float:
    """How much a factor of the votes may drop, relative to the largest singular value, for all lanes and margins.

    Dropping singular values up to t s_1 leaves E out of the scaled votes, |E| <= t s_1 sqrt(max share), and |w|^2 is at
    most 1 / n. The second moment, not below mu^2, then changes by (t s_1 sqrt(max share / n) / mu)^2 of itself at most:
    if w is the one direction of n that E takes most from. Of a w that has nothing to do with E, it takes an n-th.

    Args:
      votes: ``[m, n]``.
      lanes: of these points and voters.
      margins: mu, absolute ``[L, k]``.
      sure: for every w, or for one that has nothing to do with what is dropped.

    Returns: the t that bounds this change by 2e-8; not below the rounding of the votes, and not above 1e-3.
    """
    share, voters = np.max(_shares(lanes.weights), axis=1), np.sum(lanes.mask, axis=1)
    reach = np.min(margins, axis=1) / np.sqrt(share / voters) * (1 if sure else np.sqrt(voters))
    # A lane without a learning point, or whose labels cancel, is infeasible at any tolerance.
    reach = reach[reach > 0]
    # An upper bound on s_1 that is close for kernels, and costs nothing.
    largest = np.sqrt(np.max(np.sum(np.abs(votes), axis=0)) * np.max(np.sum(np.abs(votes), axis=1)))
    allowed = float(np.sqrt(_DROPPED) * np.min(reach, initial=np.inf) / max(largest, np.finfo(votes.dtype).tiny))
    return float(np.clip(allowed, 4 * np.finfo(votes.dtype).eps, 1e-3))


def pad(array: np.ndarray, *sizes: int) -> np.ndarray:
    """The array with zeros behind, along its first axes."""
    return np.pad(array, [(0, size - length) for size, length in zip(sizes, array.shape)])


class LaneVoters(NamedTuple):
    """Votes and their factor as a program takes them, with what the lanes say of their margins."""

    votes: np.ndarray  # [1, m, n]
    left: np.ndarray  # [1, m, rank]
    right: np.ndarray  # [1, rank, n]
    margins: np.ndarray  # mu [L, k]
    mu_max: np.ndarray  # [L]

    def at_rank(self, rank: int) -> "LaneVoters":
        """The same, with a factor of higher rank."""
        left, right = pad(self.left, 1, self.left.shape[1], rank), pad(self.right, 1, rank, self.right.shape[2])
        return self._replace(left=left, right=right)


def lane_voters(votes: np.ndarray, lanes: Lanes, margins: np.ndarray, unit: MarginUnit, sure: bool) -> LaneVoters:
    """Margins ``[L, k]`` as mu; votes that nobody casts put to 0, so that they take up no rank; the factor."""
    mu_max = _largest_margins(votes, lanes)
    # Without a largest margin the program is asked for anything, and says that the input is bad.
    mu = margins * np.where(np.isnan(mu_max), 1.0, mu_max)[:, None] if unit == "fraction" else margins
    used = np.where(np.any(lanes.mask, axis=0), votes, 0) if not np.all(lanes.mask) else votes
    sizes = ladder_size(votes.shape[0]), ladder_size(votes.shape[1])
    right = row_basis(used, factor_tolerance(used, lanes, mu, sure), lambda rank: program_rank(rank, *sizes))
    rank = program_rank(len(right), *sizes)
    left, right = pad(used @ right.T, sizes[0], rank), pad(right, rank, sizes[1])
    return LaneVoters(pad(votes, *sizes)[None], left[None], right[None], mu.astype(votes.dtype), mu_max)


def side_by_side(each: list[LaneVoters]) -> LaneVoters:
    """Votes of several lanes, one for each device, of one rank."""
    rank = max(one.left.shape[2] for one in each)
    return LaneVoters(*(np.concatenate(fields) for fields in zip(*(one.at_rank(rank) for one in each))))
