"""Who learns, and who votes: Gaussian voters sit on the points learnt from, or on some that stand for all of them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import fold_numbers, spread_rows
from pvmincq_jax.adaptation.transport import Transport
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.families import VoterKind, on_points

__all__: list[str] = []

Centers = Literal["target", "source", "both"]

# Voters at most, unless asked for more; ``python -m experiments.voters --most`` compares others. The paper's samples
# have as many points.
MOST_VOTERS = 300


class Seats(NamedTuple):
    """Places of voters: those on target points, then those on source points.

    Attributes:
      points: ``[n, d]``.
      of_target: the voter that stands for each target point ``[m_t]``, its own or the nearest; empty without any.
      source_rows: source points of the voters that come last.
    """

    points: np.ndarray
    of_target: np.ndarray
    source_rows: np.ndarray

    def mask(self, matched: np.ndarray, learning: np.ndarray) -> np.ndarray:
        """Which voters take part ``[n]``: those of matched target ``[m_t]`` and learnt source points ``[m_s]``."""
        standing = np.zeros(len(self.points) - len(self.source_rows), bool)
        if standing.size:
            standing[self.of_target[matched]] = True
        return np.concatenate([standing, learning[self.source_rows]])


def everybody_and_folds(points: np.ndarray, labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Who learns: everybody, then all but one fold after the other ``[1 + folds, m]``; 0 folds for no validation."""
    everybody = np.ones((1, len(labels)), bool)
    if not folds:
        return everybody
    numbers = fold_numbers(points, labels, folds, seed)
    return np.concatenate([everybody, numbers[None] != np.arange(folds)[:, None]])


def seat_voters(
    voters: VoterKind, source: np.ndarray, target: np.ndarray, centers: Centers, most: int, seed: int
) -> Seats:
    """Seats on target points, source points, or both: on all of them, or on so many that `spread_rows` draws.

    Voters that do not sit on points look at all of them.
    """
    if centers not in ("target", "source", "both"):
        raise ValueError(f"centers must be 'target', 'source' or 'both'; it is {centers!r}")
    check_count("most_voters", most, 1)
    there = target if centers != "source" else target[:0]
    here = source if centers != "target" else source[:0]
    points = np.concatenate([there, here])
    rows = spread_rows(points, most if on_points(voters) else len(points), seed)
    seats, source_rows = rows[rows < len(there)], rows[rows >= len(there)] - len(there)
    of_target = np.arange(len(there))
    if len(rows) < len(points):
        of_target = np.argmin(squared_distances(there, there[seats]), axis=1) if seats.size else of_target[:0]
    return Seats(np.concatenate([there[seats], here[source_rows]]), of_target, source_rows)


def seat_moved(voters: VoterKind, transport: Transport, most: int, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Seats on moved points: on all, of which the matched ones vote, or on so many that stand for the matched ones.

    Points ``[n, d]``, as many at every radius, and which of them vote ``[n]``; None for all, whatever their number.
    """
    moved, matched = np.asarray(transport.moved), np.asarray(transport.weights) > 0
    if not on_points(voters):
        # Points that have all moved to one place tell nothing of where thresholds should be.
        return (moved if np.any(np.ptp(moved, axis=0) > 0) else np.asarray(transport.source)), None
    if len(moved) <= check_count("most_voters", most, 1):
        return moved, matched
    rows = np.flatnonzero(matched)
    rows = rows[spread_rows(moved[rows], most, seed)]
    return np.resize(moved[rows], (most, moved.shape[1])), np.arange(most) < len(rows)


def voter_masks(
    voters: VoterKind, seats: Seats, found: Sequence[Sequence[SelfLabels]], learning: np.ndarray, count: int
) -> list[list[np.ndarray]]:
    """The voters that take part ``[n]``, for each row of ``learning`` and each radius; all, if they sit nowhere."""

    def one(labels: SelfLabels, kept: np.ndarray) -> np.ndarray:
        return seats.mask(labels.weights > 0, kept) if on_points(voters) else np.ones(count, bool)

    return [[one(labels, kept) for labels in row] for row, kept in zip(found, learning)]
