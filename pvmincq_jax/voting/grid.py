"""Grids: MinCq on many samples of one set of points, at several margins each.

A grid is a problem for each fold, radius, gamma and class, solved at all margins; see `pvmincq_jax.voting.batch`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._types import MarginUnit, Status
from pvmincq_jax.voting.batch import Problem, Settings, problem_of_parts, solve_problems
from pvmincq_jax.voting.factor import Part
from pvmincq_jax.voting.families import read_votes
from pvmincq_jax.voting.program import Solver

__all__: list[str] = []

# Numbers in a block of votes, 32 MB; and in all votes together, up to which they are computed once and kept.
_BLOCK, _KEPT = 1 << 22, 1 << 25


class Problems(NamedTuple):
    """Samples of as many points and voters each, one a row.

    Attributes:
      labels: of the learning points ``[L, m]``, in [-1, 1].
      weights: ``[L, m]``, 0 for a point that is not learnt from.
      mask: which voters take part ``[L, n]``; False beyond the voters of a family that has fewer than n.
    """

    labels: np.ndarray
    weights: np.ndarray
    mask: np.ndarray


class Figures(NamedTuple):
    """What each problem gives at each margin.

    Attributes:
      weights: of the votes ``[L, k, n]``; NaN unless solved.
      status: `pvmincq_jax.Status` codes ``[L, k]``.
      kkt_residual: ``[L, k]``.
      c_bound: on the learning points ``[L, k]``.
      mu_max: the largest margins ``[L]``; NaN for a problem without a learning point.
    """

    weights: np.ndarray
    status: np.ndarray
    kkt_residual: np.ndarray
    c_bound: np.ndarray
    mu_max: np.ndarray


class VoteBlocks:
    """The votes of a family, some points at a time."""

    def __init__(self, family: Any, points: Any) -> None:
        """Keeps the votes if they are few, else computes them whenever they are asked for."""
        self._family, self._views = family, points if isinstance(points, list | tuple) else None
        self._points = points
        self._count = len(points if self._views is None else self._views[0])
        first = self._read(slice(0, 1))
        self.voters, self.dtype = first.shape[1], first.dtype
        self._rows = max(1, _BLOCK // self.voters)
        self._kept = list(self._computed()) if self._count * self.voters <= _KEPT else None

    def _read(self, part: slice) -> np.ndarray:
        points = self._points[part] if self._views is None else [view[part] for view in self._views]
        return read_votes(self._family, points)

    def _computed(self) -> Iterator[tuple[slice, np.ndarray]]:
        for start in range(0, self._count, self._rows):
            part = slice(start, start + self._rows)
            yield part, self._read(part)

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Which points, and their votes."""
        return self._computed() if self._kept is None else iter(self._kept)

    def values(self, weights: np.ndarray) -> np.ndarray:
        """The votes of weights ``[..., n]`` on all points ``[..., m]``; weights beyond the voters are left out."""
        return np.concatenate([weights[..., : self.voters] @ votes.T for _, votes in self], axis=-1)


def _read(blocks: VoteBlocks, labels: np.ndarray, weights: np.ndarray, voters: np.ndarray) -> Iterator[Part]:
    """The points and voters that take part, block by block."""
    shares = weights / np.sum(weights)
    for part, votes in blocks:
        rows = np.flatnonzero(shares[part] > 0)
        if rows.size < len(votes):
            votes = votes.take(rows, axis=0)
        everybody = voters.size == votes.shape[1]
        yield votes if everybody else votes.take(voters, axis=1), labels[part][rows], shares[part][rows]


def solve_grid(
    votes: Callable[[int], VoteBlocks],
    problems: Problems,
    margins: np.ndarray,
    *,
    unit: MarginUnit = "fraction",
    solver: Solver = "interior_point",
    mesh: jax.sharding.Mesh | None = None,
    advance: Callable[[int], None] = lambda problems: None,
) -> Figures:
    """MinCq on every problem, at every margin, to the accuracy of `pvmincq_jax.mincq`.

    Args:
      votes: from the number of a problem to its votes on the learning points.
      problems: L of them.
      margins: ``[k]``.
      unit: of the margins: "fraction" of the problem's mu_max, or "absolute".
      solver: as in `pvmincq_jax.mincq`.
      mesh: problems are split over its first axis; None for JAX's default device, on which threads keep all cores busy.
      advance: told the number of problems that were just solved.

    Returns: `Figures`. All is solved in float64; of votes in float32 the weights are then rounded.
    """
    count, voters = problems.mask.shape
    shape = count, len(margins)
    figures = Figures(
        weights=np.full((*shape, voters), np.nan),
        status=np.full(shape, int(Status.BAD_INPUT)),
        kkt_residual=np.full(shape, np.nan),
        c_bound=np.full(shape, np.nan),
        mu_max=np.full(count, np.nan),
    )

    def prepare(i: int, sure: bool) -> Problem | None:
        labels, weights, voters = problems.labels[i], problems.weights[i], np.flatnonzero(problems.mask[i])
        if not np.any(weights > 0) or not voters.size:
            return None
        parts = functools.partial(_read, votes(i), labels, weights, voters)
        return problem_of_parts(parts, voters, margins, unit, sure)

    dtype = votes(0).dtype
    widest = int(np.max(np.sum(problems.mask, axis=1), initial=1))
    settings = Settings(widest, np.dtype(float), solver, mesh)
    # Closed when `advance` raises: problems that nobody has begun are then left alone.
    with contextlib.closing(solve_problems(prepare, count, settings)) as results:
        for i, found in results:
            if found is not None:
                figures.status[i], figures.kkt_residual[i] = found.status, found.kkt_residual
                figures.c_bound[i], figures.mu_max[i] = found.c_bound, found.mu_max
                solved = found.status == Status.SOLVED
                figures.weights[i, solved] = 0.0
                figures.weights[i][np.ix_(solved, found.voters)] = found.weights[solved]
            advance(1)
    return Figures(*(field if name == "status" else field.astype(dtype) for name, field in figures._asdict().items()))
