"""A learned distance (section 5): a linear map under which close pairs get close votes while the PV stays small.

The distance is d(x, x') = |L x - L x'|, the Mahalanobis distance of L'L. L follows the gradient of three terms, each
smooth and computed on the mapped samples, whose scale is held fixed:

    C-bound of the source's own vote + pv_weight x soft PV + eps_h_weight x soft eps_H.

The last two alone would be least for a map under which both samples coincide, whatever their classes. The first keeps
the classes of the source apart. No target label is used anywhere.

A map of low rank looks for a subspace in which nothing has changed between the domains. The objective has many minima
there, one for each direction in which the samples happen to look alike: so it starts in several, and R_S + PV, the
paper's rule, tells where it ended.
"""

from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._fork import check_process
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import Array, ArrayLike, precision, takes_options_of
from pvmincq_jax.matching.matching import perturbed_variation
from pvmincq_jax.matching.soft import soft_eps_h, soft_matching
from pvmincq_jax.voting.cbound import c_bound
from pvmincq_jax.voting.voters import rbf_votes

__all__ = ["LearnedMap", "LinearMap", "apply_map", "learn_map", "own_c_bound"]

MapForm = Literal["diagonal", "full", "low_rank"]

# Points of a domain that gradients are taken from, and that maps are judged on.
_LEARNT_FROM, _JUDGED_ON = 150, 1000


class LinearMap(NamedTuple):
    """x -> L x. A pytree.

    Attributes:
      matrix: L ``[k, d]``.
    """

    matrix: ArrayLike

    @property
    def mahalanobis(self) -> np.ndarray:
        """L'L ``[d, d]``, which every ``metric=`` of the matching takes."""
        matrix = np.asarray(self.matrix)
        return matrix.T @ matrix


def apply_map(linear_map: LinearMap, x: ArrayLike) -> Array:
    """Maps points; Euclidean distances of the images are the learned ones (section 5).

    Args:
      linear_map: a `LinearMap` of d features.
      x: ``[m, d]``.

    Returns: ``[m, k]``.

    Example:
      >>> print(apply_map(LinearMap(np.array([[2.0, 0.0]])), np.array([[1.0, 5.0], [3.0, 7.0]])))
      [[2.]
       [6.]]
    """
    check_process()
    _checks.check_instance("linear_map", linear_map, LinearMap, "pvmincq_jax.learn_map")
    _checks.check_points("x", x)
    _checks.check_points("matrix", linear_map.matrix)
    _checks.check_same_dimension("x", x, "matrix", linear_map.matrix)
    return jnp.asarray(x) @ jnp.asarray(linear_map.matrix).T


def own_c_bound(x: ArrayLike, labels: ArrayLike, gamma: ArrayLike) -> Array:
    """The C-bound of a labelled sample's own vote, each point judged by the others (section 5).

    1 - (E y M(x))^2 / E M(x)^2, with M(x_i) = 1/m sum_{j != i} y_j exp(-gamma |x_i - x_j|^2): small if close points
    have equal labels, and near 1 for labels that the points say nothing of.

    Args:
      x: ``[m, d]``.
      labels: ``[m]`` in {-1, +1}.
      gamma: above 0.

    Returns: a scalar, differentiable in x and gamma.

    Example:
      >>> x = np.array([[0.0], [0.1], [1.0], [1.1]])
      >>> print(own_c_bound(x, np.array([1, 1, -1, -1]), 9.0).round(3), own_c_bound(x, np.array([1, -1, 1, -1]), 9.0))
      0.0 1.0
    """
    _checks.check_points("x", x)
    _checks.check_labels("labels", labels, np.shape(x)[0], soft=True)
    labels = jnp.asarray(labels)
    votes = rbf_votes(x, x, gamma)
    return c_bound(votes - jnp.eye(votes.shape[0], dtype=votes.dtype), labels, labels / labels.shape[0])


class MapTerms(NamedTuple):
    """The objective of `learn_map` and its terms; scalars, or one entry per step.

    Attributes:
      loss: c_bound + pv_weight pv + eps_h_weight eps_h.
      c_bound: of the source's own vote, see `own_c_bound`.
      pv: see `pvmincq_jax.soft_pv`.
      eps_h: see `pvmincq_jax.matching.soft.soft_eps_h`.
    """

    loss: Any
    c_bound: Any
    pv: Any
    eps_h: Any


class MapOptions(NamedTuple):
    """What `learn_map` does; each as there. The defaults are those of a subspace.

    Weights of features trade PV for a low C-bound. A subspace is to have next to no PV, and a wrong start ends
    elsewhere.
    """

    radius: float = 0.1
    gamma: float = 20.0
    temperature: float = 0.1
    pv_weight: float = 3.0
    eps_h_weight: float = 0.0
    learning_rate: float = 0.1
    steps: int = 40
    starts: int = 8
    iterations: int = 15


_SUBSPACE = MapOptions()
_FEATURES = MapOptions(0.25, 20.0, 0.2, 0.3, 0.3, 0.05, 200, 1, 60)


class LearnedMap(NamedTuple):
    """What `learn_map` returns.

    Attributes:
      map: the learned `LinearMap`, of least R_S + PV among all starts and ranks.
      start: every feature over its standard deviation, at the same scale: what learning is compared with.
      radius: of the PV, in the distance of the map.
      pv: the exact perturbed variation at that radius, of the samples under the map.
      risk: R_S under the map, of the source's own vote, each point judged by the others, see `own_c_bound`.
      start_pv: PV under ``start``.
      history: `MapTerms` before each step and after the last ``[steps + 1]``.
      others: where all starts ended, the map itself first: a `LinearMap`, R_S and PV of each, by R_S + PV.
    """

    map: LinearMap
    start: LinearMap
    radius: float
    pv: float
    risk: float
    start_pv: float
    history: MapTerms
    others: tuple[tuple[LinearMap, float, float], ...]


def _matrix(parameters: Array, covariance: Array) -> Array:
    """L from its diagonal ``[d]`` or its entries ``[k, d]``, scaled so that 2 tr(L C L') = 1.

    With C the mean covariance of the two domains, that is the mean squared distance between two points of one domain.
    """
    matrix = jnp.diag(parameters) if parameters.ndim == 1 else parameters
    return matrix / jnp.sqrt(2 * jnp.sum((matrix @ covariance) * matrix))


@partial(jax.jit, static_argnames=("steps", "iterations", "with_eps_h"))
def _descend(
    starts: Array, sample: tuple[Any, ...], numbers: tuple[Any, ...], steps: int, iterations: int, with_eps_h: bool
) -> tuple[Array, MapTerms]:
    """Adam from all starts at once; the maps reached, and the terms before each step and after the last.

    The sample is source, labels, target and covariance of standardised features, the numbers the first of `MapOptions`.
    """
    # Here, as it takes a twentieth of the package's import, which all others do without.
    import optax

    source, labels, target, covariance = sample
    radius, gamma, temperature, pv_weight, eps_h_weight, rate = numbers

    def objective(parameters: Array) -> tuple[Array, MapTerms]:
        matrix = _matrix(parameters, covariance)
        mapped, mapped_target = source @ matrix.T, target @ matrix.T
        bound = own_c_bound(mapped, labels, gamma)
        matching = soft_matching(mapped, mapped_target, radius, temperature, iterations)
        eps_h = jnp.zeros_like(bound)
        if with_eps_h:
            votes = rbf_votes(mapped, mapped, gamma), rbf_votes(mapped_target, mapped, gamma)
            eps_h = soft_eps_h(*votes, matching.pair_weights)
        loss = bound + pv_weight * matching.pv + eps_h_weight * eps_h
        return loss, MapTerms(loss, bound, matching.pv, eps_h)

    def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], MapTerms]:
        points, state = carry
        slopes, terms = jax.vmap(jax.grad(objective, has_aux=True))(points)
        updates, state = optimiser.update(slopes, state)
        return (optax.apply_updates(points, updates), state), terms

    optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps))
    # One step more, of rate 0, tells the terms after the last.
    (reached, _), history = jax.lax.scan(step, (starts, optimiser.init(starts)), None, length=steps + 1)
    return jax.vmap(_matrix, (0, None))(reached, covariance), history


def _starts(form: MapForm, ranks: list[int], features: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Parameters to start from: all features alike, and then at random; or in directions that are spread."""
    if form != "low_rank":
        even = np.ones(features) if form == "diagonal" else np.eye(features)
        return np.stack([even, *(even + 0.5 * rng.normal(size=even.shape) for _ in range(count - 1))])
    starts: list[np.ndarray] = []
    for rank in ranks:
        turns = [np.linalg.qr(rng.normal(size=(features, features)))[0] for _ in range(-(-count // features))]
        rows = [np.roll(turn, -first, axis=0)[:rank] for turn in turns for first in range(features)][:count]
        # All ranks in one program: a row of zeros has no gradient, and stays one.
        starts += [np.pad(one, ((0, ranks[-1] - rank), (0, 0))) for one in rows]
    return np.stack(starts)


def some_rows(points: np.ndarray, most: int, rng: np.random.Generator, labels: np.ndarray | None = None) -> np.ndarray:
    """At most so many rows, at random, whatever their order."""
    order = canonical_order(points, labels)
    return order if len(order) <= most else rng.permutation(order)[:most]


def judge_map(
    linear_map: LinearMap, source: np.ndarray, labels: np.ndarray, target: np.ndarray, options: MapOptions = _SUBSPACE
) -> tuple[LinearMap, float, float]:
    """A map with R_S and PV under it; R_S is the share of source points that the others call wrong."""
    images = source @ np.asarray(linear_map.matrix).T, target @ np.asarray(linear_map.matrix).T
    votes = np.asarray(rbf_votes(images[0], images[0], options.gamma))
    risk = float(np.mean(~((votes @ labels - labels) * labels > 0)))
    return linear_map, risk, perturbed_variation(*images, options.radius)


def votes_in(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, linear: LinearMap, shares: np.ndarray
) -> tuple[np.ndarray, float]:
    """The kernel vote of the mapped source on the target, and its risk on the source, each point left out in turn.

    The classes weigh as their shares in the target, in the vote and in the risk.
    """
    images = [sample @ np.asarray(linear.matrix).T for sample in (source, target)]
    weights = np.where(labels > 0, shares[1] / np.sum(labels > 0), shares[0] / np.sum(labels < 0))
    votes = np.asarray(rbf_votes(images[1], images[0], _SUBSPACE.gamma)) @ (weights * labels)
    source_votes = np.asarray(rbf_votes(images[0], images[0], _SUBSPACE.gamma)) @ (weights * labels) - weights * labels
    return np.where(votes > 0, 1, -1), float(np.sum(weights * ~(source_votes * labels > 0)) / np.sum(weights))


@takes_options_of(MapOptions)
def learn_map(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    form: MapForm = "low_rank",
    rank: int | None = None,
    seed: int = 0,
    **options: Any,
) -> LearnedMap:
    """Learns a distance for the adaptation from source to target, by Adam on the objective of this module (section 5).

    Lengths have a unit: the root mean squared distance between two points of one domain is 1 under every map, the
    learned one and those on the way. Without a fixed scale, the PV would fall by shrinking everything. Features enter
    over their standard deviations, so their units do not matter.

    Map the source, the target and all new points, and go on as before, with voters on mapped points; or pass
    ``metric=learned.map.mahalanobis`` to match by the learned distance and keep the voters as they are.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``, without labels. A form of
        low rank takes gradients from at most 150 points of each domain, and judges the maps on at most 1 000.
      form: "low_rank" is any ``[rank, d]`` map, a subspace in which the domains look alike; "diagonal" weighs the
        features; "full" is any ``[d, d]`` map.
      rank: of the low-rank form, from 1 to d; None for 1 and 2, whichever has the smaller R_S + PV.
      seed: of the starts, and of the points where there are more.
      radius: of the soft PV, in that unit; 0.1, or 0.25 in the other forms.
      gamma: of the voters in both other terms, in that unit; 20.
      temperature: of the soft PV; 0.1, or 0.2.
      pv_weight: of the soft PV beside the C-bound; 0 leaves it out; 3, or 0.3.
      eps_h_weight: of the soft eps_H; 0, or 0.3.
      learning_rate: of the first step, it falls to 0 as a cosine; 0.1, or 0.05.
      steps: of Adam; 40, or 200.
      starts: how many; 8 directions, or 1. The first start of the other forms has all features alike.
      iterations: of Sinkhorn; 15, which are enough for a direction, or 60.

    Returns: a `LearnedMap`.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = np.repeat([1.0, -1.0], 20)
      >>> source, target = (np.column_stack([labels, np.zeros((40, 2))]) + rng.normal(0, 0.3, (40, 3)) for _ in "st")
      >>> target[:, 1:] += 2.0
      >>> learned = learn_map(source, labels, target, rank=1)
      >>> print(np.argmax(np.abs(learned.map.matrix)), learned.pv < learned.start_pv, learned.risk)
      0 True 0.0
    """
    source, labels, target = _checks.read_task(source, source_labels, target)
    features, dtype = source.shape[1], source.dtype
    _checks.check_one_of("form", form, get_args(MapForm))
    if form == "low_rank" and rank is not None and _checks.check_count("rank", rank, 1) > features:
        raise ValueError(f"rank must be at most the number of features, {features}; it is {rank}")
    chosen = (_SUBSPACE if form == "low_rank" else _FEATURES)._replace(**options)
    for name in ("radius", "gamma", "temperature", "learning_rate"):
        _checks.check_number(name, getattr(chosen, name), _checks.check_positive)
    for name in ("pv_weight", "eps_h_weight"):
        _checks.check_number(name, getattr(chosen, name), _checks.check_not_negative)
    for name, fewest in (("steps", 2), ("starts", 1), ("iterations", 1)):
        _checks.check_count(name, getattr(chosen, name), fewest)
    rng = np.random.default_rng(_checks.check_seed("seed", seed))
    deviation = np.sqrt((np.var(source, axis=0) + np.var(target, axis=0)) / 2)
    if not np.any(deviation > 0):
        raise ValueError("source and target are constant in every feature: there is no distance to learn")
    deviation = np.where(deviation > 0, deviation, 1)
    covariances = [np.atleast_2d(np.cov(sample / deviation, rowvar=False, ddof=0)) for sample in (source, target)]
    covariance = np.mean(covariances, axis=0).astype(dtype)
    most = _LEARNT_FROM if form == "low_rank" else max(len(source), len(target))
    rows, columns = some_rows(source, most, rng, labels), some_rows(target, most, rng)
    sample = source[rows] / deviation, labels[rows], target[columns] / deviation, covariance
    ranks = [k for k in (1, 2) if k == 1 or k < features] if rank is None else [rank]
    rows, columns = some_rows(source, _JUDGED_ON, rng, labels), some_rows(target, _JUDGED_ON, rng)
    judged_on = source[rows], labels[rows], target[columns]
    with precision(dtype):
        even = LinearMap(np.asarray(_matrix(jnp.ones(features, dtype), covariance)) / deviation)
        begins = _starts(form, ranks, features, chosen.starts, rng).astype(dtype)
        numbers = tuple(np.asarray(value, dtype) for value in chosen[:6])
        how = chosen.steps, chosen.iterations, chosen.eps_h_weight > 0
        matrices, history = jax.device_get(_descend(begins, sample, numbers, *how))
        if form == "low_rank":
            matrices = [matrix[np.any(matrix != 0, axis=1)] for matrix in matrices]
        ends = [judge_map(LinearMap(matrix / deviation), *judged_on, chosen) for matrix in matrices]
        start_pv = judge_map(even, *judged_on, chosen)[2]
    order = sorted(range(len(ends)), key=lambda k: ends[k][1] + ends[k][2])
    (best, risk, pv), terms = ends[order[0]], MapTerms(*(values[:, order[0]] for values in history))
    others = tuple(ends[k] for k in order)
    return LearnedMap(best, even, float(chosen.radius), pv, risk, start_pv, terms, others)
