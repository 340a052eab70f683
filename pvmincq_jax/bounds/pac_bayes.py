"""PAC-Bayes bounds on the risk of a majority vote, from what a sample says of it.

With probability at least 1 - delta over samples of m independent examples, each bound holds for all posteriors Q at
once, for voters fixed before the sample was drawn and votes in [-1, 1]. Kernels centred on the sample itself break that
precondition: centre them on other points. They are not in the paper, which refers to them (section 2.3). Everywhere

- ``gibbs_risk`` r, ``disagreement`` d and ``joint_error`` e = r - d/2 are those of the vote on the sample
- ``m`` is the size of the sample, at least 1
- ``kl`` is the divergence KL(Q || P) from a prior P fixed beforehand, at least 0
- ``delta`` is the probability that the bound fails, in (0, 1)
- ``disagreement_m`` is the size of the sample, labelled or not, on which the disagreement was taken, if another

Every function works elementwise on arrays that broadcast. Values that are out of range raise a ValueError, or give NaN
where they are traced. r* and r_* stand for the largest and the smallest true Gibbs risk that the sample leaves possible
(`kl_inverse_upper`, `kl_inverse_lower`); d_* and e* likewise.

References:
  Germain et al. Risk bounds for the majority vote: from a PAC-Bayesian analysis to a learning algorithm. JMLR 2015.
  Roy et al. A column generation bound minimization approach with PAC-Bayesian generalization guarantees. AISTATS 2016.
  Masegosa et al. Second order PAC-Bayesian bounds for the weighted majority vote. NeurIPS 2020.
  Wu et al. Chebyshev-Cantelli PAC-Bayes-Bennett inequality for the weighted majority vote. NeurIPS 2021.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pvmincq_jax._checks import check_broadcast, is_traced
from pvmincq_jax._types import Array, ArrayLike, takes_arguments_of
from pvmincq_jax.bounds.kl import floats, kl_inverse_lower, kl_inverse_upper, known, pac_bayes_xi, within, worst_pair

__all__ = [
    "c_bound_mcallester", "c_tandem_bound", "chebyshev_cantelli_bound", "disagreement_bound", "pac_bayes_disagreement",
    "pac_bayes_gibbs_risk", "pac_bound_0", "pac_bound_1", "pac_bound_2", "tandem_bound",
]  # fmt: skip

# Gibbs risk and disagreement come out of sums over votes, so a pair on the edge of what is possible may cross it by
# rounding, in float32 by about this much.
_ROUNDING = 1e-6


class _Sample(NamedTuple):
    """What a bound is computed from, in one dtype; ``inside`` is False where a traced value is out of range."""

    risk: Array
    disagreement: Array
    m: Array
    kl: Array
    delta: Array
    disagreement_m: Array
    inside: Array

    @property
    def joint_error(self) -> Array:
        return jnp.maximum(self.risk - self.disagreement / 2, 0.0)

    def budget(self, voters: int, factor: int = 2, m: Array | None = None) -> Array:
        """(voters KL + log(factor sqrt(m) / delta)) / m: the right side for rates of one voter, or of two drawn from Q.

        The factor is 2, or 4 where two rates are bounded with delta / 2 each.
        """
        m = self.m if m is None else m
        return (voters * self.kl + jnp.log(factor * jnp.sqrt(m) / self.delta)) / m

    def joint_and_risks(self) -> tuple[Array, Array, Array]:
        """e*, r_* and r*: with probability 1 - delta all three hold, as one kl inequality bounds r from both sides."""
        joint, budget = kl_inverse_upper(self.joint_error, self.budget(2, 4)), self.budget(1, 4)
        return joint, kl_inverse_lower(self.risk, budget), kl_inverse_upper(self.risk, budget)


def _two_samples(
    gibbs_risk: ArrayLike,
    disagreement: ArrayLike,
    m: ArrayLike,
    kl: ArrayLike,
    delta: ArrayLike = 0.05,
    *,
    disagreement_m: ArrayLike | None = None,
) -> _Sample:
    """Of one sample, risk and disagreement must be those of one vote: its margin's variance is not negative."""
    one_sample = disagreement_m is None
    disagreement_m = m if disagreement_m is None else disagreement_m
    rates = {"gibbs_risk": gibbs_risk, "disagreement": disagreement, "kl": kl, "delta": delta}
    check_broadcast(**rates, m=m, disagreement_m=disagreement_m)
    inside = within(0, 1, gibbs_risk=gibbs_risk) & within(0, 0.5, disagreement=disagreement)
    inside &= within(1, np.inf, m=m, disagreement_m=disagreement_m) & within(0, np.inf, kl=kl)
    inside &= within(0, 1, open_ends=True, delta=delta)
    risk = gibbs_risk if is_traced(gibbs_risk) else np.asarray(gibbs_risk)
    possible = (disagreement <= 2 * risk * (1 - risk) + _ROUNDING) | (not one_sample)
    if not is_traced(possible) and not np.all(possible):
        raise ValueError(
            f"disagreement must be at most 2 r (1 - r) for a gibbs_risk of r: no vote has a risk of "
            f"{gibbs_risk} and a disagreement of {disagreement}"
        )
    values = floats(gibbs_risk, disagreement, m, kl, delta, disagreement_m)
    return _Sample(*jnp.broadcast_arrays(*values, inside & possible))


def _one_sample(
    gibbs_risk: ArrayLike, disagreement: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05
) -> _Sample:
    return _two_samples(gibbs_risk, disagreement, m, kl, delta)


def pac_bayes_gibbs_risk(gibbs_risk: ArrayLike, m: ArrayLike, kl: ArrayLike, delta: ArrayLike = 0.05) -> Array:
    """Upper bound on the true Gibbs risk r, from its value on the sample r_S. Not in the paper.

    kl(r_S || r) <= (KL(Q || P) + log(xi(m) / delta)) / m.

    The same holds for the joint error, with 2 KL(Q || P) for KL(Q || P), as two voters are drawn from Q.

    Args: gibbs_risk in [0, 1], m, kl and delta, as at the top of this module.

    Returns: a probability; increasing in the risk and in kl, decreasing in m and in delta.

    Example:
      >>> print(f"{pac_bayes_gibbs_risk(0.2, 1000, 2.0):.4f}")
      0.2560
    """
    sample = _one_sample(gibbs_risk, 0.0, m, kl, delta)
    budget = (sample.kl + jnp.log(pac_bayes_xi(sample.m) / sample.delta)) / sample.m
    return known(sample.inside, kl_inverse_upper(sample.risk, budget))


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
    sample = _one_sample(0.5, disagreement, m, kl, delta)
    budget = (2 * sample.kl + jnp.log(pac_bayes_xi(sample.m) / sample.delta)) / sample.m
    return known(sample.inside, kl_inverse_lower(sample.disagreement, budget))


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


def _c_bound(risk: Array, disagreement: Array) -> Array:
    """The C-bound (theorem 2) of the worst risk and the worst disagreement; 1 where the risk reaches 1/2."""
    # A disagreement of 1/2 is a vote of margin 0, whose risk may be 1.
    second = 1 - 2 * disagreement
    bound = 1 - (1 - 2 * jnp.minimum(risk, 0.5)) ** 2 / jnp.where(second > 0, second, 1.0)
    # Two worst cases that no one vote can have together may put the C-bound below 0.
    return jnp.where(risk < 0.5, jnp.maximum(bound, 0.0), jnp.where(jnp.isnan(risk + disagreement), jnp.nan, 1.0))


@takes_arguments_of(_two_samples)
def pac_bound_1(sample: _Sample) -> Array:
    """PAC-Bound 1: the C-bound (theorem 2) on the worst Gibbs risk and disagreement, each bounded with delta / 2.

    R(B_Q) <= 1 - (1 - 2 min(1/2, r))^2 / (1 - 2 d), with r from `pac_bayes_gibbs_risk` and d from
    `pac_bayes_disagreement`. It is Seeger's C-bound of Roy et al., who have 2 sqrt(m) for the smaller xi(m); with
    ``disagreement_m`` it is PAC-Bound 1'.

    Args: gibbs_risk, disagreement in [0, 1/2], m, kl, delta and disagreement_m, as at the top of this module.

    Returns: a bound in [0, 1]; increasing in the risk and in kl, decreasing in the disagreement, m and delta.

    Example:
      >>> print(f"{pac_bound_1(0.2, 0.3, 1000, 2.0):.4f}")
      0.5605
    """
    risk = pac_bayes_gibbs_risk(sample.risk, sample.m, sample.kl, sample.delta / 2)
    lowest = pac_bayes_disagreement(sample.disagreement, sample.disagreement_m, sample.kl, sample.delta / 2)
    return known(sample.inside, _c_bound(risk, lowest))


@takes_arguments_of(_one_sample)
def pac_bound_2(sample: _Sample) -> Array:
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
    budget = (2 * sample.kl + jnp.log((pac_bayes_xi(sample.m) + sample.m) / sample.delta)) / sample.m
    return known(sample.inside, worst_pair(sample.disagreement, sample.joint_error, budget)[0])


@takes_arguments_of(_two_samples)
def c_bound_mcallester(sample: _Sample) -> Array:
    """McAllester's C-bound (Roy et al. 2016): as `pac_bound_1`, with square roots for the kl inverses.

    R(B_Q) <= 1 - (1 - 2 min(1/2, r*))^2 / (1 - 2 max(0, d_*)), where

    r* = r + sqrt((KL + log(4 sqrt(m) / delta)) / (2m)),    d_* = d - sqrt((2 KL + log(4 sqrt(m) / delta)) / (2m)).

    Never below Seeger's, which is `pac_bound_1`. Not in the paper.

    Args: gibbs_risk, disagreement in [0, 1/2], m, kl, delta and disagreement_m, as at the top of this module.

    Returns: a bound in [0, 1]; increasing in the risk and in kl, decreasing in the disagreement, m and delta.

    Example:
      >>> print(f"{c_bound_mcallester(0.2, 0.3, 1000, 2.0):.4f}")
      0.6184
    """
    risk = sample.risk + jnp.sqrt(sample.budget(1, 4) / 2)
    lowest = sample.disagreement - jnp.sqrt(sample.budget(2, 4, sample.disagreement_m) / 2)
    return known(sample.inside, _c_bound(risk, jnp.maximum(lowest, 0.0)))


@takes_arguments_of(_one_sample)
def tandem_bound(sample: _Sample) -> Array:
    """The tandem bound (Masegosa et al. 2020): where the vote errs, two voters err together with probability 1/4.

    R(B_Q) <= 4 e*, with kl(e || e*) = (2 KL(Q || P) + log(2 sqrt(m) / delta)) / m. Not in the paper.

    Args: gibbs_risk in [0, 1], disagreement in [0, 1/2], m, kl and delta, as at the top of this module.

    Returns: a bound in [0, 1]; increasing in e = r - d/2 and in kl, decreasing in m and delta.

    Example:
      >>> print(f"{tandem_bound(0.2, 0.3, 1000, 2.0):.4f}")
      0.3572
    """
    joint = kl_inverse_upper(sample.joint_error, sample.budget(2))
    return known(sample.inside, jnp.minimum(4 * joint, 1.0))


@takes_arguments_of(_two_samples)
def disagreement_bound(sample: _Sample) -> Array:
    """The tandem bound with a disagreement that needs no labels (Masegosa et al. 2020).

    R(B_Q) <= 4 r* - 2 d_*, with log(4 sqrt(m) / delta) in both budgets, as 4e = 4r - 2d. The disagreement may be of
    other points (``disagreement_m`` of them), of which domain adaptation has plenty. Not in the paper.

    Args: gibbs_risk, disagreement in [0, 1/2], m, kl, delta and disagreement_m, as at the top of this module.

    Returns: a bound in [0, 1]; increasing in the risk and in kl, decreasing in the disagreement, m and delta.

    Example:
      >>> print(f"{disagreement_bound(0.2, 0.3, 1000, 2.0):.4f} "
      ...       f"{disagreement_bound(0.2, 0.3, 1000, 2.0, disagreement_m=100_000):.4f}")
      0.5732 0.4546
    """
    risk = kl_inverse_upper(sample.risk, sample.budget(1, 4))
    lowest = kl_inverse_lower(sample.disagreement, sample.budget(2, 4, sample.disagreement_m))
    return known(sample.inside, jnp.clip(4 * risk - 2 * lowest, 0.0, 1.0))


@takes_arguments_of(_one_sample)
def c_tandem_bound(sample: _Sample) -> Array:
    """The C-tandem bound (Masegosa et al. 2020): the C-bound in terms of joint error and Gibbs risk.

    R(B_Q) <= max_{r_* <= r <= r*} (e* - r^2) / (e* - r + 1/4) if all r < 1/2, each of e and r bounded with delta / 2.

    In r the fraction rises up to r = 2 e*, where it is 4 e*, and falls from there: the worst r is the possible one
    that is closest to 2 e*. Not in the paper.

    Args: gibbs_risk in [0, 1], disagreement in [0, 1/2], m, kl and delta, as at the top of this module.

    Returns: a bound in [0, 1], never above the tandem bound at delta / 2.

    Example:
      >>> print(f"{c_tandem_bound(0.2, 0.3, 1000, 2.0):.4f}")
      0.3629
    """
    joint, low, high = sample.joint_and_risks()
    # No vote has a risk above sqrt(e), and one of risk 1/2 may always err.
    risk = jnp.minimum(jnp.clip(2 * joint, low, high), jnp.sqrt(joint))
    usable = risk < 0.5
    risk = jnp.where(usable, risk, 0.0)
    value = (joint - risk**2) / (joint - risk + 0.25)
    return known(sample.inside, jnp.where(usable, value, 1.0))


def chebyshev_cantelli_bound(
    gibbs_risk: ArrayLike,
    disagreement: ArrayLike,
    m: ArrayLike,
    kl: ArrayLike,
    delta: ArrayLike = 0.05,
    *,
    mu: ArrayLike | None = None,
) -> Array:
    """The Chebyshev-Cantelli bound with tandem losses (Wu et al. 2021).

    R(B_Q) <= (e* - 2 mu r + mu^2) / (1/2 - mu)^2, with r = r_* for mu >= 0 and r* below; each of e and r is bounded
    with delta / 2, so that it holds for all mu at once. At mu = 0 it is 4 e*. Not in the paper.

    With a = 1 / (1/2 - mu) it is a^2 (e - r + 1/4) - a (1 - 2r) + 1, linear in (e, r) and convex in a, so that the
    least over mu of the worst over (e, r) is the worst of the least, which is `c_tandem_bound`.

    Args:
      gibbs_risk: this, disagreement in [0, 1/2], m, kl and delta as at the top of this module.
      mu: below 1/2, or None for the best one.

    Returns: a bound in [0, 1].

    Example:
      >>> print(*(f"{chebyshev_cantelli_bound(0.2, 0.3, 1000, 2.0, mu=mu):.4f}" for mu in (-0.1, 0.0, None)))
      0.4241 0.3629 0.3629
    """
    if mu is None:
        return c_tandem_bound(gibbs_risk, disagreement, m, kl, delta)
    below_half = within(-np.inf, 0.5, open_ends=True, mu=mu)
    check_broadcast(gibbs_risk=gibbs_risk, disagreement=disagreement, m=m, kl=kl, delta=delta, mu=mu)
    sample = _one_sample(gibbs_risk, disagreement, m, kl, delta)
    joint, low, high = sample.joint_and_risks()
    (mu,) = floats(mu)
    value = (joint - 2 * mu * jnp.where(mu >= 0, low, high) + mu**2) / (0.5 - mu) ** 2
    return known(sample.inside & below_half, jnp.clip(value, 0.0, 1.0))
