"""Voters: functions h from points to bounded numbers, evaluated as arrays of votes ``[m, n]``.

Each kind is a function of arrays, and a family as a value (see `families`). Families compute in JAX where something is
traced, and else in NumPy, in their own precision, whatever JAX's configuration: so a model answers the same on every
machine, and without compiling.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._distances import squared_distances
from pvmincq_jax._fork import check_process
from pvmincq_jax._samples import canonical_order
from pvmincq_jax._types import Array, ArrayLike

__all__ = [
    "GaussianVoters", "OutputVoters", "StumpVoters", "classifier_votes", "default_gammas", "rbf_votes",
    "stump_thresholds", "stump_votes",
]  # fmt: skip

# In units of one over the median squared distance within the target.
GAMMA_MULTIPLES = (0.5, 2.0, 8.0)
# exp(-t) is below the smallest normal number of float64 (and of float32) from here on: on a device, votes of farther
# points are cut to zero, with derivative zero.
_FAR = 708.0
# Squares of larger votes overflow.
_LARGEST = 1e150


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
    check_process()
    _checks.check_points("x", x)
    _checks.check_points("centers", centers)
    _checks.check_positive("gamma", gamma)
    if np.ndim(gamma) > 1 or (np.ndim(gamma) == 1 and np.shape(gamma)[0] != np.shape(centers)[0]):
        raise ValueError(f"gamma must be a scalar or have one entry per centre; its shape is {np.shape(gamma)}")
    return jnp.asarray(gaussian_votes(x, centers, gamma))


def gaussian_votes(x: Any, centers: Any, gamma: Any) -> Any:
    """`rbf_votes` on finite points: in JAX where something is on a device, else in NumPy, in the points' precision."""
    _checks.check_same_dimension("x", x, "centers", centers)
    square = squared_distances(x, centers)
    if not _checks.on_device(square, gamma):
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


def default_gammas(target: ArrayLike) -> np.ndarray:
    """Gammas to choose from: 1/2, 2 and 8 over the median squared distance within the target. Not in the paper.

    Args:
      target: ``[m_t, d]``.

    Returns: increasing gammas ``[3]``.

    Example:
      >>> default_gammas(np.array([[0.0], [2.0]]))
      array([0.125, 0.5  , 2.   ])
    """
    (target,) = _checks.read_samples(target=target)
    _checks.check_points("target", target)
    points = np.asarray(target, float)
    # Medians settle long before all pairs are looked at; canonical rows keep the choice blind to their order.
    points = points[canonical_order(points)]
    # Where most points coincide, the scale is that of the distinct ones.
    median = _median_square(points) or _median_square(np.unique(points, axis=0))
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


class GaussianVoters(NamedTuple):
    """Gaussian kernels, h_j(x) = exp(-gamma |x - c_j|^2).

    Attributes:
      centers: ``[n, d]``; None for one on each point of a sample.
      gamma: above 0, a scalar or ``[n]``.

    Example:
      >>> GaussianVoters(np.array([[0.0], [1.0]]), 2.0).votes(np.array([[0.0]])).round(3)
      array([[1.   , 0.135]])
    """

    centers: ArrayLike | None
    gamma: ArrayLike

    @staticmethod
    def default_values(target: np.ndarray) -> np.ndarray:
        """See `pvmincq_jax.default_gammas`."""
        return default_gammas(target)

    @classmethod
    def at(cls, gamma: float) -> "GaussianVoters":
        """Kernels of this gamma, to be placed on a sample."""
        _checks.check_positive("gamma", gamma)
        return cls(None, gamma)

    @property
    def one_per_point(self) -> bool:
        """Unless they have centres."""
        return self.centers is None

    def on(self, points: np.ndarray) -> "GaussianVoters":
        """One kernel on each point, unless they have centres."""
        return GaussianVoters(points, np.asarray(self.gamma, points.dtype)) if self.centers is None else self

    def votes(self, x: ArrayLike) -> Any:
        """Votes ``[m, n]`` of points ``[m, d]``; see `pvmincq_jax.rbf_votes`."""
        if self.centers is None:
            raise ValueError("centers are None: the kernels have not been placed; see GaussianVoters.on")
        return gaussian_votes(_points(x, self.centers), self.centers, self.gamma)


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
    check_process()
    _checks.check_points("x", x)
    _checks.check_rank("features", features, 1)
    _checks.check_weights("thresholds", thresholds, np.shape(features)[0], "entry of features")
    return jnp.asarray(sign_votes(x, features, thresholds))


def sign_votes(x: Any, features: Any, thresholds: Any) -> Any:
    """`stump_votes` on finite points: in JAX where something is traced, else in NumPy."""
    xp: Any = jnp if _checks.is_traced(x, features, thresholds) else np
    x, last = xp.asarray(x), np.shape(x)[1] - 1
    if not _checks.is_traced(features):
        index = np.asarray(features)
        if not np.issubdtype(index.dtype, np.integer) or np.any((index < 0) | (index > last)):
            raise ValueError(f"features must be integers in [0, {last}], columns of x; they are {index}")
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
    (points,) = _checks.read_samples(x=x)
    _checks.check_points("x", points)
    per_feature = _checks.check_count("per_feature", per_feature, 1)
    # In the points' own precision, so that no later rounding moves a threshold onto the next value.
    points = points if np.issubdtype(points.dtype, np.floating) else points.astype(float)
    thresholds = []
    for column in points.T:
        values = np.unique(column)
        # Halving each value first cannot overflow; a midpoint that rounds up to the upper value would split nothing.
        gaps = np.minimum(values[:-1] / 2 + values[1:] / 2, np.nextafter(values[1:], -np.inf))
        if gaps.size > per_feature:
            gaps = gaps[((np.arange(per_feature) + 0.5) / per_feature * gaps.size).astype(int)]
        thresholds.append(gaps)
    features = np.repeat(np.arange(len(thresholds)), [gaps.size for gaps in thresholds])
    if not features.size:
        raise ValueError(
            "x is constant in every feature: there is no threshold to place, and no vote for voters='stumps'"
        )
    return features, np.concatenate(thresholds)


class StumpVoters(NamedTuple):
    """Decision stumps, +1 if x[f_j] > t_j, else -1.

    Attributes:
      features: integers ``[n]``; None for those of `pvmincq_jax.stump_thresholds` of a sample.
      thresholds: ``[n]``, or None.
      per_feature: how many of these there are for each feature, at most.

    Example:
      >>> StumpVoters(np.array([0, 1]), np.array([0.5, 0.5])).votes(np.array([[0.0, 1.0]]))
      array([[-1.,  1.]])
    """

    features: ArrayLike | None = None
    thresholds: ArrayLike | None = None
    per_feature: int = 10

    def on(self, points: np.ndarray) -> "StumpVoters":
        """Stumps between the values of a sample, unless they have thresholds."""
        if self.features is not None:
            return self
        return StumpVoters(*stump_thresholds(points, int(self.per_feature)), self.per_feature)

    def votes(self, x: ArrayLike) -> Any:
        """Votes ``[m, n]`` of points ``[m, d]``; see `pvmincq_jax.stump_votes`."""
        if self.features is None or self.thresholds is None:
            raise ValueError("features and thresholds are None: the stumps have not been placed; see StumpVoters.on")
        return sign_votes(_points(x, self.thresholds), self.features, self.thresholds)


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
    check_process()
    votes = jnp.asarray(OutputVoters(bound).votes(outputs))
    return votes if jnp.issubdtype(votes.dtype, jnp.floating) else votes.astype(jnp.result_type(float))


class OutputVoters(NamedTuple):
    """Classifiers known by their outputs alone: the points handed to ``votes`` are the outputs ``[m, n]`` themselves.

    Attributes:
      bound: the largest size that an output may have.

    Example:
      >>> OutputVoters().votes(np.array([[1.0, -0.5]]))
      array([[ 1. , -0.5]])
    """

    bound: ArrayLike = 1.0

    def votes(self, x: ArrayLike) -> Any:
        """The outputs, checked."""
        check_outputs("outputs", x, self.bound)
        return x if _checks.is_traced(x, self.bound) else np.asarray(x)


def check_outputs(name: str, outputs: ArrayLike, bound: ArrayLike) -> None:
    """Outputs of classifiers ``[m, n]``, of sizes up to the bound; its square must be finite."""
    _checks.check_points(name, outputs)
    _checks.check_number("bound", bound, _checks.check_positive)
    if _checks.is_traced(outputs, bound):
        return
    if bound > _LARGEST:
        raise ValueError(f"bound must be at most {_LARGEST:g}; it is {bound:g}")
    largest = float(np.max(np.abs(np.asarray(outputs))))
    if largest > bound:
        raise ValueError(
            f"{name} must lie in [-{bound:g}, {bound:g}]; the largest size is {largest:g}. Squash them "
            "(tanh, 2 p - 1) or pass their true bound"
        )


def _points(x: ArrayLike, like: ArrayLike) -> ArrayLike:
    """Points, checked, in the precision of the family."""
    traced = _checks.is_traced(x, like)
    x = x if traced else _checks.read_samples(x=x)[0]
    _checks.check_points("x", x)
    if traced:
        return x
    dtype = np.asarray(like).dtype
    return np.asarray(x, dtype if np.issubdtype(dtype, np.floating) else float)
