"""Who learns, and who votes: voters sit on the points learnt from, or on some that stand for all of them."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import fold_numbers, spread_rows
from pvmincq_jax.adaptation.transport import Transport
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.families import one_per_point, place_family

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


def seat_voters(source: np.ndarray, target: np.ndarray, centers: Centers, most: int | None, seed: int) -> Seats:
    """Seats on target points, source points, or both: on so many that `spread_rows` draws, or on all if that is None.

    Example:
      >>> seat_voters(np.zeros((3, 1)), np.array([[5.0], [6.0]]), "both", None, 0).points.ravel()
      array([5., 6., 0., 0., 0.])
    """
    if centers not in ("target", "source", "both"):
        raise ValueError(f"centers must be 'target', 'source' or 'both'; it is {centers!r}")
    there = target if centers != "source" else target[:0]
    here = source if centers != "target" else source[:0]
    points = np.concatenate([there, here])
    rows = spread_rows(points, len(points) if most is None else check_count("most_voters", most, 1), seed)
    seats, source_rows = rows[rows < len(there)], rows[rows >= len(there)] - len(there)
    of_target = np.arange(len(there))
    if len(rows) < len(points):
        of_target = np.argmin(squared_distances(there, there[seats]), axis=1) if seats.size else of_target[:0]
    return Seats(np.concatenate([there[seats], here[source_rows]]), of_target, source_rows)


class Placed(NamedTuple):
    """A family on points.

    Attributes:
      family: anything with ``votes(x)``.
      voters: their number, n.
      seats: where they sit, if there is one per point; else None, and all take part.
    """

    family: Any
    voters: int
    seats: Seats | None


def place_voters(
    families: Sequence[Any], source: np.ndarray, target: np.ndarray, centers: Centers, most: int, seed: int
) -> list[Placed]:
    """Families on the seats of `seat_voters` if they have one voter per point; others see all points."""
    kinds = {one_per_point(family) for family in families}
    seats = {kind: seat_voters(source, target, centers, most if kind else None, seed) for kind in kinds}
    placed = []
    for family in families:
        own = seats[one_per_point(family)]
        placed.append(Placed(*place_family(family, own.points), own if one_per_point(family) else None))
    return placed


def voter_masks(placed: Sequence[Placed], found: Sequence[Sequence[SelfLabels]], learning: np.ndarray) -> np.ndarray:
    """The voters that take part: those of matched target points and learnt source points.

    Args:
      placed: g families.
      found: self-labels of the target, for each row of ``learning`` and each radius.
      learning: source points that are learnt from ``[1 + folds, m_s]``.

    Returns: ``[g, 1 + folds, r, n]``, False beyond the voters of a family that has fewer than n.
    """
    masks = [
        np.ones(one.voters, bool) if one.seats is None else one.seats.mask(labels.weights > 0, kept)
        for one in placed
        for row, kept in zip(found, learning)
        for labels in row
    ]
    return stack_masks(masks).reshape(len(placed), len(learning), len(found[0]), -1)


def place_on_moved(families: Sequence[Any], transport: Transport, most: int, seed: int) -> list[tuple[Any, np.ndarray]]:
    """Families on moved points, each with the voters that take part ``[n]``: those of matched points.

    Of more points than ``most``, so many of the matched ones stand for all of them.
    """
    moved, matched = np.asarray(transport.moved), np.asarray(transport.weights) > 0
    # Points that have all moved to one place tell nothing of where thresholds should be.
    seen = moved if np.any(np.ptp(moved, axis=0) > 0) else np.asarray(transport.source)
    if len(moved) > check_count("most_voters", most, 1):
        rows = np.flatnonzero(matched if np.any(matched) else ~matched)
        rows = rows[spread_rows(moved[rows], most, seed)]
        moved, matched = moved[rows], matched[rows]
    placed = []
    for family in families:
        on_points, count = place_family(family, moved if one_per_point(family) else seen)
        placed.append((on_points, matched if one_per_point(family) else np.ones(count, bool)))
    return placed


def stack_masks(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Masks of different lengths as the rows of one array ``[L, n]``, filled up with False.

    Example:
      >>> stack_masks([np.array([True]), np.array([False, True])])
      array([[ True, False],
             [False,  True]])
    """
    stacked = np.zeros((len(masks), max(map(len, masks))), bool)
    for row, mask in zip(stacked, masks):
        row[: len(mask)] = mask
    return stacked
