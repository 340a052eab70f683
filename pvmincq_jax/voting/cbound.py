"""The quantities of section 2, one function per equation: margins, risks, moments, C-bound, disagreements.

Everywhere ``votes`` is ``[m, n]`` (point, voter), ``weights`` ``[n]``, ``labels`` ``[m]`` in {-1, +1} or soft in
[-1, 1] (the mean of a random label), and ``sample_weights`` ``[m]``, non-negative, zeros allowed, uniform when None;
expectations over the sample are means under them, so their scale does not matter. NaN votes, labels outside
[-1, 1], and sample weights that are negative or all zero raise a ValueError, or give NaN when traced.

``weights`` is either a distribution over the voters, or the signed weights of MinCq, which stand for a distribution
over the voters and their complements: ``votes @ weights`` is the expected vote in both cases.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import (
    check_finite,
    check_labels,
    check_rank,
    check_sample_weights,
    check_weights,
)
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike

__all__ = [
    "c_bound", "domain_disagreement", "expected_disagreement", "first_moment", "gibbs_risk", "second_moment",
    "vote_margin", "vote_risk",
]  # fmt: skip

# Of the points of a sample; None for equal ones.
Weights = ArrayLike | None


def vote_margin(votes: ArrayLike, weights: ArrayLike) -> Array:
    """The expected vote of each point, whose sign is the majority vote B_Q(x) (definitions 1 and 2).

    E_{h~Q} h(x) = sum_j w_j h_j(x).

    Args: votes ``[m, n]``, weights ``[n]``.

    Returns: ``[m]``. Times the label, this is the Q-margin of the example.

    Example:
      >>> print(vote_margin(np.array([[1.0, 0.5], [-0.5, 0.0]]), np.array([0.5, 0.5])))
      [ 0.75 -0.25]
    """
    check_process()
    check_rank("votes", votes, 2)
    check_finite("votes", votes)
    check_weights("weights", weights, np.shape(votes)[1])
    return jnp.asarray(votes) @ jnp.asarray(weights)


def expectation(values: Array, sample_weights: Weights) -> Array:
    """The mean of ``values`` ``[m]`` under the sample weights."""
    check_process()
    if sample_weights is None:
        return jnp.mean(values)
    check_sample_weights("sample_weights", sample_weights, values.shape[0])
    sample_weights = jnp.asarray(sample_weights)
    total = jnp.where(jnp.all(sample_weights >= 0), jnp.sum(sample_weights), jnp.nan)
    # A point of weight zero counts for nothing, even one whose value is not finite.
    return jnp.sum(sample_weights * jnp.where(sample_weights > 0, values, 0.0)) / total


def _known(labels: ArrayLike, margin: Array, sample_weights: Weights) -> Array:
    """The labels, one per margin, NaN where they are outside [-1, 1]."""
    check_sample_weights("sample_weights", sample_weights, margin.shape[0])
    check_labels("labels", labels, margin.shape[0], soft=True, sample_weights=sample_weights)
    labels = jnp.asarray(labels)
    labels = labels.astype(jnp.result_type(labels, margin))
    return jnp.where(jnp.abs(labels) <= 1, labels, jnp.nan)


def first_moment(votes: ArrayLike, labels: ArrayLike, weights: ArrayLike, *, sample_weights: Weights = None) -> Array:
    """First moment of the Q-margin, the root of the C-bound's numerator (theorem 2).

    E_{(x,y)} y E_{h~Q} h(x).

    Args: votes ``[m, n]``, labels ``[m]``, weights ``[n]``, sample_weights ``[m]`` or None for equal ones.

    Returns: a scalar.

    Example:
      >>> print(first_moment(np.array([[1.0, 0.5], [-0.5, 0.0]]), np.array([1.0, -1.0]), np.array([0.5, 0.5])))
      0.5
    """
    margin = vote_margin(votes, weights)
    return expectation(_known(labels, margin, sample_weights) * margin, sample_weights)


def second_moment(votes: ArrayLike, weights: ArrayLike, *, sample_weights: Weights = None) -> Array:
    """Second moment of the Q-margin, the C-bound's denominator (theorem 2): the lower, the more voters disagree.

    E_{(h,h')~Q^2} E_x h(x) h'(x) = E_x (E_{h~Q} h(x))^2.

    Args: votes ``[m, n]``, weights ``[n]``, sample_weights ``[m]`` or None for equal ones.

    Returns: a scalar.

    Example:
      >>> print(second_moment(np.array([[1.0, 0.5], [-0.5, 0.0]]), np.array([0.5, 0.5])))
      0.3125
    """
    return expectation(vote_margin(votes, weights) ** 2, sample_weights)


def gibbs_risk(votes: ArrayLike, labels: ArrayLike, weights: ArrayLike, *, sample_weights: Weights = None) -> Array:
    """Risk of the stochastic Gibbs classifier under the linear loss (equation 1).

    R(G_Q) = 1/2 (1 - E_{(x,y)} E_{h~Q} y h(x)).

    Args: votes ``[m, n]``, labels ``[m]``, weights ``[n]``, sample_weights ``[m]`` or None for equal ones.

    Returns: a scalar.

    Example:
      >>> print(gibbs_risk(np.array([[1.0, 0.5], [-0.5, 0.0]]), np.array([1.0, -1.0]), np.array([0.5, 0.5])))
      0.25
    """
    return (1 - first_moment(votes, labels, weights, sample_weights=sample_weights)) / 2


def vote_risk(votes: ArrayLike, labels: ArrayLike, weights: ArrayLike, *, sample_weights: Weights = None) -> Array:
    """Risk of the majority vote (definition 1); a margin of 0 is an error.

    R(B_Q) = P_{(x,y)} (y E_{h~Q} h(x) <= 0). A soft label y counts as +1 with probability (1 + y) / 2.

    Args: votes ``[m, n]``, labels ``[m]``, weights ``[n]``, sample_weights ``[m]`` or None for equal ones.

    Returns: a scalar in [0, 1]; piecewise constant in the weights.

    Example:
      >>> votes, labels = jnp.array([[1.0], [-1.0], [0.0]]), jnp.array([1.0, 1.0, 1.0])
      >>> print(round(float(vote_risk(votes, labels, jnp.array([1.0]))), 4))
      0.6667
    """
    margin = vote_margin(votes, weights)
    loss = vote_loss(margin, _known(labels, margin, sample_weights))
    return expectation(loss, sample_weights)


def vote_loss(margin: Any, labels: Any) -> Any:
    """The loss of the majority vote at each point: 0, 1, or in between for a soft label; 1 at a margin of 0.

    The linear loss is 1/2 at a margin of 0, and the other half makes it an error. sign(NaN) is NaN, so that a vote
    that is not a number has a loss that is not one.
    """
    xp: Any = jnp if isinstance(margin, jax.Array) else np
    return (1 - labels * xp.sign(margin)) / 2 + (margin == 0) / 2


def c_bound(votes: ArrayLike, labels: ArrayLike, weights: ArrayLike, *, sample_weights: Weights = None) -> Array:
    """The C-bound on the risk of the majority vote (theorem 2).

    R(B_Q) <= 1 - (E_{(x,y)} E_{h~Q} y h(x))^2 / (E_{(h,h')~Q^2} E_x h(x) h'(x)), if the first moment is positive.

    Where it is not, the theorem says nothing and the value is 1, the trivial bound, with gradient 0; `first_moment`
    tells the two cases apart.

    Args: votes ``[m, n]``, labels ``[m]``, weights ``[n]`` of any scale, sample_weights ``[m]`` or None.

    Returns: a scalar in [0, 1].

    Example:
      >>> print(c_bound(np.array([[1.0, 0.5], [-0.5, 0.0]]), np.array([1.0, -1.0]), np.array([0.5, 0.5])).round(3))
      0.2
    """
    first = first_moment(votes, labels, weights, sample_weights=sample_weights)
    second = second_moment(votes, weights, sample_weights=sample_weights)
    usable = (first > 0) & (second > 0)
    # Dividing by the root keeps margins as small as the smallest float's root from squaring to 0 / 0, and the inner
    # `where` keeps the branch that is not taken from sending NaN into the gradient.
    ratio = jnp.where(usable, first, 0.0) / jnp.sqrt(jnp.where(usable, second, 1.0))
    return jnp.where(jnp.isnan(first) | jnp.isnan(second), jnp.nan, 1 - ratio**2)


def expected_disagreement(votes: ArrayLike, weights: ArrayLike, *, sample_weights: Weights = None) -> Array:
    """How often two voters drawn from Q disagree, under the linear loss: theorem 2's denominator as a rate.

    d_Q = 1/2 (1 - E_{(h,h')~Q^2} E_x h(x) h'(x)); for votes in {-1, +1} the probability of disagreement.

    Args: votes ``[m, n]``, weights ``[n]``, sample_weights ``[m]`` or None for equal ones.

    Returns: a scalar.

    Example:
      >>> print(expected_disagreement(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([0.5, 0.5])))
      0.25
    """
    return (1 - second_moment(votes, weights, sample_weights=sample_weights)) / 2


def domain_disagreement(
    source_votes: ArrayLike,
    target_votes: ArrayLike,
    weights: ArrayLike,
    *,
    source_sample_weights: Weights = None,
    target_sample_weights: Weights = None,
) -> Array:
    """How differently the voters disagree on the two domains (equation 4).

    dis_Q(D_S, D_T) = |E_{(h,h')~Q^2} (E_{x_t} h(x_t) h'(x_t) - E_{x_s} h(x_s) h'(x_s))|.

    Args: source_votes ``[m_s, n]``, target_votes ``[m_t, n]``, weights ``[n]``, source_sample_weights ``[m_s]`` and
      target_sample_weights ``[m_t]`` or None for equal ones.

    Returns: a scalar.

    Example:
      >>> print(domain_disagreement(np.array([[1.0, 1.0]]), np.array([[1.0, -1.0]]), np.array([0.5, 0.5])))
      1.0
    """
    votes = {"source": source_votes, "target": target_votes}
    sample_weights = {"source": source_sample_weights, "target": target_sample_weights}
    for domain, some in votes.items():
        check_rank(f"{domain}_votes", some, 2)
        check_finite(f"{domain}_votes", some)
        check_sample_weights(f"{domain}_sample_weights", sample_weights[domain], np.shape(some)[0])
    target = second_moment(target_votes, weights, sample_weights=target_sample_weights)
    return jnp.abs(target - second_moment(source_votes, weights, sample_weights=source_sample_weights))
