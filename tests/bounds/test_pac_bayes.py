"""The PAC-Bayes bounds: known values, independent solutions, derivatives, and the ways they must move."""

import itertools
from collections.abc import Iterator
from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

import pvmincq_jax as pvm
from pvmincq_jax.bounds.kl import binary_kl, kl_inverse_lower, kl_inverse_upper, pac_bayes_xi
from pvmincq_jax.bounds.pac_bayes import (
    c_bound_mcallester,
    pac_bayes_disagreement,
    pac_bayes_gibbs_risk,
)
from pvmincq_jax.bounds.self_bounds import quasi_uniform_kl
from pvmincq_jax.voting.cbound import expected_disagreement


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def exact_xi(m: int) -> float:
    k = np.arange(m + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = special.xlogy(k, k / m) + special.xlogy(m - k, 1 - k / m)
    binomials = special.gammaln(m + 1) - special.gammaln(k + 1) - special.gammaln(m - k + 1)
    return float(np.sum(np.exp(binomials + logs)))


def trinomial_kl(sample: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sum(special.rel_entr(sample, truth)))


def worst_c_bound(risk: float, disagreement: float, budget: float) -> float:
    """PAC-Bound 2 by brute force: every ray from the sample's own pair, followed to the edge of the region."""
    sample = np.array([disagreement, risk - disagreement / 2, 1 - risk - disagreement / 2])

    def along(angle: float) -> float:
        direction = np.array([np.cos(angle), np.sin(angle), -np.cos(angle) - np.sin(angle)])
        with np.errstate(divide="ignore"):
            steps = np.where(direction < 0, -sample / np.minimum(direction, -1e-300), np.inf)
        longest = np.min(steps) * (1 - 1e-12)
        if trinomial_kl(sample, sample + longest * direction) > budget:
            longest = optimize.brentq(
                lambda step: trinomial_kl(sample, sample + step * direction) - budget, 0, longest, xtol=1e-15
            )
        d, e, _ = sample + longest * direction
        if d > 2 * (np.sqrt(max(e, 0)) - e):
            return 0.0  # no vote is there
        return 1.0 if 2 * e + d >= 1 else 1 - (1 - 2 * e - d) ** 2 / (1 - 2 * d)

    angles = np.linspace(0, 2 * np.pi, 721)
    values = [along(angle) for angle in angles]
    best = angles[int(np.argmax(values))]
    refined = optimize.minimize_scalar(
        lambda angle: -along(angle), bounds=(best - 0.01, best + 0.01), method="bounded", options={"xatol": 1e-10}
    )
    return max(-refined.fun, max(values))


def possible(risk: float, share: float) -> tuple[float, float]:
    """A Gibbs risk and a disagreement that a vote can have."""
    return risk, share * 2 * risk * (1 - risk)


risks = st.floats(0.001, 0.49)
shares = st.floats(0.0, 0.999)
sizes = st.integers(1, 100_000)
divergences = st.floats(0.0, 50.0)
levels = st.floats(0.001, 0.5)


def test_known_value() -> None:
    # Printed by the authors' published program to six digits; its searches stop within 1e-5 of the edge on which the
    # maximum lies, so that it stays 3e-6 below it.
    assert float(pvm.pac_bound_2(0.2, 0.3, 1000, 2.0)) == pytest.approx(0.360433, abs=4e-6)
    budget = (4 + np.log((exact_xi(1000) + 1000) / 0.05)) / 1000
    assert float(pvm.pac_bound_2(0.2, 0.3, 1000, 2.0)) == pytest.approx(worst_c_bound(0.2, 0.3, budget), abs=1e-9)


@pytest.mark.parametrize(
    ("risk", "disagreement", "m", "kl"),
    [(0.1, 0.15, 1000, 2.0), (0.05, 0.02, 5000, 5.0), (0.45, 0.49, 100_000, 0.5), (0.3, 0.4, 20_000, 1.0),
     (0.2, 0.0, 500, 1.0), (0.01, 0.0198, 300, 0.1), (0.3, 0.42, 50, 3.0), (0.48, 0.4992, 10**7, 0.0)],
)  # fmt: skip
def test_pac_bound_2_is_the_supremum(risk: float, disagreement: float, m: int, kl: float) -> None:
    budget = (2 * kl + np.log((float(pac_bayes_xi(m)) + m) / 0.05)) / m
    expected = worst_c_bound(risk, disagreement, budget)
    assert float(pvm.pac_bound_2(risk, disagreement, m, kl)) == pytest.approx(expected, abs=1e-6)


def test_bounds_0_and_1_by_their_definition() -> None:
    def inverse(q: float, budget: float, other_end: float) -> float:
        return optimize.brentq(
            lambda p: trinomial_kl(np.array([q, 1 - q]), np.array([p, 1 - p])) - budget, q, other_end
        )

    xi = exact_xi(1000)
    risk = inverse(0.2, (2 + np.log(xi / 0.05)) / 1000, 1 - 1e-12)
    assert float(pvm.pac_bound_0(0.2, 1000, 2.0)) == pytest.approx(2 * risk, abs=1e-10)
    risk = inverse(0.2, (2 + np.log(2 * xi / 0.05)) / 1000, 1 - 1e-12)
    disagreement = inverse(0.3, (4 + np.log(2 * xi / 0.05)) / 1000, 1e-12)
    expected = 1 - (1 - 2 * risk) ** 2 / (1 - 2 * disagreement)
    assert float(pvm.pac_bound_1(0.2, 0.3, 1000, 2.0)) == pytest.approx(expected, abs=1e-10)
    disagreement = inverse(0.3, (4 + np.log(2 * exact_xi(9000) / 0.05)) / 9000, 1e-12)
    expected = 1 - (1 - 2 * risk) ** 2 / (1 - 2 * disagreement)
    more = pvm.pac_bound_1(0.2, 0.3, 1000, 2.0, disagreement_m=9000)
    assert float(more) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("m", [1, 2, 3, 10, 63, 64, 65, 66, 100, 999, 20_000])
def test_xi(m: int) -> None:
    assert float(pac_bayes_xi(m)) == pytest.approx(exact_xi(m), rel=1e-9)
    assert np.sqrt(m) <= float(pac_bayes_xi(m)) <= 2 * np.sqrt(m) * (1 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 1), st.floats(1e-12, 20))
def test_inverses_spend_the_budget(q: float, budget: float) -> None:
    upper, lower = kl_inverse_upper(q, budget), kl_inverse_lower(q, budget)
    assert 0 <= lower <= q + 1e-15
    assert q <= upper <= 1
    for p in (upper, lower):
        if 1e-6 < p < 1 - 1e-6:
            assert float(binary_kl(q, p)) == pytest.approx(budget, rel=1e-6, abs=1e-12)


def digits_50(q: float, budget: float, lower: bool = False) -> float:
    """The kl inverse by halving, to fifty digits, in decimal arithmetic of eighty."""
    with localcontext() as context:
        context.prec = 80
        rate = Decimal(q)

        def spent(p: Decimal) -> Decimal:
            halves = ((rate, p), (1 - rate, 1 - p))
            return sum((a * (a / b).ln() for a, b in halves if a > 0), Decimal(0))

        near, far = rate, Decimal(0 if lower else 1)
        for _ in range(170):
            middle = (near + far) / 2
            near, far = (middle, far) if spent(middle) <= Decimal(budget) else (near, middle)
        return float(near)


@pytest.mark.parametrize("q", [0.0, 1e-6, 0.01, 0.2, 0.5, 0.93, 1 - 1e-9])
@pytest.mark.parametrize("budget", [1e-12, 1e-5, 0.01, 0.3, 3.0])
def test_inverses_in_fifty_digits(q: float, budget: float) -> None:
    assert float(kl_inverse_upper(q, budget)) == pytest.approx(digits_50(q, budget), abs=3e-15)
    assert float(kl_inverse_lower(q, budget)) == pytest.approx(digits_50(q, budget, lower=True), abs=3e-15)


@pytest.mark.parametrize(
    ("risk", "disagreement", "m", "kl", "delta"),
    [(0.2, 0.3, 1000, 2.0, 0.05), (0.08, 0.1, 143, 1.5, 0.05), (0.18, 0.24, 240, 1.0, 0.01), (0.3, 0.0, 5000, 0.0, 0.1),
     (0.02, 0.02, 60, 0.5, 0.05), (0.25, 0.37, 4000, 3.0, 0.05)],
)  # fmt: skip
def test_further_bounds_by_their_definition(risk: float, disagreement: float, m: int, kl: float, delta: float) -> None:
    def budget(voters: int, level: float, size: int = m) -> float:
        return (voters * kl + np.log(2 * np.sqrt(size) / level)) / size

    sample, joint = (risk, disagreement, m, kl, delta), risk - disagreement / 2
    tandem = 4 * digits_50(joint, budget(2, delta))
    assert float(pvm.tandem_bound(*sample)) == pytest.approx(min(tandem, 1), abs=1e-12)
    e, high = digits_50(joint, budget(2, delta / 2)), digits_50(risk, budget(1, delta / 2))
    low = digits_50(risk, budget(1, delta / 2), lower=True)
    for size in (m, 50 * m):
        d = digits_50(disagreement, budget(2, delta / 2, size), lower=True)
        value = pvm.disagreement_bound(*sample, disagreement_m=size)
        assert float(value) == pytest.approx(min(4 * high - 2 * d, 1), abs=1e-12)
    r = risk + np.sqrt(budget(1, delta / 2) / 2)
    d = max(disagreement - np.sqrt(budget(2, delta / 2) / 2), 0)
    value = float(c_bound_mcallester(*sample))
    assert value == pytest.approx(1 - (1 - 2 * r) ** 2 / (1 - 2 * d) if r < 0.5 else 1, abs=1e-12)
    assert value >= float(pvm.pac_bound_1(*sample))

    # The worst C-tandem over the possible Gibbs risks is the least Chebyshev-Cantelli bound over mu.
    def cantelli(mu: float) -> float:
        return (e - 2 * mu * (low if mu >= 0 else high) + mu**2) / (0.5 - mu) ** 2

    risks = np.linspace(low, min(high, np.sqrt(e)), 200_001)
    worst = np.max((e - risks**2) / (e - risks + 0.25)) if risks[-1] < 0.5 else 1
    assert float(pvm.c_tandem_bound(*sample)) == pytest.approx(worst, abs=1e-8)
    least = min(optimize.minimize_scalar(cantelli, bounds=ends, method="bounded", options={"xatol": 1e-10}).fun
                for ends in ((-3, 0), (0, 0.4999)))  # fmt: skip
    assert float(pvm.chebyshev_cantelli_bound(*sample)) == pytest.approx(min(least, 1), abs=1e-8)
    for mu in (-0.4, 0.0, 0.1):
        value = pvm.chebyshev_cantelli_bound(*sample, mu=mu)
        assert float(value) == pytest.approx(min(cantelli(mu), 1), abs=1e-12)
        assert value >= pvm.c_tandem_bound(*sample) - 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverses_at_the_ends(dtype: type) -> None:
    tolerance = 4 * float(np.finfo(dtype).eps)
    budget = np.asarray(0.3, dtype)
    zero, one = np.asarray(0, dtype), np.asarray(1, dtype)
    assert kl_inverse_upper(zero, budget).dtype == dtype
    assert float(kl_inverse_upper(zero, budget)) == pytest.approx(1 - np.exp(-0.3), abs=tolerance)
    assert float(kl_inverse_lower(one, budget)) == pytest.approx(np.exp(-0.3), abs=tolerance)
    assert float(kl_inverse_upper(one, budget)) == 1
    assert float(kl_inverse_lower(zero, budget)) == 0
    for q in (zero, np.asarray(0.4, dtype), one):
        assert float(kl_inverse_upper(q, zero)) == float(q)
        assert float(kl_inverse_lower(q, zero)) == pytest.approx(float(q), abs=tolerance)
    # The slope in the budget at q = 0 is exp(-budget); nothing moves at q = 1.
    assert float(jax.grad(kl_inverse_upper, 1)(zero, budget)) == pytest.approx(np.exp(-0.3), abs=tolerance)
    assert float(jax.grad(kl_inverse_lower, 1)(one, budget)) == pytest.approx(-np.exp(-0.3), abs=tolerance)
    assert jax.grad(kl_inverse_upper, (0, 1))(one, budget) == (0, 0)
    assert jax.grad(kl_inverse_lower, (0, 1))(zero, budget) == (0, 0)
    assert float(jax.grad(kl_inverse_upper)(np.asarray(0.4, dtype), zero)) == 1
    for q, spent in itertools.product((zero, np.asarray(0.4, dtype), one), (zero, budget)):
        for inverse in (kl_inverse_upper, kl_inverse_lower):
            assert np.all(np.isfinite(jax.grad(inverse, (0, 1))(q, spent)))


INVERSES = [jax.jit(inverse) for inverse in (kl_inverse_upper, kl_inverse_lower)]
INVERSE_GRADIENTS = [jax.jit(jax.grad(inverse, (0, 1))) for inverse in INVERSES]


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 0.99), st.floats(0.001, 2))
def test_inverse_derivatives(q: float, budget: float) -> None:
    step = 1e-6
    for inverse, gradient in zip(INVERSES, INVERSE_GRADIENTS):
        by_q, by_budget = gradient(q, budget)
        numeric_q = (inverse(q + step, budget) - inverse(q - step, budget)) / (2 * step)
        numeric_budget = (inverse(q, budget + step) - inverse(q, budget - step)) / (2 * step)
        assert float(by_q) == pytest.approx(float(numeric_q), rel=1e-4, abs=1e-7)
        assert float(by_budget) == pytest.approx(float(numeric_budget), rel=1e-4, abs=1e-7)


def test_inverse_second_derivative() -> None:
    slope = jax.jit(jax.grad(kl_inverse_upper))
    numeric = (slope(0.2 + 1e-5, 0.1) - slope(0.2 - 1e-5, 0.1)) / 2e-5
    assert float(jax.jit(jax.hessian(kl_inverse_upper))(0.2, 0.1)) == pytest.approx(float(numeric), rel=1e-6)


OF_PAIRS = [pvm.pac_bound_1, pvm.pac_bound_2, c_bound_mcallester, pvm.tandem_bound, pvm.disagreement_bound,
            pvm.c_tandem_bound]  # fmt: skip
BOUNDS = [
    jax.jit(lambda risk, disagreement, m, kl, delta: pvm.pac_bound_0(risk, m, kl, delta)),
    *map(jax.jit, OF_PAIRS),
]

GRADIENTS = [jax.jit(jax.grad(bound, (0, 1, 3))) for bound in OF_PAIRS]


@settings(max_examples=60, deadline=None)
@given(risks, shares, sizes, divergences, levels, st.floats(1.0, 1.5))
def test_monotone(risk: float, share: float, m: int, kl: float, delta: float, factor: float) -> None:
    risk, disagreement = possible(risk, share)
    more_risk = min(risk * factor, 0.5)
    for bound in BOUNDS:
        value = float(bound(risk, disagreement, m, kl, delta))
        assert 0 <= value <= 1
        slack = 1e-12
        assert float(bound(more_risk, disagreement, m, kl, delta)) >= value - slack
        assert float(bound(risk, disagreement / factor, m, kl, delta)) >= value - slack
        assert float(bound(risk, disagreement, m, kl * factor, delta)) >= value - slack
        assert float(bound(risk, disagreement, m, kl, delta / factor)) >= value - slack
        assert float(bound(risk, disagreement, int(m * factor) + 1, kl, delta)) <= value + slack
        # Never below what the sample itself says.
        own = 1 - (1 - 2 * risk) ** 2 / (1 - 2 * disagreement)
        assert value >= (2 * risk if bound is BOUNDS[0] else own) - slack


@settings(max_examples=60, deadline=None)
@given(st.floats(0.02, 0.4), st.floats(0.05, 0.95), st.integers(500, 100_000), st.floats(0.1, 10.0))
def test_derivatives(risk: float, share: float, m: int, kl: float) -> None:
    point = np.array([*possible(risk, share), m, kl])
    steps = 1e-6 * np.eye(4)[[0, 1, 3]]
    for bound, gradient in zip(BOUNDS[1:], GRADIENTS):
        for slope, step in zip(gradient(*point), steps):
            low, high = float(bound(*(point - step), 0.05)), float(bound(*(point + step), 0.05))
            if high == 1:
                continue  # at the edge of the trivial bound
            assert float(slope) == pytest.approx((high - low) / 2e-6, rel=1e-4, abs=1e-6)


def test_second_derivative_of_bound_2_is_not_a_plausible_number() -> None:
    assert np.isnan(jax.jit(jax.grad(jax.grad(pvm.pac_bound_2)))(0.2, 0.3, 1000.0, 2.0))


def test_gradients_without_nan() -> None:
    edges = [(0.0, 0.0, 1000.0, 2.0), (0.5, 0.5, 1000.0, 2.0), (0.7, 0.2, 1000.0, 2.0), (0.2, 0.32, 10.0, 0.0),
             (0.2, 0.0, 1e6, 0.0), (1.0, 0.0, 1.0, 0.0), (0.2, 0.3, 1.0, 1e8)]  # fmt: skip
    for edge, gradient in itertools.product(edges, GRADIENTS):
        assert np.all(np.isfinite(gradient(*edge))), edge


def test_large_samples_give_the_c_bound() -> None:
    for bound in (pvm.pac_bound_1, pvm.pac_bound_2):
        assert float(bound(0.2, 0.3, 10**13, 1.0)) == pytest.approx(1 - 0.36 / 0.4, abs=1e-4)
    assert float(pvm.pac_bound_0(0.2, 10**13, 1.0)) == pytest.approx(0.4, abs=1e-4)


def test_transformations_and_broadcasting() -> None:
    risk = jnp.array([0.1, 0.2, 0.3])
    direct = pvm.pac_bound_2(risk, 0.1, 1000, 2.0)
    np.testing.assert_array_equal(direct, jax.jit(pvm.pac_bound_2)(risk, 0.1, 1000, 2.0))
    np.testing.assert_array_equal(direct, jax.jit(jax.vmap(lambda r: pvm.pac_bound_2(r, 0.1, 1000, 2.0)))(risk))
    sizes = jnp.array([10, 1000, 100_000])
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(lambda m: pvm.pac_bound_1(0.2, 0.3, m, 2.0)))(sizes), pvm.pac_bound_1(0.2, 0.3, sizes, 2.0)
    )
    forward = jax.jit(jax.vmap(jax.jacfwd(lambda r: pvm.pac_bound_2(r, 0.1, 1000, 2.0))))(risk)
    reverse = jax.jit(jax.vmap(jax.grad(lambda r: pvm.pac_bound_2(r, 0.1, 1000, 2.0))))(risk)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)


def test_float32() -> None:
    single = [np.float32(v) for v in (0.2, 0.3, 1000, 2.0, 0.05)]
    for bound, gradient in zip(BOUNDS[1:], GRADIENTS):
        value = bound(*single)
        assert value.dtype == np.float32
        assert float(value) == pytest.approx(float(bound(0.2, 0.3, 1000.0, 2.0, 0.05)), abs=6e-6)
        np.testing.assert_allclose(gradient(*single), gradient(0.2, 0.3, 1000.0, 2.0), rtol=1e-3)


def test_holds_on_samples() -> None:
    # Fixed voters with known error rates: over many samples, the bounds fail no more often than delta says.
    rng = np.random.default_rng(0)
    voters = np.where(rng.random((400, 7)) < 0.3, -1.0, 1.0)  # a population of 400 points whose label is +1
    weights = np.full(7, 1 / 7)
    true_risk = float(pvm.vote_risk(voters, np.ones(400), weights))
    rows = rng.integers(400, size=(200, 100))
    samples = jnp.asarray(voters[rows])
    risk = jax.vmap(lambda votes: pvm.gibbs_risk(votes, jnp.ones(100), weights))(samples)
    disagreement = jax.vmap(lambda votes: expected_disagreement(votes, weights))(samples)
    for bound in BOUNDS:
        assert np.mean(np.asarray(bound(risk, disagreement, 100, 0.0, 0.05)) < true_risk) <= 0.05


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=5, max_size=5))
def test_quasi_uniform_kl(scaled: list[float]) -> None:
    weights = np.array(scaled) / len(scaled)
    n = len(scaled)
    posterior = np.concatenate([(1 / n + weights) / 2, (1 / n - weights) / 2])
    expected = np.sum(special.rel_entr(np.maximum(posterior, 0), np.full(2 * n, 1 / (2 * n))))
    assert float(quasi_uniform_kl(weights)) == pytest.approx(expected, abs=1e-12)
    assert -1e-15 <= float(quasi_uniform_kl(weights)) <= np.log(2) + 1e-12


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("gibbs_risk", lambda: pvm.pac_bound_0(-0.1, 100, 1.0)),
        ("gibbs_risk", lambda: pvm.pac_bound_1(np.nan, 0.1, 100, 1.0)),
        ("gibbs_risk", lambda: pac_bayes_gibbs_risk(1.1, 100, 1.0)),
        ("disagreement", lambda: pvm.pac_bound_1(0.4, 0.6, 100, 1.0)),
        ("disagreement", lambda: pvm.pac_bound_2(0.1, 0.3, 100, 1.0)),
        ("disagreement", lambda: pac_bayes_disagreement(-0.1, 100, 1.0)),
        ("m must", lambda: pvm.pac_bound_2(0.2, 0.3, 0, 1.0)),
        ("kl", lambda: pvm.pac_bound_2(0.2, 0.3, 100, -1.0)),
        ("kl", lambda: pvm.pac_bound_2(0.2, 0.3, 100, np.inf)),
        ("delta", lambda: pvm.pac_bound_2(0.2, 0.3, 100, 1.0, 0.0)),
        ("delta", lambda: pvm.pac_bound_0(0.2, 100, 1.0, 1.0)),
        ("disagreement_m", lambda: pvm.pac_bound_1(0.2, 0.3, 100, 1.0, disagreement_m=0)),
        ("disagreement_m", lambda: pvm.disagreement_bound(0.2, 0.3, 100, 1.0, disagreement_m=0)),
        ("disagreement", lambda: pvm.tandem_bound(0.1, 0.3, 100, 1.0)),
        ("mu must", lambda: pvm.chebyshev_cantelli_bound(0.2, 0.3, 100, 1.0, mu=0.5)),
        ("q must", lambda: kl_inverse_upper(1.5, 0.1)),
        ("budget", lambda: kl_inverse_lower(0.5, -0.1)),
        ("p must", lambda: binary_kl(0.5, 1.5)),
        ("weights", lambda: quasi_uniform_kl(np.array([0.9, 0.0]))),
        ("weights", lambda: quasi_uniform_kl(np.zeros((2, 2)))),
    ],
)
def test_bad_input(name: str, call) -> None:
    with pytest.raises(ValueError, match=name):
        call()


def test_bad_traced_input_is_nan() -> None:
    for arguments in [(0.1, 0.3, 100, 1.0), (1.2, 0.3, 100, 1.0), (0.2, 0.3, 0, 1.0), (0.2, 0.3, 100, -1.0),
                      (np.nan, 0.3, 100, 1.0)]:  # fmt: skip
        assert np.isnan(BOUNDS[2](*arguments, 0.05)), arguments
    for bound in BOUNDS:
        assert np.isnan(bound(0.2, 0.3, 100, -1.0, 0.05))
    assert np.isnan(jax.jit(lambda mu: pvm.chebyshev_cantelli_bound(0.2, 0.3, 100, 1.0, mu=mu))(0.6))
    assert np.isnan(jax.jit(pvm.pac_bound_0)(0.2, 0, 1.0))
    assert np.isnan(jax.jit(kl_inverse_upper)(1.2, 0.1))
    assert np.isnan(jax.jit(binary_kl)(0.2, -0.1))
    assert np.isnan(jax.jit(quasi_uniform_kl)(jnp.array([0.9, 0.0])))


def test_joint_error_is_the_gap_between_risk_and_disagreement() -> None:
    rng = np.random.default_rng(1)
    votes, labels, weights = rng.uniform(-1, 1, (50, 4)), rng.choice([-1.0, 1.0], 50), np.full(4, 0.25)
    joint = np.mean(((1 - labels * (votes @ weights)) / 2) ** 2)
    risk, disagreement = pvm.gibbs_risk(votes, labels, weights), expected_disagreement(votes, weights)
    assert float(risk - disagreement / 2) == pytest.approx(joint, abs=1e-12)
    assert float(pac_bayes_gibbs_risk(joint, 1000, 2 * 1.0)) > joint
