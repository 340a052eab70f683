"""What is lost when each source point is moved to the mean of several target points, instead of being paired with one.

The bounds of section 3.3, for averaged pairs. Not in the paper.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_finite, check_length, check_not_negative, check_positive, check_rank
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.matching.spread import MatchedSpread
from pvmincq_jax.voting.cbound import expectation, vote_margin

__all__ = [
    "Smoothness",
    "eps_h_of_radius",
    "moved_disagreement_bound",
    "moved_gibbs_bound",
    "moved_vote_bound",
    "rbf_smoothness",
]


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

    Args:
      gamma: above 0: a scalar, or ``[n]``.
      weights: ``[n]``, or None for one voter, or any weights whose sizes sum to at most 1.

    Returns: a `Smoothness`.

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

    eps_H <= L radius, with eps_H of definition 4. A moved point is a mean of points within the radius of the original,
    hence within it too, and the bound covers pairs of original and moved points as well as those of the matching.

    Args:
      radius: above 0.
      lipschitz: of every voter, e.g. that of `rbf_smoothness` without weights.

    Returns: a scalar.

    Example:
      >>> print(eps_h_of_radius(0.5, rbf_smoothness(2.0).lipschitz).round(4))
      0.6065
    """
    check_positive("radius", radius)
    check_not_negative("lipschitz", lipschitz)
    return jnp.asarray(radius) * jnp.asarray(lipschitz)


def moved_vote_bound(spread: MatchedSpread, smoothness: Smoothness) -> Array:
    """How far the vote on each moved point is from the mean vote on its matched target points (not in the paper).

    |M(z_s) - mean_t M(x_t)| <= min(L mean_t |x_t - z_s|, H/2 mean_t |x_t - z_s|^2).

    The first is the mean of the Lipschitz condition. In the second, the linear terms <grad M(z_s), x_t - z_s> have mean
    0, because z_s is the mean of the x_t. For Gaussian voters it is gamma times the variance.

    Args:
      spread: of the matched points, see `pvmincq_jax.matched_spread`.
      smoothness: of the vote.

    Returns: ``[m_s]``.

    Example:
      >>> spread = MatchedSpread(np.zeros((2, 1)), np.ones(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))
      >>> print(moved_vote_bound(spread, Smoothness(0.75, 1.0)))
      [0.5 0. ]
    """
    lipschitz, curvature = (jnp.asarray(value) for value in smoothness)
    return jnp.minimum(_scaled(lipschitz, spread.mean_distance), _scaled(curvature / 2, spread.variance))


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

    Args:
      spread: of the matched points.
      moved_votes: ``[m_s, n]`` on the moved points.
      weights: ``[n]``.
      smoothness: of the vote.

    Returns: a scalar.

    Example:
      >>> spread = MatchedSpread(np.zeros((2, 1)), np.ones(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))
      >>> print(moved_disagreement_bound(spread, np.array([[0.5], [0.5]]), np.array([1.0]), Smoothness(1.0, 1.0)))
      0.75
    """
    margin = vote_margin(moved_votes, weights)
    check_length("moved_votes", margin, spread.weights.shape[0], "source point")
    spent = _scaled(jnp.asarray(smoothness.lipschitz) ** 2, spread.variance)
    return expectation(2 * jnp.abs(margin) * moved_vote_bound(spread, smoothness) + spent, spread.weights)
