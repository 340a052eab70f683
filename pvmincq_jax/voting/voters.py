"""Voters: functions h from points to bounded numbers, evaluated as arrays of votes ``[m, n]``."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import (
    check_finite,
    check_points,
    check_positive,
    check_rank,
    check_same_dimension,
    is_traced,
    on_device,
)
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import Array, ArrayLike

__all__ = ["classifier_votes", "default_gammas", "rbf_votes", "stump_thresholds", "stump_votes"]

# In units of one over the median squared distance within the target.
GAMMA_MULTIPLES = (0.5, 2.0, 8.0)
# exp(-t) is below the smallest normal number of float64 (and of float32) from here on: on a device, votes of farther
# points are cut to zero, with derivative zero.
_FAR = 708.0


def rbf_votes(x: ArrayLike, centers: ArrayLike, gamma: ArrayLike) -> Array:
    """Gaussian kernels, the voters of the paper's experiments (section 4).

    h_j(x) = exp(-gamma |x - c_j|^2), in [0, 1].

    Differences are taken before squares, so that points far from the origin lose no digits, and a point out of a
    centre's reach votes 0 with derivative 0, whatever the distance or gamma.

    Args:
      x: points ``[m, d]``.
      centers: one voter per row ``[n, d]``.
      gamma: inverse squared width, above 0: a scalar, or ``[n]`` with one width per voter.

    Returns: votes ``[m, n]``, differentiable in all three arguments.

    Example:
      >>> print(rbf_votes(np.array([[0.0], [1.0]]), np.array([[0.0]]), 2.0).round(3))
      [[1.   ]
       [0.135]]
    """
    check_points("x", x)
    check_points("centers", centers)
    check_same_dimension("x", x, "centers", centers)
    check_positive("gamma", gamma)
    if np.ndim(gamma) > 1 or (np.ndim(gamma) == 1 and np.shape(gamma)[0] != np.shape(centers)[0]):
        raise ValueError(f"gamma must be a scalar or have one entry per centre; its shape is {np.shape(gamma)}")
    return jnp.asarray(gaussian_votes(x, centers, gamma))


def gaussian_votes(x: Any, centers: Any, gamma: Any) -> Any:
    """`rbf_votes` on checked arrays: in JAX where something is on a device, else in NumPy, in the points' precision."""
    square = squared_distances(x, centers)
    if not on_device(square, gamma):
        factor = np.asarray(gamma, square.dtype)
        # In place: there may be a million points.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return np.exp(np.multiply(square, np.where(factor >= 0, -factor, np.nan), out=square), out=square)
    gamma = jnp.asarray(gamma, square.dtype)
    gamma = jnp.where(gamma >= 0, gamma, jnp.nan)
    # A NaN is not far: it stays one. Far points are put to 0 before they are used, so that no infinite factor meets the
    # zero of their derivative.
    far = square * gamma >= _FAR
    near = jnp.where(far, 0.0, square) * gamma
    return jnp.where(far, jnp.zeros((), square.dtype), jnp.exp(-near))


def stump_votes(x: ArrayLike, features: ArrayLike, thresholds: ArrayLike) -> Array:
    """Decision stumps. Not in the paper, whose voters are any bounded functions (section 2).

    h_j(x) = +1 if x[f_j] > t_j, else -1. A stump's complement -h_j needs no voter of its own: MinCq's weights are
    signed.

    Args:
      x: points ``[m, d]``.
      features: which coordinate each stump looks at, integers ``[n]``.
      thresholds: where it splits ``[n]``.

    Returns: votes ``[m, n]`` in {-1, +1}; piecewise constant, so their derivatives are zero.

    Example:
      >>> print(stump_votes(np.array([[0.0, 5.0], [2.0, 3.0]]), np.array([0, 1]), np.array([1.0, 4.0])))
      [[-1.  1.]
       [ 1. -1.]]
    """
    check_points("x", x)
    check_rank("features", features, 1)
    check_rank("thresholds", thresholds, 1)
    if np.shape(features) != np.shape(thresholds):
        raise ValueError(
            f"features and thresholds must pair up; they have {np.shape(features)[0]} and "
            f"{np.shape(thresholds)[0]} entries"
        )
    check_finite("thresholds", thresholds)
    if not is_traced(features):
        index = np.asarray(features)
        if not np.issubdtype(index.dtype, np.integer) or np.any((index < 0) | (index >= np.shape(x)[1])):
            raise ValueError(f"features must be integers in [0, {np.shape(x)[1] - 1}]; they are {index}")
    return jnp.asarray(sign_votes(x, features, thresholds))


def sign_votes(x: Any, features: Any, thresholds: Any) -> Any:
    """`stump_votes` on checked arrays: in JAX where something is traced, else in NumPy."""
    xp: Any = jnp if is_traced(x, features, thresholds) else np
    x = xp.asarray(x)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)
    return xp.where(x[:, features] > xp.asarray(thresholds), 1, -1).astype(dtype)


def stump_thresholds(x: ArrayLike, per_feature: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Places stumps over a sample: for each feature, thresholds between neighbouring values, evenly spread in rank.

    Host code. A feature with fewer distinct values gets one threshold per gap; a constant feature gets none. Not in the
    paper.

    Args:
      x: points ``[m, d]``.
      per_feature: how many thresholds at most for each feature.

    Returns: features ``[n]`` and thresholds ``[n]``, as `stump_votes` takes them.

    Example:
      >>> stump_thresholds(np.array([[0.0, 7.0], [1.0, 7.0], [3.0, 7.0]]))
      (array([0, 0]), array([0.5, 2. ]))
    """
    check_points("x", x)
    if per_feature < 1:
        raise ValueError(f"per_feature must be at least 1; it is {per_feature}")
    points = np.asarray(x)
    # In the points' own precision, so that no later rounding moves a threshold onto the next value.
    points = points if np.issubdtype(points.dtype, np.floating) else points.astype(float)
    features, thresholds = [], []
    for feature, column in enumerate(points.T):
        values = np.unique(column)
        # Halving each value first cannot overflow; a midpoint that rounds up to the upper value would split nothing.
        gaps = np.minimum(values[:-1] / 2 + values[1:] / 2, np.nextafter(values[1:], -np.inf))
        if gaps.size > per_feature:
            ranks = (np.arange(per_feature) + 0.5) / per_feature * gaps.size
            gaps = gaps[ranks.astype(int)]
        features.append(np.full(gaps.size, feature))
        thresholds.append(gaps)
    if not sum(t.size for t in thresholds):
        raise ValueError(
            "x is constant in every feature: there is no threshold to place, and no vote for voters='stumps'"
        )
    return np.concatenate(features), np.concatenate(thresholds)


def classifier_votes(outputs: ArrayLike, bound: float = 1.0) -> Array:
    """Votes taken from the outputs of given classifiers (stacking, section 5).

    Args:
      outputs: one column per classifier ``[m, n]``: labels, scores, or ``2 p - 1`` for probabilities.
      bound: the largest size that an output may have. MinCq needs bounded voters, and the risk relations of
        section 2 need 1.

    Returns: the same votes ``[m, n]`` as a JAX array, checked.

    Example:
      >>> print(classifier_votes(np.array([[1.0, -0.5], [-1.0, 0.25]])))
      [[ 1.   -0.5 ]
       [-1.    0.25]]
    """
    check_points("outputs", outputs)
    check_bounded("outputs", outputs, bound)
    votes = jnp.asarray(outputs)
    return votes if jnp.issubdtype(votes.dtype, jnp.floating) else votes.astype(jnp.result_type(float))


def check_bounded(name: str, votes: ArrayLike, bound: ArrayLike = 1.0) -> None:
    """Votes of at most this size."""
    check_positive("bound", bound)
    if is_traced(votes, bound):
        return
    largest = np.max(np.abs(np.asarray(votes)))
    if largest > bound:
        raise ValueError(
            f"{name} must lie in [-{bound:g}, {bound:g}]; the largest size is {largest:g}. Squash them (tanh, 2 p - 1) "
            "or pass their true bound"
        )


def default_gammas(target: ArrayLike) -> np.ndarray:
    """Gammas to choose from: 1/2, 2 and 8 over the median squared distance within the target. Not in the paper.

    Args:
      target: ``[m_t, d]``.

    Returns: increasing gammas ``[3]``.

    Example:
      >>> default_gammas(np.array([[0.0], [2.0]]))
      array([0.125, 0.5  , 2.   ])
    """
    check_points("target", target)
    points = np.asarray(target, float)
    # Medians settle long before all pairs are looked at; canonical rows keep the choice blind to their order.
    points = points[canonical_order(points)]
    median = _median_square(points)
    if median == 0:
        # Where most points coincide, the scale is that of the distinct ones.
        median = _median_square(np.unique(points, axis=0))
    if median == 0:
        raise ValueError(
            "all points of the target, or of the only sample, coincide: there is no scale for gamma. Give gamma"
        )
    return np.array(GAMMA_MULTIPLES) / median


def _median_square(points: np.ndarray) -> float:
    """The median squared distance between two of at most 2000 points, evenly taken; 0 for one point."""
    points = points[:: max(1, len(points) // 1000)]
    square = squared_distances(points, points)[np.triu_indices(len(points), 1)]
    return float(np.median(square)) if square.size else 0.0
