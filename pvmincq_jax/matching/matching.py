"""The perturbed variation of Algorithm 2, and random maximum matchings of the radius graph of two samples.

Host code, outside `jit`. The matchings depend on the points and the seed, never on the order of the rows: rows that
come sorted by class would otherwise let a matching read the target's labels off the row numbers.

How a matching is drawn. Source points get a random order. Every source point looks at a few random neighbours, a target
point that several ask for goes to one of them at random, and alternating paths over random neighbours, then over
all, are added until the matching is maximum. Short edges are not preferred. The law of the draw is the same for points
that the graph does not tell apart, so each of them is as likely to be matched, and on a complete graph every
permutation is as likely as any other; in general, not all maximum matchings are equally likely.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from pvmincq_jax._checks import check_count
from pvmincq_jax._threads import core_count
from pvmincq_jax._types import ArrayLike
from pvmincq_jax.matching.augment import BLOCK, draw_strands
from pvmincq_jax.matching.graph import RadiusGraph, radius_graph, space_graph
from pvmincq_jax.matching.space import Metric, Precomputed, make_space

__all__ = [
    "ExpectedMatching",
    "Matching",
    "MatchingDraws",
    "Precomputed",
    "RadiusGraph",
    "draw_matchings",
    "match",
    "perturbed_variation",
    "radius_graph",
]


class Matching(NamedTuple):
    """A maximum matching: pairs of rows, each row at most once, in the order of the source rows.

    Attributes:
      source: rows of the source ``[pairs]``.
      target: rows of the target ``[pairs]``.
      distances: of the pairs ``[pairs]``, all at most the radius.
      pv: the perturbed variation.
    """

    source: np.ndarray
    target: np.ndarray
    distances: np.ndarray
    pv: float


class ExpectedMatching(NamedTuple):
    """How often each pair was drawn: a sparse matrix whose rows and columns sum to at most 1.

    Attributes:
      source: rows of the source ``[pairs]``.
      target: rows of the target ``[pairs]``, in increasing order.
      weights: share of the draws that hold the pair ``[pairs]``, above 0.
    """

    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray


class MatchingDraws(NamedTuple):
    """Several maximum matchings of one graph, all of the same size.

    Attributes:
      partners: the source row matched with each target row, or -1 ``[draws, m_t]``.
      pv: the perturbed variation.
      source_size: m_s.
    """

    partners: np.ndarray
    pv: float
    source_size: int

    @property
    def expected(self) -> ExpectedMatching:
        """The mean of the drawn matchings as sparse pair weights."""
        draw, target = np.nonzero(self.partners >= 0)
        code = target * self.source_size + self.partners[draw, target]
        pair, count = np.unique(code, return_counts=True)
        return ExpectedMatching(pair % self.source_size, pair // self.source_size, count / self.partners.shape[0])


def pv_of(pairs: int, source_size: int, target_size: int) -> float:
    """1/2 (S_u / m_s + T_u / m_t) for a maximum matching of so many pairs."""
    return ((source_size - pairs) / source_size + (target_size - pairs) / target_size) / 2


def match(
    source: ArrayLike | None, target: ArrayLike | None, radius: float, *, seed: int = 0, metric: Metric = "euclidean"
) -> Matching:
    """Draws a maximum matching between the points of two samples that are within the radius (Algorithm 2, step 2).

    The cardinality is exact for every input. Which maximum matching it is depends on the seed and on the points as
    sets: permuting rows permutes the pairs and changes nothing else. Points that coincide are matched like any others;
    permuting their rows may exchange their partners among them.

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: pairs with a distance up to and including it may be matched; above 0.
      seed: a non-negative integer.
      metric: "euclidean", "cityblock" or "chebyshev"; a number p for the Minkowski distance of order p; a symmetric
        positive semi-definite matrix A ``[d, d]`` for the Mahalanobis distance sqrt((x - y)' A (x - y)); a function of
        two points, called for every pair; or ``Precomputed(distances)``, with which source and target may be None.

    Returns: a `Matching`; without any pair, and with a PV of 1, if no pair is within the radius.

    Example:
      >>> match(np.array([[0.0], [1.0], [9.0]]), np.array([[1.5], [0.4]]), 0.5)
      Matching(source=array([0, 1]), target=array([1, 0]), distances=array([0.4, 0.5]), pv=0.16666666666666666)
    """
    space = make_space(source, target, metric)
    (partners,) = draw_strands([space_graph(space, radius)], check_count("seed", seed, 0), [0])[0]
    vertices = np.flatnonzero(partners >= 0)
    rows = space.source_rows[partners[vertices]]
    order = np.argsort(rows)
    vertices = vertices[order]
    distances = space.lengths(partners[vertices], vertices)
    pv = pv_of(rows.size, space.source_rows.size, space.target_rows.size)
    return Matching(rows[order], space.target_rows[vertices], distances, pv)


def perturbed_variation(
    source: ArrayLike | None, target: ArrayLike | None, radius: float, *, metric: Metric = "euclidean"
) -> float:
    """The empirical perturbed variation of two samples (Algorithm 2).

    PV = 1/2 (S_u / m_s + T_u / m_t), with S_u and T_u the numbers of points that a maximum matching of the radius
    graph leaves unmatched. It is symmetric, falls as the radius grows, and for samples of different sizes it does not
    fall below 1/2 (1 - min(m_s, m_t) / max(m_s, m_t)).

    Args:
      source, target: ``[m_s, d]`` and ``[m_t, d]``.
      radius: above 0.
      metric: see `match`.

    Returns: a number in [0, 1].

    Example:
      >>> perturbed_variation(np.array([[0.0], [1.0]]), np.array([[0.1], [5.0]]), 0.2)
      0.5
    """
    return match(source, target, radius, metric=metric).pv


def draw_matchings(graph: RadiusGraph, draws: int, *, seed: int = 0) -> MatchingDraws:
    """Draws several maximum matchings of one graph, far cheaper than one at a time (Algorithm 2, step 2).

    The graph is shared, the draws go through the same array operations side by side (those of large graphs on all
    cores), and only the first has to prove that it is maximum. The first is the matching of `match` with the same seed;
    more draws add to a series without changing it. On graphs of many edges, the others fall back on edges of the first
    where random edges do not suffice, and are a little more like the first than like each other.

    Args:
      graph: of `radius_graph`.
      draws: how many, at least 1.
      seed: a non-negative integer.

    Returns: a `MatchingDraws`.

    Example:
      >>> graph = radius_graph(np.array([[0.0], [1.0]]), np.array([[0.5], [0.6]]), 1.0)
      >>> expected = draw_matchings(graph, 400, seed=1).expected
      >>> expected.target, expected.source, expected.weights.round(1)
      (array([0, 0, 1, 1]), array([0, 1, 0, 1]), array([0.5, 0.5, 0.5, 0.5]))
    """
    (drawn,) = draw_from_each([graph], draws, seed)
    return drawn


def draw_from_each(graphs: Iterable[RadiusGraph], draws: int, seed: int) -> Iterator[MatchingDraws]:
    """`draw_matchings` of many graphs, of which those of few edges go through the same array operations together."""
    draws, seed = check_count("draws", draws, 1), check_count("seed", seed, 0)
    together: list[RadiusGraph] = []
    edges = 0
    for graph in graphs:
        edges += graph.neighbours.size
        if together and edges * max(1, draws - 1) > BLOCK:
            yield from _draw_together(together, draws, seed)
            together, edges = [], graph.neighbours.size
        together.append(graph)
    if together:
        yield from _draw_together(together, draws, seed)


def _draw_together(graphs: Sequence[RadiusGraph], draws: int, seed: int) -> list[MatchingDraws]:
    firsts = draw_strands(graphs, seed, [0])
    known = [first[0] for first in firsts]
    edges = sum(graph.neighbours.size for graph in graphs)
    # Threads pay where arrays are large; else they wait for the interpreter, and for each other.
    cores = core_count() if edges > BLOCK else 1
    # Calls small enough for the memory, large enough for arrays to pay, and one for each core at least.
    strands = max(1, min(BLOCK // max(1, edges), max(4, -(-(draws - 1) // cores))))
    calls = [range(start, min(start + strands, draws)) for start in range(1, draws, strands)]
    if len(calls) < 2:
        others = [draw_strands(graphs, seed, call, known) for call in calls]
    else:
        with ThreadPoolExecutor(min(cores, len(calls))) as pool:
            others = list(pool.map(lambda call: draw_strands(graphs, seed, call, known), calls))
    return [_as_rows(graph, np.concatenate(drawn)) for graph, *drawn in zip(graphs, firsts, *others)]


def _as_rows(graph: RadiusGraph, vertices: np.ndarray) -> MatchingDraws:
    """Draws in terms of the rows as they were given, from the source vertex of each target vertex ``[draws, m_t]``."""
    partners = np.empty_like(vertices)
    partners[:, graph.target_rows] = np.where(vertices >= 0, graph.source_rows[vertices], -1)
    sizes = graph.source_rows.size, graph.target_rows.size
    return MatchingDraws(partners, pv_of(int(np.count_nonzero(vertices[0] >= 0)), *sizes), sizes[0])
