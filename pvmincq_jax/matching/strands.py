"""Strands: matchings that are drawn side by side, by the same array operations, each with its own random stream."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pvmincq_jax.matching.graph import RadiusGraph

__all__: list[str] = []


class Strands(NamedTuple):
    """The matchings so far. Slots, which are the source points of a strand, and targets are numbered strand by strand.

    Attributes:
      streams: one random generator per strand.
      strand: the strand of each slot ``[slots]``.
      vertex: the source vertex of each slot, in the graph of its strand.
      first: where the neighbours of each slot begin.
      degree: neighbours of each slot.
      of_slot: the target matched with each slot, or -1.
      of_target: the slot matched with each target, or -1 ``[targets]``.
      neighbours: target vertices, of one graph after the other ``[edges]``.
      slot_ends: the first slot of each strand, and how many there are ``[strands + 1]``.
      target_ends: the same of targets.
    """

    streams: list[np.random.Generator]
    strand: np.ndarray
    vertex: np.ndarray
    first: np.ndarray
    degree: np.ndarray
    of_slot: np.ndarray
    of_target: np.ndarray
    neighbours: np.ndarray
    slot_ends: np.ndarray
    target_ends: np.ndarray

    def matched(self) -> np.ndarray:
        """Pairs in each strand."""
        return np.bincount(self.strand[self.of_slot >= 0], minlength=len(self.streams))

    def edges(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All edges of some slots, at least one: (slot, target), slot by slot."""
        degree = self.degree[slots]
        ends = np.cumsum(degree)
        entry = np.repeat(self.first[slots] + degree - ends, degree)
        entry += np.arange(entry.size)
        target = self.neighbours[entry]
        # A strand alone may have many edges, and its targets need no shift.
        if len(self.streams) > 1:
            target = target + np.repeat(self.target_ends[self.strand[slots]], degree)
        return np.repeat(slots, degree), target

    def ranges(self, strand: int) -> tuple[slice, slice]:
        """The slots and the targets of one strand."""
        return slice(*self.slot_ends[strand : strand + 2]), slice(*self.target_ends[strand : strand + 2])

    def one(self, strand: int) -> "Strands":
        """One strand alone; its matching is a copy."""
        slots, targets = self.ranges(strand)
        return Strands(
            [self.streams[strand]],
            np.zeros(slots.stop - slots.start, dtype=np.int64),
            self.vertex[slots],
            self.first[slots],
            self.degree[slots],
            np.maximum(self.of_slot[slots] - targets.start, -1),
            np.maximum(self.of_target[targets] - slots.start, -1),
            self.neighbours,
            np.array([0, slots.stop - slots.start]),
            np.array([0, targets.stop - targets.start]),
        )

    def take(self, strand: int, one: "Strands") -> None:
        """Takes over the matching of what `one` returned."""
        slots, targets = self.ranges(strand)
        self.of_slot[slots] = np.where(one.of_slot >= 0, one.of_slot + targets.start, -1)
        self.of_target[targets] = np.where(one.of_target >= 0, one.of_target + slots.start, -1)


def start_strands(graphs: Sequence[RadiusGraph], seed: int, draws: Sequence[int]) -> Strands:
    """Strands without a pair: the draws of the first graph, then those of the second, and so on."""
    streams = [np.random.default_rng([seed, draw]) for _ in graphs for draw in draws]
    own = [graph for graph in graphs for _ in draws]
    vertices = [stream.permutation(graph.source_rows.size) for stream, graph in zip(streams, own)]
    before = np.repeat(_ends(graph.neighbours.size for graph in graphs)[:-1], len(draws))
    first, end = (
        np.concatenate([graph.starts[vertex + next] for graph, vertex in zip(own, vertices)]) for next in (0, 1)
    )
    slot_ends, target_ends = _ends(graph.source_rows.size for graph in own), _ends(g.target_rows.size for g in own)
    strand = np.repeat(np.arange(len(own)), np.diff(slot_ends))
    return Strands(
        streams,
        strand,
        np.concatenate(vertices),
        first + before[strand],
        end - first,
        np.full(slot_ends[-1], -1),
        np.full(target_ends[-1], -1),
        graphs[0].neighbours if len(graphs) == 1 else np.concatenate([graph.neighbours for graph in graphs]),
        slot_ends,
        target_ends,
    )


def hold(strands: Strands, held: np.ndarray) -> None:
    """Starts every strand from one matching: the source vertex matched with each target vertex, or -1 ``[m_t]``."""
    pairs = np.flatnonzero(held >= 0)
    for strand in range(len(strands.streams)):
        slots, targets = strands.ranges(strand)
        slot, target = slots.start + np.argsort(strands.vertex[slots])[held[pairs]], targets.start + pairs
        strands.of_slot[slot], strands.of_target[target] = target, slot


def _ends(sizes: Iterable[int]) -> np.ndarray:
    return np.cumsum([0, *sizes])
