"""PAC-Bayes bounds on the risk of a majority vote, from what a sample says of it (Germain et al., JMLR 2015).

With probability at least 1 - delta over samples of m independent examples, the bounds hold for all posteriors Q at
once, for voters fixed before the sample was drawn and votes in [-1, 1]. Kernels centred on the sample itself break that
precondition: centre them on other points. They are not in the paper, which refers to them (section 2.3). Everywhere

- ``gibbs_risk``, ``disagreement`` and ``joint_error`` are those of the vote on the sample
- ``m`` is the size of the sample, at least 1
- ``kl`` is the divergence KL(Q || P) from a prior P fixed beforehand, at least 0
- ``delta`` is the probability that the bound fails, in (0, 1)

Every function works elementwise on arrays that broadcast. Values that are out of range raise a ValueError, or give NaN
where they are traced.

References:
  Germain, Lacasse, Laviolette, Marchand, Roy. Risk bounds for the majority vote: from a PAC-Bayesian analysis to a
  learning algorithm. JMLR 16, 2015.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_finite, check_rank, is_traced
from pvmincq_jax._types import Array, ArrayLike
from pvmincq_jax.bounds.kl import binary_kl, check_between, floating, kl_inverse_lower, kl_inverse_upper, known
from pvmincq_jax.bounds.worst_pair import worst_c_bound

__all__ = [
    "pac_bayes_disagreement",
    "pac_bayes_gibbs_risk",
    "pac_bayes_joint_error",
    "pac_bayes_xi",
    "pac_bound_0",
    "pac_bound_1",
    "pac_bound_2",
    "quasi_uniform_kl",
]

# Gibbs risk and disagreement come out of sums over votes, so a pair on the edge of what is possible may cross it by
# rounding, in float32 by about this much.
_ROUNDING = 1e-6


def _check_sample(m: ArrayLike, kl: ArrayLike, delta: ArrayLike) -> None:
    check_between("m", m, 1, np.inf)
    check_between("kl", kl, 0, np.inf)
    check_between("delta", delta, 0, 1, open_ends=True)


def _check_pair(gibbs_risk: ArrayLike, disagreement: ArrayLike) -> None:
    """A pair that some vote can have: its margin's variance is not negative."""
    check_between("gibbs_risk", gibbs_risk, 0, 1)
    check_between("disagreement", disagreement, 0, 0.5)
    if is_traced(gibbs_risk, disagreement):
        return
    risk = np.asarray(gibbs_risk)
    if np.any(np.asarray(disagreement) > 2 * risk * (1 - risk) + _ROUNDING):
        raise ValueError(
            f"disagreement must be at most 2 r (1 - r) for a Gibbs risk of r: no vote has risk {gibbs_risk} and "
            f"disagreement {disagreement}"
        )


def _sample_inside(m: Array, kl: Array, delta: Array) -> Array:
    return (m >= 1) & (kl >= 0) & (delta > 0) & (delta < 1)


def _pair_inside(risk: Array, disagreement: Array) -> Array:
    return (risk >= 0) & (risk <= 1) & (disagreement >= 0) & (disagreement <= 2 * risk * (1 - risk) + _ROUNDING)


def pac_bayes_xi(m: ArrayLike) -> Array:
    """The constant of the kl bounds, between sqrt(m) and 2 sqrt(m). Not in the paper.

    xi(m) = sum_{k=0}^m C(m, k) (k/m)^k (1 - k/m)^(m-k).

    By Abel's identity this is sum_{j=0}^m m! / ((m-j)! m^j), whose terms are running products of 1 - i/m. Up to
    m = 64 these are summed; beyond, the sum is 1 + Q(m) for Ramanujan's function Q, whose expansion in m^(-1/2) (Knuth,
    Seminumerical Algorithms) is right there to nine digits.

    Args:
      m: sample sizes, at least 1.

    Returns: xi(m), elementwise.

    Example:
      >>> print(*(f"{xi:.3f}" for xi in pac_bayes_xi(np.array([1, 2, 1000]))))
      2.000 2.500 40.303
    """
    check_between("m", m, 1, np.inf)
    (m,) = floating(m)
    index = jnp.arange(64, dtype=m.dtype)
    few = jnp.minimum(m, 64.0)[..., None]
    exact = 1 + jnp.sum(jnp.cumprod(jnp.maximum(1 - index / few, 0.0), axis=-1), axis=-1)
    many = jnp.maximum(m, 64.0)
    half_powers = 1 + 1 / (12 * many) + 1 / (288 * many**2) - 139 / (51840 * many**3)
    expansion = jnp.sqrt(jnp.pi * many / 2) * half_powers + 2 / 3 - 4 / (135 * many) + 8 / (2835 * many**2)
    return known(m >= 1, jnp.where(m <= 64, exact, expansion))


def pac_bayes_gibbs_risk(gibbs_risk: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05) -> Array:
    """Upper bound on the true Gibbs risk r, from its value on the sample r_S. Not in the paper.

    kl(r_S || r) <= (KL(Q || P) + log(xi(m) / delta)) / m.

    Args: gibbs_risk in [0, 1], m, kl and delta, as at the top of this module.

    Returns: a probability; increasing in the risk and in kl, decreasing in m and in delta.

    Example:
      >>> print(f"{pac_bayes_gibbs_risk(0.2, 1000, 2.0):.4f}")
      0.2560
    """
    check_between("gibbs_risk", gibbs_risk, 0, 1)
    return _inverted(kl_inverse_upper, gibbs_risk, 1, m, kl, delta)


def _inverted(
    inverse: Callable[[Array, Array], Array],
    rate: ArrayLike,
    voters: int,
    m: ArrayLike,
    kl: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """What kl(rate || p) <= (voters KL(Q || P) + log(xi(m) / delta)) / m leaves possible of p."""
    _check_sample(m, kl, delta)
    rate, m, kl, delta = floating(rate, m, kl, delta)
    return known(_sample_inside(m, kl, delta), inverse(rate, (voters * kl + jnp.log(pac_bayes_xi(m) / delta)) / m))


def pac_bayes_disagreement(disagreement: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05) -> Array:
    """Lower bound on the true expected disagreement d, from its value d_S on a sample without labels.

    kl(d_S || d) <= (2 KL(Q || P) + log(xi(m) / delta)) / m: a pair of voters is drawn from Q x Q, whose divergence
    from P x P is twice that of Q from P. Not in the paper.

    Args: disagreement in [0, 1/2], m, kl and delta, as at the top of this module.

    Returns: a probability; increasing in the disagreement, m and delta, decreasing in kl.

    Example:
      >>> print(f"{pac_bayes_disagreement(0.3, 1000, 2.0):.4f}")
      0.2361
    """
    check_between("disagreement", disagreement, 0, 0.5)
    return _inverted(kl_inverse_lower, disagreement, 2, m, kl, delta)


def pac_bayes_joint_error(joint_error: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05) -> Array:
    """Upper bound on the true joint error e, how often two voters of Q err together, from its value on the sample e_S.

    kl(e_S || e) <= (2 KL(Q || P) + log(xi(m) / delta)) / m, where e = R(G_Q) - d_Q / 2. Not in the paper.

    Args: joint_error in [0, 1], m, kl and delta, as at the top of this module.

    Returns: a probability; increasing in the joint error and in kl, decreasing in m and in delta.

    Example:
      >>> print(f"{pac_bayes_joint_error(0.1, 1000, 2.0):.4f}")
      0.1495
    """
    check_between("joint_error", joint_error, 0, 1)
    return _inverted(kl_inverse_upper, joint_error, 2, m, kl, delta)


def pac_bound_0(gibbs_risk: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05) -> Array:
    """PAC-Bound 0: the vote errs at most twice as often as the Gibbs classifier (equation 2).

    R(B_Q) <= 2 min(1/2, r), with r from `pac_bayes_gibbs_risk`.

    Args: gibbs_risk in [0, 1], m, kl and delta, as at the top of this module.

    Returns: a bound in [0, 1]; increasing in the risk and in kl, decreasing in m and in delta.

    Example:
      >>> print(f"{pac_bound_0(0.2, 1000, 2.0):.4f}")
      0.5121
    """
    return 2 * jnp.minimum(pac_bayes_gibbs_risk(gibbs_risk, m, kl, delta), 0.5)


def pac_bound_1(
    gibbs_risk: ArrayLike,
    disagreement: ArrayLike,
    m: ArrayLike,
    kl: ArrayLike,
    delta: ArrayLike = 0.05,
    *,
    disagreement_m: ArrayLike | None = None,
) -> Array:
    """PAC-Bound 1: the C-bound (theorem 2) on the worst Gibbs risk and disagreement, each bounded with delta / 2.

    R(B_Q) <= 1 - (1 - 2 min(1/2, r))^2 / (1 - 2 d), with r from `pac_bayes_gibbs_risk` and d from
    `pac_bayes_disagreement`.

    Args:
      gibbs_risk: this and m, kl and delta as at the top of this module.
      disagreement: in [0, 1/2].
      disagreement_m: size of the sample, labelled or not, on which the disagreement was taken, if another (this is
        PAC-Bound 1').

    Returns: a bound in [0, 1]; increasing in the risk and in kl, decreasing in the disagreement, m and delta.

    Example:
      >>> print(f"{pac_bound_1(0.2, 0.3, 1000, 2.0):.4f}")
      0.5605
    """
    if disagreement_m is None:
        # Of one sample, both come from one vote; of two samples, they need not.
        _check_pair(gibbs_risk, disagreement)
        disagreement_m = m
    _check_sample(m, kl, delta)
    check_between("disagreement_m", disagreement_m, 1, np.inf)
    gibbs_risk, disagreement, m, disagreement_m, kl, delta = floating(
        gibbs_risk, disagreement, m, disagreement_m, kl, delta
    )
    risk = jnp.minimum(pac_bayes_gibbs_risk(gibbs_risk, m, kl, delta / 2), 0.5)
    lowest = pac_bayes_disagreement(disagreement, disagreement_m, kl, delta / 2)
    # A disagreement of 1/2 is a vote of margin 0, whose risk may be 1.
    second = 1 - 2 * lowest
    bound = 1 - (1 - 2 * risk) ** 2 / jnp.where(second > 0, second, 1.0)
    # Two worst cases that no one vote can have together may put the C-bound below 0.
    return jnp.where(risk < 0.5, jnp.maximum(bound, 0.0), jnp.where(jnp.isnan(risk + lowest), jnp.nan, 1.0))


def pac_bound_2(
    gibbs_risk: ArrayLike, disagreement: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05
) -> Array:
    """PAC-Bound 2: the worst C-bound (theorem 2) over disagreement d and joint error e, bounded together.

    R(B_Q) <= sup 1 - (1 - 2e - d)^2 / (1 - 2d), over all (d, e) of a vote of Gibbs risk e + d/2 < 1/2 for which

    kl(d_S, e_S || d, e) <= (2 KL(Q || P) + log((xi(m) + m) / delta)) / m,

    the divergence between distributions on three events: voters disagree, err together, are right together. If some
    such pair reaches a Gibbs risk of 1/2, the bound is 1.

    Args: gibbs_risk in [0, 1], disagreement in [0, 1/2], m, kl and delta, as at the top of this module.

    Returns:
      A bound in [0, 1]; increasing in the risk and in kl, decreasing in the disagreement, m and delta. First
      derivatives are exact; second ones are NaN.

    Example:
      >>> print(f"{pac_bound_2(0.2, 0.3, 1000, 2.0):.5f}")
      0.36044
    """
    _check_pair(gibbs_risk, disagreement)
    _check_sample(m, kl, delta)
    risk, disagreement, m, kl, delta = jnp.broadcast_arrays(*floating(gibbs_risk, disagreement, m, kl, delta))
    budget = (2 * kl + jnp.log((pac_bayes_xi(m) + m) / delta)) / m
    inside = _pair_inside(risk, disagreement) & _sample_inside(m, kl, delta)
    return known(inside, worst_c_bound(disagreement, jnp.maximum(risk - disagreement / 2, 0.0), budget))


def quasi_uniform_kl(weights: ArrayLike) -> Array:
    """KL(Q || P) of the posterior of MinCq's signed weights (Algorithm 1), from the uniform prior on its 2n voters.

    Voter h_j has mass (1/n + w_j) / 2 and its complement -h_j has (1/n - w_j) / 2, so that

    KL(Q || P) = mean_j kl((1 + n w_j) / 2 || 1/2), at most log 2.

    Args:
      weights: ``[n]``, each in [-1/n, 1/n].

    Returns: a scalar; NaN for traced weights outside the box.

    Example:
      >>> print(f"{quasi_uniform_kl(np.array([0.5, -0.5])):.4f} {quasi_uniform_kl(np.array([0.0, 0.0])):.4f}")
      0.6931 0.0000
    """
    check_rank("weights", weights, 1)
    check_finite("weights", weights)
    n = np.shape(weights)[0]
    if not is_traced(weights) and np.max(np.abs(np.asarray(weights))) * n > 1 + _ROUNDING:
        raise ValueError(
            f"weights must lie in [-1/n, 1/n] for n = {n} voters; the largest size is "
            f"{np.max(np.abs(np.asarray(weights))):g}"
        )
    (scaled,) = floating(weights)
    scaled = scaled * n
    # A solver may leave the box by rounding.
    mass = (1 + jnp.clip(scaled, -1.0, 1.0)) / 2
    return jnp.mean(known(jnp.abs(scaled) <= 1 + _ROUNDING, binary_kl(mass, 0.5)))
