"""The grid of radii x gammas x margins on moved source points.

Each radius moves the points elsewhere, so that every radius and gamma has votes of its own, and is a lane of the
engine; with more than two classes, a lane for each class against the rest.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._threads import core_count
from pvmincq_jax._types import MarginUnit, brief
from pvmincq_jax.adaptation.classes import as_heavy, lanes_ahead
from pvmincq_jax.adaptation.grid import Problems, VoteBlocks, solve_grid, values_of
from pvmincq_jax.adaptation.labelled import check_solved
from pvmincq_jax.adaptation.options import GridOptions
from pvmincq_jax.adaptation.seats import place_on_moved, stack_masks
from pvmincq_jax.adaptation.transport import Transport
from pvmincq_jax.matching.selflabel import SelfLabels

__all__ = ["TransportSweep"]


class TransportSweep(NamedTuple):
    """Every vote of the grid; ``[r, g, k]`` counts radii, gammas, margins.

    Attributes:
      radii: absolute ``[r]``; 0 where nobody was matched, see `pvmincq_jax.stay`. With domains on their own scales
        they come in two runs, the second on the target's scale.
      gammas: of the voters, or the values that their families were made of ``[g]``; NaN where there are none.
      margins: as given ``[k]``.
      margin_unit: "absolute" or "fraction".
      pv: ``[r]``.
      c_bound: of the vote on the moved points, with their true labels ``[r, g, k]``.
      status: `Status` codes ``[r, g, k]``.
      kkt_residual: ``[r, g, k]``.
      mu_max: the largest margins ``[r, g]``.
      weights: of the votes ``[r, g, k, n]``; NaN if not solved, as are the values; 0 beyond the voters of a family that
        has fewer than n.
      moved_values: the vote on the moved points ``[r, g, k, m_s]``.
      target_values: the vote on the target points ``[r, g, k, m_t]``.
      voters: the family that votes, for each radius and gamma.
      transports: one per radius.
      source_labels: ``[m_s]``.
      target: ``[m_t, d]``.
      voter_mask: which voters take part ``[r, g, n]``.
      voter_counts: how many voters the families have ``[r, g]``.
      ratio: the share of +1 that the target is taken to have; None for that of ``source_labels``.
    """

    radii: np.ndarray
    gammas: np.ndarray
    margins: np.ndarray
    margin_unit: MarginUnit
    pv: np.ndarray
    c_bound: np.ndarray
    status: np.ndarray
    kkt_residual: np.ndarray
    mu_max: np.ndarray
    weights: np.ndarray
    moved_values: np.ndarray
    target_values: np.ndarray
    voters: tuple[tuple[Any, ...], ...]
    transports: tuple[Transport, ...]
    source_labels: np.ndarray
    target: np.ndarray
    voter_mask: np.ndarray
    voter_counts: np.ndarray
    ratio: float | None = None

    def __repr__(self) -> str:
        """In a few lines."""
        return brief(self)

    @property
    def self_labels(self) -> tuple[SelfLabels, ...]:
        """The learning samples, one per radius: moved points with their true labels."""
        return tuple(moved_labels(transport, self.source_labels) for transport in self.transports)


def moved_labels(transport: Transport, source_labels: np.ndarray) -> SelfLabels:
    """The labels of moved points, each as heavy as it is matched."""
    return SelfLabels(source_labels, np.asarray(transport.weights), float(transport.pv), transport.pairs)


def learn_on_moved(
    transports: Sequence[Transport], source_labels: np.ndarray, target: np.ndarray, options: GridOptions
) -> tuple[TransportSweep, ...]:
    """Learns on moved points that are already there, whatever moved them.

    Args:
      transports: one for each radius, e.g. of `pvmincq_jax.barycentres`.
      source_labels: of each class against the rest ``[c, m_s]``; of two classes there is one row.
      target: ``[m_t, d]``.
      options: of the grid, which has no folds.

    Returns:
      The grid of each row of labels. Of several, values say by how much a class is ahead of the best other one, and a
      point of the grid is solved if all classes are.
    """
    gammas, margins, unit = options.voters.values, options.margins, options.unit
    classes = len(source_labels)
    given = options.most_voters, options.seed
    placed = [place_on_moved(options.voters.families, one, *given) for one in transports]
    families = tuple(tuple(family for family, _ in row) for row in placed)
    masks = [mask for row in placed for _, mask in row]
    mask = stack_masks(masks)
    flat = [(one, family) for one, row in zip(transports, families) for family in row]

    # The classes of a radius and gamma are neighbours, and share the cost of its votes.
    @lru_cache(core_count() + 1)
    def blocks_at(number: int) -> VoteBlocks:
        transport, family = flat[number]
        return VoteBlocks(family, np.asarray(transport.moved))

    labels = np.tile(source_labels, (len(flat), 1))
    weights = np.repeat(np.stack([np.asarray(one.weights) for one, _ in flat]), classes, axis=0)
    sample = (labels, weights) if classes == 1 else as_heavy(labels, weights)
    figures = solve_grid(
        lambda number: blocks_at(number // classes),
        Problems(*sample, np.repeat(mask, classes, axis=0)),
        margins,
        unit=unit,
        solver=options.solver,
        mesh=options.mesh,
        advance=options.advance,
    )

    shape = len(transports), len(gammas)

    def gather(field: np.ndarray) -> np.ndarray:
        """Problems as classes, radii and gammas ``[c, r, g, ...]``."""
        return np.moveaxis(field.reshape(*shape, classes, *field.shape[1:]), 2, 0)

    votes = [(number // classes, weights) for number, weights in enumerate(figures.weights)]
    moved = values_of([(VoteBlocks(flat[i][1], np.asarray(flat[i][0].moved)), weights) for i, weights in votes])
    there = values_of([(VoteBlocks(flat[i][1], target), weights) for i, weights in votes])
    moved, there = (lanes_ahead(own, figures.mu_max, margins, unit, classes, 1) for own in (moved, there))
    fields = {name: gather(field) for name, field in figures._asdict().items()}
    fields |= {"moved_values": gather(moved), "target_values": gather(there)}
    fields["status"] = np.broadcast_to(np.max(fields["status"], axis=0), fields["status"].shape)
    check_solved(fields["status"])
    return tuple(
        TransportSweep(
            radii=np.array([float(transport.radius) for transport in transports]),
            gammas=gammas,
            margins=margins,
            margin_unit=unit,
            pv=np.array([float(transport.pv) for transport in transports]),
            voters=families,
            transports=tuple(transports),
            source_labels=own,
            target=target,
            voter_mask=mask.reshape(*shape, -1),
            voter_counts=np.reshape([len(one) for one in masks], shape),
            **{name: field[number] for name, field in fields.items()},
        )
        for number, own in enumerate(source_labels)
    )
