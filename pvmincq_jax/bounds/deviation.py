"""Section 3.3: how far apart risks and disagreements can be on the two sides of a matching.

Notation as in `pvmincq_jax.voting.cbound`; M(x) = sum_j w_j h_j(x) is the expected vote. Where voters move by at most
eps, the expected vote moves by at most eps sum_j |w_j|. That sum is 1 for a distribution over the voters and at most 1
for the signed weights of MinCq; the paper's forms are written for these, and the functions here keep the factor for
others. From `Smoothness` on, the same for source points that are moved to the mean of several target points, instead
of being paired with one; the paper has no counterpart.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike, takes_arguments_of
from pvmincq_jax.matching.selflabel import MatchedSpread
from pvmincq_jax.voting.cbound import expectation, vote_margin

__all__ = [
    "DisagreementDeviation", "Smoothness", "disagreement_deviation_bound", "disagreement_deviation_terms", "eps_h",
    "gibbs_deviation_bound", "moved_disagreement_bound", "moved_gibbs_bound", "moved_vote_bound", "rbf_smoothness",
]  # fmt: skip


def eps_h(source_votes: ArrayLike, target_votes: ArrayLike, pair_weights: ArrayLike | None = None) -> Array:
    """How far any voter moves between the two points of a pair (definition 4).

    eps_H = max_{pairs, h} |h(x_s) - h(x_t)|.

    The pairs are those of a matching, or all that lie within the radius, which is never less: then the rows are
    ``source_votes[i]`` and ``target_votes[j]``, with ``i, j = np.nonzero(distances <= radius)``.

    Args:
      source_votes: ``[k, n]``, one pair per row.
      target_votes: ``[k, n]``.
      pair_weights: ``[k]`` or None; a pair of weight 0 does not count.

    Returns: a scalar.

    Example:
      >>> print(eps_h(np.array([[0.5, 1.0], [0.0, 0.0]]), np.array([[0.25, 0.5], [1.0, 0.0]]), np.array([1.0, 0.0])))
      0.5
    """
    check_process()
    _checks.check_points("target_votes", target_votes)
    _checks.check_rows("source_votes", source_votes, target_votes)
    _checks.check_same_dimension("source_votes", source_votes, "target_votes", target_votes, "voters")
    _checks.check_sample_weights("pair_weights", pair_weights, np.shape(source_votes)[0])
    counted = True if pair_weights is None else jnp.asarray(pair_weights)[:, None] > 0
    return jnp.max(jnp.where(counted, jnp.abs(jnp.asarray(source_votes) - jnp.asarray(target_votes)), 0.0))


def _sizes(weights: ArrayLike) -> Array:
    _checks.check_rank("weights", weights, 1)
    _checks.check_finite("weights", weights)
    return jnp.abs(jnp.asarray(weights))


def gibbs_deviation_bound(eps_h: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """How far the Gibbs risks on matched source points and on the self-labelled target points can be apart.

    |R_T(G_Q) - R_S(G_Q)| <= 1/2 eps_H sum_j |w_j|, on the matched pairs, which share their labels (section 3.3).

    Args: eps_h of these pairs, and weights ``[n]``, or None if their sizes sum to at most 1, as in the paper.

    Returns: a scalar.

    Example:
      >>> print(gibbs_deviation_bound(0.5), gibbs_deviation_bound(0.5, np.array([2.0, -1.0])))
      0.25 0.75
    """
    check_process()
    _checks.check_not_negative("eps_h", eps_h)
    return jnp.asarray(eps_h) / 2 * (1 if weights is None else jnp.sum(_sizes(weights)))


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
    eps_h: ArrayLike, target_votes: ArrayLike, weights: ArrayLike, *, sample_weights: ArrayLike | None = None
) -> DisagreementDeviation:
    """The bounds on the domain disagreement of a matching, with their precondition (section 3.3).

    With t = eps_H sum_j |w_j|, on each pair |M(x_s) - M(x_t)| <= t, so that

    |M(x_s)^2 - M(x_t)^2| = |M(x_s) - M(x_t)| |M(x_s) + M(x_t)| <= t (t + 2 |M(x_t)|),

    and `sharp` is t^2 + 2 t E |M(x_t)|. The paper goes on to eps_H (1 + 2 E |M(x_t)|), which needs sum_j |w_j| <= 1 and
    eps_H <= 1, as Gaussian voters in [0, 1] have it and others need not. (Where all votes lie in [-1, 1], `printed`
    happens to hold beyond that: then |M(x_s) + M(x_t)| <= 1 + |M(x_t)|. Larger votes break it.)

    Two lines of its derivation are false where M(x_t) < 0, though the final form is right: it bounds the difference on
    a pair by |eps_H^2 + 2 eps_H M(x_t)|, which is 0 at M(x_t) = -eps_H / 2. The size belongs around M(x_t) alone.

    Args: eps_h of the pairs, target_votes ``[k, n]`` on them, weights ``[n]``, sample_weights ``[k]`` or None.

    Returns: a `DisagreementDeviation`.

    Example:
      >>> terms = disagreement_deviation_terms(2.0, np.array([[-1.0]]), np.array([1.0]))
      >>> print(terms.value, terms.sharp, terms.printed, terms.holds)
      8.0 8.0 6.0 False
    """
    check_process()
    _checks.check_not_negative("eps_h", eps_h)
    _checks.check_points("target_votes", target_votes)
    size = expectation(jnp.abs(vote_margin(target_votes, weights)), sample_weights)
    eps, total = jnp.asarray(eps_h), jnp.sum(_sizes(weights))
    move = eps * total
    # Continuous where the precondition ends: sums of sizes below 1 are taken for 1, as in the paper.
    most = eps * jnp.maximum(total, 1.0)
    value = most * (jnp.maximum(most, 1.0) + 2 * size)
    # Weights that sum to 1 up to rounding meet the precondition.
    holds = (eps <= 1) & (total <= 1 + 8 * jnp.finfo(total.dtype).eps)
    return DisagreementDeviation(value, move**2 + 2 * move * size, eps * (1 + 2 * size), holds)


@takes_arguments_of(disagreement_deviation_terms)
def disagreement_deviation_bound(terms: DisagreementDeviation) -> Array:
    """How far the voters' disagreements on the two sides of a matching can be apart (section 3.3).

    dis_Q(S, T) <= eps_H (1 + 2 E |M(x_t)|), if eps_H <= 1 and sum_j |w_j| <= 1; elsewhere, with
    t = eps_H max(1, sum_j |w_j|), it is at most t (max(1, t) + 2 E |M(x_t)|).

    Args: eps_h, target_votes ``[k, n]``, weights ``[n]``, sample_weights ``[k]`` or None, as of
      `disagreement_deviation_terms`, which derives this, tells the two cases apart and has a sharper form.

    Returns: a scalar.

    Example:
      >>> print(disagreement_deviation_bound(0.5, np.array([[-0.5], [0.0]]), np.array([1.0])))
      0.75
    """
    check_process()
    return terms.value


class Smoothness(NamedTuple):
    """How fast the expected vote M can change. Both scalars; infinity says nothing.

    Attributes:
      lipschitz: L with |M(x) - M(z)| <= L |x - z|.
      curvature: H with |M(x) - M(z) - <grad M(z), x - z>| <= H/2 |x - z|^2.
    """

    lipschitz: ArrayLike
    curvature: ArrayLike


def rbf_smoothness(gamma: ArrayLike, weights: ArrayLike | None = None) -> Smoothness:
    """Smoothness of votes over Gaussian kernels. Not in the paper.

    L = sum_j |w_j| sqrt(2 gamma_j / e),    H = sum_j |w_j| 2 gamma_j.

    At distance r from its centre, exp(-gamma r^2) has a slope of 2 gamma r exp(-gamma r^2), largest at
    r = (2 gamma)^(-1/2). Its second derivative is -2 gamma exp(-gamma r^2) across and
    (4 gamma^2 r^2 - 2 gamma) exp(-gamma r^2) along the radius; both are largest in size at the centre.

    Without weights, eps_H of definition 4 is at most L times the radius, before any data are seen: for the pairs of a
    matching, and for a point and the mean of its matches, which lies within the radius too.

    Args:
      gamma: above 0: a scalar, or ``[n]``.
      weights: ``[n]``, or None for one voter, or any weights whose sizes sum to at most 1.

    Returns: a `Smoothness`.

    Example:
      >>> smooth = rbf_smoothness(2.0)
      >>> print(f"{smooth.lipschitz:.4f} {smooth.curvature:.1f}")
      1.2131 4.0
    """
    check_process()
    _checks.check_positive("gamma", gamma)
    if np.ndim(gamma) > 1:
        raise ValueError(f"gamma must be a scalar or have one entry per voter; its shape is {np.shape(gamma)}")
    gamma = jnp.asarray(gamma, jnp.result_type(gamma, float))
    lipschitz, curvature = jnp.sqrt(2 * gamma / jnp.e), 2 * gamma
    if weights is None:
        # The steepest voter stands for any mixture of them.
        return Smoothness(jnp.max(lipschitz), jnp.max(curvature))
    sizes = _sizes(weights)
    if np.ndim(gamma) == 1:
        _checks.check_length("gamma", gamma, len(sizes), "voter")
    return Smoothness(jnp.sum(sizes * lipschitz), jnp.sum(sizes * curvature))


def moved_vote_bound(spread: MatchedSpread, smoothness: Smoothness) -> Array:
    """How far the vote on each moved point is from the mean vote on its matched target points (not in the paper).

    |M(z_s) - mean_t M(x_t)| <= min(L mean_t |x_t - z_s|, H/2 mean_t |x_t - z_s|^2).

    The first is the mean of the Lipschitz condition. In the second, the linear terms <grad M(z_s), x_t - z_s> have mean
    0, because z_s is the mean of the x_t. For Gaussian voters it is gamma times the variance.

    Args: spread of the matched points, see `pvmincq_jax.matching.selflabel.matched_spread`, and smoothness of the vote.

    Returns: ``[m_s]``.

    Example:
      >>> spread = MatchedSpread(np.zeros((2, 1)), np.ones(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))
      >>> print(moved_vote_bound(spread, Smoothness(0.75, 1.0)))
      [0.5 0. ]
    """
    check_process()
    _check_moved(spread, smoothness)
    lipschitz, curvature = (jnp.asarray(value) for value in smoothness)
    return jnp.minimum(_scaled(lipschitz, spread.mean_distance), _scaled(curvature / 2, spread.variance))


def _check_moved(spread: MatchedSpread, smoothness: Smoothness) -> None:
    _checks.check_instance("spread", spread, MatchedSpread, "matched_spread")
    _checks.check_instance("smoothness", smoothness, Smoothness, "rbf_smoothness")


def _scaled(constant: Array, spread: Array) -> Array:
    """Their product, and 0 for points without spread, also under an infinite constant."""
    return jnp.where(spread > 0, constant * jnp.where(spread > 0, spread, 1.0), 0.0)


def moved_gibbs_bound(spread: MatchedSpread, smoothness: Smoothness) -> Array:
    """How far the Gibbs risk on the moved, truly labelled points is from that on the self-labelled target points.

    Section 3.3's first bound for averaged pairs, not in the paper:
    |R_moved(G_Q) - R_T(G_Q)| <= 1/2 mean_s b_s, with b_s of `moved_vote_bound` and the mean under P_s.

    The moved sample is (z_s, y_s) with weights P_s, the target sample (x_t, y_s) with weights p_st; or, which is the
    same to a loss that is linear in the label, x_t with its mean label. The two risks differ by
    1/2 mean_s y_s (mean_t M(x_t) - M(z_s)).

    Args: spread and smoothness, as of `moved_vote_bound`.

    Returns: a scalar.

    Example:
      >>> spread = MatchedSpread(np.zeros((2, 1)), np.ones(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))
      >>> print(moved_gibbs_bound(spread, Smoothness(0.75, 1.0)))
      0.125
    """
    return expectation(moved_vote_bound(spread, smoothness), spread.weights) / 2


def moved_disagreement_bound(
    spread: MatchedSpread, moved_votes: ArrayLike, weights: ArrayLike, smoothness: Smoothness
) -> Array:
    """How far the voters' disagreement on the moved points is from that on the matched target points.

    Section 3.3's second bound for averaged pairs, not in the paper:
    dis_Q(moved, T) <= mean_s (2 |M(z_s)| b_s + L^2 mean_t |x_t - z_s|^2), with b_s of `moved_vote_bound`.

    On each source point, mean_t M(x_t)^2 - M(z)^2 = 2 M(z) (mean_t M(x_t) - M(z)) + mean_t (M(x_t) - M(z))^2. The first
    term is at most 2 |M(z)| b_s, and the last is at most L^2 mean_t |x_t - z|^2.

    Args: spread and smoothness as of `moved_vote_bound`, moved_votes ``[m_s, n]`` on the moved points, weights ``[n]``.

    Returns: a scalar.

    Example:
      >>> spread = MatchedSpread(np.zeros((2, 1)), np.ones(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))
      >>> print(moved_disagreement_bound(spread, np.array([[0.5], [0.5]]), np.array([1.0]), Smoothness(1.0, 1.0)))
      0.75
    """
    check_process()
    _check_moved(spread, smoothness)
    _checks.check_points("moved_votes", moved_votes)
    margin = vote_margin(moved_votes, weights)
    _checks.check_length("moved_votes", margin, spread.weights.shape[0], "source point")
    spent = _scaled(jnp.asarray(smoothness.lipschitz) ** 2, spread.variance)
    return expectation(2 * jnp.abs(margin) * moved_vote_bound(spread, smoothness) + spent, spread.weights)
