"""The one engine: MinCq over many problems on the same points and voters, for all grids of the package.

A problem is a lane: the labels and weights of the learning points, and the voters that take part. A grid is a lane for
each fold and radius, solved at several margins; a sweep calls the engine once for each gamma. Nobody else knows of

- shapes: points, voters, ranks and lanes are rounded up to a short ladder of sizes and filled with points of weight 0,
  masked voters and zero directions, which change nothing in the result. Nearby problems then share a compiled program:
  compiling takes seconds, solving milliseconds;
- the factor: its tolerance follows from the margins, see `factor_tolerance`;
- devices: lanes are split over those of a mesh, or over all CPU devices of this process.

The engine returns weights. Values at other points and risks are products of weights and votes, which the callers take.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._threads import one_blas_thread
from pvmincq_jax._types import Array, MarginUnit, precision
from pvmincq_jax.voting.factor import VoteFactor, ladder_rank, row_basis
from pvmincq_jax.voting.mincq import solve_mincq

__all__: list[str] = []

# The relative change of the second moment that a factor may cause; 1e-7 counts as solved.
_DROPPED = 5e-8
# Up to this fraction of mu_max masked voters cost digits; see `pvmincq_jax.voting.mincq.solve_mincq`.
_SMALL_MARGIN = 1e-3
# Lanes of one compiled call on each device, one after the other; few, so that the devices of a mesh end together. One
# that fills up costs next to nothing.
_LANES = 2
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


class Figures(NamedTuple):
    """What each lane gives at each margin.

    Attributes:
      weights: of the votes ``[L, k, n]``; NaN unless solved.
      status: `pvmincq_jax.Status` codes ``[L, k]``.
      kkt_residual: ``[L, k]``.
      c_bound: on the learning points ``[L, k]``.
      mu_max: the largest margins ``[L]``; NaN for a lane without a learning point.
    """

    weights: np.ndarray
    status: np.ndarray
    kkt_residual: np.ndarray
    c_bound: np.ndarray
    mu_max: np.ndarray


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
      ([32, 56, 80, 240, 320], 128)
    """
    least = _SMALL_RANK if max(points, voters) <= _SMALL_SIZE else 1
    return min(max(ladder_rank(rank), least), points, voters)


def _shares(weights: np.ndarray) -> np.ndarray:
    """Weights that add up to 1 along the last axis; NaN without any."""
    with np.errstate(invalid="ignore"):
        return weights / np.sum(weights, axis=-1, keepdims=True)


def _largest_margins(votes: np.ndarray, lanes: Lanes) -> np.ndarray:
    """mu_max of each lane ``[L]``."""
    each = np.abs((_shares(lanes.weights) * lanes.labels) @ votes)
    with np.errstate(invalid="ignore"):
        return np.sum(each, axis=1, where=lanes.mask) / np.sum(lanes.mask, axis=1)


def factor_tolerance(votes: np.ndarray, lanes: Lanes, margins: np.ndarray) -> float:
    """How much a factor of the votes may drop, relative to the largest singular value, for all lanes and margins.

    Dropping singular values up to t s_1 leaves E out of the scaled votes, |E| <= t s_1 sqrt(max share), and |w|^2 is at
    most 1 / n. The second moment, not below mu^2, then changes by (t s_1 sqrt(max share / n) / mu)^2 of itself at most.

    Args:
      votes: ``[m, n]``.
      lanes: of these points and voters.
      margins: mu, absolute ``[L, k]``.

    Returns: the t that bounds this change by 5e-8; not below the rounding of the votes, and not above 1e-3.
    """
    share = np.max(_shares(lanes.weights), axis=1)
    reach = np.min(margins, axis=1) / np.sqrt(share / np.sum(lanes.mask, axis=1))
    # A lane without a learning point, or whose labels cancel, is infeasible at any tolerance.
    reach = reach[reach > 0]
    # An upper bound on s_1 that is close for kernels, and costs nothing.
    largest = np.sqrt(np.max(np.sum(np.abs(votes), axis=0)) * np.max(np.sum(np.abs(votes), axis=1)))
    allowed = float(np.sqrt(_DROPPED) * np.min(reach, initial=np.inf) / max(largest, np.finfo(votes.dtype).tiny))
    return float(np.clip(allowed, 4 * np.finfo(votes.dtype).eps, 1e-3))


def _pad(array: np.ndarray, *sizes: int) -> np.ndarray:
    return np.pad(array, [(0, size - length) for size, length in zip(sizes, array.shape)])


class _Voters(NamedTuple):
    """Votes and their factor as a program takes them, with what the lanes say of their margins."""

    votes: np.ndarray  # [1, m, n]
    left: np.ndarray  # [1, m, rank]
    right: np.ndarray  # [1, rank, n]
    margins: np.ndarray  # mu [L, k]
    mu_max: np.ndarray  # [L]


def _prepare(votes: np.ndarray, lanes: Lanes, margins: np.ndarray, unit: MarginUnit) -> _Voters:
    """Margins as mu; votes that nobody casts put to 0, so that they take up no rank; the factor."""
    mu_max = _largest_margins(votes, lanes)
    # Without a largest margin the program is asked for anything, and says that the input is bad.
    mu = margins * np.where(np.isnan(mu_max), 1.0, mu_max)[:, None] if unit == "fraction" else margins
    used = np.where(np.any(lanes.mask, axis=0), votes, 0) if not np.all(lanes.mask) else votes
    sizes = ladder_size(votes.shape[0]), ladder_size(votes.shape[1])
    right = row_basis(used, factor_tolerance(used, lanes, mu))
    rank = program_rank(len(right), *sizes)
    left, right = _pad(used @ right.T, sizes[0], rank), _pad(right, rank, sizes[1])
    return _Voters(_pad(votes, *sizes)[None], left[None], right[None], mu.astype(votes.dtype), mu_max)


def _side_by_side(each: list[_Voters]) -> _Voters:
    """Votes of several lanes, one for each device, of one rank."""
    rank = max(one.left.shape[2] for one in each)
    stacked = []
    for one in each:
        left, right = _pad(one.left, 1, one.left.shape[1], rank), _pad(one.right, 1, rank, one.right.shape[2])
        stacked.append(one._replace(left=left, right=right))
    return _Voters(*(np.concatenate(fields) for fields in zip(*stacked)))


def _program(
    turn: bool,
    votes: Array,
    left: Array,
    right: Array,
    labels: Array,
    weights: Array,
    mask: Array,
    margins: Array,
) -> tuple[Array, ...]:
    """Solves lane after lane; the margins of a lane go side by side. Votes and factor come with an axis of length 1."""
    factor = VoteFactor(left[0], right[0])

    def one_lane(lane: tuple[Array, Array, Array, Array]) -> tuple[Array, ...]:
        labels, weights, mask, margins = lane
        found = jax.vmap(lambda mu: solve_mincq(votes[0], labels, mu, weights, mask, factor, "interior_point", turn))(
            margins
        )
        return found.weights, found.status, found.kkt_residual, found.c_bound

    return jax.lax.map(one_lane, (labels, weights, mask, margins))


@functools.cache
def _compiled(turn: bool, mesh: jax.sharding.Mesh | None, own: bool) -> Callable[..., Any]:
    """The program, over the first axis of a mesh if there is one; own: every device has votes of its own."""
    program = functools.partial(_program, turn)
    if mesh is None:
        return jax.jit(program)
    split, whole = jax.sharding.PartitionSpec(mesh.axis_names[0]), jax.sharding.PartitionSpec()
    voters = split if own else whole
    return jax.jit(jax.shard_map(program, mesh=mesh, in_specs=(voters,) * 3 + (split,) * 4, out_specs=split))


def local_mesh() -> jax.sharding.Mesh | None:
    """All CPU devices of this process; None where there is one, or another default device.

    JAX has one CPU device, whatever the cores, and uses the others little in problems of this size. It has as many as
    asked for before it starts: ``jax.config.update("jax_num_cpu_devices", 4)``.
    """
    devices = jax.local_devices()
    if len(devices) == 1 or devices[0].platform != "cpu" or jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return None
    return jax.sharding.Mesh(np.array(devices), ("lanes",))


def _put(arrays: tuple[np.ndarray, ...], mesh: jax.sharding.Mesh | None, split: bool) -> tuple[Any, ...]:
    """Arrays on the default device, or split over the devices of a mesh or whole on each, in whichever process."""
    if mesh is None:
        return jax.device_put(arrays)
    spec = jax.sharding.PartitionSpec(mesh.axis_names[0]) if split else jax.sharding.PartitionSpec()
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return tuple(
        jax.make_array_from_callback(array.shape, sharding, lambda index, array=array: array[index])  # type: ignore[misc]
        for array in arrays
    )


def _fetch(found: Any, mesh: jax.sharding.Mesh | None) -> tuple[np.ndarray, ...]:
    """Results as NumPy arrays, from all processes if there are several."""
    if mesh is not None and jax.process_count() > 1:
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(found, tiled=True)
    return jax.device_get(found)


def _chunks(total: int, size: int) -> Iterator[np.ndarray]:
    """Lane numbers, so many at a time; the last chunk is filled up with -1."""
    for start in range(0, total, size):
        numbers = np.arange(start, start + size)
        yield np.where(numbers < total, numbers, -1)


def solve_grid(
    votes: np.ndarray | Callable[[int], np.ndarray],
    lanes: Lanes,
    margins: np.ndarray,
    *,
    unit: MarginUnit = "fraction",
    mesh: jax.sharding.Mesh | None = None,
    advance: Callable[[int], None] = lambda lanes: None,
) -> Figures:
    """MinCq on every lane, at every margin.

    Args:
      votes: of the learning points ``[m, n]``, in float32 or float64; or a function from the number of a lane to its
        own votes, all of one shape.
      lanes: L of them.
      margins: ``[k]``, or ``[L, k]`` with the margins of each lane.
      unit: of the margins: "fraction" of the lane's mu_max, or "absolute".
      mesh: lanes are split over its first axis; None for all CPU devices of this process, see `local_mesh`.
      advance: told the number of lanes that were just solved.

    Returns: `Figures`, in the votes' precision.
    """
    mesh = local_mesh() if mesh is None else mesh
    own = callable(votes)
    votes_of: Any = votes
    count = len(lanes.labels)
    devices = 1 if mesh is None else mesh.shape[mesh.axis_names[0]]
    size = devices * (1 if own or count <= devices else _LANES)
    wanted = np.broadcast_to(np.asarray(margins, float), (count, np.shape(margins)[-1]))
    shared = None if own else _prepare(votes_of, lanes, wanted, unit)

    def part(numbers: np.ndarray) -> Lanes:
        return Lanes(*(field[numbers] for field in lanes))

    def voters_of(numbers: np.ndarray) -> _Voters:
        if shared is not None:
            return shared._replace(margins=shared.margins[numbers], mu_max=shared.mu_max[numbers])
        each = {i: _prepare(votes_of(i), part(np.array([i])), wanted[[i]], unit) for i in np.unique(numbers % count)}
        return _side_by_side([each[i] for i in numbers % count])

    def dispatch(numbers: np.ndarray) -> tuple[Any, np.ndarray]:
        """Sends a chunk off, without waiting for it."""
        voters, chosen = voters_of(numbers), part(numbers)
        _, rows, columns = voters.votes.shape
        # A lane that fills up has no learning point, and nothing to solve.
        weights = np.where(numbers[:, None] >= 0, chosen.weights, 0.0)
        known = ~np.isnan(voters.mu_max)
        small = bool(np.any(np.min(voters.margins, axis=1)[known] <= _SMALL_MARGIN * voters.mu_max[known]))
        problems = (
            _pad(chosen.labels.astype(voters.votes.dtype), size, rows),
            _pad(weights.astype(voters.votes.dtype), size, rows),
            _pad(chosen.mask, size, columns),
            voters.margins,
        )
        votes_there = _put(voters[:3], mesh, True) if own else shared_there
        return _compiled(small, mesh, own)(*votes_there, *_put(problems, mesh, True)), voters.mu_max

    in_flight: deque[tuple[Any, np.ndarray]] = deque()
    chunks: list[tuple[np.ndarray, ...]] = []

    def collect() -> None:
        found, mu_max = in_flight.popleft()
        chunks.append((*_fetch(found, mesh), mu_max))
        advance(min(size, count - size * (len(chunks) - 1)))

    with one_blas_thread(), precision(wanted.dtype if shared is None else shared.votes.dtype):
        shared_there = () if shared is None else _put(shared[:3], mesh, False)
        for numbers in _chunks(count, size):
            in_flight.append(dispatch(numbers))
            # One more is made ready while the devices are busy with one.
            if len(in_flight) > 1:
                collect()
        while in_flight:
            collect()
    solved, *others = (np.concatenate(fields)[:count] for fields in zip(*chunks))
    return Figures(solved[..., : lanes.mask.shape[1]], *others)
