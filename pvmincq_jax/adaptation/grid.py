"""What a grid is made of: one lane for each fold and radius, learnt and judged side by side over the margins."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from pvmincq_jax._types import Array, MarginUnit
from pvmincq_jax.adaptation.label import Voters, voter_mask
from pvmincq_jax.matching.selflabel import SelfLabels
from pvmincq_jax.voting.cbound import vote_risk
from pvmincq_jax.voting.factor import VoteFactor
from pvmincq_jax.voting.mincq import max_margin, solve_mincq

__all__: list[str] = []

# The relative change of the second moment that a factor may cause; 1e-7 counts as solved.
_DROPPED = 5e-8


class Lane(NamedTuple):
    """One fold and radius; stacked, all of them."""

    labels: Any  # [m_t]
    weights: Any  # [m_t]
    mask: Any  # [n]
    held_out: Any  # [m_s], 1 on the source points to be judged on


class Figures(NamedTuple):
    """What one lane gives for each margin ``[k]``; the values, for each of the ``[m_t]`` learning points as well."""

    source_risk: Any
    c_bound: Any
    self_risk: Any
    status: Any
    kkt_residual: Any
    target_values: Any


def make_lanes(found: list[list[SelfLabels]], learning: np.ndarray, voters: Voters, dtype: np.dtype) -> Lane:
    rows = []
    for kept, per_radius in zip(learning, found):
        # The whole sample has no fold of its own: it is judged on all its points, a figure that nobody reads.
        held_out = kept if np.all(kept) else ~kept
        for one in per_radius:
            mask = voter_mask(one.weights > 0, kept, voters)
            rows.append(Lane(one.labels.astype(dtype), one.weights.astype(dtype), mask, held_out.astype(dtype)))
    return Lane(*(np.stack(field) for field in zip(*rows)))


def lanes_tolerance(votes: Array, lanes: Lane, margins: np.ndarray, unit: MarginUnit) -> float:
    """How much a factor of the votes may drop, relative to the largest singular value, for all lanes and margins.

    Dropping singular values up to t s_1 leaves E out of the scaled votes, |E| <= t s_1 sqrt(max share), and |w|^2 is at
    most 1 / n. The second moment, not below mu^2, then changes by (t s_1 sqrt(max share / n) / mu)^2 of itself at most.

    Args:
      votes: ``[m, n]``.
      lanes: stacked.
      margins: ``[k]``.
      unit: of the margins.

    Returns:
      The t that bounds this change by `_DROPPED`; not below the rounding of the votes, and not above 1e-3.
    """
    known = np.asarray(votes)
    able = np.any(lanes.weights > 0, axis=1)
    shares = lanes.weights[able] / np.sum(lanes.weights[able], axis=1, keepdims=True)
    mask = lanes.mask[able]
    smallest = float(np.min(margins))
    if unit == "fraction":
        each = np.abs((shares * lanes.labels[able]) @ known)
        mu = smallest * np.sum(each, axis=1, where=mask) / np.sum(mask, axis=1)
    else:
        mu = np.full(len(shares), smallest)
    # An upper bound on s_1 that is close for kernels, and costs nothing.
    largest = np.sqrt(np.max(np.sum(np.abs(known), axis=0)) * np.max(np.sum(np.abs(known), axis=1)))
    # A lane whose labels cancel is infeasible at any tolerance.
    reach = (mu / np.sqrt(np.max(shares, axis=1) / np.sum(mask, axis=1)))[mu > 0]
    allowed = float(np.sqrt(_DROPPED) * np.min(reach, initial=np.inf) / largest)
    return float(np.clip(allowed, 4 * np.finfo(known.dtype).eps, 1e-3))


@functools.partial(jax.jit, static_argnames=("unit", "turn"))
def judge_lanes(
    votes: Array,
    source_votes: Array,
    source_labels: Array,
    factor: VoteFactor,
    margins: Array,
    lanes: Lane,
    unit: MarginUnit,
    turn: bool,
) -> Figures:
    """Learns and judges lane after lane; the margins of a lane go side by side."""

    def one_lane(lane: Lane) -> Figures:
        largest = max_margin(votes, lane.labels, sample_weights=lane.weights, voter_mask=lane.mask)
        mu = margins * largest if unit == "fraction" else margins

        def one_margin(margin: Array) -> Figures:
            solution = solve_mincq(votes, lane.labels, margin, lane.weights, lane.mask, factor, "interior_point", turn)
            return Figures(
                source_risk=vote_risk(source_votes, source_labels, solution.weights, sample_weights=lane.held_out),
                c_bound=solution.c_bound,
                self_risk=vote_risk(votes, lane.labels, solution.weights, sample_weights=lane.weights),
                status=solution.status,
                kkt_residual=solution.kkt_residual,
                target_values=votes @ solution.weights,
            )

        return jax.vmap(one_margin)(mu)

    return jax.lax.map(one_lane, lanes)


def chunks(lanes: Lane, size: int) -> Iterator[tuple[Lane, int]]:
    """Equal pieces, so that one compiled program serves all; the last is filled up with lanes that are dropped."""
    total = len(lanes.labels)
    for start in range(0, total, size):
        take = np.minimum(np.arange(start, start + size), total - 1)
        yield Lane(*(np.asarray(field)[take] for field in lanes)), min(size, total - start)
