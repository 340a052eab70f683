"""The one engine: MinCq over many problems on the same points and voters, for all grids of the package.

A grid is a lane for each fold and radius, solved at several margins; a sweep calls the engine once for each gamma.
Lanes go over threads, one for each core, or over the devices of a mesh. The engine returns weights; values at other
points and risks are products of weights and votes, which the callers take. Shapes and factors are those of
`pvmincq_jax.adaptation.lanes`.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from pvmincq_jax._threads import core_count, one_blas_thread
from pvmincq_jax._types import Array, MarginUnit, Status, precision
from pvmincq_jax.adaptation.lanes import Lanes, LaneVoters, lane_voters, side_by_side
from pvmincq_jax.voting.factor import VoteFactor
from pvmincq_jax.voting.program import normalised, solve_mincq

__all__: list[str] = []

# Up to this fraction of mu_max masked voters cost digits; see `pvmincq_jax.voting.mincq.solve_mincq`.
_SMALL_MARGIN = 1e-3
# Lanes of one call, one after the other, on each device: a call has its price, and the devices of a mesh wait for each
# other after each. One that fills up costs next to nothing.
_LANES = 3
# Calls that each thread has to have at least, or they take one lane each: else some would end long before the others.
_CALLS = 8


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
        shares = normalised(weights, len(labels), votes.dtype)
        found = jax.vmap(
            lambda mu: solve_mincq(votes[0], labels, mu, shares, mask, factor, "interior_point", "sure", turn)
        )(margins)
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


def _put(arrays: tuple[np.ndarray, ...], mesh: jax.sharding.Mesh | None, split: bool) -> tuple[Any, ...]:
    """Arrays on the default device, or split over the devices of a mesh or whole on each, in whichever process."""
    if mesh is None:
        return arrays if split else jax.device_put(arrays)  # small ones need no call of their own
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


_compiling = threading.Lock()
_compiled_for: set[Any] = set()


def _run(turn: bool, mesh: jax.sharding.Mesh | None, own: bool, arguments: tuple[Any, ...]) -> Any:
    """What the program returns, once it is there. A thread that needs it while another compiles it waits."""
    key = turn, mesh, own, arguments[0].dtype, *(part.shape for part in arguments)
    with contextlib.nullcontext() if key in _compiled_for else _compiling:
        found = _compiled(turn, mesh, own)(*arguments)
        _compiled_for.add(key)
    return jax.block_until_ready(found)


def _chunks(total: int, devices: int, lanes: int) -> list[np.ndarray]:
    """Lane numbers of each call, those of the first device first; -1 where a call is filled up.

    Example:
      >>> _chunks(5, 2, 2)
      [array([0, 2, 1, 3]), array([ 4, -1, -1, -1])]
    """
    size = devices * lanes
    numbers = np.arange(-(-total // size) * size)
    numbers[total:] = -1
    return list(numbers.reshape(-1, lanes, devices).swapaxes(1, 2).reshape(-1, size))


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
      mesh: lanes are split over its first axis; None for one device, on which all cores are kept busy.
      advance: told the number of lanes that were just solved.

    Returns: `Figures`, in the votes' precision.
    """
    wanted = np.broadcast_to(np.asarray(margins, float), (len(lanes.labels), np.shape(margins)[-1]))
    with one_blas_thread():
        figures = _solve_lanes(votes, lanes, wanted, unit, mesh, advance, sure=False)
        # A factor that is enough as a rule was not for these.
        short = np.flatnonzero(np.any(figures.status == Status.MAX_ITERATIONS, axis=1))
        if short.size:
            own: Any = (lambda lane: votes(int(short[lane]))) if callable(votes) else votes
            again = _solve_lanes(own, lanes.part(short), wanted[short], unit, mesh, lambda lanes: None, sure=True)
            for field, better in zip(figures, again):
                field[short] = better
    return figures


def _solve_lanes(
    votes: np.ndarray | Callable[[int], np.ndarray],
    lanes: Lanes,
    margins: np.ndarray,
    unit: MarginUnit,
    mesh: jax.sharding.Mesh | None,
    advance: Callable[[int], None],
    sure: bool,
) -> Figures:
    """`solve_grid` at margins ``[L, k]``; sure: with a factor that is enough in any case."""
    own, votes_of = callable(votes), cast(Any, votes)
    count = len(lanes.labels)
    devices = 1 if mesh is None else mesh.shape[mesh.axis_names[0]]
    threads = min(core_count(), count) if mesh is None else 2
    few = count < _LANES * _CALLS * threads if mesh is None else count <= devices
    chunks = _chunks(count, devices, 1 if own or few else _LANES)
    wide = lanes.padded()
    shared = None if own else lane_voters(votes_of, lanes, margins, unit, sure)

    def voters_of(numbers: np.ndarray) -> LaneVoters:
        if shared is not None:
            return shared._replace(margins=shared.margins[numbers], mu_max=shared.mu_max[numbers])
        own_lanes = {
            i: lane_voters(votes_of(i), lanes.part([i]), margins[[i]], unit, sure) for i in np.unique(numbers % count)
        }
        return side_by_side([own_lanes[i] for i in numbers % count])

    # A caller's scope with a device of its own holds in its own thread alone.
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    # On a mesh calls take turns: while one is at work, the next one is made ready.
    turns: Any = contextlib.nullcontext() if mesh is None else threading.Lock()

    def solve(numbers: np.ndarray) -> tuple[Any, ...]:
        """What the program finds on these lanes, and their mu_max."""
        voters = voters_of(numbers)
        problems = _problems(wide.part(numbers), voters, numbers)
        known = ~np.isnan(voters.mu_max)
        turn = bool(np.any(np.min(voters.margins, axis=1)[known] <= _SMALL_MARGIN * voters.mu_max[known]))
        with precision(voters.votes.dtype), jax.default_device(device):
            arguments = (_put(voters[:3], mesh, True) if own else shared_there) + _put(problems, mesh, True)
            with turns:
                return _run(turn, mesh, own, arguments), voters.mu_max

    found = []
    dtype = margins.dtype if shared is None else shared.votes.dtype
    with precision(dtype), ThreadPoolExecutor(threads) as pool:
        shared_there = () if shared is None else _put(shared[:3], mesh, False)
        # Closed when `advance` raises: lanes that nobody has begun are then left alone.
        with contextlib.closing(cast(Generator, pool.map(solve, chunks))) as results:
            for numbers, one in zip(chunks, results):
                found.append(one)
                advance(int(np.sum(numbers >= 0)))
        fetched = [(*_fetch(figures, mesh), mu_max) for figures, mu_max in found]
    order = np.argsort(np.concatenate(chunks), kind="stable")[-count:]
    solved, *others = (np.concatenate(fields)[order] for fields in zip(*fetched))
    return Figures(solved[..., : lanes.mask.shape[1]], *others)


def _problems(lanes: Lanes, voters: LaneVoters, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Labels, weights, masks and margins of lanes of the size of the votes; a number -1 fills up."""
    # A lane that fills up has no learning point, and nothing to solve.
    weights = np.where(numbers[:, None] >= 0, lanes.weights, 0.0)
    labels, weights = (field.astype(voters.votes.dtype) for field in (lanes.labels, weights))
    return labels, weights, lanes.mask, voters.margins
