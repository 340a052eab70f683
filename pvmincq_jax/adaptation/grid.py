"""The engine: MinCq on many samples, at several margins each, for all grids of the package.

A grid is a problem for each fold, radius, gamma and class, solved at all margins. On the host each problem becomes a
small sample with the same moments (`pvmincq_jax.voting.factor`), without the voters that take no part; problems are
then padded to a few shapes, and the program of `pvmincq_jax.mincq` is mapped over them: by threads, one for a core,
or over the devices of a mesh. Padding, voters that are masked and rows of zeros, changes nothing in the result.
"""

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._threads import core_count, one_blas_thread
from pvmincq_jax._types import Array, MarginUnit, Status, precision
from pvmincq_jax.voting.factor import Part, SmallSample, from_moments, from_votes, ladder_rank, moments
from pvmincq_jax.voting.families import read_votes
from pvmincq_jax.voting.interior_point import Steps
from pvmincq_jax.voting.program import SMALL_MARGIN, Solver, accuracy, learn, sample_of

__all__: list[str] = []

# Numbers in a block of votes, 32 MB; and in all votes together, up to which they are computed once and kept.
_BLOCK, _KEPT = 1 << 22, 1 << 25
# Programs that a grid compiles at most; and seconds of work that one more has to save. It takes twice that to compile,
# but the next fits find it there.
_PROGRAMS, _COMPILING = 4, 0.5
# Up to so many voters all programs have as many rows as voters; beyond, numbers of rows are those of `ladder_rank`.
_FEW = 120
# By how much sizes of programs are below round numbers.
_OFF = 8
# Rows that a program has beyond its voters, at most: a small sample has one more than voters.
_SPARE = 8
# Numbers of small samples that are kept at a time, 256 MB, and on an accelerator, which solves them side by side, 1 GB.
_SAMPLES, _BATCH = 1 << 25, 1 << 27

# Compiles in a third of the time, and runs as fast. The level is 1, or 0 for less work than so many seconds: that takes
# a third of the time again to compile, and runs for twice as long.
_SHORT = 0.15
_OPTIONS: Any = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_prefer_vector_width": 512,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
# Points that a guess of the shapes looks at, and the largest margin that it takes for usual, in units of a vote's size.
_FEW_POINTS, _USUAL_MARGIN = 600, 0.2
# Roundings of the votes that a largest margin has to be above.
_ROUNDED = 64


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


class _Problem(NamedTuple):
    """A problem as the program takes it, before it is padded."""

    sample: SmallSample  # of the voters that take part
    voters: np.ndarray  # which these are
    margins: np.ndarray  # mu [k]
    steps: Steps


def ladder_size(size: int) -> int:
    """The next number of voters for which programs are compiled.

    Example:
      >>> [ladder_size(size) for size in (10, 56, 60, 200, 300, 1000, 1100)]
      [56, 56, 120, 248, 312, 1016, 1272]
    """
    # Not the powers of 2 themselves: a Cholesky factor of 256 rows, of which many share a line of the cache, takes half
    # as long again as one of 248.
    step = max(64, 1 << max(int(size + _OFF - 1).bit_length() - 3, 0))
    return -(-(size + _OFF) // step) * step - _OFF


class _Shape(NamedTuple):
    """The voters and rows of a compiled program, and its steps."""

    voters: int
    rows: int
    steps: Steps

    @property
    def seconds(self) -> float:
        """About how long one margin takes, as measured on one core."""
        n, r, steps = self
        return 13 * (12e-6 + 1.2e-9 * n * r + (3e-11 * n * r**2 if steps == "sure" else 0.0))


def _shape(voters: int, rows: int, steps: Steps, widest: int) -> _Shape:
    """The program of a problem in a grid whose largest one has so many voters: one of few, whatever the data."""
    size, rank = ladder_size(voters), ladder_rank(rows)
    if widest > _FEW and rank < size:
        return _Shape(ladder_size(widest), rank, steps)
    return _Shape(size, size + _SPARE, steps)


def plan_shapes(sizes: Sequence[tuple[int, int, Steps]], margins: int) -> list[_Shape]:
    """A shape for each problem of so many voters and rows: few enough, and those of least work with their compiling.

    Shapes are joined two by two, first those for which that costs least, until there are at most four, and on as long
    as compiling one more would take longer than the work that it saves.

    Example:
      >>> [tuple(shape) for shape in plan_shapes([(300, 40, "quick"), (120, 20, "quick")], margins=5)]
      [(312, 44, 'quick'), (312, 44, 'quick')]
    """
    widest = max((voters for voters, _, _ in sizes), default=0)
    chosen = {size: _shape(*size, widest) for size in set(sizes)}
    counts = Counter(chosen[size] for size in sizes)

    def join(one: _Shape, other: _Shape) -> _Shape:
        return _shape(max(one.voters, other.voters), max(one.rows, other.rows), one.steps, widest)

    def price(one: _Shape, other: _Shape) -> float:
        apart = counts[one] * one.seconds + counts[other] * other.seconds
        return margins * ((counts[one] + counts[other]) * join(one, other).seconds - apart)

    while pairs := [(one, other) for one in counts for other in counts if one < other and one.steps == other.steps]:
        cheapest = min(pairs, key=lambda pair: (price(*pair), pair))
        if len(counts) <= _PROGRAMS and price(*cheapest) > _COMPILING:
            break
        joined = join(*cheapest)
        number = sum(counts.pop(shape) for shape in cheapest)
        counts[joined] += number
        chosen = {size: joined if shape in cheapest else shape for size, shape in chosen.items()}
    return [chosen[size] for size in sizes]


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jax.vmap`, in a loop."""
    return lambda *arrays: jax.lax.map(lambda each: function(*each), arrays)


def _program(
    solver: Solver, shape: _Shape, platform: str, rows: Array, labels: Array, mask: Array, margins: Array
) -> Any:
    """MinCq on small samples ``[p, r, n]`` at margins ``[p, k]``; rows are scaled by their shares already.

    On a CPU vmap would solve one problem after the other, too: said at once, it is traced in a fifth of the time.
    """
    over = _one_by_one if platform == "cpu" else jax.vmap

    def one(rows: Array, labels: Array, mask: Array, margins: Array) -> Any:
        shares = jax.numpy.ones_like(labels)
        sample = sample_of(rows, labels, shares, mask, None, solver, shape.steps)
        return over(lambda mu: learn(sample, mu, solver, shape.steps))(margins)

    solution = over(one)(rows, labels, mask, margins)
    return solution.weights, solution.status, solution.kkt_residual, solution.c_bound, solution.mu_max


_programs: dict[Any, Future] = {}
# Grids that were guessed at already.
_guessed: set[Any] = set()
_lock = threading.Lock()


def _compiled(
    shape: _Shape, level: int, batch: int, margins: int, solver: Solver, mesh: jax.sharding.Mesh | None, device: Any
) -> Any:
    """The program for a batch of problems of a shape. A thread that needs it while another compiles it waits."""
    key = shape, level, batch, margins, solver, mesh, device
    with _lock:
        known = key in _programs
        promise = _programs.setdefault(key, Future())
    if not known:
        try:
            promise.set_result(_compile(*key))
        except BaseException as error:
            _programs.pop(key)
            promise.set_exception(error)
    return promise.result()


def _compile(
    shape: _Shape, level: int, batch: int, margins: int, solver: Solver, mesh: jax.sharding.Mesh | None, device: Any
) -> Any:
    n, r, _ = shape
    platform = _platform(mesh, device)
    program: Any = functools.partial(_program, solver, shape, platform)
    sharding = None
    if mesh is not None:
        split = jax.sharding.PartitionSpec(mesh.axis_names[0])
        sharding = jax.sharding.NamedSharding(mesh, split)
        program = jax.shard_map(program, mesh=mesh, in_specs=(split,) * 4, out_specs=split)
    sizes = ((batch, r, n), float), ((batch, r), float), ((batch, n), bool), ((batch, margins), float)
    with precision(np.dtype(float)), jax.default_device(device):
        arguments = [jax.ShapeDtypeStruct(size, dtype, sharding=sharding) for size, dtype in sizes]
        lowered = jax.jit(program).lower(*arguments)
        try:
            options = _OPTIONS | {"xla_backend_optimization_level": level}
            return lowered.compile(compiler_options=options if platform == "cpu" else None)
        except jax.errors.JaxRuntimeError:  # a jaxlib that does not know them
            return lowered.compile()


def _level(shape: _Shape, problems: int, margins: int, solver: Solver) -> int:
    """How far a program is optimised that has so many problems to solve."""
    return int(solver != "interior_point" or problems * margins * shape.seconds > _SHORT)


def _platform(mesh: jax.sharding.Mesh | None, device: Any) -> str:
    """Of a mesh, of the device that a caller's scope names, or JAX's own."""
    if mesh is not None:
        return mesh.devices.flat[0].platform
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def compile_ahead(blocks: Sequence[VoteBlocks], problems: int, margins: np.ndarray, solver: Solver) -> None:
    """Begins to compile what a grid will need, in threads of its own, from votes that are much like its own.

    A guess: what it misses is compiled when it is asked for.

    Args:
      blocks: votes of each family, all voters on all points.
      problems: how many there will be for each family.
      margins: fractions of mu_max.
      solver: of the grid.
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    # Once for all grids of as many voters and margins: their programs are there, or on their way.
    alike = tuple(one.voters for one in blocks), len(margins), solver, device
    if _platform(None, device) != "cpu" or alike in _guessed:
        return
    _guessed.add(alike)
    sizes: list[tuple[int, int, Steps]] = []
    for one in blocks:
        votes = next(iter(one))[1][:_FEW_POINTS]
        second = votes.T @ votes / len(votes)
        margin = _USUAL_MARGIN * float(np.min(margins)) * np.sqrt(np.mean(np.diag(second)))
        sample = from_moments(second, np.zeros(len(second)), 1.0, margin)
        if np.min(margins) >= SMALL_MARGIN:
            sizes.append((len(second), len(sample.rows), "quick"))
    for shape, count in Counter(plan_shapes(sizes * problems, len(margins))).items():
        key = shape, _level(shape, count, len(margins), solver), 1, len(margins), solver, None, device
        # Not a daemon: Python's exit would cut a compiler short, which aborts the process.
        threading.Thread(target=_compiled, args=key).start()


def _read(blocks: VoteBlocks, labels: np.ndarray, weights: np.ndarray, mask: np.ndarray) -> Iterator[Part]:
    """The points and voters that take part, block by block."""
    shares, voters = weights / np.sum(weights), np.flatnonzero(mask)
    for part, votes in blocks:
        rows = np.flatnonzero(shares[part] > 0)
        if rows.size < len(votes):
            votes = votes.take(rows, axis=0)
        yield votes if voters.size == len(mask) else votes.take(voters, axis=1), labels[part][rows], shares[part][rows]


def _small(
    blocks: VoteBlocks, labels: np.ndarray, weights: np.ndarray, mask: np.ndarray, margins: np.ndarray,
    unit: MarginUnit, sure: bool,
) -> _Problem | None:  # fmt: skip
    """A problem with its moments in few rows; None without a voter or a learning point."""
    if not np.any(mask) or not np.any(weights > 0):
        return None
    parts = functools.partial(_read, blocks, labels, weights, mask)
    second, first, square = moments(parts())
    mu_max = float(np.mean(np.abs(first)))
    if mu_max <= _ROUNDED * np.finfo(blocks.dtype).eps * float(np.sqrt(np.mean(np.diag(second)))):
        # The labels of all voters cancel, but for rounding: no margin can be had.
        nothing = SmallSample(np.zeros((1, len(first))), np.zeros(1))
        return _Problem(nothing, np.flatnonzero(mask), np.ones_like(margins), "quick")
    mu = margins * mu_max if unit == "fraction" else margins
    least = float(np.min(mu, where=(mu > 0) & (mu <= mu_max), initial=mu_max))
    sure = sure or least < SMALL_MARGIN * mu_max
    sample = from_votes(parts()) if sure else from_moments(second, first, square, least)
    return _Problem(sample, np.flatnonzero(mask), mu, "sure" if sure else "quick")


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
    most = max(core_count(), _SAMPLES // voters**2)

    def take(numbers: Sequence[int], sure: bool, advance: Callable[[int], None]) -> None:
        for start in range(0, len(numbers), most):
            some = numbers[start : start + most]
            with ThreadPoolExecutor(core_count()) as pool:
                small = pool.map(
                    lambda i: _small(
                        votes(i), problems.labels[i], problems.weights[i], problems.mask[i], margins, unit, sure
                    ),
                    some,
                )
                able = {i: one for i, one in zip(some, small) if one is not None}
                # Closed when `advance` raises: problems that nobody has begun are then left alone.
                with contextlib.closing(_solve(able, len(margins), solver, mesh, pool)) as results:
                    for i, (weights, status, residual, c_bound, mu_max) in results:
                        # What the small sample is off by counts like any other error: 1 - C-bound = mu^2 / w'Mw.
                        size = np.sum(able[i].voters.size * weights**2, axis=1, where=np.isfinite(weights))
                        residual = residual + able[i].sample.doubt * size * (1 - c_bound) / able[i].margins ** 2
                        short = (status == Status.SOLVED) & (residual > accuracy(weights.dtype))
                        status = np.where(short, Status.MAX_ITERATIONS, status)
                        # The second time, what is solved already stays.
                        new = figures.status[i] != Status.SOLVED
                        for field, value in zip(figures[1:4], (status, residual, c_bound)):
                            field[i, new] = value[new]
                        figures.mu_max[i] = mu_max
                        new &= status == Status.SOLVED
                        figures.weights[i, new] = 0.0
                        figures.weights[i][np.ix_(new, able[i].voters)] = weights[new, : len(able[i].voters)]
                        advance(1)
            advance(len(some) - len(able))

    with one_blas_thread():
        take(range(count), False, advance)
        if solver == "interior_point":
            short = np.flatnonzero(np.any(figures.status == Status.MAX_ITERATIONS, axis=1))
            take(short.tolist(), True, lambda problems: None)
    dtype = votes(0).dtype
    return Figures(*(field if name == "status" else field.astype(dtype) for name, field in figures._asdict().items()))


def _solve(
    problems: dict[int, _Problem],
    margins: int,
    solver: Solver,
    mesh: jax.sharding.Mesh | None,
    pool: ThreadPoolExecutor,
) -> Generator[tuple[int, tuple[Any, ...]], None, None]:
    """The number of each problem, and what the program finds."""
    sizes = [(len(one.voters), len(one.sample.rows), one.steps) for one in problems.values()]
    groups: dict[_Shape, list[int]] = {}
    for i, shape in zip(problems, plan_shapes(sizes, margins)):
        groups.setdefault(shape, []).append(i)
    # A caller's scope with a device of its own holds in its own thread alone.
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    batches = [
        (shape, group[start : start + batch], batch)
        for shape, group in groups.items()
        for batch in [_batch(shape, len(group), margins, mesh, device)]
        for start in range(0, len(group), batch)
    ]

    def run(job: tuple[_Shape, list[int], int]) -> list[tuple[int, tuple[Any, ...]]]:
        shape, group, batch = job
        level = _level(shape, len(groups[shape]), margins, solver)
        program = _compiled(shape, level, batch, margins, solver, mesh, device)
        arguments = _padded([problems[i] for i in group], shape, batch, margins)
        with precision(np.dtype(float)), jax.default_device(device):
            fields = _fetch(program(*_put(arguments, mesh)), mesh)
        weights, status, residual, c_bound, mu_max = fields
        return [(i, (weights[p], status[p], residual[p], c_bound[p], mu_max[p, 0])) for p, i in enumerate(group)]

    # Large ones first, so that no thread is left alone with one. On a mesh all processes make the same calls in turn.
    batches.sort(key=lambda job: -job[0].seconds)
    for found in pool.map(run, batches) if mesh is None else map(run, batches):
        yield from found


def _batch(shape: _Shape, count: int, margins: int, mesh: jax.sharding.Mesh | None, device: Any) -> int:
    """Problems of one call: one on a CPU, where threads take turns; as many as memory allows elsewhere."""
    devices = 1 if mesh is None else mesh.shape[mesh.axis_names[0]]
    if _platform(mesh, device) == "cpu":
        return devices
    # A step has D^-1 F' and K for each margin.
    each = max(1, min(-(-count // devices), _BATCH // (margins * shape.rows * (shape.voters + shape.rows))))
    return devices * each


def _padded(problems: list[_Problem], shape: _Shape, batch: int, margins: int) -> tuple[np.ndarray, ...]:
    """Rows, labels, masks and margins of a batch, padded with zeros; a problem that pads the batch has no voter."""
    n, r, _ = shape
    rows, labels = np.zeros((batch, r, n)), np.zeros((batch, r))
    mask, mu = np.zeros((batch, n), bool), np.ones((batch, margins))
    for p, one in enumerate(problems):
        count, voters = one.sample.rows.shape
        rows[p, :count, :voters], labels[p, :count] = one.sample.rows, one.sample.labels
        mask[p, :voters], mu[p] = True, one.margins
    return rows, labels, mask, mu


def _put(arrays: tuple[np.ndarray, ...], mesh: jax.sharding.Mesh | None) -> tuple[Any, ...]:
    """Arrays as they are, or split over the devices of a mesh, in whichever process."""
    if mesh is None:
        return arrays
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names[0]))
    return tuple(
        jax.make_array_from_callback(array.shape, sharding, lambda index, array=array: array[index])  # type: ignore[misc]
        for array in arrays
    )


def _fetch(fields: Any, mesh: jax.sharding.Mesh | None) -> tuple[np.ndarray, ...]:
    """Results as NumPy arrays, from all processes if there are several."""
    if mesh is not None and jax.process_count() > 1:
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(fields, tiled=True)
    return jax.device_get(fields)
