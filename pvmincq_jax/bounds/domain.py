"""Theorem 1 and corollary 1: what source and self-labelled data say of the risk on the target.

Notation as in `pvmincq_jax.voting.cbound`; M(x) = sum_j w_j h_j(x) is the expected vote.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import (
    check_finite,
    check_flag,
    check_labels,
    check_rank,
    check_same_dimension,
    check_sample_weights,
)
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.voting.cbound import c_bound, domain_disagreement, expectation, expected_disagreement, gibbs_risk

__all__ = ["Theorem1", "corollary1", "joint_error", "self_label_gap", "theorem1"]


def joint_error(
    votes: ArrayLike, labels: ArrayLike, weights: ArrayLike, *, sample_weights: ArrayLike | None = None
) -> Array:
    """How often two voters drawn from Q err together, under the linear loss (for lambda_Q of theorem 1).

    e_Q = E_{(x,y)} (E_{h~Q} (1 - y h(x)) / 2)^2 = R(G_Q) - d_Q / 2.

    Args: votes ``[m, n]``, labels ``[m]``, weights ``[n]``, sample_weights ``[m]`` or None for equal ones.

    Returns: a scalar.

    Example:
      >>> print(joint_error(np.array([[1.0, -1.0], [-1.0, -1.0]]), np.array([1.0, 1.0]), np.array([0.5, 0.5])))
      0.625
    """
    risk = gibbs_risk(votes, labels, weights, sample_weights=sample_weights)
    return risk - expected_disagreement(votes, weights, sample_weights=sample_weights) / 2


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
    *,
    source_sample_weights: ArrayLike | None = None,
    target_sample_weights: ArrayLike | None = None,
    target_labels: ArrayLike | None = None,
) -> Theorem1:
    """The computable terms of theorem 1 (equation 3).

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

    Returns: a `Theorem1`.

    Example:
      >>> terms = theorem1(np.array([[0.5]]), np.array([1.0]), np.array([[1.0]]), np.array([1.0]))
      >>> print(terms.source_gibbs_risk, terms.domain_disagreement, terms.value)
      0.25 0.75 1.0
    """
    for name, votes in (("source_votes", source_votes), ("target_votes", target_votes)):
        check_rank(name, votes, 2)
        check_finite(name, votes)
    check_same_dimension("source_votes", source_votes, "target_votes", target_votes, "voters")
    check_labels("source_labels", source_labels, np.shape(source_votes)[0], soft=True)
    counted = {"source_sample_weights": source_sample_weights, "target_sample_weights": target_sample_weights}
    check_sample_weights("source_sample_weights", source_sample_weights, np.shape(source_votes)[0])
    check_sample_weights("target_sample_weights", target_sample_weights, np.shape(target_votes)[0])
    gap = None
    if target_labels is not None:
        check_labels("target_labels", target_labels, np.shape(target_votes)[0], soft=True)
        target_error = joint_error(target_votes, target_labels, weights, sample_weights=target_sample_weights)
        source_error = joint_error(source_votes, source_labels, weights, sample_weights=source_sample_weights)
        gap = jnp.abs(target_error - source_error)
    risk = gibbs_risk(source_votes, source_labels, weights, sample_weights=source_sample_weights)
    return Theorem1(risk, domain_disagreement(source_votes, target_votes, weights, **counted), gap)


def self_label_gap(
    self_labels: ArrayLike, labels: ArrayLike, *, sample_weights: ArrayLike | None = None, as_printed: bool = False
) -> Array:
    """Corollary 1's divergence between the self-labels l and the true labels y.

    1/2 E |y - l(x)|: for labels in {-1, +1}, the rate of wrong self-labels. As printed, 1/2 |E (y - l(x))|: the
    difference between two class ratios.

    Args:
      self_labels: ``[m]`` in [-1, 1].
      labels: ``[m]`` in [-1, 1].
      sample_weights: ``[m]`` or None.
      as_printed: whether to take the size outside of the mean.

    Returns: a scalar in [0, 1].

    Example:
      >>> labels = np.array([1.0, -1.0])
      >>> print(self_label_gap(-labels, labels), self_label_gap(-labels, labels, as_printed=True))
      1.0 0.0
    """
    check_process()
    check_flag("as_printed", as_printed)
    check_rank("labels", labels, 1)
    check_labels("labels", labels, np.shape(labels)[0], soft=True)
    check_sample_weights("sample_weights", sample_weights, np.shape(labels)[0])
    check_labels("self_labels", self_labels, np.shape(labels)[0], soft=True, sample_weights=sample_weights)
    difference = (jnp.asarray(labels) - jnp.asarray(self_labels)) / 2
    if as_printed:
        return jnp.abs(expectation(difference, sample_weights))
    return expectation(jnp.abs(difference), sample_weights)


def corollary1(
    votes: ArrayLike,
    self_labels: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike,
    *,
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

    Returns: a scalar in [0, 2], 1 or more where the C-bound's precondition E l(x) M(x) > 0 fails.

    Example:
      >>> labels = np.array([1.0, -1.0])
      >>> votes, weights = -labels[:, None], np.array([1.0])
      >>> from pvmincq_jax import vote_risk
      >>> print(vote_risk(votes, labels, weights), corollary1(votes, -labels, labels, weights, as_printed=True))
      1.0 0.0
      >>> print(corollary1(votes, -labels, labels, weights))
      1.0
    """
    check_rank("votes", votes, 2)
    check_labels("labels", labels, np.shape(votes)[0], soft=True)
    gap = self_label_gap(self_labels, labels, sample_weights=sample_weights, as_printed=as_printed)
    return c_bound(votes, self_labels, weights, sample_weights=sample_weights) + gap
