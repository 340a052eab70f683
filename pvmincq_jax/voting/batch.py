"""Many MinCq problems on concrete votes, solved by few compiled programs.

On the host each problem becomes a `SmallSample` with the same moments, without the voters that take no part. It is
padded to one of few sizes, and a compiled program solves it at all its margins. Zeros pad: a voter that is masked, a
row of zeros and a margin of 0 change nothing in the result, and next to nothing in the time.

On a CPU threads take the problems one by one, one thread for each core. An accelerator gets batches, and a mesh gets a
part of each batch on each of its devices.

Grids run in float64. A single call of `pvmincq_jax.mincq` runs in the precision of its votes.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._threads import core_count, one_blas_thread
from pvmincq_jax._types import MarginUnit, Status
from pvmincq_jax.voting.factor import Part, SmallSample, from_moments, from_votes, moments
from pvmincq_jax.voting.program import SMALL_MARGIN, Solver, Steps, accuracy
from pvmincq_jax.voting.programs import Key, padded_rows, padded_size, platform_of, program
from pvmincq_jax.voting.rounding import unit_scale

__all__ = ["problem_of_parts"]

# Margins of one call; further ones take another call.
_MARGINS = 16
# Numbers in the small samples that are kept at a time, 256 MB; and in a batch on an accelerator, 1 GB.
_SAMPLES, _BATCH = 1 << 25, 1 << 27
# Second moments in which no square of a vote that counts vanishes, and none overflows.
_SQUARES = 1e-200, 1e200
# A largest margin below so many roundings of the votes is 0 but for rounding.
_ROUNDED = 64


class Found(NamedTuple):
    """What a problem gives at each of its k margins: the fields of `MinCqSolution`, for the voters that take part.

    Attributes:
      voters: which these are, numbers ``[p]``.
      weights: ``[k, p]``; NaN unless solved.
      status, kkt_residual, iterations, c_bound: ``[k]``.
      mu_max: the largest margin.
    """

    voters: np.ndarray
    weights: np.ndarray
    status: np.ndarray
    kkt_residual: np.ndarray
    iterations: np.ndarray
    c_bound: np.ndarray
    mu_max: float


class Settings(NamedTuple):
    """What all problems of a call share.

    Attributes:
      widest: voters of the largest problem; all problems are padded to that.
      dtype: of the programs.
      solver: as of `pvmincq_jax.mincq`.
      mesh: problems are split over its first axis; None for JAX's default device.
    """

    widest: int
    dtype: np.dtype
    solver: Solver
    mesh: jax.sharding.Mesh | None = None


class Problem(NamedTuple):
    """A problem as programs take it, before it is padded."""

    sample: SmallSample  # of the voters that take part
    voters: np.ndarray  # which these are
    margins: np.ndarray  # mu [k]
    mu_max: float
    steps: Steps


def problem_of_parts(
    parts: Callable[[], Iterable[Part]], voters: np.ndarray, margins: np.ndarray, unit: MarginUnit, sure: bool
) -> Problem:
    """A problem with its moments in few rows.

    Args:
      parts: the points of a sample, some at a time, whenever they are asked for.
      voters: the numbers of those that take part ``[p]``.
      margins: ``[k]``.
      unit: "fraction" of mu_max, or "absolute".
      sure: whether it has to be solved by sure steps.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        second, first, square = moments(parts())
    if not _SQUARES[0] <= np.max(np.diag(second)) <= _SQUARES[1]:
        scale = float(unit_scale(np.array([np.max(np.abs(votes), initial=0.0) for votes, *_ in parts()], float)))
        if scale != 1:
            scaled = problem_of_parts(
                lambda: ((np.asarray(votes, float) * scale, labels, shares) for votes, labels, shares in parts()),
                voters,
                margins * (scale if unit == "absolute" else 1),
                unit,
                sure,
            )
            return scaled._replace(mu_max=scaled.mu_max / scale)
    rounding = float(np.finfo(next(iter(parts()))[0].dtype).eps)
    mu_max = float(np.mean(np.abs(first)))
    if mu_max <= _ROUNDED * rounding * float(np.sqrt(np.mean(np.diag(second)))):
        # The labels of all voters cancel, but for rounding: no margin can be had.
        nothing = SmallSample(np.zeros((1, len(first))), np.zeros(1))
        return Problem(nothing, voters, np.ones_like(margins), 0.0, "quick")
    mu = margins * mu_max if unit == "fraction" else margins
    least = float(np.min(mu, where=(mu > 0) & (mu <= mu_max), initial=mu_max))
    sure = sure or least < SMALL_MARGIN * mu_max
    sample = from_votes(parts()) if sure else from_moments(second, first, square, least)
    return Problem(sample, voters, mu, mu_max, "sure" if sure else "quick")


# From the number of a problem, and whether sure steps are to solve it; None where there is nothing to learn.
Prepare = Callable[[int, bool], Problem | None]


def solve_problems(prepare: Prepare, count: int, settings: Settings) -> Generator[tuple[int, Found | None], None, None]:
    """MinCq on each problem, at all its margins: by quick steps, then by sure ones at the margins where these fail.

    Args:
      prepare: called in threads.
      count: how many problems there are, with as many margins each.
      settings: of all of them.

    Yields: the number of a problem and its `Found`, in the order in which they are solved; None where there is nothing
      to learn.
    """
    quick: dict[int, Found] = {}
    for i, found in _attempt(prepare, range(count), settings, sure=False):
        if found is None or settings.solver == "jaxopt" or not np.any(found.status == Status.MAX_ITERATIONS):
            yield i, found
        else:
            quick[i] = found

    def prepare_unsolved(i: int, sure: bool) -> Problem | None:
        problem = prepare(i, sure)
        assert problem is not None
        # A margin of NaN is infeasible, and takes no step.
        return problem._replace(margins=np.where(quick[i].status == Status.SOLVED, np.nan, problem.margins))

    for i, found in _attempt(prepare_unsolved, list(quick), settings, sure=True):
        assert found is not None
        yield i, _better(quick[i], found)


def _attempt(
    prepare: Prepare, numbers: Sequence[int], settings: Settings, sure: bool
) -> Generator[tuple[int, Found | None], None, None]:
    """Some of the problems, once."""
    # The scope of a caller's default device holds in its own thread alone.
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    size = padded_size(settings.widest)
    at_once = max(core_count(), _SAMPLES // size**2)

    with one_blas_thread(), ThreadPoolExecutor(core_count()) as pool:
        for start in range(0, len(numbers), at_once):
            some = numbers[start : start + at_once]
            problems = dict(zip(some, pool.map(prepare, some, [sure] * len(some))))
            yield from ((i, None) for i, one in problems.items() if one is None)
            jobs = _jobs({i: one for i, one in problems.items() if one is not None}, size, settings, device)

            def run(job: tuple[list[int], Key], problems: Any = problems) -> list[tuple[int, Found]]:
                group, key = job
                return list(zip(group, _solve([problems[i] for i in group], key)))

            # On a mesh all processes have to make the same calls in turn.
            results: Any = pool.map(run, jobs) if settings.mesh is None else (run(job) for job in jobs)
            # When a caller stops early, this cancels the jobs that no thread has begun.
            with contextlib.closing(results):
                for found in results:
                    yield from found


def _jobs(problems: dict[int, Problem], size: int, settings: Settings, device: Any) -> list[tuple[list[int], Key]]:
    """The numbers of the problems of each call, and its program; those of many rows first."""
    groups: dict[tuple[int, Steps], list[int]] = {}
    for i, one in problems.items():
        groups.setdefault((padded_rows(len(one.sample.rows), size), one.steps), []).append(i)
    jobs = []
    for (rows, steps), group in sorted(groups.items(), reverse=True):
        batch = _batch_size(size, rows, len(group), settings.mesh, device)
        key = Key(size, rows, steps, batch, settings.dtype, settings.solver, settings.mesh, device)
        jobs += [(group[first : first + batch], key) for first in range(0, len(group), batch)]
    return jobs


def _batch_size(voters: int, rows: int, count: int, mesh: jax.sharding.Mesh | None, device: Any) -> int:
    """Problems of one call: one a device on a CPU, as many as memory allows elsewhere."""
    devices = 1 if mesh is None else mesh.shape[mesh.axis_names[0]]
    if platform_of(mesh, device) == "cpu":
        return devices
    # A step holds D^-1 F' and K for each margin.
    return devices * max(1, min(-(-count // devices), _BATCH // (_MARGINS * rows * (voters + rows))))


def _solve(problems: list[Problem], key: Key) -> list[Found]:
    """The problems of one call, padded with zeros; a problem that pads the batch has no voter."""
    rows = np.zeros((key.batch, key.rows, key.voters), key.dtype)
    labels, mask = np.zeros(rows.shape[:2], key.dtype), np.zeros((key.batch, key.voters), bool)
    for p, one in enumerate(problems):
        r, n = one.sample.rows.shape
        rows[p, :r, :n], labels[p, :r], mask[p, :n] = one.sample.rows, one.sample.labels, True
    margins = np.stack([one.margins for one in problems])
    count = margins.shape[1]
    fields = []
    for first in range(0, count, _MARGINS):
        some = np.zeros((key.batch, _MARGINS), key.dtype)
        part = margins[:, first : first + _MARGINS]
        some[: len(problems), : part.shape[1]] = part
        fields.append(program(key)(rows, labels, mask, some))
    whole = {name: np.concatenate([getattr(one, name) for one in fields], axis=1)[:, :count] for name in _FIELDS}
    return [_found(one, {name: field[p] for name, field in whole.items()}) for p, one in enumerate(problems)]


_FIELDS = "weights", "status", "kkt_residual", "iterations", "c_bound"


def _found(problem: Problem, fields: dict[str, np.ndarray]) -> Found:
    """The result of a problem, whose residual includes what its small sample leaves out."""
    weights, dtype = fields["weights"][:, : problem.voters.size], fields["weights"].dtype
    solved = fields["status"] == Status.SOLVED
    # For 1 - C-bound = mu^2 / w'Mw, an error in w'Mw of at most doubt n |w|^2.
    size = np.sum(problem.voters.size * np.square(weights, dtype=float), axis=1, where=np.isfinite(weights))
    doubt = problem.sample.doubt * size * (1 - fields["c_bound"]) / np.where(solved, problem.margins, 1.0) ** 2
    residual = fields["kkt_residual"] + np.where(solved, doubt, 0.0)
    short = solved & (residual > accuracy(dtype))
    return Found(
        voters=problem.voters,
        weights=np.where(short[:, None], np.nan, weights),
        status=np.where(short, int(Status.MAX_ITERATIONS), fields["status"]),
        kkt_residual=residual,
        iterations=fields["iterations"],
        c_bound=fields["c_bound"],
        mu_max=problem.mu_max,
    )


def _better(quick: Found, sure: Found) -> Found:
    """At each margin the quick result where that is solved, else the sure one."""
    solved = quick.status == Status.SOLVED
    fields = {
        name: np.where(solved[:, None] if name == "weights" else solved, getattr(quick, name), getattr(sure, name))
        for name in _FIELDS
    }
    return sure._replace(**fields)
