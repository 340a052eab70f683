"""Grids of many points or many voters: solved to what a criterion can see, without compiling.

The engine's cost is that of its rank, and Gaussian kernels in many dimensions have the rank of their number. A sweep of
900 such votes takes minutes to ten digits, of which a criterion, a sum of shares of points, sees three. Such a grid is
solved here to `COARSE`, and `pvmincq_jax.model_at` solves the point that was chosen as exactly as any other.

Votes come some rows at a time: second moments are sums over the points, and so is what an exact solution needs of them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from pvmincq_jax._threads import core_count, one_blas_thread
from pvmincq_jax._types import MarginUnit, Status, precision
from pvmincq_jax.adaptation.grid import Figures
from pvmincq_jax.adaptation.lanes import Lanes, above_rounding
from pvmincq_jax.voting.coarse import COARSE, coarse_weights
from pvmincq_jax.voting.factor import row_basis

__all__: list[str] = []

# Up to these a grid is solved exactly: the paper's 300 points in the plane, and any 160 points.
EXACT_POINTS, EXACT_RANK = 320, 160
# What counts for the rank, relative to the largest singular value; about what the engine keeps.
_RANK_TOLERANCE = 1e-4
# Numbers in a block of votes, 32 MB; and in all votes together, up to which they are computed once and kept.
_BLOCK, _KEPT = 1 << 22, 1 << 25


class VoteBlocks:
    """The votes of a family, some points at a time."""

    def __init__(self, family: Any, points: np.ndarray) -> None:
        """Keeps the votes if they are few, else computes them whenever they are asked for."""
        self._votes_of, self._points = family.votes, points
        first = family.votes(points[:1])
        self.voters, self.dtype = first.shape[1], first.dtype
        self._rows = max(1, _BLOCK // self.voters)
        self._kept = list(self._computed()) if len(points) * self.voters <= _KEPT else None

    def _computed(self) -> Iterator[tuple[slice, np.ndarray]]:
        for start in range(0, len(self._points), self._rows):
            part = slice(start, start + self._rows)
            yield part, self._votes_of(self._points[part])

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Which points, and their votes."""
        return self._computed() if self._kept is None else iter(self._kept)

    def values(self, weights: np.ndarray) -> np.ndarray:
        """The votes of weights ``[..., n]`` on all points ``[..., m]``."""
        return np.concatenate([weights @ votes.T for _, votes in self], axis=-1)


def is_large(points: int, votes: Callable[[], np.ndarray]) -> bool:
    """Whether a grid is solved coarsely: more points than 320, or votes of a rank above 160.

    Args:
      points: how many are learnt from.
      votes: of the narrowest voters, not asked for if there are too many points anyway.
    """
    return points > EXACT_POINTS or (points > EXACT_RANK and len(row_basis(votes(), _RANK_TOLERANCE)) > EXACT_RANK)


def solve_coarsely(
    blocks_of: Callable[[int], VoteBlocks],
    lanes: Lanes,
    margins: np.ndarray,
    *,
    unit: MarginUnit = "fraction",
    mesh: jax.sharding.Mesh | None = None,
    advance: Callable[[int], None] = lambda lanes: None,
) -> tuple[Figures, np.ndarray]:
    """`pvmincq_jax.adaptation.grid.solve_grid` to `COARSE`, which then is what SOLVED means; lanes go over all cores.

    Args:
      blocks_of: from the number of a lane to its votes.
      lanes: L of them.
      margins: ``[k]``.
      unit: of the margins.
      mesh: lanes are split over its processes, if there are several; its devices are not asked for anything.
      advance: told the number of lanes that were just solved.

    Returns: `Figures`, and the values of the votes on their own points ``[L, k, m]``.
    """

    def one(lane: int) -> tuple[np.ndarray, ...]:
        blocks, own = blocks_of(lane), Lanes(*(field[lane] for field in lanes))
        weights, *others = _solve_lane(blocks, own.labels, own.weights, own.mask, margins, unit)
        weights = weights.astype(blocks.dtype)
        return blocks.values(weights), weights, *others

    total = len(lanes.labels)
    processes = 1 if mesh is None else jax.process_count()
    # Every process has the same number of lanes, if need be one of them twice.
    share = np.arange(-(-total // processes) * processes).reshape(-1, processes)[:, jax.process_index()] % total
    found: list[tuple[np.ndarray, ...]] = []
    with one_blas_thread(), ThreadPoolExecutor(core_count()) as pool:
        for figures in pool.map(one, share if processes > 1 else range(total)):
            advance(min(processes, total - processes * len(found)))
            found.append(figures)
    values, *fields = _gathered([np.stack(field) for field in zip(*found)], total, processes)
    return Figures(*fields), values


def _gathered(fields: list[np.ndarray], total: int, processes: int) -> list[np.ndarray]:
    """The lanes of all processes, which have every p-th one each, in their order."""
    if processes == 1:
        return fields
    with precision(np.dtype(float)):
        everybody = [multihost_utils.process_allgather(field) for field in fields]
    return [np.swapaxes(field, 0, 1).reshape(-1, *field.shape[2:])[:total] for field in everybody]


def _solve_lane(
    blocks: VoteBlocks, labels: np.ndarray, weights: np.ndarray, mask: np.ndarray, margins: np.ndarray, unit: MarginUnit
) -> tuple[np.ndarray, ...]:
    """The fields of `Figures` for one lane."""
    count, voters = len(margins), np.flatnonzero(mask)
    nothing = np.full(count, np.nan)
    full = np.full((count, len(mask)), np.nan)
    if not voters.size or not np.any(weights > 0):
        return full, np.full(count, Status.BAD_INPUT), nothing, nothing, np.array(np.nan)
    shares = weights / np.sum(weights)
    second, first = np.zeros((voters.size, voters.size)), np.zeros(voters.size)
    for part, votes in blocks:
        rows = np.flatnonzero(shares[part] > 0)
        whole = rows.size == len(votes) and voters.size == len(mask)
        own = votes if whole else votes.take(rows, axis=0).take(voters, axis=1)
        scaled = own * np.sqrt(shares[part][rows])[:, None]
        second += scaled.T @ scaled
        first += (shares[part] * labels[part])[rows] @ own
    mu_max = above_rounding(np.mean(np.abs(first)), float(np.sqrt(np.mean(np.diag(second)))), blocks.dtype)
    mus = margins * mu_max if unit == "fraction" else margins
    feasible = (mus > 0) & (mus <= mu_max * (1 + 1e-12))
    status, residual, c_bound = np.full(count, int(Status.INFEASIBLE)), nothing.copy(), nothing.copy()
    if np.any(feasible):
        found, residual[feasible] = coarse_weights(second, first, mus[feasible])
        solved = residual[feasible] <= COARSE
        status[feasible] = np.where(solved, Status.SOLVED, Status.MAX_ITERATIONS)
        moments = np.sum((found @ second) * found, axis=1)
        c_bound[feasible] = np.where(solved, 1 - (found @ first) ** 2 / moments, np.nan)
        inside = np.where(status == Status.SOLVED)[0]
        full[inside] = 0.0
        full[np.ix_(inside, voters)] = found[solved]
    return full, status, residual, c_bound, np.array(mu_max)


def compressed(
    family: Any, points: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A sample of n + 1 points with the moments of a larger one: the same MinCq, to the last digits.

    With V the votes and y the labels, both scaled by the roots of the shares, MinCq knows no more than V'V and V'y. An
    orthogonal map of the rows keeps both: that of the QR factor of [V, y], taken block by block, and after it the
    reflection that makes all entries of y equal, so that they are labels in [0, 1] of points of equal weight. Nothing
    is squared, so that no digit is lost.

    Args:
      family: of n voters.
      points: ``[m, d]``.
      labels: ``[m]`` in [-1, 1].
      weights: ``[m]``.

    Returns: votes ``[n + 1, n]``, labels and weights ``[n + 1]``.
    """
    shares = weights / np.sum(weights)
    triangle: Any = np.zeros((0, len(family.votes(points[:1])[0]) + 1))
    with one_blas_thread():
        for part, votes in VoteBlocks(family, points):
            both = np.column_stack([votes, labels[part]]) * np.sqrt(shares[part])[:, None]
            triangle = np.linalg.qr(np.concatenate([triangle, both]), "r")
    size = triangle.shape[1]
    triangle = np.pad(triangle, ((0, size - len(triangle)), (0, 0)))
    length = np.linalg.norm(triangle[:, -1])
    mirror = triangle[:, -1] - length / np.sqrt(size)
    norm = mirror @ mirror
    turned = triangle - np.outer(mirror, mirror @ triangle) * (2 / norm if norm > 0 else 0.0)
    found = turned[:, :-1] * np.sqrt(size), np.full(size, min(length, 1.0)), np.ones(size)
    return tuple(array.astype(votes.dtype) for array in found)  # type: ignore[return-value]
