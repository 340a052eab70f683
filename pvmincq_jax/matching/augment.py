"""Random maximum matchings of a bipartite graph, many at a time, by forests of augmenting paths in NumPy.

A *strand* is one draw. All strands of a call share the graph and go through the same array operations, each with its
own random stream, so a strand's matching is the same whichever strands run beside it. In every strand the source points
are renumbered by a random permutation (a *slot* is a source point under that number), and every other choice is made by
slot numbers, by random neighbours, or by random keys: never by the order in which the graph holds its vertices.

One phase grows a forest from all unmatched slots at once, level by level. A target point joins one tree only, so the
paths by which trees reach unmatched targets share no vertex, and the matching is augmented along all of them together.
Phases on a few random edges per point come first: they are cheap and find nearly everything. The rest is a maximum
flow on a sparse part of the graph, by SciPy's Dinic, to which a search over all edges keeps adding the edges that it
needs, until that search finds no path: then the matching is maximum (Berge).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from pvmincq_jax.matching.graph import RadiusGraph

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

# From a frontier of slots and the reached targets, the claims: (slot, target), each target once.
_Expand = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class _Strands(NamedTuple):
    """The matchings of all strands; targets are numbered strand by strand, as slots are.

    Attributes:
      streams: one random generator per strand.
      vertex: the source vertex of each slot ``[strands * m_s]``.
      of_slot: the target matched with each slot, or -1.
      of_target: the slot matched with each target, or -1 ``[strands * m_t]``.
      degree: neighbours of each slot.
      sizes: source and target points of one strand.
    """

    streams: list[np.random.Generator]
    vertex: np.ndarray
    of_slot: np.ndarray
    of_target: np.ndarray
    degree: np.ndarray
    sizes: tuple[int, int]

    def matched(self) -> np.ndarray:
        """Pairs in each strand."""
        return np.count_nonzero(self.of_slot.reshape(len(self.streams), -1) >= 0, axis=1)


def _start(graph: RadiusGraph, seed: int, draws: Sequence[int], held: np.ndarray | None) -> _Strands:
    sources, targets = graph.source_rows.size, graph.target_rows.size
    streams = [np.random.default_rng([seed, draw]) for draw in draws]
    vertex = np.concatenate([stream.permutation(sources) for stream in streams])
    of_slot, of_target = np.full(vertex.size, -1), np.full(len(streams) * targets, -1)
    if held is not None:
        pairs = np.flatnonzero(held >= 0)
        for strand in range(len(streams)):
            slot = strand * sources + np.argsort(vertex[strand * sources : (strand + 1) * sources])[held[pairs]]
            of_slot[slot], of_target[strand * targets + pairs] = strand * targets + pairs, slot
    return _Strands(streams, vertex, of_slot, of_target, np.diff(graph.starts)[vertex], (sources, targets))


def draw_strands(
    graph: RadiusGraph,
    seed: int,
    draws: Sequence[int],
    known: np.ndarray | None = None,
    held: np.ndarray | None = None,
) -> np.ndarray:
    """Draws maximum matchings; the draw of a given number does not depend on the others in the call.

    Args:
      graph: a `RadiusGraph`.
      seed: of the whole series.
      draws: the numbers of the draws in the series.
      known: one maximum matching, in the form of a row of the result. Its size spares each strand the proof that it has
        arrived, and its edges make any sparse part of the graph that holds them large enough for a maximum matching.
      held: a matching that every strand starts from, in the same form. Its points stay matched.

    Returns: the source vertex matched with each target vertex, or -1 ``[draws, m_t]``.
    """
    strands = _start(graph, seed, draws, held)
    if known is None:
        most = min(np.count_nonzero(np.diff(graph.starts)), np.count_nonzero(np.bincount(graph.neighbours)))
    else:
        most = np.count_nonzero(known >= 0)
    _grow(graph, strands, int(most), known)
    partners = strands.of_target.reshape(len(draws), -1)
    return np.where(partners >= 0, strands.vertex[partners], -1)


def _grow(graph: RadiusGraph, strands: _Strands, most: int, known: np.ndarray | None) -> None:
    """Makes the matching of each strand maximum; no strand can have more than ``most`` pairs."""
    active = strands.matched() < most
    for _ in range(_SAMPLED_PHASES):
        if not active.any():
            break
        found = _phase(strands, active, _sampled(graph, strands, active)).found
        active &= (found > 0) & (strands.matched() < most)
    active = strands.matched() < most
    for _ in range(_FULL_PHASES if _few(graph) else 0):
        if not active.any():
            break
        outcome = _phase(strands, active, _full(graph, strands))
        # A strand that was searched to the end without a path is proven.
        active &= (strands.matched() < most) & ((outcome.found > 0) | outcome.cut)
    for strand in np.flatnonzero(active):
        _finish(graph, strands, int(strand), most, known)


def _few(graph: RadiusGraph) -> bool:
    """Whether a sparse part of the graph would not be much smaller than the graph."""
    return graph.neighbours.size <= _FEW * (graph.source_rows.size + graph.target_rows.size)


class _Outcome(NamedTuple):
    """Of a phase: paths found in each strand, whether its search was cut short, and the edges of the forest."""

    found: np.ndarray
    cut: np.ndarray
    slot: np.ndarray
    target: np.ndarray


def _phase(strands: _Strands, active: np.ndarray, expand: _Expand) -> _Outcome:
    """Grows one forest and augments along its paths.

    Args:
      strands: changed in place.
      active: strands to search ``[strands]``.
      expand: which edges to look at.

    Returns: an `_Outcome`.
    """
    sources, targets = strands.sizes
    roots = np.flatnonzero((strands.of_slot < 0) & (strands.degree > 0) & np.repeat(active, sources))
    tree = np.empty(strands.vertex.size, dtype=np.int64)
    tree[roots] = roots
    ending = np.full(strands.vertex.size, -1)
    reached = np.zeros(strands.of_target.size, dtype=bool)
    parent = np.empty(strands.of_target.size, dtype=np.int64)
    frontier = roots
    for _ in range(_LEVELS):
        if not frontier.size:
            break
        slot, target = expand(frontier, reached)
        reached[target] = True
        parent[target] = slot
        grown = strands.of_target[target]
        free = grown < 0
        ending[tree[slot[free]]] = target[free]
        grown, slot = grown[~free], slot[~free]
        tree[grown] = tree[slot]
        # A tree with its path in hand grows no further, which leaves the other trees more room.
        frontier = grown[ending[tree[grown]] < 0]
    cut = np.zeros(active.size, dtype=bool)
    cut[frontier // sources] = True
    at = ending[roots]
    at = at[at >= 0]
    found = np.bincount(at // targets, minlength=active.size)
    forest = np.flatnonzero(reached)
    outcome = _Outcome(found, cut, parent[forest], forest)
    while at.size:
        slot = parent[at]
        before = strands.of_slot[slot]
        strands.of_slot[slot] = at
        strands.of_target[at] = slot
        at = before[before >= 0]
    return outcome


def _sampled(graph: RadiusGraph, strands: _Strands, active: np.ndarray) -> _Expand:
    """Edges to a few random neighbours of every slot, drawn afresh; a tie goes to the later random slot."""
    sources, targets = strands.sizes
    uniform = np.empty((active.size, _SAMPLED, sources), dtype=np.float32)
    for strand in np.flatnonzero(active):
        strands.streams[strand].random(out=uniform[strand], dtype=np.float32)
    claim = np.empty(strands.of_target.size, dtype=np.int64)

    def expand(frontier: np.ndarray, reached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        strand, place = np.divmod(frontier, sources)
        degree = strands.degree[frontier]
        first = graph.starts[strands.vertex[frontier]]
        some = uniform[strand, :, place].T
        # Rounding could carry a uniform number just below 1 to the end of the row.
        entry = first + np.minimum((some * degree).astype(np.int64), degree - 1)
        target = (graph.neighbours[entry] + strand * targets).ravel()
        slot = np.broadcast_to(frontier, entry.shape).ravel()
        new = np.flatnonzero(~reached[target])
        target, slot = target[new], slot[new]
        number = np.arange(target.size)
        claim[target] = number
        won = np.flatnonzero(claim[target] == number)
        return slot[won], target[won]

    return expand


def _full(graph: RadiusGraph, strands: _Strands) -> _Expand:
    """All edges; a target goes to the slot of the largest key."""
    sources, targets = strands.sizes
    # The sum of a random number of the slot and one of the target, modulo 2^31: for one target a random slot, and for
    # another target another one, so that no slot sweeps up all targets in its reach.
    slot_key = np.concatenate([stream.integers(1 << 31, size=sources) for stream in strands.streams])
    target_key = np.concatenate([stream.integers(1 << 31, size=targets) for stream in strands.streams])
    best = np.empty(strands.of_target.size, dtype=np.int64)

    def claims(part: np.ndarray, reached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        degree = strands.degree[part]
        offset = np.cumsum(degree) - degree
        entry = np.arange(int(degree.sum())) + np.repeat(graph.starts[strands.vertex[part]] - offset, degree)
        target = graph.neighbours[entry] + np.repeat(part // sources * targets, degree)
        new = np.flatnonzero(~reached[target])
        target, slot = target[new], np.repeat(part, degree)[new]
        key = (((slot_key[slot] + target_key[target]) & ((1 << 31) - 1)) << 32) + np.arange(target.size)
        best[target] = -1
        np.maximum.at(best, target, key)
        won = np.flatnonzero(best[target] == key)
        won = won[np.argsort(key[won])]
        reached[target[won]] = True
        return slot[won], target[won]

    def expand(frontier: np.ndarray, reached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Slot order is random, so the cut into blocks is too; a graph that needs a cut has its call to itself.
        frontier = np.sort(frontier)
        block = np.cumsum(strands.degree[frontier]) // (BLOCK + 1) * (len(strands.streams) == 1)
        parts = np.split(frontier, np.flatnonzero(np.diff(block)) + 1)
        slots, found = zip(*(claims(part, reached) for part in parts), strict=True)
        return np.concatenate(slots), np.concatenate(found)

    return expand


def _finish(graph: RadiusGraph, strands: _Strands, strand: int, most: int, known: np.ndarray | None) -> None:
    """Completes the matching of one strand, by flows on a part of the graph that grows as far as it must."""
    sources, targets = strands.sizes
    slots, aims = slice(strand * sources, (strand + 1) * sources), slice(strand * targets, (strand + 1) * targets)
    one = _Strands(
        [strands.streams[strand]],
        strands.vertex[slots],
        np.maximum(strands.of_slot[slots] - strand * targets, -1),
        np.maximum(strands.of_target[aims] - strand * sources, -1),
        strands.degree[slots],
        strands.sizes,
    )
    if _few(graph) or not _flow_on_parts(graph, one, most, known):
        slot = np.repeat(np.arange(sources), one.degree)
        first = graph.starts[one.vertex] - np.cumsum(one.degree) + one.degree
        _flow(one, slot, graph.neighbours[np.arange(slot.size) + np.repeat(first, one.degree)])
    strands.of_slot[slots] = np.where(one.of_slot >= 0, one.of_slot + strand * targets, -1)
    strands.of_target[aims] = np.where(one.of_target >= 0, one.of_target + strand * sources, -1)


def _flow_on_parts(graph: RadiusGraph, strands: _Strands, most: int, known: np.ndarray | None) -> bool:
    """Completes a single strand; False if a search was cut short, so that the matching may not be maximum yet."""
    slots, aims = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    linked = np.repeat(np.flatnonzero(strands.degree), _SPARSE)
    while True:
        entry = (strands.streams[0].random(linked.size) * strands.degree[linked]).astype(np.int64)
        entry += graph.starts[strands.vertex[linked]]
        slots, aims = np.concatenate([slots, linked]), np.concatenate([aims, graph.neighbours[entry]])
        _flow(strands, slots, aims)
        if strands.matched()[0] == most:
            return True
        if known is not None:
            pairs = np.flatnonzero(known >= 0)
            slots = np.concatenate([slots, np.argsort(strands.vertex)[known[pairs]]])
            aims = np.concatenate([aims, pairs])
            continue
        outcome = _phase(strands, np.array([True]), _full(graph, strands))
        if not outcome.found[0]:
            return not outcome.cut[0]
        if strands.matched()[0] == most:
            return True
        # The forest holds edges that were missing on the way to unmatched targets.
        slots, aims = np.concatenate([slots, outcome.slot]), np.concatenate([aims, outcome.target])


def _flow(strands: _Strands, slot: np.ndarray, target: np.ndarray) -> None:
    """Completes the matching of a single strand on the given edges, by a maximum flow in the residual network.

    Arcs lead from a slot along its edges to targets, and from a matched target back to its slot. A matched target has
    that one way out, and its slot that one way in, so no vertex carries two paths.
    """
    sources, targets = strands.sizes
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
