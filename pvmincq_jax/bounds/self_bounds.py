"""Majority votes that minimise their own PAC-Bayes bound, and the margin of MinCq that its bound chooses.

MinCq has the least C-bound on the sample at a margin that somebody must choose, and often a PAC-Bayes bound that says
nothing. Here the bound itself is minimised, over the posterior (Viallard et al. 2021) or along MinCq's margins. A
PAC-Bayes bound holds for all posteriors at once: whatever an optimiser did, and however often it looked at the sample,
the bound of the weights that it returns holds. Not in the paper, but for corollary 1 in `target_bound`.

What must hold besides: voters fixed before the sample was drawn, independent examples, votes in [-1, 1].

References:
  Viallard, Germain, Habrard, Morvant. Self-bounding majority vote learning algorithms by the direct minimization of a
  tight PAC-Bayesian C-bound. ECML PKDD 2021.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pvmincq_jax import _checks
from pvmincq_jax._fork import check_process
from pvmincq_jax._types import Array, ArrayLike, takes_options_of
from pvmincq_jax.bounds import pac_bayes
from pvmincq_jax.bounds.kl import binary_kl, floats, known, within
from pvmincq_jax.voting.cbound import expected_disagreement, gibbs_risk
from pvmincq_jax.voting.mincq import max_margin, mincq

__all__ = ["MinCqPath", "SelfBound", "mincq_path", "quasi_uniform_kl", "self_bound", "target_bound"]

Bound = Callable[..., Array]
# Those of two samples can take the disagreement from points without labels.
OF_TWO_SAMPLES: dict[str, Bound] = {
    "seeger": pac_bayes.pac_bound_1,
    "mcallester": pac_bayes.c_bound_mcallester,
    "disagreement": pac_bayes.disagreement_bound,
}
BOUNDS: dict[str, Bound] = {
    "joint": pac_bayes.pac_bound_2,
    "tandem": pac_bayes.tandem_bound,
    "c_tandem": pac_bayes.c_tandem_bound,
    **OF_TWO_SAMPLES,
}


class SelfBound(NamedTuple):
    """A posterior and its certificate. Every figure is of the weights that stand beside it.

    Attributes:
      weights: the posterior over the voters ``[n]``, on the simplex.
      bound: on the risk of the vote.
      gibbs_risk: on the labelled sample.
      disagreement: on the labelled sample, or on the unlabelled one if there is one.
      joint_error: on the labelled sample.
      kl: KL(Q || P) from the prior.
      history: the bound at each step of the optimiser ``[steps]``, from the prior's on.
    """

    weights: Array
    bound: Array
    gibbs_risk: Array
    disagreement: Array
    joint_error: Array
    kl: Array
    history: Array


class _Votes(NamedTuple):
    """On points with labels ``[m, n]`` and, where there are any, on points without ``[k, n]``."""

    labelled: Array
    labels: Array
    unlabelled: Array | None = None

    def certificate(self, weights: Array, kl: Array, bound: Bound, delta: ArrayLike) -> SelfBound:
        """The terms of any weights, and their bound."""
        # Sums over votes may leave the range of a rate by rounding.
        risk = jnp.clip(gibbs_risk(self.labelled, self.labels, weights), 0.0, 1.0)
        disagreement = jnp.clip(expected_disagreement(self.labelled, weights), 0.0, 0.5)
        joint, sizes, inside = risk - disagreement / 2, {}, jnp.max(jnp.abs(self.labelled)) <= 1
        if self.unlabelled is not None:
            disagreement = jnp.clip(expected_disagreement(self.unlabelled, weights), 0.0, 0.5)
            sizes["disagreement_m"] = self.unlabelled.shape[0]
            inside &= jnp.max(jnp.abs(self.unlabelled)) <= 1
        value = known(inside, bound(risk, disagreement, self.labelled.shape[0], kl, delta, **sizes))
        return SelfBound(weights, value, risk, disagreement, joint, kl, value)


def _read(votes: ArrayLike, labels: ArrayLike, delta: ArrayLike, unlabelled: ArrayLike | None = None) -> _Votes:
    check_process()
    _checks.check_points("votes", votes)
    _checks.check_labels("labels", labels, np.shape(votes)[0], soft=True)
    within(-1, 1, votes=votes)
    within(0, 1, open_ends=True, delta=delta)
    _checks.check_number("delta", delta)
    if unlabelled is None:
        return _Votes(*floats(votes, labels))
    _checks.check_points("unlabelled_votes", unlabelled)
    _checks.check_same_dimension("votes", votes, "unlabelled_votes", unlabelled, "voters")
    within(-1, 1, unlabelled_votes=unlabelled)
    return _Votes(*floats(votes, labels, unlabelled))


@functools.partial(jax.jit, static_argnames=("bound", "steps"))
def _minimise(
    votes: _Votes, prior: Array, bound: Bound, delta: ArrayLike, steps: int, learning_rate: ArrayLike
) -> SelfBound:
    """The best of the posteriors that Adam visits, in logits, from the prior on."""
    # Here, as it takes a twentieth of the package's import, which all others do without.
    import optax

    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    log_prior = jnp.log(prior / jnp.sum(prior))

    def objective(logits: Array) -> tuple[Array, SelfBound]:
        log_weights = jax.nn.log_softmax(log_prior + logits)
        weights = jnp.exp(log_weights)
        kl = jnp.maximum(weights @ (log_weights - log_prior), 0.0)
        at = votes.certificate(weights, kl, bound, delta)
        # A bound of 1 has no slope; the bound on the Gibbs risk has one everywhere, and leads to where it is below 1.
        way_out = 1 + pac_bayes.pac_bayes_gibbs_risk(at.gibbs_risk, len(votes.labels), kl, delta)
        return jnp.where(at.bound < 1, at.bound, way_out), at

    def step(carry: tuple[Array, optax.OptState, SelfBound], _: None) -> tuple[tuple, Array]:
        logits, state, best = carry
        gradient, at = jax.grad(objective, has_aux=True)(logits)
        best = jax.tree.map(lambda new, old: jnp.where(at.bound < best.bound, new, old), at, best)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(logits, updates), state, best), at.bound

    start = jnp.zeros_like(log_prior)
    carry = start, optimiser.init(start), objective(start)[1]
    (_, _, best), history = jax.lax.scan(step, carry, None, length=steps)
    return best._replace(history=history)


def _named(bound: str | Bound, names: dict[str, Bound]) -> Bound:
    if callable(bound):
        return bound
    if not isinstance(bound, str) or bound not in names:
        raise ValueError(f"bound must be one of {', '.join(names)}, or a function like them; it is {bound!r}")
    return names[bound]


def self_bound(
    votes: ArrayLike,
    labels: ArrayLike,
    *,
    unlabelled_votes: ArrayLike | None = None,
    bound: str | Bound = "joint",
    prior: ArrayLike | None = None,
    delta: ArrayLike = 0.05,
    steps: int = 300,
    learning_rate: ArrayLike = 0.2,
) -> SelfBound:
    """The posterior over the voters that minimises its own PAC-Bayes bound (Viallard et al. 2021). Not in the paper.

    min_Q bound(r_S(Q), d_S(Q), m, KL(Q || P), delta) over the simplex, by Adam in the logits with a learning rate that
    a cosine brings to 0. It begins at the prior and returns the best posterior on its way, so that the bound is never
    above the prior's own. Several data sets are fitted at once by `jax.vmap`.

    Args:
      votes: ``[m, n]`` in [-1, 1], on a sample that the voters were not learnt from.
      labels: ``[m]`` in [-1, 1].
      unlabelled_votes: ``[k, n]`` in [-1, 1], on other points, from which the disagreement is then taken.
      bound: "joint" (`pac_bound_2`), "seeger" (`pac_bound_1`), "mcallester" (`c_bound_mcallester`), "tandem"
        (`tandem_bound`), "c_tandem" (`c_tandem_bound`), "disagreement" (`disagreement_bound`), or any function of
        (gibbs_risk, disagreement, m, kl, delta). With unlabelled votes "seeger", "mcallester" or "disagreement", or
        any function of (gibbs_risk, disagreement, m, kl, delta, disagreement_m=k).
      prior: ``[n]``, above 0 and fixed before the sample was drawn; None for the uniform one.
      delta: the probability that the bound fails.
      steps: of the optimiser.
      learning_rate: of its first step.

    Returns: a `SelfBound`; its bound is NaN for traced votes or labels outside [-1, 1].

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = rng.choice([-1.0, 1.0], 500)
      >>> votes = labels[:, None] * np.where(rng.random((500, 8)) < np.linspace(0.05, 0.5, 8), -1.0, 1.0)
      >>> fitted = self_bound(votes, labels)
      >>> print(f"{fitted.history[0]:.3f} {fitted.bound:.3f}", *(f"{w:.2f}" for w in fitted.weights[:4]))
      0.664 0.308 0.60 0.24 0.09 0.06
    """
    data = _read(votes, labels, delta, unlabelled_votes)
    _checks.check_number("learning_rate", learning_rate, _checks.check_positive)
    steps = _checks.check_count("steps", steps, 1)
    bound = _named(bound, BOUNDS if unlabelled_votes is None else OF_TWO_SAMPLES)
    n = data.labelled.shape[1]
    prior = np.full(n, 1 / n) if prior is None else prior
    _checks.check_length("prior", prior, n, "voter")
    _checks.check_positive("prior", prior)
    return _minimise(data, jnp.asarray(prior, data.labels.dtype), bound, delta, steps, learning_rate)


@takes_options_of(self_bound)
def target_bound(
    votes: ArrayLike,
    self_labels: ArrayLike,
    unlabelled_votes: ArrayLike,
    label_gap: ArrayLike,
    *,
    bound: str | Bound = "seeger",
    **options: Any,
) -> SelfBound:
    """The posterior of least bound on the target risk: corollary 1, with a PAC-Bayes bound for its C-bound.

    R_T(B_Q) <= bound(r_l(Q), d_T(Q), m, KL(Q || P), delta) + 1/2 E |y - l(x)|,

    with the Gibbs risk r_l on m self-labelled target points and the disagreement d_T, which needs no labels, on others
    or on all. The last term, the rate of wrong self-labels, cannot be known without target labels: it is an argument,
    and with a gap that is too small the result is no bound. It does not move the minimum.

    Where the paper's reasoning fails, so does this. Corollary 1 is false with the term that is printed there (see
    `corollary1`). The function l must be fixed before the target points are drawn, as that of `nn_self_label` on the
    source is; a matching depends on the points that it labels. And a matching leaves points out, so that its bound is
    on the risk where points are matched, not on the whole target.

    Args:
      votes: ``[m, n]`` in [-1, 1], on self-labelled target points.
      self_labels: ``[m]`` in [-1, 1].
      unlabelled_votes: ``[k, n]`` in [-1, 1], on target points.
      label_gap: an upper bound on 1/2 E |y - l(x)| on the target, in [0, 1].
      bound: "seeger", "mcallester" or "disagreement", as of `self_bound` with unlabelled votes.
      **options: prior, delta, steps and learning_rate as of `self_bound`.

    Returns: a `SelfBound` whose bound and history are on the target risk, at most 1.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = rng.choice([-1.0, 1.0], 2000)
      >>> votes = labels[:, None] * np.where(rng.random((2000, 8)) < np.linspace(0.05, 0.5, 8), -1.0, 1.0)
      >>> fitted = target_bound(votes[:500], labels[:500], votes, label_gap=0.05)
      >>> print(f"{fitted.history[0]:.3f} {fitted.bound:.3f}")
      0.851 0.472
    """
    check_process()
    _checks.check_points("votes", votes)
    _checks.check_labels("self_labels", self_labels, np.shape(votes)[0], soft=True)
    _checks.check_points("unlabelled_votes", unlabelled_votes)
    inside = within(0, 1, label_gap=label_gap)
    _checks.check_number("label_gap", label_gap)
    best = self_bound(votes, self_labels, unlabelled_votes=unlabelled_votes, bound=bound, **options)

    def on_target(value: Array) -> Array:
        return known(inside, jnp.minimum(value + label_gap, 1.0))

    return best._replace(bound=on_target(best.bound), history=on_target(best.history))


class MinCqPath(NamedTuple):
    """MinCq along its margins, with a certificate at each.

    Attributes:
      margins: mu ``[k]``.
      weights: signed ones of MinCq ``[k, n]``, NaN where none reach the margin.
      bound: on the risk of each vote ``[k]``.
      gibbs_risk: ``[k]``.
      disagreement: ``[k]``.
      kl: of the quasi-uniform posteriors ``[k]``, at most log 2.
    """

    margins: Array
    weights: Array
    bound: Array
    gibbs_risk: Array
    disagreement: Array
    kl: Array

    @property
    def best(self) -> Array:
        """The index of the least bound."""
        return jnp.nanargmin(self.bound)


def mincq_path(
    votes: ArrayLike,
    labels: ArrayLike,
    margins: ArrayLike | None = None,
    *,
    bound: str | Bound = "joint",
    delta: ArrayLike = 0.05,
) -> MinCqPath:
    """MinCq (Algorithm 1) along its margins mu, each vote with its PAC-Bayes bound: a choice of mu without folds.

    MinCq's posterior over the voters and their complements is quasi-uniform, so that its KL is at most log 2. As the
    bounds hold for all posteriors at once, the least of them holds as it stands. Not in the paper, which
    cross-validates.

    Args:
      votes: ``[m, n]`` in [-1, 1], on a sample that the voters were not learnt from.
      labels: ``[m]`` in [-1, 1].
      margins: ``[k]`` in (0, mu_max], or None for twentieths of mu_max.
      bound: this and delta as of `self_bound`.

    Returns: a `MinCqPath`.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = rng.choice([-1.0, 1.0], 500)
      >>> votes = labels[:, None] * np.where(rng.random((500, 8)) < np.linspace(0.05, 0.5, 8), -1.0, 1.0)
      >>> path = jax.jit(mincq_path)(votes, labels)
      >>> print(f"{path.margins[path.best]:.3f} {path.bound[path.best]:.3f}")
      0.428 0.655
    """
    data, bound = _read(votes, labels, delta), _named(bound, BOUNDS)
    margins = max_margin(data.labelled, data.labels) * jnp.arange(1, 21) / 20 if margins is None else margins
    _checks.check_rank("margins", margins, 1)
    _checks.check_positive("margins", margins)
    if not np.shape(margins)[0]:
        raise ValueError("margins is empty")

    def at(margin: Array) -> SelfBound:
        weights = mincq(data.labelled, data.labels, margin).weights
        return data.certificate(weights, quasi_uniform_kl(weights), bound, delta)

    margins = jnp.asarray(margins, data.labels.dtype)
    path = jax.vmap(at)(margins)
    return MinCqPath(margins, path.weights, path.bound, path.gibbs_risk, path.disagreement, path.kl)


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
    check_process()
    _checks.check_rank("weights", weights, 1)
    n = np.shape(weights)[0]
    if not n:
        raise ValueError("weights is empty")
    # A solver may leave the box by rounding.
    inside = within(-(1 + 1e-6) / n, (1 + 1e-6) / n, weights=weights)
    (scaled,) = floats(weights)
    mass = (1 + jnp.clip(scaled * n, -1.0, 1.0)) / 2
    return jnp.mean(known(inside, binary_kl(mass, 0.5)))
