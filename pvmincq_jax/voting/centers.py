"""Where voters sit: on the points learnt from, or on some that stand for all of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from pvmincq_jax._checks import check_count, check_one_of
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import spread_rows
from pvmincq_jax.voting.families import read_votes

__all__: list[str] = []

CenterKind = Literal["target", "source", "both"]

# Voters at most, unless asked for more; ``python -m experiments.voters --most`` compares others. The paper's samples
# have as many points.
MOST_VOTERS = 300


def one_per_point(family: Any) -> bool:
    """Whether the family is to have a voter on each point of a sample."""
    return bool(getattr(family, "one_per_point", False))


class Centers(NamedTuple):
    """Points that voters sit on: target points, then source points.

    Attributes:
      points: ``[n, d]``.
      of_target: the voter that stands for each target point ``[m_t]``, its own or the nearest; empty without any.
      source_rows: source points of the voters that come last.
    """

    points: np.ndarray
    of_target: np.ndarray
    source_rows: np.ndarray

    def mask(self, matched: np.ndarray, learns: np.ndarray) -> np.ndarray:
        """Which voters take part ``[n]``: those of matched target ``[m_t]`` and learnt source points ``[m_s]``."""
        standing = np.zeros(len(self.points) - len(self.source_rows), bool)
        if standing.size:
            standing[self.of_target[matched]] = True
        return np.concatenate([standing, learns[self.source_rows]])


def draw_centers(source: np.ndarray, target: np.ndarray, kind: CenterKind, most: int | None, seed: int) -> Centers:
    """Centers on target points, source points, or both: on so many that `spread_rows` draws, or on all if it is None.

    Example:
      >>> draw_centers(np.zeros((3, 1)), np.array([[5.0], [6.0]]), "both", None, 0).points.ravel()
      array([5., 6., 0., 0., 0.])
    """
    check_one_of("centers", kind, get_args(CenterKind))
    of_target = target if kind != "source" else target[:0]
    of_source = source if kind != "target" else source[:0]
    points = np.concatenate([of_target, of_source])
    rows = spread_rows(points, len(points) if most is None else check_count("most_voters", most, 1), seed)
    target_rows, source_rows = rows[rows < len(of_target)], rows[rows >= len(of_target)] - len(of_target)
    nearest = np.arange(len(of_target))
    if len(rows) < len(points):
        distances = squared_distances(of_target, of_target[target_rows])
        nearest = np.argmin(distances, axis=1) if target_rows.size else nearest[:0]
    return Centers(np.concatenate([of_target[target_rows], of_source[source_rows]]), nearest, source_rows)


class PlacedVoters(NamedTuple):
    """A family on points.

    Attributes:
      family: anything with ``votes(x)``.
      mask: which voters take part ``[n]``, a function as `Centers.mask`; all, if there is not one per point.
    """

    family: Any
    mask: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _place(families: Sequence[Any], centers: Centers, points: np.ndarray) -> list[PlacedVoters]:
    """Families with one voter per point on the centers, and others, which see all points, with all their voters."""

    def place(family: Any) -> PlacedVoters:
        places = centers.points if one_per_point(family) else points
        placed = family.on(places) if hasattr(family, "on") else family
        count = read_votes(placed, places[:1]).shape[1]
        if not one_per_point(family):
            return PlacedVoters(placed, lambda *_: np.ones(count, bool))
        if count != len(places):
            raise ValueError(
                f"voters must have one voter on each of {len(places)} points, as they say; they have {count}"
            )
        return PlacedVoters(placed, centers.mask)

    return list(map(place, families))


def place_voters(
    families: Sequence[Any], source: np.ndarray, target: np.ndarray, centers: CenterKind, most: int, seed: int
) -> list[PlacedVoters]:
    """Families on the points of `draw_centers` if they have one voter per point; others see all points."""
    limits = most if any(map(one_per_point, families)) else None, None
    drawn, every = (draw_centers(source, target, centers, limit, seed) for limit in limits)
    return _place(families, drawn, every.points)


def place_on_moved(
    families: Sequence[Any], source: np.ndarray, moved: np.ndarray, weights: np.ndarray, most: int, seed: int
) -> list[PlacedVoters]:
    """Families on moved source points, of which the voters of matched points take part, whatever is learnt from.

    Of more points than ``most``, so many of the matched ones, whose weight is above 0, stand for all of them.
    """
    matched, rows = weights > 0, np.arange(len(moved))
    if len(moved) > check_count("most_voters", most, 1):
        rows = np.flatnonzero(matched if np.any(matched) else ~matched)
        rows = rows[spread_rows(moved[rows], most, seed)]
    nobody = np.zeros(0, int)
    # Points that have all moved to one place tell nothing of where thresholds should be.
    seen = moved if np.any(np.ptp(moved, axis=0) > 0) else source
    placed = _place(families, Centers(moved[rows], nobody, rows), seen)
    return [PlacedVoters(family, partial(lambda some, *_: some, mask(nobody, matched))) for family, mask in placed]


def stack_masks(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Masks of different lengths as the rows of one array ``[L, n]``, padded with False.

    Example:
      >>> stack_masks([np.array([True]), np.array([False, True])])
      array([[ True, False],
             [False,  True]])
    """
    stacked = np.zeros((len(masks), max(map(len, masks))), bool)
    for row, mask in zip(stacked, masks):
        row[: len(mask)] = mask
    return stacked
