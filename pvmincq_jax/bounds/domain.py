"""The inequalities of sections 2.2 and 3: what source and self-labelled data say of the risk on the target.

Notation as in `pvmincq_jax.cbound`; M(x) = sum_j w_j h_j(x) is the expected vote. Where voters move by at most eps, the
expected vote moves by at most eps sum_j |w_j|. That sum is 1 for a distribution over the voters and at most 1 for the
signed weights of MinCq; the paper's forms are written for these, and the functions here keep the factor for others.

The bounds for averaged pairs, which have no counterpart in the paper, are defined in `moved`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import (
    check_finite,
    check_labels,
    check_length,
    check_not_negative,
    check_points,
    check_positive,
    check_rank,
    check_same_dimension,
    check_sample_weights,
    is_traced,
)
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.bounds.moved import weighted_mean
from pvmincq_jax.voting.cbound import (
    c_bound,
    domain_disagreement,
    expected_disagreement,
    gibbs_risk,
    vote_margin,
)

__all__ = [
    "DisagreementDeviation",
    "Theorem1",
    "corollary1",
    "disagreement_deviation_bound",
    "disagreement_deviation_terms",
    "eps_h",
    "eps_h_within",
    "gibbs_deviation_bound",
    "joint_error",
    "self_label_gap",
    "theorem1",
]


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
    return (
        jnp.abs(weighted_mean(difference, sample_weights))
        if as_printed
        else weighted_mean(jnp.abs(difference), sample_weights)
    )


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
      >>> from pvmincq_jax import vote_risk
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
    check_not_negative("eps_h", eps_h)
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
    check_not_negative("eps_h", eps_h)
    check_rank("target_votes", target_votes, 2)
    check_finite("target_votes", target_votes)
    check_finite("weights", weights)
    check_sample_weights("sample_weights", sample_weights, np.shape(target_votes)[0])
    size = weighted_mean(jnp.abs(vote_margin(target_votes, weights)), sample_weights)
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
