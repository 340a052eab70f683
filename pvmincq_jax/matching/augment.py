"""Random maximum matchings of a bipartite graph, many at a time, by forests of augmenting paths in NumPy.

A *strand* is one draw from one graph. All strands of a call go through the same array operations, each with its own
random stream, so a strand's matching is the same whichever strands run beside it. In every strand the source points are
renumbered by a random permutation (a *slot* is a source point under that number), and every other choice is made by
slot numbers, by random neighbours, or by random keys: never by the order in which the graph holds its vertices.

One phase grows a forest from all unmatched slots at once, level by level. A target point joins one tree only, so the
paths by which trees reach unmatched targets share no vertex, and the matching is augmented along all of them together.
Phases on a few random edges per point come first: they are cheap and find nearly everything. The rest is a maximum
flow on a sparse part of the graph, by SciPy's Dinic, to which a search over all edges keeps adding the edges that it
needs, until that search finds no path: then the matching is maximum (Berge).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from pvmincq_jax.matching.graph import RadiusGraph
from pvmincq_jax.matching.strands import Strands, hold, start_strands

__all__: list[str] = []

# Edges handled at once, and so also how many strands share a call.
BLOCK = 1 << 21
# Random neighbours of each point in a cheap phase, and in the sparse part that a flow is sought in.
_SAMPLED = 4
_SPARSE = 8
# Most cheap phases, and most phases over all edges, before a flow takes over.
_SAMPLED_PHASES = 16
_FULL_PHASES = 3
# A search with more levels runs along a long thin graph, where arrays are the wrong tool.
_LEVELS = 256
# Graphs of so few edges per point go to the flow whole.
_FEW = 24

# From a frontier of slots, and which targets are not reached yet, the claims: (slot, target), each target once.
_Expand = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def draw_strands(
    graphs: Sequence[RadiusGraph],
    seed: int,
    draws: Sequence[int],
    known: Sequence[np.ndarray] | None = None,
    held: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Draws maximum matchings; a draw does not depend on the other draws and graphs in the call.

    Args:
      graphs: one, or several that have at most `BLOCK` edges together, times the draws.
      seed: of the whole series, which is one for each graph.
      draws: the numbers of the draws in the series.
      known: one maximum matching of each graph, in the form of a row of the result. Its size spares each strand the
        proof that it has arrived, and its edges make any sparse part of the graph that holds them large enough for a
        maximum matching.
      held: a matching that every strand starts from, in the same form. Its points stay matched.

    Returns: for each graph, the source vertex matched with each target vertex, or -1 ``[draws, m_t]``.
    """
    strands = start_strands(graphs, seed, draws)
    if held is not None:
        hold(strands, held)
    given = [None] * len(graphs) if known is None else known
    most = [_most(graph, one) for graph, one in zip(graphs, given)]
    _grow(strands, np.repeat(most, len(draws)), [one for one in given for _ in draws])
    partners = np.where(strands.of_target >= 0, strands.vertex[strands.of_target], -1)
    ends = strands.target_ends[:: len(draws)]
    return [part.reshape(len(draws), -1) for part in np.split(partners, ends[1:-1])]


def _most(graph: RadiusGraph, known: np.ndarray | None) -> int:
    """Pairs that a matching can have at most."""
    if known is not None:
        return int(np.count_nonzero(known >= 0))
    # The points that have a neighbour, on either side.
    return int(min(np.count_nonzero(np.diff(graph.starts)), np.count_nonzero(np.bincount(graph.neighbours))))


def _grow(strands: Strands, most: np.ndarray, known: Sequence[np.ndarray | None]) -> None:
    """Makes the matching of each strand maximum.

    Args:
      strands: changed in place.
      most: pairs that each strand can have at most ``[strands]``.
      known: see `draw_strands`, one per strand.
    """
    left = most - strands.matched()
    active = left > 0
    for _ in range(_SAMPLED_PHASES):
        if not active.any():
            break
        found = _phase(strands, active, _sampled(strands, active)).found
        left -= found
        active &= (found > 0) & (left > 0)
    active = left > 0
    searched = active & _few(strands)
    for _ in range(_FULL_PHASES):
        if not searched.any():
            break
        outcome = _phase(strands, searched, _full(strands, searched))
        left -= outcome.found
        # A strand that was searched to the end without a path is proven.
        active &= (left > 0) & ((outcome.found > 0) | outcome.cut | ~searched)
        searched &= active
    for strand in np.flatnonzero(active).tolist():
        _finish(strands, strand, int(most[strand]), known[strand])


def _few(strands: Strands) -> np.ndarray:
    """Whether a sparse part of a strand's graph would not be much smaller than the graph ``[strands]``."""
    edges = np.add.reduceat(strands.degree, strands.slot_ends[:-1])
    return edges <= _FEW * (np.diff(strands.slot_ends) + np.diff(strands.target_ends))


class _Outcome(NamedTuple):
    """Of a phase: paths found in each strand, whether its search was cut short, and the edges of the forest."""

    found: np.ndarray
    cut: np.ndarray
    slot: np.ndarray
    target: np.ndarray


def _phase(strands: Strands, active: np.ndarray, expand: _Expand) -> _Outcome:
    """Grows one forest and augments along its paths.

    Args:
      strands: changed in place.
      active: strands to search ``[strands]``.
      expand: which edges to look at.

    Returns: an `_Outcome`.
    """
    roots = np.flatnonzero((strands.of_slot < 0) & (strands.degree > 0) & active[strands.strand])
    tree = np.empty(strands.vertex.size, dtype=np.int64)
    tree[roots] = roots
    ending = np.full(strands.vertex.size, -1)
    unreached = np.ones(strands.of_target.size, dtype=bool)
    parent = np.empty(strands.of_target.size, dtype=np.int64)
    frontier = roots
    for _ in range(_LEVELS):
        if not frontier.size:
            break
        slot, target = expand(frontier, unreached)
        unreached[target] = False
        parent[target] = slot
        grown, trees = strands.of_target[target], tree[slot]
        free = np.flatnonzero(grown < 0)
        ending[trees[free]] = target[free]
        # A tree with its path in hand grows no further, which leaves the other trees more room.
        going = np.flatnonzero(ending[trees] < 0)
        frontier = grown[going]
        tree[frontier] = trees[going]
    cut = np.zeros(active.size, dtype=bool)
    cut[strands.strand[frontier]] = True
    at = ending[roots]
    done = np.flatnonzero(at >= 0)
    found = np.bincount(strands.strand[roots[done]], minlength=active.size)
    forest = np.flatnonzero(~unreached)
    outcome = _Outcome(found, cut, parent[forest], forest)
    at = at[done]
    while at.size:
        slot = parent[at]
        before = strands.of_slot[slot]
        strands.of_slot[slot] = at
        strands.of_target[at] = slot
        at = before[before >= 0]
    return outcome


def _sampled(strands: Strands, active: np.ndarray) -> _Expand:
    """Edges to a few random neighbours of every slot, drawn afresh; a tie goes to the later random slot."""
    streams = itertools.compress(zip(strands.streams, np.diff(strands.slot_ends)), active)
    uniform = [stream.random((_SAMPLED, size), dtype=np.float32) for stream, size in streams]
    # For all slots of these strands at once, which leaves little to do at each level of the forest.
    slots = np.flatnonzero(active[strands.strand])
    column = np.empty(strands.vertex.size, dtype=np.int64)
    column[slots] = np.arange(slots.size)
    degree = strands.degree[slots]
    # Rounding could carry a uniform number just below 1 to the end of the row.
    entry = np.minimum((np.concatenate(uniform, axis=1) * degree).astype(np.int64), degree - 1) + strands.first[slots]
    # Clipped for slots without a neighbour, which no frontier holds.
    aims = strands.neighbours.take(entry, mode="clip") + strands.target_ends[strands.strand[slots]]
    claim = np.empty(strands.of_target.size, dtype=np.int64)

    def expand(frontier: np.ndarray, unreached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        target = aims.take(column[frontier], axis=1).ravel()
        number = np.arange(target.size)
        claim[target] = number
        won = np.flatnonzero(unreached[target] & (claim[target] == number))
        return frontier[won % frontier.size], target[won]

    return expand


def _full(strands: Strands, active: np.ndarray) -> _Expand:
    """All edges; a target goes to the slot of the largest key."""
    # The sum of a random number of the slot and one of the target, modulo 2^31: for one target a random slot, and for
    # another target another one, so that no slot sweeps up all targets in its reach.
    keys = np.empty_like(strands.of_slot), np.empty_like(strands.of_target)
    for strand in np.flatnonzero(active).tolist():
        for key, own in zip(keys, strands.ranges(strand)):
            key[own] = strands.streams[strand].integers(1 << 31, size=own.stop - own.start)
    slot_key, target_key = keys
    best = np.empty(strands.of_target.size, dtype=np.int64)

    def claims(part: np.ndarray, unreached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slot, target = strands.edges(part)
        new = np.flatnonzero(unreached[target])
        slot, target = slot[new], target[new]
        key = (((slot_key[slot] + target_key[target]) & ((1 << 31) - 1)) << 32) + np.arange(target.size)
        best[target] = -1
        np.maximum.at(best, target, key)
        won = np.flatnonzero(best[target] == key)
        won = won[np.argsort(key[won])]
        return slot[won], target[won]

    def expand(frontier: np.ndarray, unreached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frontier = np.sort(frontier)
        ends = np.cumsum(strands.degree[frontier])
        # A graph that needs a cut has its call to itself.
        if ends[-1] <= BLOCK or len(strands.streams) > 1:
            return claims(frontier, unreached)
        slots, targets = [], []
        # Slot order is random, so the cut into blocks is too.
        for part in np.split(frontier, np.flatnonzero(np.diff(ends // (BLOCK + 1))) + 1):
            slot, target = claims(part, unreached)
            unreached[target] = False
            slots.append(slot)
            targets.append(target)
        return np.concatenate(slots), np.concatenate(targets)

    return expand


def _finish(strands: Strands, strand: int, most: int, known: np.ndarray | None) -> None:
    """Completes the matching of one strand, by flows on a part of the graph that grows as far as it must."""
    one = strands.one(strand)
    if _few(one)[0] or not _flow_on_parts(one, most, known):
        _flow(one, *one.edges(np.arange(one.vertex.size)))
    strands.take(strand, one)


def _flow_on_parts(strands: Strands, most: int, known: np.ndarray | None) -> bool:
    """Completes a single strand; False if a search was cut short, so that the matching may not be maximum yet."""
    everyone = np.array([True])
    slots, aims = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    linked = np.repeat(np.flatnonzero(strands.degree), _SPARSE)
    while True:
        entry = (strands.streams[0].random(linked.size) * strands.degree[linked]).astype(np.int64)
        entry += strands.first[linked]
        slots, aims = np.concatenate([slots, linked]), np.concatenate([aims, strands.neighbours[entry]])
        _flow(strands, slots, aims)
        if strands.matched()[0] == most:
            return True
        if known is not None:
            pairs = np.flatnonzero(known >= 0)
            slots = np.concatenate([slots, np.argsort(strands.vertex)[known[pairs]]])
            aims = np.concatenate([aims, pairs])
            continue
        outcome = _phase(strands, everyone, _full(strands, everyone))
        if not outcome.found[0]:
            return not outcome.cut[0]
        if strands.matched()[0] == most:
            return True
        # The forest holds edges that were missing on the way to unmatched targets.
        slots, aims = np.concatenate([slots, outcome.slot]), np.concatenate([aims, outcome.target])


def _flow(strands: Strands, slot: np.ndarray, target: np.ndarray) -> None:
    """Completes the matching of a single strand on the given edges, by a maximum flow in the residual network.

    Arcs lead from a slot along its edges to targets, and from a matched target back to its slot. A matched target has
    that one way out, and its slot that one way in, so no vertex carries two paths.
    """
    sources, targets = strands.vertex.size, strands.of_target.size
    # Targets are renumbered at random, as slots are: the flow follows the order of its arcs.
    number = strands.streams[0].permutation(targets)
    matched = np.flatnonzero(strands.of_slot >= 0)
    exposed, free = np.flatnonzero(strands.of_slot < 0), np.flatnonzero(strands.of_target < 0)
    other = strands.of_slot[slot] != target
    begin, end = sources + targets, sources + targets + 1
    held, given = sources + number[strands.of_slot[matched]], sources + number[free]
    tails = [slot[other], held, np.full(exposed.size, begin), given]
    heads = [sources + number[target[other]], matched, exposed, np.full(free.size, end)]
    tail, head = np.concatenate(tails).astype(np.int32), np.concatenate(heads).astype(np.int32)
    network = csr_array((np.ones(tail.size, dtype=np.int32), (tail, head)), shape=(end + 1, end + 1))
    flow = maximum_flow(network, begin, end, method="dinic").flow.tocoo()
    used = (flow.data > 0) & (flow.row < sources) & (flow.col >= sources) & (flow.col < begin)
    # Every slot on a path gets one new target; the pairs that the path passed are gone with it.
    strands.of_slot[flow.row[used]] = np.argsort(number)[flow.col[used] - sources]
    strands.of_target[:] = -1
    matched = np.flatnonzero(strands.of_slot >= 0)
    strands.of_target[strands.of_slot[matched]] = matched
