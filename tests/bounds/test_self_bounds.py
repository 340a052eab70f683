"""Posteriors that minimise their own bound: certificates, independent optimisers, transformations, and the level."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

import pvmincq_jax as pvm
from pvmincq_jax.bounds.self_bounds import BOUNDS, OF_TWO_SAMPLES


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def draw(m: int, errors: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Independent voters that err at these rates."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([-1.0, 1.0], m)
    return labels[:, None] * np.where(rng.random((m, len(errors))) < errors, -1.0, 1.0), labels


ERRORS = np.linspace(0.1, 0.45, 8)
VOTES, LABELS = draw(400, ERRORS, 0)


def terms(votes: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """Gibbs risk, disagreement and divergence from the uniform prior, by their definitions."""
    margin = votes @ weights
    uniform = np.full(len(weights), 1 / len(weights))
    return (
        np.mean(1 - labels * margin) / 2,
        np.mean(1 - margin**2) / 2,
        float(np.sum(special.rel_entr(weights, uniform))),
    )


@pytest.mark.parametrize("name", list(BOUNDS))
def test_certificate_and_minimum(name: str) -> None:
    fitted = pvm.self_bound(VOTES, LABELS, bound=name)
    weights = np.asarray(fitted.weights)
    assert np.all(weights >= 0)
    assert np.sum(weights) == pytest.approx(1, abs=1e-12)
    risk, disagreement, kl = terms(VOTES, LABELS, weights)
    reported = fitted.gibbs_risk, fitted.disagreement, fitted.kl, fitted.joint_error
    np.testing.assert_allclose(reported, (risk, disagreement, kl, risk - disagreement / 2), atol=1e-12)
    bound = BOUNDS[name]
    assert float(fitted.bound) == pytest.approx(float(bound(risk, disagreement, 400, kl)), abs=1e-10)
    # The optimiser begins at the prior and never returns anything worse.
    assert float(fitted.history[0]) == pytest.approx(
        float(bound(*terms(VOTES, LABELS, np.full(8, 1 / 8))[:2], 400, 0.0)), abs=1e-10
    )
    assert fitted.history.shape == (300,)
    assert fitted.bound == np.min(fitted.history) < fitted.history[0]

    # SciPy goes on from there and finds next to nothing.
    def value(logits: jax.Array) -> jax.Array:
        w = jax.nn.softmax(logits)
        margin = VOTES @ w
        kl = jnp.sum(w * jnp.log(8 * w))
        return bound(jnp.mean(1 - LABELS * margin) / 2, jnp.mean(1 - margin**2) / 2, 400, kl)

    slope = jax.jit(jax.grad(value))
    further = optimize.minimize(jax.jit(value), np.log(weights), jac=slope, method="BFGS")
    assert further.fun >= float(fitted.bound) - 5e-4
    # And the slope that both follow is that of finite differences.
    point = np.linspace(0.5, -0.5, 8)
    numeric = optimize.approx_fprime(point, jax.jit(value), 1e-7)
    np.testing.assert_allclose(slope(point), numeric, atol=1e-5)


def test_leaves_a_void_prior() -> None:
    # Of 40 voters one is right: the vote of all is void, has no slope, and is left all the same.
    votes, labels = draw(300, np.r_[0.02, np.full(39, 0.5)], 3)
    fitted = pvm.self_bound(votes, labels)
    assert fitted.history[0] == 1
    assert fitted.bound < 0.5
    assert fitted.weights[0] > 0.9


def test_prior_and_a_bound_of_ones_own() -> None:
    prior = np.r_[10.0, np.ones(7)]
    fitted = pvm.self_bound(VOTES, LABELS, prior=prior)
    expected = np.sum(special.rel_entr(np.asarray(fitted.weights), prior / prior.sum()))
    assert float(fitted.kl) == pytest.approx(expected, abs=1e-12)
    assert fitted.bound < pvm.self_bound(VOTES, LABELS).bound  # the first voter is the best one

    def twice_the_gibbs_risk(risk, disagreement, m, kl, delta):
        return pvm.pac_bound_0(risk, m, kl, delta)

    fitted = pvm.self_bound(VOTES, LABELS, bound=twice_the_gibbs_risk)
    assert float(fitted.bound) == pytest.approx(float(pvm.pac_bound_0(fitted.gibbs_risk, 400, fitted.kl)), abs=1e-12)


@pytest.mark.parametrize("name", ["tandem", pytest.param("joint", marks=pytest.mark.long)])
def test_transformations(name: str) -> None:
    others = [draw(400, ERRORS, seed) for seed in (0, 5)]
    votes, labels = (jnp.stack(parts) for parts in zip(*others))
    fit = jax.jit(jax.vmap(lambda v, y: pvm.self_bound(v, y, bound=name, steps=50)))
    several = fit(votes, labels)
    for k in range(2):
        one = pvm.self_bound(votes[k], labels[k], bound=name, steps=50)
        np.testing.assert_allclose(several.bound[k], one.bound, atol=1e-10)
        np.testing.assert_allclose(several.weights[k], one.weights, atol=1e-8)
    # The derivative in a vote, through the whole optimisation, against finite differences.
    soft = jnp.asarray(VOTES[:60] * 0.9)

    @jax.jit
    def of_scale(scale: jax.Array) -> jax.Array:
        return pvm.self_bound(soft * scale, LABELS[:60], bound="tandem", steps=5).bound

    numeric = (of_scale(1 + 1e-6) - of_scale(1 - 1e-6)) / 2e-6
    assert float(jax.grad(of_scale)(1.0)) == pytest.approx(float(numeric), rel=1e-4)
    with jax.enable_x64(False):
        single = pvm.self_bound(VOTES.astype(np.float32), LABELS.astype(np.float32), bound=name, steps=50)
    assert single.bound.dtype == np.float32
    assert float(single.bound) == pytest.approx(float(several.bound[0]), abs=1e-4)
    beyond = fit(votes * np.array([2.0, 1.0])[:, None, None], labels)
    np.testing.assert_array_equal(np.isnan(beyond.bound), [True, False])


@pytest.mark.parametrize("name", list(BOUNDS))
def test_level(name: str) -> None:
    # The minimised bound of 100 samples lies below the true risk of its own vote in no more than delta of them.
    rng = np.random.default_rng(2)
    population, labels = draw(300, np.full(6, 0.35), 4)
    rows = rng.integers(300, size=(100, 80))
    fitted = jax.jit(jax.vmap(lambda v, y: pvm.self_bound(v, y, bound=name, steps=40)))(population[rows], labels[rows])
    true_risks = np.mean(labels * (population @ np.asarray(fitted.weights).T).T <= 0, axis=1)
    assert np.mean(np.asarray(fitted.bound) < true_risks) <= 0.05


@pytest.mark.parametrize("name", list(OF_TWO_SAMPLES))
def test_target_bound(name: str) -> None:
    self_labels = np.where(np.arange(400) % 20 == 0, -LABELS, LABELS)
    more, _ = draw(5000, ERRORS, 6)
    fitted = pvm.target_bound(VOTES, self_labels, more, 0.05, bound=name)
    risk, _, kl = terms(VOTES, self_labels, np.asarray(fitted.weights))
    _, disagreement, _ = terms(more, np.ones(5000), np.asarray(fitted.weights))
    np.testing.assert_allclose((fitted.gibbs_risk, fitted.disagreement), (risk, disagreement), atol=1e-12)
    expected = BOUNDS[name](risk, disagreement, 400, kl, disagreement_m=5000)
    assert float(fitted.bound) == pytest.approx(float(expected) + 0.05, abs=1e-10)
    # The gap is added as it is, does not move the weights, and the bound stays below 1.
    other = pvm.target_bound(VOTES, self_labels, more, 0.9, bound=name)
    np.testing.assert_allclose(other.weights, fitted.weights, atol=1e-12)
    assert float(other.bound) == pytest.approx(min(float(fitted.bound) + 0.85, 1), abs=1e-12)
    # Points without labels sharpen the disagreement.
    assert fitted.bound < pvm.target_bound(VOTES, self_labels, VOTES, 0.05, bound=name).bound


def test_votes_on_unlabelled_points() -> None:
    more, _ = draw(1000, ERRORS, 6)
    fitted = pvm.self_bound(VOTES, LABELS, unlabelled_votes=more, bound="seeger", steps=20)
    on_target = pvm.target_bound(VOTES, LABELS, more, 0.0, steps=20)
    np.testing.assert_array_equal(fitted.weights, on_target.weights)
    assert fitted.bound == on_target.bound
    # Out of range under a trace: no number.
    fit = jax.jit(lambda others, gap: pvm.target_bound(VOTES, LABELS, others, gap, steps=2).bound)
    assert np.isfinite(fit(more, 0.1))
    assert np.isnan(fit(2 * more, 0.1))
    assert np.isnan(fit(more, -0.1))


def test_target_bound_holds_where_self_labels_are_wrong() -> None:
    # A fixed self-labelling that is wrong in one point of six, all of one class, and voters that follow it.
    labels = np.tile([1.0, -1.0], 300)
    wrong = np.arange(600) % 6 == 1
    self_labels = np.where(wrong, -labels, labels)
    drawn, drawn_labels = draw(600, np.full(5, 0.05), 7)
    population = drawn * (drawn_labels * self_labels)[:, None]
    gap = float(np.mean(wrong))
    rng = np.random.default_rng(8)
    rows, more = rng.integers(600, size=(100, 150)), rng.integers(600, size=(100, 600))
    fit = jax.jit(jax.vmap(lambda votes, given, others: pvm.target_bound(votes, given, others, gap, steps=40)))
    fitted = fit(population[rows], self_labels[rows], population[more])
    true_risks = np.mean(labels * (population @ np.asarray(fitted.weights).T).T <= 0, axis=1)
    assert np.mean(np.asarray(fitted.bound) < true_risks) <= 0.05
    # With a gap of 0 it would be no bound at all: a large sample has one below the true risk.
    large = np.tile(population, (40, 1))
    void = pvm.target_bound(large, np.tile(self_labels, 40), large, 0.0, steps=40)
    assert void.bound < np.mean(labels * (population @ np.asarray(void.weights)) <= 0)


def test_mincq_path() -> None:
    path = jax.jit(lambda: pvm.mincq_path(VOTES, LABELS))()
    mu_max = float(pvm.max_margin(VOTES, LABELS))
    np.testing.assert_allclose(path.margins, mu_max * np.arange(1, 21) / 20)
    k = int(path.best)
    assert path.bound[k] == np.nanmin(path.bound) < 1
    for i in (9, k):
        weights = np.asarray(pvm.mincq(VOTES, LABELS, float(path.margins[i])).weights)
        np.testing.assert_allclose(path.weights[i], weights, atol=1e-6)
        posterior = np.maximum(np.r_[1 / 8 + weights, 1 / 8 - weights] / 2, 0)
        kl = np.sum(special.rel_entr(posterior, np.full(16, 1 / 16)))
        both = np.c_[VOTES, -VOTES]  # the same vote, on the voters and their complements
        risk, disagreement, _ = terms(both, LABELS, posterior)
        np.testing.assert_allclose((path.gibbs_risk[i], path.disagreement[i]), (risk, disagreement), atol=1e-6)
        assert float(path.kl[i]) == pytest.approx(kl, abs=1e-5)
        assert float(path.bound[i]) == pytest.approx(float(pvm.pac_bound_2(risk, disagreement, 400, kl)), abs=1e-5)
    beyond = pvm.mincq_path(VOTES, LABELS, np.array([0.5, 2.0]) * mu_max, bound="tandem")
    assert np.isnan(beyond.bound[1])
    assert beyond.best == 0


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("votes", lambda: pvm.self_bound(2 * VOTES, LABELS)),
        ("votes", lambda: pvm.self_bound(VOTES[:, 0], LABELS)),
        ("labels", lambda: pvm.self_bound(VOTES, LABELS[:3])),
        ("bound must be one of joint", lambda: pvm.self_bound(VOTES, LABELS, bound="jiont")),
        ("prior", lambda: pvm.self_bound(VOTES, LABELS, prior=np.ones(3))),
        ("prior", lambda: pvm.self_bound(VOTES, LABELS, prior=np.zeros(8))),
        ("delta", lambda: pvm.self_bound(VOTES, LABELS, delta=0.0)),
        ("steps", lambda: pvm.self_bound(VOTES, LABELS, steps=0)),
        ("learning_rate", lambda: pvm.self_bound(VOTES, LABELS, learning_rate=-1.0)),
        ("bound must be one of seeger", lambda: pvm.target_bound(VOTES, LABELS, VOTES, 0.1, bound="joint")),
        ("bound must be one of seeger", lambda: pvm.self_bound(VOTES, LABELS, unlabelled_votes=VOTES)),
        ("label_gap", lambda: pvm.target_bound(VOTES, LABELS, VOTES, -0.1)),
        ("self_labels", lambda: pvm.target_bound(VOTES, 2 * LABELS, VOTES, 0.1)),
        ("unlabelled_votes", lambda: pvm.target_bound(VOTES, LABELS, VOTES[:, :3], 0.1)),
        ("unlabelled_votes", lambda: pvm.target_bound(VOTES, LABELS, 2 * VOTES, 0.1)),
        ("margins", lambda: pvm.mincq_path(VOTES, LABELS, np.array([-0.1]))),
        ("margins", lambda: pvm.mincq_path(VOTES, LABELS, 0.1)),
    ],
)
def test_bad_input(name: str, call) -> None:
    with pytest.raises(ValueError, match=name):
        call()
