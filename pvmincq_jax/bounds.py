"""The inequalities of sections 2.2 and 3: what source and self-labelled data say of the risk on the target.

Notation as in `pvmincq_jax.cbound`; M(x) = sum_j w_j h_j(x) is the expected vote. Where voters move by at most eps, the
expected vote moves by at most eps sum_j |w_j|. That sum is 1 for a distribution over the voters and at most 1 for the
signed weights of MinCq; the paper's forms are written for these, and the functions here keep the factor for others.

The second half has no counterpart in the paper: it bounds what is lost when each source point is moved to the mean of
several target points, instead of being paired with one of them.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import (
    check_finite,
    check_labels,
    check_length,
    check_points,
    check_positive,
    check_rank,
    check_same_dimension,
    check_sample_weights,
    is_traced,
)
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.cbound import (
    c_bound,
    domain_disagreement,
    expected_disagreement,
    gibbs_risk,
    vote_margin,
)

__all__ = [
    "DisagreementDeviation",
    "MatchedSpread",
    "Smoothness",
    "Theorem1",
    "corollary1",
    "disagreement_deviation_bound",
    "disagreement_deviation_terms",
    "eps_h",
    "eps_h_of_radius",
    "eps_h_within",
    "gibbs_deviation_bound",
    "joint_error",
    "matched_spread",
    "moved_disagreement_bound",
    "moved_gibbs_bound",
    "moved_vote_bound",
    "rbf_smoothness",
    "self_label_gap",
    "theorem1",
]


def _mean(values: Array, sample_weights: ArrayLike | None) -> Array:
    """The mean under the sample weights; a point of weight zero counts for nothing."""
    if sample_weights is None:
        return jnp.mean(values)
    sample_weights = jnp.asarray(sample_weights)
    return jnp.sum(jnp.where(sample_weights > 0, sample_weights * values, 0.0)) / jnp.sum(sample_weights)


def joint_error(
    votes: ArrayLike, labels: ArrayLike, weights: ArrayLike, sample_weights: ArrayLike | None = None
) -> Array:
    """How often two voters drawn from Q err together, under the linear loss.

    e_Q = E_{(x,y)} (E_{h~Q} (1 - y h(x)) / 2)^2 = R(G_Q) - d_Q / 2.

    Args:
      votes: ``[m, n]``.
      labels: ``[m]``; a soft one is the mean of a random label.
      weights: ``[n]``.
      sample_weights: ``[m]`` or None.

    Returns:
      A scalar.

    Example:
      >>> print(joint_error(np.array([[1.0, -1.0], [-1.0, -1.0]]), np.array([1.0, 1.0]), np.array([0.5, 0.5])))
      0.625
    """
    risk = gibbs_risk(votes, labels, weights, sample_weights)
    return risk - expected_disagreement(votes, weights, sample_weights) / 2


class Theorem1(NamedTuple):
    """What of theorem 1 can be computed. All scalars.

    Attributes:
      source_gibbs_risk: R_S(G_Q).
      domain_disagreement: dis_Q between the two samples.
      joint_error_gap: a lambda_Q with which the theorem holds, known only to whoever knows the target labels.
    """

    source_gibbs_risk: Array
    domain_disagreement: Array
    joint_error_gap: Array | None

    @property
    def value(self) -> Array:
        """The bound without lambda_Q: what PBDA minimises."""
        return self.source_gibbs_risk + self.domain_disagreement


def theorem1(
    source_votes: ArrayLike,
    source_labels: ArrayLike,
    target_votes: ArrayLike,
    weights: ArrayLike,
    source_sample_weights: ArrayLike | None = None,
    target_sample_weights: ArrayLike | None = None,
    *,
    target_labels: ArrayLike | None = None,
) -> Theorem1:
    """The computable terms of theorem 1.

    R_T(G_Q) <= R_S(G_Q) + dis_Q(D_S, D_T) + lambda_Q.

    lambda_Q depends on the target's labels, so without them the first two terms bound nothing by themselves. With
    them, e.g. on simulated data, there is a plain choice. As R(G_Q) = d_Q / 2 + e_Q with e_Q the `joint_error`, and as
    dis_Q is twice the gap between the two d_Q,

    R_T(G_Q) <= R_S(G_Q) + dis_Q / 4 + |e_T - e_S|,

    so that the theorem holds with lambda_Q = |e_T - e_S|, and then with a quarter of dis_Q.

    Args:
      source_votes: ``[m_s, n]``.
      source_labels: ``[m_s]``.
      target_votes: ``[m_t, n]``.
      weights: ``[n]``.
      source_sample_weights: ``[m_s]`` or None.
      target_sample_weights: ``[m_t]`` or None.
      target_labels: ``[m_t]``, where they are known.

    Returns:
      A `Theorem1`.

    Example:
      >>> terms = theorem1(np.array([[0.5]]), np.array([1.0]), np.array([[1.0]]), np.array([1.0]))
      >>> print(terms.source_gibbs_risk, terms.domain_disagreement, terms.value)
      0.25 0.75 1.0
    """
    check_rank("source_votes", source_votes, 2)
    check_rank("target_votes", target_votes, 2)
    check_length("weights", weights, np.shape(source_votes)[1], "voter")
    if np.shape(source_votes)[1] != np.shape(target_votes)[1]:
        raise ValueError(
            f"source_votes and target_votes must be of the same voters; they have {np.shape(source_votes)[1]} and "
            f"{np.shape(target_votes)[1]} columns"
        )
    check_labels("source_labels", source_labels, np.shape(source_votes)[0], soft=True)
    check_sample_weights("source_sample_weights", source_sample_weights, np.shape(source_votes)[0])
    check_sample_weights("target_sample_weights", target_sample_weights, np.shape(target_votes)[0])
    gap = None
    if target_labels is not None:
        check_labels("target_labels", target_labels, np.shape(target_votes)[0], soft=True)
        target_error = joint_error(target_votes, target_labels, weights, target_sample_weights)
        gap = jnp.abs(target_error - joint_error(source_votes, source_labels, weights, source_sample_weights))
    return Theorem1(
        gibbs_risk(source_votes, source_labels, weights, source_sample_weights),
        domain_disagreement(source_votes, target_votes, weights, source_sample_weights, target_sample_weights),
        gap,
    )


def self_label_gap(
    self_labels: ArrayLike, labels: ArrayLike, sample_weights: ArrayLike | None = None, as_printed: bool = False
) -> Array:
    """Corollary 1's divergence between the self-labels l and the true labels y.

    1/2 E |y - l(x)|: for labels in {-1, +1}, the rate of wrong self-labels. As printed, 1/2 |E (y - l(x))|: the
    difference between two class ratios.

    Args:
      self_labels: ``[m]`` in [-1, 1].
      labels: ``[m]`` in [-1, 1].
      sample_weights: ``[m]`` or None.
      as_printed: whether to take the size outside of the mean.

    Returns:
      A scalar in [0, 1].

    Example:
      >>> labels = np.array([1.0, -1.0])
      >>> print(self_label_gap(-labels, labels), self_label_gap(-labels, labels, as_printed=True))
      1.0 0.0
    """
    check_rank("labels", labels, 1)
    check_labels("labels", labels, np.shape(labels)[0], soft=True)
    check_labels("self_labels", self_labels, np.shape(labels)[0], soft=True)
    check_sample_weights("sample_weights", sample_weights, np.shape(labels)[0])
    difference = (jnp.asarray(labels) - jnp.asarray(self_labels)) / 2
    return jnp.abs(_mean(difference, sample_weights)) if as_printed else _mean(jnp.abs(difference), sample_weights)


def corollary1(
    votes: ArrayLike,
    self_labels: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike,
    sample_weights: ArrayLike | None = None,
    as_printed: bool = False,
) -> Array:
    """The C-bound on self-labels, plus the price of the wrong ones (corollary 1).

    R_T(B_Q) <= 1 - (E l(x) M(x))^2 / E M(x)^2 + 1/2 E |y - l(x)|.

    The risk on a point is (1 - y sign M(x)) / 2, or 1 where M(x) = 0: linear in the label with slope at most 1/2. So
    the risks on y and on l differ by at most 1/2 |y - l(x)| at each point, for soft labels too, and the C-bound holds
    for the risk on soft labels because it holds for the random labels whose means they are.

    The paper prints 1/2 |E (y - l(x))| for the last term, under which the inequality is false: errors on one class
    cancel those on the other. With balanced classes and every self-label wrong, a vote that agrees with them all has a
    bound of 0 and a risk of 1, as below.

    Args:
      votes: ``[m, n]``.
      self_labels: ``[m]`` in [-1, 1].
      labels: ``[m]``, the true ones.
      weights: ``[n]``.
      sample_weights: ``[m]`` or None; the bound is on the risk under them, so it says nothing of points of weight 0.
      as_printed: whether to give the printed form, which bounds nothing.

    Returns:
      A scalar in [0, 2], 1 or more where the C-bound's precondition E l(x) M(x) > 0 fails.

    Example:
      >>> labels = np.array([1.0, -1.0])
      >>> votes, weights = -labels[:, None], np.array([1.0])
      >>> from pvmincq_jax.cbound import vote_risk
      >>> print(vote_risk(votes, labels, weights), corollary1(votes, -labels, labels, weights, as_printed=True))
      1.0 0.0
      >>> print(corollary1(votes, -labels, labels, weights))
      1.0
    """
    gap = self_label_gap(self_labels, labels, sample_weights, as_printed)
    return c_bound(votes, self_labels, weights, sample_weights) + gap


def eps_h(source_votes: ArrayLike, target_votes: ArrayLike, pair_weights: ArrayLike | None = None) -> Array:
    """How far any voter moves between the two points of a pair (definition 4, on matched pairs).

    eps_H = max_{pairs, h} |h(x_s) - h(x_t)|.

    Args:
      source_votes: ``[k, n]``, one pair per row.
      target_votes: ``[k, n]``.
      pair_weights: ``[k]`` or None; a pair of weight 0 does not count.

    Returns:
      A scalar.

    Example:
      >>> print(eps_h(np.array([[0.5, 1.0], [0.0, 0.0]]), np.array([[0.25, 0.5], [1.0, 0.0]]), np.array([1.0, 0.0])))
      0.5
    """
    check_points("source_votes", source_votes)
    check_points("target_votes", target_votes)
    if np.shape(source_votes) != np.shape(target_votes):
        raise ValueError(
            f"source_votes and target_votes must pair up; their shapes are {np.shape(source_votes)} and "
            f"{np.shape(target_votes)}"
        )
    difference = jnp.abs(jnp.asarray(source_votes) - jnp.asarray(target_votes))
    if pair_weights is None:
        return jnp.max(difference)
    check_sample_weights("pair_weights", pair_weights, np.shape(source_votes)[0])
    return jnp.max(jnp.where(jnp.asarray(pair_weights)[:, None] > 0, difference, 0.0))


def eps_h_within(
    source: ArrayLike, target: ArrayLike, source_votes: ArrayLike, target_votes: ArrayLike, radius: ArrayLike
) -> Array:
    """How far any voter moves between any two points within the radius (definition 4, on samples).

    eps_H = max_{h, |x_s - x_t| <= radius} |h(x_s) - h(x_t)|. It is at least `eps_h` of any matching at that radius.

    One source point is looked at after the other, so that nothing larger than ``[m_t, n]`` is held, in gradients too.

    Args:
      source: ``[m_s, d]``.
      target: ``[m_t, d]``.
      source_votes: ``[m_s, n]``.
      target_votes: ``[m_t, n]``.
      radius: above 0, in Euclidean distance.

    Returns:
      A scalar; without any pair a ValueError, or NaN where the points or the radius are traced.

    Example:
      >>> points = np.array([[0.0], [3.0]])
      >>> print(eps_h_within(points, points + 1, np.array([[0.25], [1.0]]), np.array([[0.5], [0.5]]), 1.0))
      0.5
    """
    check_points("source", source)
    check_points("target", target)
    check_same_dimension("source", source, "target", target)
    check_points("source_votes", source_votes)
    check_points("target_votes", target_votes)
    for name, votes, points in (("source_votes", source_votes, source), ("target_votes", target_votes, target)):
        if np.shape(votes)[0] != np.shape(points)[0]:
            raise ValueError(f"{name} must have one row per point ({np.shape(points)[0]}); it has {np.shape(votes)[0]}")
    if np.shape(source_votes)[1] != np.shape(target_votes)[1]:
        raise ValueError(
            f"source_votes and target_votes must be of the same voters; they have {np.shape(source_votes)[1]} and "
            f"{np.shape(target_votes)[1]} columns"
        )
    check_positive("radius", radius)
    largest, nearest = _largest_within(*map(jnp.asarray, (source, target, source_votes, target_votes, radius)))
    if not is_traced(nearest, radius) and nearest > radius:
        raise ValueError(f"radius must reach from some source to some target point; it is {radius}, below {nearest:g}")
    return jnp.where(nearest <= radius, largest, jnp.nan)


@jax.jit
def _largest_within(
    source: Array, target: Array, source_votes: Array, target_votes: Array, radius: Array
) -> tuple[Array, Array]:
    """The largest move of a voter within the radius, and the smallest distance."""

    # Without the checkpoint, the scan would keep every row's [m_t, n] moves for the backward pass.
    @jax.checkpoint
    def row(carry: tuple[Array, Array], point: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        largest, nearest = carry
        x, votes = point
        # A root's derivative at 0 is infinite, and which points are near has no derivative that counts.
        distance = jnp.sqrt(jnp.sum(jax.lax.stop_gradient(x - target) ** 2, axis=-1))
        move = jnp.where((distance <= radius)[:, None], jnp.abs(votes - target_votes), 0.0)
        return (jnp.maximum(largest, jnp.max(move)), jnp.minimum(nearest, jnp.min(distance))), None

    dtypes = jnp.result_type(source_votes, target_votes), jnp.result_type(source, target, float)
    start = jnp.zeros((), dtypes[0]), jnp.full((), jnp.inf, dtypes[1])
    return jax.lax.scan(row, start, (source, source_votes))[0]


def gibbs_deviation_bound(eps_h: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """How far the Gibbs risks on matched source points and on the self-labelled target points can be apart.

    |R_T(G_Q) - R_S(G_Q)| <= 1/2 eps_H sum_j |w_j|, on the matched pairs, which share their labels (section 3.3).

    Args:
      eps_h: as of `eps_h` on these pairs; not negative.
      weights: ``[n]``, or None for weights whose sizes sum to at most 1, as the paper has them: then eps_H / 2.

    Returns:
      A scalar.

    Example:
      >>> print(gibbs_deviation_bound(0.5), gibbs_deviation_bound(0.5, np.array([2.0, -1.0])))
      0.25 0.75
    """
    _check_not_negative("eps_h", eps_h)
    half = jnp.asarray(eps_h) / 2
    if weights is None:
        return half
    check_rank("weights", weights, 1)
    check_finite("weights", weights)
    return half * jnp.sum(jnp.abs(jnp.asarray(weights)))


class DisagreementDeviation(NamedTuple):
    """Bounds on the domain disagreement between the two sides of a matching. All scalars.

    Attributes:
      value: the paper's final form where its precondition holds, and a valid bound elsewhere.
      sharp: the valid bound before the paper's last step; never above `value`.
      printed: the paper's final form, valid where `holds`.
      holds: whether its precondition does: eps_H <= 1 and sum_j |w_j| <= 1.
    """

    value: Array
    sharp: Array
    printed: Array
    holds: Array


def disagreement_deviation_terms(
    eps_h: ArrayLike, target_votes: ArrayLike, weights: ArrayLike, sample_weights: ArrayLike | None = None
) -> DisagreementDeviation:
    """The bounds on the domain disagreement of a matching, with their precondition (section 3.3).

    With t = eps_H sum_j |w_j|, on each pair |M(x_s) - M(x_t)| <= t, so that

    |M(x_s)^2 - M(x_t)^2| = |M(x_s) - M(x_t)| |M(x_s) + M(x_t)| <= t (t + 2 |M(x_t)|),

    and `sharp` is t^2 + 2 t E |M(x_t)|. The paper goes on to eps_H (1 + 2 E |M(x_t)|), which needs sum_j |w_j| <= 1 and
    eps_H <= 1, as Gaussian voters in [0, 1] have it and others need not. (Where all votes lie in [-1, 1], `printed`
    happens to hold beyond that: then |M(x_s) + M(x_t)| <= 1 + |M(x_t)|. Larger votes break it.)

    Two lines of its derivation are false where M(x_t) < 0, though the final form is right: it bounds the difference on
    a pair by |eps_H^2 + 2 eps_H M(x_t)|, which is 0 at M(x_t) = -eps_H / 2. The size belongs around M(x_t) alone.

    Args:
      eps_h: as of `eps_h` on the matched pairs; not negative.
      target_votes: ``[k, n]`` on the matched target points.
      weights: ``[n]``.
      sample_weights: ``[k]`` or None.

    Returns:
      A `DisagreementDeviation`.

    Example:
      >>> terms = disagreement_deviation_terms(2.0, np.array([[-1.0]]), np.array([1.0]))
      >>> print(terms.value, terms.sharp, terms.printed, terms.holds)
      8.0 8.0 6.0 False
    """
    _check_not_negative("eps_h", eps_h)
    check_rank("target_votes", target_votes, 2)
    check_finite("target_votes", target_votes)
    check_finite("weights", weights)
    check_sample_weights("sample_weights", sample_weights, np.shape(target_votes)[0])
    size = _mean(jnp.abs(vote_margin(target_votes, weights)), sample_weights)
    eps = jnp.asarray(eps_h)
    total = jnp.sum(jnp.abs(jnp.asarray(weights)))
    move = eps * total
    # Continuous where the precondition ends: sums of sizes below 1 are taken for 1, as in the paper.
    most = eps * jnp.maximum(total, 1.0)
    value = most * (jnp.maximum(most, 1.0) + 2 * size)
    # Weights that sum to 1 up to rounding meet the precondition.
    holds = (eps <= 1) & (total <= 1 + 8 * jnp.finfo(total.dtype).eps)
    return DisagreementDeviation(value, move**2 + 2 * move * size, eps * (1 + 2 * size), holds)


def disagreement_deviation_bound(
    eps_h: ArrayLike, target_votes: ArrayLike, weights: ArrayLike, sample_weights: ArrayLike | None = None
) -> Array:
    """How far the voters' disagreements on the two sides of a matching can be apart (section 3.3).

    dis_Q(S, T) <= eps_H (1 + 2 E |M(x_t)|), if eps_H <= 1 and sum_j |w_j| <= 1; elsewhere, with
    t = eps_H max(1, sum_j |w_j|), it is at most t (max(1, t) + 2 E |M(x_t)|).

    `disagreement_deviation_terms` derives this, tells the two cases apart and has a sharper form.

    Args:
      eps_h: as of `eps_h` on the matched pairs; not negative.
      target_votes: ``[k, n]`` on the matched target points.
      weights: ``[n]``.
      sample_weights: ``[k]`` or None.

    Returns:
      A scalar.

    Example:
      >>> print(disagreement_deviation_bound(0.5, np.array([[-0.5], [0.0]]), np.array([1.0])))
      0.75
    """
    return disagreement_deviation_terms(eps_h, target_votes, weights, sample_weights).value


def _check_not_negative(name: str, value: ArrayLike) -> None:
    check_finite(name, value)
    if not is_traced(value) and np.any(np.asarray(value) < 0):
        raise ValueError(f"{name} must not be negative; it is {value}")


class Smoothness(NamedTuple):
    """How fast the expected vote M can change. Both scalars; infinity says nothing.

    Attributes:
      lipschitz: L with |M(x) - M(z)| <= L |x - z|.
      curvature: H with |M(x) - M(z) - <grad M(z), x - z>| <= H/2 |x - z|^2.
    """

    lipschitz: ArrayLike
    curvature: ArrayLike


def rbf_smoothness(gamma: ArrayLike, weights: ArrayLike | None = None) -> Smoothness:
    """Smoothness of votes over Gaussian kernels.

    L = sum_j |w_j| sqrt(2 gamma_j / e),    H = sum_j |w_j| 2 gamma_j.

    At distance r from its centre, exp(-gamma r^2) has a slope of 2 gamma r exp(-gamma r^2), largest at
    r = (2 gamma)^(-1/2). Its second derivative is -2 gamma exp(-gamma r^2) across and
    (4 gamma^2 r^2 - 2 gamma) exp(-gamma r^2) along the radius; both are largest in size at the centre.

    Args:
      gamma: above 0: a scalar, or ``[n]``.
      weights: ``[n]``, or None for one voter, or any weights whose sizes sum to at most 1.

    Returns:
      A `Smoothness`.

    Example:
      >>> smooth = rbf_smoothness(2.0)
      >>> print(f"{smooth.lipschitz:.4f} {smooth.curvature:.1f}")
      1.2131 4.0
    """
    check_positive("gamma", gamma)
    if np.ndim(gamma) > 1:
        raise ValueError(f"gamma must be a scalar or have one entry per voter; its shape is {np.shape(gamma)}")
    gamma = jnp.asarray(gamma, jnp.result_type(gamma, float))
    lipschitz, curvature = jnp.sqrt(2 * gamma / jnp.e), 2 * gamma
    if weights is None:
        # The steepest voter stands for any mixture of them.
        return Smoothness(jnp.max(lipschitz), jnp.max(curvature))
    check_rank("weights", weights, 1)
    check_finite("weights", weights)
    if np.ndim(gamma) == 1:
        check_length("gamma", gamma, np.shape(weights)[0], "voter")
    sizes = jnp.abs(jnp.asarray(weights))
    return Smoothness(jnp.sum(sizes * lipschitz), jnp.sum(sizes * curvature))


def eps_h_of_radius(radius: ArrayLike, lipschitz: ArrayLike) -> Array:
    """A bound on eps_H at a radius, before any data: no Lipschitz voter moves farther than this between two points.

    eps_H <= L radius. A moved point is a mean of points within the radius of the original, hence within it too, and
    the bound covers the pairs of original and moved points as well as those of the matching.

    Args:
      radius: above 0.
      lipschitz: of every voter, e.g. that of `rbf_smoothness` without weights.

    Returns:
      A scalar.
    """
    check_positive("radius", radius)
    _check_not_negative("lipschitz", lipschitz)
    return jnp.asarray(radius) * jnp.asarray(lipschitz)


class MatchedSpread(NamedTuple):
    """Where the matched target points of each source point lie. A source point without any has weight 0.

    Attributes:
      moved: their means ``[m_s, d]``: the source points, moved.
      weights: how much each source point is matched ``[m_s]``.
      mean_distance: mean distance of the matched points from their mean ``[m_s]``.
      variance: mean squared distance ``[m_s]``.
    """

    moved: Array
    weights: Array
    mean_distance: Array
    variance: Array


def matched_spread(
    target: ArrayLike, source_index: ArrayLike, target_index: ArrayLike, pair_weights: ArrayLike, size: int
) -> MatchedSpread:
    """Moves each source point to the mean of its matched target points, and measures how far these are spread.

    z_s = sum_t p_st x_t / P_s with P_s = sum_t p_st, and the means of |x_t - z_s| and |x_t - z_s|^2 under p_st / P_s.

    Args:
      target: ``[m_t, d]``.
      source_index: integers ``[k]``, one per pair; a pair may come more than once.
      target_index: integers ``[k]``.
      pair_weights: p, ``[k]``, not negative.
      size: m_s, the number of source points.

    Returns:
      A `MatchedSpread`, differentiable in the target points and the pair weights.

    Example:
      >>> target = np.array([[0.0], [2.0], [5.0]])
      >>> spread = matched_spread(target, np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([0.5, 0.5, 1.0]), 2)
      >>> print(spread.moved[:, 0], spread.variance)
      [1. 5.] [1. 0.]
    """
    check_points("target", target)
    check_rank("source_index", source_index, 1)
    k = np.shape(source_index)[0]
    check_length("target_index", target_index, k, "pair")
    check_sample_weights("pair_weights", pair_weights, k)
    if size < 1:
        raise ValueError(f"size must be at least 1; it is {size}")
    for name, index, limit in (
        ("source_index", source_index, size),
        ("target_index", target_index, np.shape(target)[0]),
    ):
        if not jnp.issubdtype(jnp.result_type(index), jnp.integer):
            raise ValueError(f"{name} must hold integers; its dtype is {jnp.result_type(index)}")
        if not is_traced(index) and np.any((np.asarray(index) < 0) | (np.asarray(index) >= limit)):
            raise ValueError(f"{name} must lie in [0, {limit - 1}]; it reaches from {np.min(index)} to {np.max(index)}")
    target = jnp.asarray(target)
    dtype = jnp.result_type(target, float)
    source_index, target_index = jnp.asarray(source_index), jnp.asarray(target_index)
    pair_weights = jnp.asarray(pair_weights, dtype)
    gather = partial(jax.ops.segment_sum, segment_ids=source_index, num_segments=size)
    weights = gather(pair_weights)
    share = pair_weights / jnp.where(weights > 0, weights, 1.0)[source_index]
    points = target[target_index]
    moved = gather(share[:, None] * points)
    squared = jnp.sum((points - moved[source_index]) ** 2, axis=-1)
    # The root of 0 has no derivative; a point at its own mean has one of 0.
    distance = jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
    return MatchedSpread(moved, weights, gather(share * distance), gather(share * squared))


def moved_vote_bound(spread: MatchedSpread, smoothness: Smoothness) -> Array:
    """How far the vote on each moved point is from the mean vote on its matched target points.

    |M(z_s) - mean_t M(x_t)| <= min(L mean_t |x_t - z_s|, H/2 mean_t |x_t - z_s|^2).

    The first is the mean of the Lipschitz condition. In the second, the linear terms <grad M(z_s), x_t - z_s> have mean
    0, because z_s is the mean of the x_t. For Gaussian voters it is gamma times the variance.

    Args:
      spread: of the matched points.
      smoothness: of the vote.

    Returns:
      ``[m_s]``.
    """
    lipschitz, curvature = (jnp.asarray(value) for value in smoothness)
    return jnp.minimum(_scaled(lipschitz, spread.mean_distance), _scaled(curvature / 2, spread.variance))


def _scaled(constant: Array, spread: Array) -> Array:
    """Their product, and 0 for points without spread, also under an infinite constant."""
    return jnp.where(spread > 0, constant * jnp.where(spread > 0, spread, 1.0), 0.0)


def moved_gibbs_bound(spread: MatchedSpread, smoothness: Smoothness) -> Array:
    """How far the Gibbs risk on the moved, truly labelled points is from that on the self-labelled target points.

    |R_moved(G_Q) - R_T(G_Q)| <= 1/2 mean_s b_s, with b_s of `moved_vote_bound` and the mean under P_s.

    The moved sample is (z_s, y_s) with weights P_s, the target sample (x_t, y_s) with weights p_st; or, which is the
    same to a loss that is linear in the label, x_t with its mean label. The two risks differ by
    1/2 mean_s y_s (mean_t M(x_t) - M(z_s)).

    Args:
      spread: of the matched points.
      smoothness: of the vote.

    Returns:
      A scalar.
    """
    return _mean(moved_vote_bound(spread, smoothness), spread.weights) / 2


def moved_disagreement_bound(
    spread: MatchedSpread, moved_votes: ArrayLike, weights: ArrayLike, smoothness: Smoothness
) -> Array:
    """How far the voters' disagreement on the moved points is from that on the matched target points.

    dis_Q(moved, T) <= mean_s (2 |M(z_s)| b_s + L^2 mean_t |x_t - z_s|^2), with b_s of `moved_vote_bound`.

    On each source point, mean_t M(x_t)^2 - M(z)^2 = 2 M(z) (mean_t M(x_t) - M(z)) + mean_t (M(x_t) - M(z))^2. The first
    term is at most 2 |M(z)| b_s, and the last is at most L^2 mean_t |x_t - z|^2.

    Args:
      spread: of the matched points.
      moved_votes: ``[m_s, n]`` on the moved points.
      weights: ``[n]``.
      smoothness: of the vote.

    Returns:
      A scalar.
    """
    margin = vote_margin(moved_votes, weights)
    check_length("moved_votes", margin, spread.weights.shape[0], "source point")
    spent = _scaled(jnp.asarray(smoothness.lipschitz) ** 2, spread.variance)
    return _mean(2 * jnp.abs(margin) * moved_vote_bound(spread, smoothness) + spent, spread.weights)
