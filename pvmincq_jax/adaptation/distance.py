"""A learned distance (section 5): a linear map under which close pairs get close votes while the PV stays small.

The distance is d(x, x') = |L x - L x'|, the Mahalanobis distance of L'L. L follows the gradient of three terms, each
smooth and computed on the mapped samples, whose scale is held fixed:

    C-bound of the source's own vote + pv_weight x soft PV + eps_h_weight x soft eps_H.

The last two alone would be least for a map under which both samples coincide, whatever their classes. The first keeps
the classes of the source apart. No target label is used anywhere.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pvmincq_jax._checks import check_count, check_points, check_positive, check_same_dimension, read_task
from pvmincq_jax._types import Array, ArrayLike, precision
from pvmincq_jax.matching.matching import perturbed_variation
from pvmincq_jax.matching.soft import soft_eps_h, soft_matching
from pvmincq_jax.voting.cbound import c_bound
from pvmincq_jax.voting.voters import rbf_votes

__all__ = ["LearnedMap", "LinearMap", "apply_map", "learn_map", "own_c_bound"]

MapForm = Literal["diagonal", "full", "low_rank"]


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
    check_points("x", x)
    check_points("matrix", linear_map.matrix)
    check_same_dimension("x", x, "matrix", linear_map.matrix)
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
    labels = jnp.asarray(labels)
    votes = rbf_votes(x, x, gamma)
    return c_bound(votes - jnp.eye(votes.shape[0], dtype=votes.dtype), labels, labels / labels.shape[0])


class MapTerms(NamedTuple):
    """The objective of `learn_map` and its terms; scalars, or one entry per step.

    Attributes:
      loss: c_bound + pv_weight pv + eps_h_weight eps_h.
      c_bound: of the source's own vote, see `own_c_bound`.
      pv: see `pvmincq_jax.soft_pv`.
      eps_h: see `pvmincq_jax.soft_eps_h`.
    """

    loss: Any
    c_bound: Any
    pv: Any
    eps_h: Any


class LearnedMap(NamedTuple):
    """What `learn_map` returns.

    Attributes:
      map: the learned `LinearMap`.
      start: where it started: every feature over its standard deviation, at the same scale.
      radius: of the PV, in the distance of the map.
      pv: the exact perturbed variation at that radius, of the samples under the map.
      start_pv: the same under ``start``.
      history: `MapTerms` before each step and after the last ``[steps + 1]``.
    """

    map: LinearMap
    start: LinearMap
    radius: float
    pv: float
    start_pv: float
    history: MapTerms


class _Task(NamedTuple):
    """Standardised samples, and what the objective depends on besides the map."""

    source: Any
    labels: Any
    target: Any
    covariance: Any
    radius: Any
    gamma: Any
    temperature: Any
    pv_weight: Any
    eps_h_weight: Any


def _matrix(parameters: Array, covariance: Array) -> Array:
    """L from its diagonal ``[d]`` or its entries ``[k, d]``, scaled so that 2 tr(L C L') = 1.

    With C the mean covariance of the two domains, that is the mean squared distance between two points of one domain.
    """
    matrix = jnp.diag(parameters) if parameters.ndim == 1 else parameters
    return matrix / jnp.sqrt(2 * jnp.sum((matrix @ covariance) * matrix))


def _objective(parameters: Array, task: _Task) -> tuple[Array, MapTerms]:
    matrix = _matrix(parameters, task.covariance)
    source, target = task.source @ matrix.T, task.target @ matrix.T
    bound = own_c_bound(source, task.labels, task.gamma)
    found = soft_matching(source, target, task.radius, task.temperature)
    votes = rbf_votes(source, source, task.gamma), rbf_votes(target, source, task.gamma)
    moved = soft_eps_h(*votes, found.pair_weights)
    loss = bound + task.pv_weight * found.pv + task.eps_h_weight * moved
    return loss, MapTerms(loss, bound, found.pv, moved)


def _follow(parameters: np.ndarray, task: _Task, rates: np.ndarray) -> tuple[np.ndarray, MapTerms]:
    """Adam, one step per rate; the parameters reached, and the terms before each step and after the last."""
    reached, history = _steps(jnp.asarray(parameters), task, jnp.asarray(rates, parameters.dtype))
    return np.asarray(reached), jax.tree.map(np.asarray, history)


@jax.jit
def _steps(parameters: Array, task: _Task, rates: Array) -> tuple[Array, MapTerms]:
    optimiser = optax.scale_by_adam()

    def step(carry: tuple[Array, Any], rate: Array) -> tuple[tuple[Array, Any], MapTerms]:
        point, state = carry
        slope, terms = jax.grad(_objective, has_aux=True)(point, task)
        update, state = optimiser.update(slope, state)
        return (point - rate * update, state), terms

    (reached, _), history = jax.lax.scan(step, (parameters, optimiser.init(parameters)), rates)
    last = _objective(reached, task)[1]
    return reached, jax.tree.map(lambda many, one: jnp.append(many, one), history, last)


def learn_map(
    source: ArrayLike,
    source_labels: ArrayLike,
    target: ArrayLike,
    *,
    form: MapForm = "diagonal",
    rank: int = 2,
    radius: float = 0.25,
    gamma: float = 20.0,
    temperature: float = 0.2,
    pv_weight: float = 0.3,
    eps_h_weight: float = 0.3,
    steps: int = 200,
    learning_rate: float = 0.05,
) -> LearnedMap:
    """Learns a distance for the adaptation from source to target, by Adam on the objective of this module (section 5).

    Lengths have a unit: the root mean squared distance between two points of one domain is 1 under every map, the
    learned one and those on the way. Without a fixed scale, the PV would fall by shrinking everything. Features enter
    over their standard deviations, so their units do not matter. Nothing is random.

    Map the source, the target and all new points, and go on as before, with voters on mapped points; or pass
    ``metric=learned.map.mahalanobis`` to match by the learned distance and keep the voters as they are.

    Args:
      source, source_labels, target: ``[m_s, d]``, ``[m_s]`` in {-1, +1}, and ``[m_t, d]``, without labels.
      form: "diagonal" weighs the features; "full" is any ``[d, d]`` map; "low_rank" any ``[rank, d]`` map, which takes
        the first half of the steps as a full one and then keeps the directions of largest variance.
      rank: of the low-rank form, from 1 to d.
      radius: of the soft PV, in that unit.
      gamma: of the voters in both other terms, in that unit.
      temperature: of the soft PV.
      pv_weight: of the soft PV beside the C-bound; 0 leaves it out.
      eps_h_weight: of the soft eps_H.
      steps: of Adam.
      learning_rate: of the first step; it falls to 0 as a cosine.

    Returns: a `LearnedMap`.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = np.repeat([1.0, -1.0], 20)
      >>> source, target = (np.column_stack([labels, np.zeros((40, 3))]) + rng.normal(0, 0.3, (40, 4)) for _ in "st")
      >>> learned = learn_map(source, labels, target, steps=60)
      >>> print(bool(learned.history.loss[-1] < learned.history.loss[0]), bool(learned.pv < learned.start_pv))
      True True
    """
    source, labels, target = read_task(source, source_labels, target)
    features = np.shape(source)[1]
    if form not in ("diagonal", "full", "low_rank"):
        raise ValueError(f"form must be 'diagonal', 'full' or 'low_rank'; it is {form!r}")
    if form == "low_rank" and check_count("rank", rank, 1) > features:
        raise ValueError(f"rank must be at most the number of features, {features}; it is {rank}")
    steps = check_count("steps", steps, 2)
    for name, value in (("radius", radius), ("gamma", gamma), ("temperature", temperature)):
        check_positive(name, value)
    check_positive("learning_rate", learning_rate)
    for name, value in (("pv_weight", pv_weight), ("eps_h_weight", eps_h_weight)):
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and not negative; it is {value}")
    dtype = source.dtype
    deviation = np.sqrt((np.var(source, axis=0) + np.var(target, axis=0)) / 2)
    if not np.any(deviation > 0):
        raise ValueError("source and target are constant in every feature: there is no distance to learn")
    deviation = np.where(deviation > 0, deviation, 1)
    covariances = [np.atleast_2d(np.cov(sample / deviation, rowvar=False, ddof=0)) for sample in (source, target)]
    scalars = (np.asarray(v, dtype) for v in (radius, gamma, temperature, pv_weight, eps_h_weight))
    task = _Task(
        source / deviation,
        labels,
        target / deviation,
        np.mean(covariances, axis=0).astype(dtype),
        *scalars,
    )
    rates = learning_rate * (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2
    with precision(dtype):
        if form == "low_rank":
            first, early = _follow(np.eye(features, dtype=dtype), task, rates[: steps // 2])
            reached, late = _follow(_leading(first, task.covariance, rank), task, rates[steps // 2 :])
            # The terms after the last full step are dropped for those of the truncated map at the same step.
            history = jax.tree.map(lambda one, two: np.concatenate([one[:-1], two]), early, late)
        else:
            begin = np.ones(features, dtype) if form == "diagonal" else np.eye(features, dtype=dtype)
            reached, history = _follow(begin, task, rates)
        matrices = [np.asarray(_matrix(jnp.asarray(p), task.covariance)) for p in (reached, np.ones(features, dtype))]
    maps = [LinearMap(matrix / deviation) for matrix in matrices]
    values = [
        perturbed_variation(source @ one.matrix.T, target @ one.matrix.T, radius)  # type: ignore[union-attr]
        for one in maps
    ]
    return LearnedMap(maps[0], maps[1], float(radius), values[0], values[1], history)


def _leading(matrix: np.ndarray, covariance: np.ndarray, rank: int) -> np.ndarray:
    """The directions ``[rank, d]`` in which points have the largest variance under a map."""
    _, vectors = np.linalg.eigh(matrix @ covariance @ matrix.T)
    return vectors[:, ::-1][:, :rank].T @ matrix
