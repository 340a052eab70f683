"""Many MinCq problems on concrete votes, solved by few compiled programs.

On the host each problem becomes a `SmallSample` with the same moments, without the voters that take no part. It is
padded to one of few sizes, and a compiled program solves it at all its margins. Zeros pad: a voter that is masked, a
row of zeros and a margin of 0 change nothing in the result, and next to nothing in the time.

On a CPU threads take the problems one by one, one thread for each core. An accelerator gets batches, and a mesh gets a
part of each batch on each of its devices.

Programs run in float64 or float32; what the host prepares is in float64.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._threads import core_count, one_blas_thread
from pvmincq_jax._types import Array, MarginUnit, Status, precision
from pvmincq_jax.voting.factor import Part, SmallSample, from_moments, from_votes, moments
from pvmincq_jax.voting.program import SMALL_MARGIN, Solver, Steps, accuracy, learn, sample_of
from pvmincq_jax.voting.rounding import unit_scale

__all__: list[str] = []

# Compiled programs that are kept. One takes 10 MB and some hundred memory maps.
_PROGRAMS = 24
# Margins of one call; further ones take another call.
_MARGINS = 16
# The smallest number of voters and rows that programs are compiled for.
_SMALLEST = 64
# Numbers in the small samples that are kept at a time, 256 MB; and in a batch on an accelerator, 1 GB.
_SAMPLES, _BATCH = 1 << 25, 1 << 27
# Second moments in which no square of a vote that counts vanishes, and none overflows.
_SQUARES = 1e-200, 1e200
# A largest margin below so many roundings of the votes is 0 but for rounding.
_ROUNDED = 64
# Options that shorten compiling by more than 15 %, see `experiments.benchmark compile`. Not every jaxlib knows them.
_OPTIONS: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
    "xla_backend_optimization_level": 1,
}


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


class _Key(NamedTuple):
    """What tells programs apart."""

    voters: int
    rows: int
    steps: Steps
    batch: int
    dtype: np.dtype
    solver: Solver
    mesh: jax.sharding.Mesh | None
    device: Any


def padded_size(size: int) -> int:
    """The next size for which programs are compiled: four sizes for each power of 2, and at least 64.

    Example:
      >>> [padded_size(size) for size in (10, 64, 65, 200, 300, 1000, 1100)]
      [64, 64, 80, 224, 320, 1024, 1280]
    """
    step = 1 << max((size - 1).bit_length() - 3, 4)
    return max(_SMALLEST, -(-size // step) * step)


def padded_rows(rows: int, voters: int) -> int:
    """The next number of rows for which programs of so many voters are compiled: a quarter of the voters, or all.

    A small sample may have one row more, for the labels.

    Example:
      >>> [padded_rows(rows, 320) for rows in (20, 80, 81, 320, 321)]
      [88, 88, 88, 336, 336]
    """
    few = max(_SMALLEST, voters // 4) + 8
    return few if rows <= few else voters + 16


@functools.lru_cache
def known_options(platform: str) -> dict[str, Any]:
    """Those of our options that this jaxlib accepts, each tried on a program of one addition."""
    if platform != "cpu":
        return {}
    lowered = jax.jit(lambda x: x + 1).lower(0.0)

    def accepts(name: str) -> bool:
        try:
            lowered.compile(compiler_options={name: _OPTIONS[name]})
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" in str(error):
                return False
            raise
        return True

    return {name: value for name, value in _OPTIONS.items() if accepts(name)}


def _in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jax.vmap`, one after the other."""
    return lambda *arrays: jax.lax.map(lambda each: function(*each), arrays)


class _Program:
    """MinCq on a batch of padded small samples: rows ``[b, r, n]``, labels ``[b, r]``, masks ``[b, n]``, margins."""

    def __init__(self, key: _Key) -> None:
        """Compiles nothing yet."""
        self.key, self._lock = key, threading.Lock()
        self._compiled: Any = None

    def __call__(self, *arguments: np.ndarray) -> Any:
        """What `learn` finds, for each problem and margin. Threads that ask for it at once compile it once."""
        key = self.key
        with precision(key.dtype), jax.default_device(key.device):
            with self._lock:
                if self._compiled is None:
                    self._compiled = self._compile(arguments)
            return _fetch(self._compiled(*_put(arguments, key.mesh)), key.mesh)

    def _compile(self, arguments: Sequence[np.ndarray]) -> Any:
        key = self.key
        platform = _platform(key.mesh, key.device)
        # A CPU would take the problems of a vmap in turn, too. Said at once, that is traced in a fifth of the time.
        over = _in_turn if platform == "cpu" else jax.vmap

        def one(rows: Array, labels: Array, mask: Array, margins: Array) -> Any:
            sample = sample_of(rows, labels, jax.numpy.ones_like(labels), mask, None)
            return over(lambda mu: learn(sample, mu, key.solver, key.steps))(margins)

        program, sharding = over(one), None
        if key.mesh is not None:
            split = jax.sharding.PartitionSpec(key.mesh.axis_names[0])
            sharding = jax.sharding.NamedSharding(key.mesh, split)
            program = jax.shard_map(program, mesh=key.mesh, in_specs=(split,) * 4, out_specs=split)
        shapes = [jax.ShapeDtypeStruct(part.shape, part.dtype, sharding=sharding) for part in arguments]
        return jax.jit(program).lower(*shapes).compile(compiler_options=known_options(platform))


_program = functools.lru_cache(maxsize=_PROGRAMS)(_Program)


def _platform(mesh: jax.sharding.Mesh | None, device: Any) -> str:
    """Of a mesh, of the device that a caller's scope names, or JAX's own."""
    if mesh is not None:
        return mesh.devices.flat[0].platform
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


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
    """MinCq on each problem, at all its margins: by quick steps, then by sure ones where these fail.

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
    for i, found in _attempt(prepare, list(quick), settings, sure=True):
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

            def run(job: tuple[list[int], _Key], problems: Any = problems) -> list[tuple[int, Found]]:
                group, key = job
                return list(zip(group, _solve([problems[i] for i in group], key)))

            # On a mesh all processes have to make the same calls in turn.
            results: Any = pool.map(run, jobs) if settings.mesh is None else (run(job) for job in jobs)
            # When a caller stops early, this cancels the jobs that no thread has begun.
            with contextlib.closing(results):
                for found in results:
                    yield from found


def _jobs(problems: dict[int, Problem], size: int, settings: Settings, device: Any) -> list[tuple[list[int], _Key]]:
    """The numbers of the problems of each call, and its program; those of many rows first."""
    groups: dict[tuple[int, Steps], list[int]] = {}
    for i, one in problems.items():
        groups.setdefault((padded_rows(len(one.sample.rows), size), one.steps), []).append(i)
    jobs = []
    for (rows, steps), group in sorted(groups.items(), reverse=True):
        batch = _batch_size(size, rows, len(group), settings.mesh, device)
        key = _Key(size, rows, steps, batch, settings.dtype, settings.solver, settings.mesh, device)
        jobs += [(group[first : first + batch], key) for first in range(0, len(group), batch)]
    return jobs


def _batch_size(voters: int, rows: int, count: int, mesh: jax.sharding.Mesh | None, device: Any) -> int:
    """Problems of one call: one a device on a CPU, as many as memory allows elsewhere."""
    devices = 1 if mesh is None else mesh.shape[mesh.axis_names[0]]
    if _platform(mesh, device) == "cpu":
        return devices
    # A step holds D^-1 F' and K for each margin.
    return devices * max(1, min(-(-count // devices), _BATCH // (_MARGINS * rows * (voters + rows))))


def _solve(problems: list[Problem], key: _Key) -> list[Found]:
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
        fields.append(_program(key)(rows, labels, mask, some))
    whole = {name: np.concatenate([getattr(one, name) for one in fields], axis=1)[:, :count] for name in _FIELDS}
    return [_found(one, {name: field[p] for name, field in whole.items()}) for p, one in enumerate(problems)]


_FIELDS = "weights", "status", "kkt_residual", "iterations", "c_bound"


def _found(problem: Problem, fields: dict[str, np.ndarray]) -> Found:
    """The result of a problem, whose residual includes what its small sample leaves out."""
    weights, dtype = fields["weights"][:, : problem.voters.size], fields["weights"].dtype
    # For 1 - C-bound = mu^2 / w'Mw, an error in w'Mw of at most doubt n |w|^2.
    size = np.sum(problem.voters.size * np.square(weights, dtype=float), axis=1, where=np.isfinite(weights))
    solved = fields["status"] == Status.SOLVED
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


def _put(arrays: Sequence[np.ndarray], mesh: jax.sharding.Mesh | None) -> Sequence[Any]:
    """Arrays as they are, or split over the devices of a mesh, in whichever process."""
    if mesh is None:
        return arrays
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names[0]))
    return tuple(
        jax.make_array_from_callback(array.shape, sharding, lambda index, array=array: array[index])  # type: ignore[misc]
        for array in arrays
    )


def _fetch(solution: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Results as NumPy arrays, from all processes if there are several."""
    if mesh is not None and jax.process_count() > 1:
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(solution, tiled=True)
    return jax.device_get(solution)
