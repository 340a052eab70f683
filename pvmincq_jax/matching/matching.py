"""The perturbed variation of Algorithm 2, and random maximum matchings of the radius graph of two samples.

Host code, outside `jit`. The matchings depend on the coordinates and the seed, never on the order of the rows: rows
that come sorted by class would otherwise let a matching read the target's labels off the row numbers. Points are
numbered in the order of their coordinates, so that swapped, negated or rotated columns give other draws, as another
seed does.

How a matching is drawn. SciPy's Hopcroft and Karp finds a maximum matching of the graph, whose vertices are numbered at
random; on graphs like long chains, where it may try every path, SciPy's maximum flow takes its place. A graph of many
edges is first thinned out to a few random neighbours of each point, on both sides. Where the thin graph has no matching
of full size, a search over all edges adds those on alternating paths to unmatched points, until it finds no such path:
then the matching is maximum (Berge). Short edges are not preferred. The law of the draw is the same for points that the
graph does not tell apart, so each of them is as likely to be matched, and on a complete graph every permutation is as
likely as any other; in general, not all maximum matchings are equally likely.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra, maximum_bipartite_matching, maximum_flow

from pvmincq_jax._checks import check_count, check_instance, check_seed
from pvmincq_jax.matching.graph import RadiusGraph, space_graph
from pvmincq_jax.matching.space import Metric, Points, make_space

__all__ = ["ExpectedMatching", "Matching", "MatchingDraws", "draw_matchings", "match", "perturbed_variation"]

# Edges per point up to which a graph is taken whole.
_WHOLE = 16
# Random neighbours of each point in a graph that is thinned out.
_SAMPLED = 8
# Edges that a search handles at once.
_BLOCK = 1 << 21
# Steps from source points over target points to others within which Hopcroft and Karp are trusted with a graph. SciPy's
# does not mark dead ends, so that it tries all paths from level to level, and these grow with the levels as powers do.
_SHALLOW = 6


# Sources and targets, as vertices of a graph.
Edges = tuple[np.ndarray, np.ndarray]


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


def pv_of(pairs: Any, source_size: int, target_size: int) -> Any:
    """1/2 (S_u / m_s + T_u / m_t) for a maximum matching of so many pairs (steps 3 and 4 of Algorithm 2)."""
    return ((source_size - pairs) / source_size + (target_size - pairs) / target_size) / 2


def match(source: Points, target: Points, radius: float, *, seed: int = 0, metric: Metric = "euclidean") -> Matching:
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
    (partners,), pv, _ = draw_matchings(space_graph(space, radius), 1, seed=seed)
    targets = np.argsort(partners)[np.count_nonzero(partners < 0) :]
    sources = partners[targets]
    lengths = space.lengths(np.argsort(space.source_rows)[sources], np.argsort(space.target_rows)[targets])
    return Matching(sources, targets, lengths, pv)


def perturbed_variation(source: Points, target: Points, radius: float, *, metric: Metric = "euclidean") -> float:
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
    """Draws several maximum matchings of one graph, cheaper than one at a time (Algorithm 2, step 2).

    The graph is shared, and only the first draw has to prove that it is maximum. The first is the matching of `match`
    with the same seed; more draws add to a series without changing it. On graphs of many edges, each falls back on
    edges of the one before where random edges do not suffice, which makes neighbours in the series a little more alike.

    Args:
      graph: of `radius_graph`.
      draws: how many, at least 1.
      seed: a non-negative integer.

    Returns: a `MatchingDraws`.

    Example:
      >>> from pvmincq_jax.matching.graph import radius_graph
      >>> graph = radius_graph(np.array([[0.0], [1.0]]), np.array([[0.5], [0.6]]), 1.0)
      >>> expected = draw_matchings(graph, 400, seed=1).expected
      >>> expected.target, expected.source, expected.weights.round(1)
      (array([0, 0, 1, 1]), array([0, 1, 0, 1]), array([0.5, 0.5, 0.5, 0.5]))
    """
    check_instance("graph", graph, RadiusGraph, "radius_graph")
    draws, seed = check_count("draws", draws, 1), check_seed("seed", seed)
    sizes = graph.source_rows.size, graph.target_rows.size
    partners, known, by_target = np.empty((draws, sizes[1]), dtype=np.int64), None, None
    if graph.neighbours.size > _WHOLE * sum(sizes):
        flags = np.ones(graph.neighbours.size, np.int8)
        by_target = csr_array((flags, graph.neighbours, graph.starts), shape=sizes).tocsc()
    deep = _is_deep(graph, by_target)
    for draw in range(draws):
        known = vertices = _random_matching(graph, by_target, np.random.default_rng([seed, draw]), deep, known)
        partners[draw, graph.target_rows] = np.where(vertices >= 0, graph.source_rows[vertices], -1)
    return MatchingDraws(partners, pv_of(int(np.count_nonzero(partners[0] >= 0)), *sizes), sizes[0])


def _is_deep(graph: RadiusGraph, by_target: csc_array | None) -> bool:
    """Whether some source point of a graph is more than a few steps away from the first one of its component."""
    sizes = graph.source_rows.size, graph.target_rows.size
    sources, targets = _edges(graph, by_target, np.random.default_rng(0))
    edges = _adjacency(sources, sizes[0] + targets, (sum(sizes),) * 2)
    component = connected_components(edges, directed=False)[1][: sizes[0]]
    first = np.unique(component, return_index=True)[1]
    hops = dijkstra(edges, directed=False, indices=first, unweighted=True, min_only=True)[: sizes[0]]
    # A step from source to source is two edges.
    return bool(np.max(hops) >= 2 * _SHALLOW)


def _adjacency(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """The matrix that is 1 at these places. Sorted by NumPy: SciPy's own way from pairs takes twice as long."""
    codes = np.sort(rows.astype(np.int64) * shape[1] + columns)
    codes = codes[np.diff(codes, prepend=-1) > 0]
    arrays = np.ones(len(codes)), codes % shape[1], np.searchsorted(codes, np.arange(shape[0] + 1) * shape[1])
    # SciPy's older versions ask for int32.
    return csr_array(tuple(array.astype(np.int32) for array in arrays), shape=shape)


def _edges(graph: RadiusGraph, by_target: csc_array | None, stream: np.random.Generator) -> Edges:
    """All edges of a graph of few, or a few random ones of every point, on both sides."""
    if by_target is None:
        return np.repeat(np.arange(graph.source_rows.size), np.diff(graph.starts)), graph.neighbours
    sources, source_targets = _sample(graph.starts, graph.neighbours, stream)
    targets, target_sources = _sample(by_target.indptr, by_target.indices, stream)
    return np.concatenate([sources, target_sources]), np.concatenate([source_targets, targets])


def _random_matching(
    graph: RadiusGraph, by_target: csc_array | None, stream: np.random.Generator, deep: bool, known: np.ndarray | None
) -> np.ndarray:
    """Draws a maximum matching.

    Args:
      graph: of any size.
      by_target: the edges stored by target vertex; None for a graph of few edges, which is taken whole.
      stream: the source of all randomness.
      deep: of `_is_deep`.
      known: a maximum matching, as the result, or None. Its size spares the proof that this one is maximum, and its
        edges make any thin graph that holds them large enough for a maximum matching.

    Returns: the source vertex matched with each target vertex, or -1 ``[m_t]``.
    """
    sizes = graph.source_rows.size, graph.target_rows.size
    edges = _edges(graph, by_target, stream)
    partners = _maximum(edges, sizes, stream, deep)
    if by_target is None:
        return partners
    most = min(sizes) if known is None else np.count_nonzero(known >= 0)
    while np.count_nonzero(partners >= 0) < most:
        parents = _search(graph, partners, stream) if known is None else known
        reached = np.flatnonzero(parents >= 0)
        if known is None and np.all(partners[reached] >= 0):
            break
        edges = np.concatenate([edges[0], parents[reached]]), np.concatenate([edges[1], reached])
        partners = _maximum(edges, sizes, stream, deep)
    return partners


def _sample(starts: np.ndarray, neighbours: np.ndarray, stream: np.random.Generator) -> Edges:
    """A few random edges of every vertex that has any: the vertices and their neighbours."""
    degree = np.diff(starts)
    vertices = np.repeat(np.flatnonzero(degree), _SAMPLED)
    return vertices, neighbours[starts[vertices] + (stream.random(vertices.size) * degree[vertices]).astype(np.int64)]


def _maximum(edges: Edges, sizes: tuple[int, int], stream: np.random.Generator, deep: bool) -> np.ndarray:
    """A maximum matching of these edges, as the source of each target, or -1 ``[m_t]``."""
    # SciPy follows the order of the vertices, so that they are numbered at random.
    numbers = [stream.permutation(size) for size in sizes]
    ends = numbers[0][edges[0]], numbers[1][edges[1]]
    partners = _by_flow(ends, sizes) if deep else maximum_bipartite_matching(_adjacency(*ends, sizes), perm_type="row")
    partners = partners[numbers[1]]
    return np.where(partners >= 0, np.argsort(numbers[0])[partners], -1)


def _by_flow(edges: Edges, sizes: tuple[int, int]) -> np.ndarray:
    """The same by a maximum flow of one unit through every point: in polynomial time on any graph, and slower on most.

    Vertex 0 is where it comes from, then there are the sources, the targets, and where it goes.
    """
    last = 1 + sum(sizes)
    every_source, every_target = np.split(np.arange(1, last), sizes[:1])
    tails = np.concatenate([np.zeros_like(every_source), every_source[edges[0]], every_target])
    heads = np.concatenate([every_source, every_target[edges[1]], np.full_like(every_target, last)])
    network = _adjacency(tails, heads, (last + 1, last + 1))
    flow = maximum_flow(network, 0, last, method="dinic").flow
    # The rows of the sources, read from the arrays: slices of sparse matrices take a third as long as the flow.
    starts = flow.indptr[1 : sizes[0] + 2]
    used = starts[0] + np.flatnonzero(flow.data[starts[0] : starts[-1]] > 0)
    partners = np.full(sizes[1], -1)
    partners[flow.indices[used] - every_target[0]] = np.searchsorted(starts, used, side="right") - 1
    return partners


def _search(graph: RadiusGraph, partners: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Grows a forest of alternating paths from the unmatched sources, over all edges, level by level.

    It ends where no edge leaves it, or where it has reached as many unmatched targets as there are unmatched sources.

    Returns: the source from which the forest reaches each target, or -1 ``[m_t]``.
    """
    degree, parents = np.diff(graph.starts), np.full(partners.size, -1)
    reach = csr_array((np.ones(graph.neighbours.size, np.int8), graph.neighbours, graph.starts))
    unmatched = degree > 0
    unmatched[partners[partners >= 0]] = False
    frontier = np.flatnonzero(unmatched)
    missing = frontier.size
    while frontier.size and missing > 0:
        outside = parents < 0
        parts = min(frontier.size, 1 + degree[frontier].sum() // _BLOCK)
        for part in np.array_split(stream.permutation(frontier), parts):
            sources, targets = np.repeat(part, degree[part]), reach[part].indices
            # The last claim on a target counts. In a random order, no source takes all targets in its reach.
            new = stream.permutation(np.flatnonzero(outside[targets]))
            parents[targets[new]] = sources[new]
        reached = np.flatnonzero(outside & (parents >= 0))
        frontier = partners[reached]
        frontier = frontier[frontier >= 0]
        missing -= reached.size - frontier.size
    return parents
