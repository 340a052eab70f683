"""Section 3's inequalities: each holds on random instances, and each is reached by some instance."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pvmincq_jax as pvm
from pvmincq_jax.bounds.deviation import (
    Smoothness,
    disagreement_deviation_terms,
    moved_disagreement_bound,
    moved_gibbs_bound,
    moved_vote_bound,
    rbf_smoothness,
)
from pvmincq_jax.bounds.domain import self_label_gap
from pvmincq_jax.matching.selflabel import MatchedSpread, matched_spread

SLACK = 1e-12
POINTS, VOTERS = 6, 4


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


seeds = st.integers(0, 2**32 - 1)
on_many = settings(max_examples=120, deadline=None)


class Instance:
    """Random votes, labels and weights; every kind of weights that the library knows, and rows of weight 0."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.votes = self.draw_votes()
        self.labels = rng.choice([-1.0, 1.0], POINTS)
        self.soft = rng.choice(
            [self.labels, -self.labels, rng.uniform(-1, 1, POINTS), np.sign(rng.normal(size=POINTS))]
        )
        kind = rng.integers(4)
        self.weights = [
            rng.dirichlet(np.ones(VOTERS)),
            rng.uniform(-1, 1, VOTERS) / VOTERS,
            rng.normal(size=VOTERS) * 3,
            np.eye(VOTERS)[0] * rng.choice([-1, 1]),
        ][kind]
        self.proper = float(np.sum(np.abs(self.weights))) <= 1 + 1e-15 * VOTERS
        self.sample_weights = rng.choice([0.0, 0.5, 2.0], POINTS) if rng.random() < 0.5 else None
        if self.sample_weights is not None:
            self.sample_weights[0] = 1.0

    def draw_votes(self) -> np.ndarray:
        kind = self.rng.integers(3)
        if kind == 0:
            return self.rng.choice([-1.0, 1.0], (POINTS, VOTERS))
        return self.rng.uniform(-1 if kind == 1 else 0, 1, (POINTS, VOTERS))


jitted_corollary1 = jax.jit(pvm.corollary1, static_argnames="as_printed")


@on_many
@given(seeds)
def test_corollary1_holds(seed: int) -> None:
    case = Instance(seed)
    case.sample_weights = np.ones(POINTS) if case.sample_weights is None else case.sample_weights
    bound = jitted_corollary1(case.votes, case.soft, case.labels, case.weights, sample_weights=case.sample_weights)
    assert bound >= pvm.vote_risk(case.votes, case.labels, case.weights, sample_weights=case.sample_weights) - SLACK
    # True labels may be soft as well.
    bound = jitted_corollary1(case.votes, case.labels, case.soft, case.weights, sample_weights=case.sample_weights)
    assert bound >= pvm.vote_risk(case.votes, case.soft, case.weights, sample_weights=case.sample_weights) - SLACK


def test_corollary1_counter_example_and_tightness() -> None:
    labels = np.array([1.0, -1.0, 1.0, -1.0])
    votes, weights = -labels[:, None], np.array([1.0])
    assert pvm.vote_risk(votes, labels, weights) == 1
    assert pvm.corollary1(votes, -labels, labels, weights, as_printed=True) == 0
    assert pvm.corollary1(votes, -labels, labels, weights) == 1  # reached
    # Also in between: a quarter of the self-labels wrong, and the vote follows them.
    wrong = labels * np.array([-1, 1, 1, 1])
    assert pvm.corollary1(wrong[:, None], wrong, labels, weights) == 0.25 == pvm.vote_risk(
        wrong[:, None], labels, weights
    )  # fmt: skip


def test_corollary1_terms() -> None:
    case = Instance(3)
    bound = pvm.corollary1(case.votes, case.soft, case.labels, case.weights)
    expected = pvm.c_bound(case.votes, case.soft, case.weights) + np.mean(np.abs(case.labels - case.soft)) / 2
    assert float(bound) == pytest.approx(float(expected), abs=SLACK)
    printed = pvm.corollary1(case.votes, case.soft, case.labels, case.weights, as_printed=True)
    expected = pvm.c_bound(case.votes, case.soft, case.weights) + abs(np.mean(case.labels - case.soft)) / 2
    assert float(printed) == pytest.approx(float(expected), abs=SLACK)


@on_many
@given(seeds)
def test_theorem1_holds_with_the_joint_error_gap(seed: int) -> None:
    source, target = Instance(seed), Instance(seed + 1)
    weights = source.weights
    terms = pvm.theorem1(source.votes, source.labels, target.votes, weights, target_labels=target.labels)
    risk = pvm.gibbs_risk(target.votes, target.labels, weights)
    quarter = terms.source_gibbs_risk + terms.domain_disagreement / 4 + terms.joint_error_gap
    assert risk <= quarter + 1e-10
    assert quarter <= terms.value + terms.joint_error_gap + SLACK
    margins = source.labels * (source.votes @ weights)
    joint = pvm.joint_error(source.votes, source.labels, weights)
    assert float(joint) == pytest.approx(np.mean(((1 - margins) / 2) ** 2), abs=1e-10)


def test_theorem1_is_tight() -> None:
    # One voter, +1 everywhere, on a source that it gets right and a target that it gets wrong: all of it is lambda.
    ones = np.ones((2, 1))
    terms = pvm.theorem1(ones, np.ones(2), ones, np.ones(1), target_labels=-np.ones(2))
    assert (terms.source_gibbs_risk, terms.domain_disagreement, terms.joint_error_gap) == (0, 0, 1)
    # Two voters that agree on the source and not on the target: one half disagreement, one half lambda.
    terms = pvm.theorem1(
        np.array([[1.0, 1.0], [-1.0, -1.0]]), np.ones(2), np.array([[1.0, -1.0], [-1.0, -1.0]]), np.full(2, 0.5),
        target_labels=np.ones(2),
    )  # fmt: skip
    risk = pvm.gibbs_risk(np.array([[1.0, -1.0], [-1.0, -1.0]]), np.ones(2), np.full(2, 0.5))
    assert float(risk) == terms.source_gibbs_risk + terms.domain_disagreement / 4 + terms.joint_error_gap
    assert pvm.theorem1(ones, np.ones(2), ones, np.ones(1)).joint_error_gap is None


@on_many
@given(seeds)
def test_deviations_on_pairs(seed: int) -> None:
    case = Instance(seed)
    size = case.rng.choice([0.1, 0.5, 2.0])
    matched = np.clip(case.votes + size * case.rng.uniform(-1, 1, case.votes.shape), -1, 1)
    count = np.ones(POINTS) if case.sample_weights is None else case.sample_weights
    eps = pvm.eps_h(case.votes, matched, count)
    gibbs = pvm.gibbs_risk(case.votes, case.labels, case.weights, sample_weights=count)
    gap = abs(float(gibbs - pvm.gibbs_risk(matched, case.labels, case.weights, sample_weights=count)))
    assert gap <= pvm.gibbs_deviation_bound(eps, case.weights) + SLACK
    terms = disagreement_deviation_terms(eps, matched, case.weights, sample_weights=count)
    disagreement = pvm.domain_disagreement(
        case.votes, matched, case.weights, source_sample_weights=count, target_sample_weights=count
    )
    assert disagreement <= terms.sharp + 1e-10
    assert terms.sharp <= terms.value + 1e-10
    assert bool(terms.holds) == (case.proper and float(eps) <= 1)
    if case.proper:
        assert gap <= pvm.gibbs_deviation_bound(eps) + SLACK
    if terms.holds:
        assert float(terms.value) == pytest.approx(float(terms.printed), rel=1e-12)


def test_deviations_are_tight() -> None:
    one = np.ones(1)
    source, target = np.array([[1.0], [0.75]]), np.array([[0.5], [0.25]])
    eps = pvm.eps_h(source, target)
    gap = pvm.gibbs_risk(target, np.ones(2), one) - pvm.gibbs_risk(source, np.ones(2), one)
    assert gap == pvm.gibbs_deviation_bound(eps) == 0.25
    terms = disagreement_deviation_terms(eps, target, one)
    assert terms.sharp == pvm.domain_disagreement(source, target, one)
    # The paper's form is reached where a voter moves by 1.
    source, target = np.array([[1.0]]), np.array([[0.0]])
    assert pvm.disagreement_deviation_bound(1.0, target, one) == 1 == pvm.domain_disagreement(source, target, one)
    # Weights of any size: twice the weights, twice the move.
    assert pvm.gibbs_deviation_bound(1.0, 2 * one) == 1
    assert disagreement_deviation_terms(1.0, target, 2 * one).sharp == pvm.domain_disagreement(source, target, 2 * one)


def test_printed_disagreement_needs_small_moves_and_weights() -> None:
    source, target, one = np.array([[1.0]]), np.array([[-0.5]]), np.ones(1)
    assert not disagreement_deviation_terms(pvm.eps_h(source, target), target, one).holds
    # With weights whose sizes sum to more than 1, the printed form is wrong.
    source, target, weights = np.array([[1.0]]), np.array([[0.5]]), np.array([4.0])
    terms = disagreement_deviation_terms(pvm.eps_h(source, target), target, weights)
    true = pvm.domain_disagreement(source, target, weights)
    assert terms.printed < true <= terms.sharp <= terms.value
    assert pvm.disagreement_deviation_bound(0.5, target, weights) == terms.value


def test_printed_disagreement_is_wrong_for_large_votes() -> None:
    # The paper asks no more of voters than that they are bounded. With votes of size up to 3, eps_H = 3:
    source, target, one = np.array([[3.0]]), np.array([[0.0]]), np.ones(1)
    terms = disagreement_deviation_terms(pvm.eps_h(source, target), target, one)
    assert terms.printed == 3 < pvm.domain_disagreement(source, target, one) == 9 == terms.sharp == terms.value


@on_many
@given(st.floats(-1, 1), st.floats(-1, 1))
def test_printed_disagreement_survives_votes_of_size_one(source: float, target: float) -> None:
    # For |M| <= 1 the last step's conclusion holds without its precondition, by another road:
    # |a^2 - b^2| = |a - b| |a + b| and |a + b| <= 1 + |b|.
    assert abs(source**2 - target**2) <= abs(source - target) * (1 + 2 * abs(target)) + SLACK


def test_intermediate_line_of_the_paper_is_false_for_negative_votes() -> None:
    # Printed for one pair: |M(x_s)^2 - M(x_t)^2| <= |eps^2 + 2 eps M(x_t)|.
    source, target, eps = -0.75, -0.25, 0.5
    assert abs(eps**2 + 2 * eps * target) == 0
    assert abs(source**2 - target**2) == 0.5 == eps**2 + 2 * eps * abs(target)


def test_eps_h() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(9, 2)), rng.normal(size=(11, 2))
    source_votes, target_votes = rng.uniform(-1, 1, (9, 5)), rng.uniform(-1, 1, (11, 5))
    assert pvm.eps_h(source_votes, target_votes[:9]) == np.max(np.abs(source_votes - target_votes[:9]))
    distance = np.linalg.norm(source[:, None] - target, axis=-1)
    for radius in (0.3, 1.0, 10.0):
        near = distance <= radius
        rows, columns = np.nonzero(near)
        expected = np.max(np.abs(source_votes[:, None] - target_votes)[near])
        assert float(pvm.eps_h(source_votes[rows], target_votes[columns])) == expected
        assert float(jax.jit(pvm.eps_h)(source_votes[rows], target_votes[columns])) == expected
        pairs = pvm.match(source, target, radius)
        assert pvm.eps_h(source_votes[pairs.source], target_votes[pairs.target]) <= expected


def test_eps_h_gradient() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(7, 2))
    rows, columns = np.nonzero(np.linalg.norm(points[:, None] - points - 0.5, axis=-1) <= 1)

    def of_gamma(gamma: jax.Array) -> jax.Array:
        source_votes, target_votes = (pvm.rbf_votes(x, points, gamma) for x in (points, points + 0.5))
        return pvm.eps_h(source_votes[rows], target_votes[columns])

    numeric = (of_gamma(1 + 1e-6) - of_gamma(1 - 1e-6)) / 2e-6
    assert float(jax.grad(of_gamma)(1.0)) == pytest.approx(float(numeric), rel=1e-6)


def spread_of_pairs(target, source_index, target_index, pairs):
    plan = jnp.zeros((POINTS, len(target)), float).at[source_index, target_index].add(pairs)
    return matched_spread(target, plan)


@jax.jit
def averaged_votes(target, source_index, target_index, pairs, centers, gamma, weights):
    spread = spread_of_pairs(target, source_index, target_index, pairs)
    moved_votes = pvm.rbf_votes(spread.moved, centers, gamma)
    return (
        spread,
        rbf_smoothness(gamma, weights),
        moved_votes,
        pvm.rbf_votes(target, centers, gamma)[target_index],
    )


@jax.jit
def averaged_bounds(spread, smoothness, moved_votes, target_votes, labels, source_index, pairs, weights):
    risk = pvm.gibbs_risk(moved_votes, labels, weights, sample_weights=spread.weights)
    target_risk = pvm.gibbs_risk(target_votes, labels[source_index], weights, sample_weights=pairs)
    return (
        moved_vote_bound(spread, smoothness),
        jnp.abs(risk - target_risk),
        moved_gibbs_bound(spread, smoothness),
        pvm.domain_disagreement(
            moved_votes, target_votes, weights, source_sample_weights=spread.weights, target_sample_weights=pairs
        ),
        moved_disagreement_bound(spread, moved_votes, weights, smoothness),
    )


class Averaged:
    """Random pair weights, and a vote over Gaussian kernels."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.target = rng.normal(size=(8, 2)) * rng.choice([0.05, 0.3, 1.0])
        self.labels = rng.choice([-1.0, 1.0], POINTS)
        self.source_index = rng.integers(POINTS, size=15)
        self.target_index = rng.integers(8, size=15)
        self.pairs = rng.uniform(0, 1, 15) * rng.choice([0.0, 1.0], 15, p=[0.3, 0.7])
        self.pairs[0] = 0.5
        self.centers = rng.normal(size=(VOTERS, 2)) * 0.5
        self.gamma = rng.uniform(0.2, 5, VOTERS) if rng.random() < 0.5 else np.full(VOTERS, rng.uniform(0.2, 5))
        self.weights = rng.choice([rng.dirichlet(np.ones(VOTERS)), rng.normal(size=VOTERS)])
        self.spread, self.smoothness, self.moved_votes, self.target_votes = averaged_votes(
            self.target, self.source_index, self.target_index, self.pairs, self.centers, self.gamma, self.weights
        )


@on_many
@given(seeds)
def test_averaged_pairs(seed: int) -> None:
    case = Averaged(seed)
    moved, target = np.asarray(case.moved_votes) @ case.weights, np.asarray(case.target_votes) @ case.weights
    vote_bound, risk_gap, risk_bound, gap, bound = averaged_bounds(
        case.spread, case.smoothness, case.moved_votes, case.target_votes, case.labels, case.source_index, case.pairs,
        case.weights,
    )  # fmt: skip
    case.spread = jax.tree.map(np.asarray, case.spread)
    vote_bound = np.asarray(vote_bound)
    for s in range(POINTS):
        mine = (case.source_index == s) & (case.pairs > 0)
        if not mine.any():
            assert case.spread.weights[s] == 0
            continue
        points, share = case.target[case.target_index[mine]], case.pairs[mine] / case.pairs[mine].sum()
        np.testing.assert_allclose(case.spread.moved[s], share @ points, atol=1e-12)
        distance = np.linalg.norm(points - share @ points, axis=1)
        assert float(case.spread.mean_distance[s]) == pytest.approx(share @ distance, abs=1e-12)
        assert float(case.spread.variance[s]) == pytest.approx(share @ distance**2, abs=1e-12)
        assert abs(moved[s] - share @ target[mine]) <= vote_bound[s] + SLACK
    assert risk_gap <= risk_bound + SLACK
    assert gap <= bound + SLACK


def spread_of_two(radius: float, centre: float = 0.0) -> MatchedSpread:
    target = centre + np.array([[-radius], [radius]])
    return matched_spread(target, np.array([[0.5, 0.5]]))


def test_averaged_pairs_are_tight() -> None:
    one, two = np.ones(1), np.ones(2)
    # A vote L |x| around its kink, for the first order.
    spread, slope = spread_of_two(1.0), 0.5
    smoothness = Smoothness(slope, np.inf)
    moved, target = np.zeros((1, 1)), np.full((2, 1), slope)
    assert moved_vote_bound(spread, smoothness) == slope
    gap = abs(pvm.gibbs_risk(moved, one, one) - pvm.gibbs_risk(target, two, one))
    assert gap == moved_gibbs_bound(spread, smoothness)
    disagreement = pvm.domain_disagreement(moved, target, one)
    assert disagreement == moved_disagreement_bound(spread, moved, one, smoothness)
    # A vote 1 - H/2 x^2 at its top, for the second.
    smoothness = Smoothness(np.inf, 0.5)
    moved, target = np.ones((1, 1)), np.full((2, 1), 0.75)
    gap = abs(pvm.gibbs_risk(moved, one, one) - pvm.gibbs_risk(target, two, one))
    assert gap == moved_gibbs_bound(spread, smoothness) == 0.125
    # A linear vote, where only the square moves.
    moved, target = np.zeros((1, 1)), np.array([[-0.5], [0.5]])
    bound = moved_disagreement_bound(spread, moved, one, Smoothness(0.5, 0.0))
    assert bound == 0.25 == pvm.domain_disagreement(moved, target, one)
    # A Gaussian voter at its centre: the bound's ratio to the truth tends to 1 with the spread.
    spread, gamma = spread_of_two(1e-2), 3.0
    votes = pvm.rbf_votes(np.array([[0.0], [-1e-2], [1e-2]]), np.zeros((1, 1)), gamma)
    gap = float(votes[0, 0] - np.mean(votes[1:]))
    assert gap == pytest.approx(float(moved_vote_bound(spread, rbf_smoothness(gamma))[0]), rel=1e-3)
    # And its slope at its steepest point.
    steepest = 1 / np.sqrt(2 * gamma)
    x = np.array([[steepest - 1e-4], [steepest + 1e-4]])
    votes = pvm.rbf_votes(x, np.zeros((1, 1)), gamma)
    assert float(pvm.eps_h(votes[:1], votes[1:])) == pytest.approx(
        float(2e-4 * rbf_smoothness(gamma).lipschitz),
        rel=1e-6,
    )


@on_many
@given(seeds)
def test_no_voter_moves_farther_than_its_slope_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, gamma, radius = rng.normal(size=(POINTS, 2)), rng.uniform(0.1, 5, VOTERS), rng.uniform(0.01, 1)
    direction = rng.normal(size=(POINTS, 2))
    moved = x + radius * rng.uniform(0, 1, (POINTS, 1)) * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    centers = rng.normal(size=(VOTERS, 2))
    eps = pvm.eps_h(pvm.rbf_votes(x, centers, gamma), pvm.rbf_votes(moved, centers, gamma))
    assert eps <= radius * rbf_smoothness(gamma).lipschitz + SLACK


def test_transformations() -> None:
    case = Instance(7)
    other = case.draw_votes()
    weights = jnp.stack([jnp.full(VOTERS, 0.25), jnp.full(VOTERS, -0.1)])
    lanes = jax.vmap(lambda w: pvm.corollary1(case.votes, case.soft, case.labels, w))(weights)
    np.testing.assert_allclose(lanes[0], pvm.corollary1(case.votes, case.soft, case.labels, weights[0]), rtol=1e-12)
    terms = jax.jit(pvm.theorem1)(case.votes, case.labels, other, weights[0])
    np.testing.assert_allclose(terms.value, pvm.theorem1(case.votes, case.labels, other, weights[0]).value, rtol=1e-12)
    functions = [
        lambda w: pvm.corollary1(case.votes, case.labels, case.soft, w),
        lambda w: pvm.theorem1(case.votes, case.labels, other, w).value,
        lambda w: pvm.disagreement_deviation_bound(0.3, other, w),
        lambda w: pvm.disagreement_deviation_bound(1.7, other, 9 * w),
        lambda w: pvm.gibbs_deviation_bound(0.3, w),
    ]
    point = jnp.array([0.3, -0.15, 0.2, 0.1])
    for function in functions:
        numeric = [(function(point + 1e-6 * e) - function(point - 1e-6 * e)) / 2e-6 for e in np.eye(VOTERS)]
        np.testing.assert_allclose(jax.grad(function)(point), numeric, rtol=1e-5, atol=1e-8)


def test_spread_gradient() -> None:
    case = Averaged(5)

    @jax.jit
    def bound(target: jax.Array) -> jax.Array:
        spread = spread_of_pairs(target, case.source_index, case.target_index, case.pairs)
        votes = pvm.rbf_votes(spread.moved, case.centers, case.gamma)
        return moved_disagreement_bound(spread, votes, case.weights, case.smoothness)

    slope = jax.jit(jax.grad(bound))
    gradient = slope(case.target)
    step = np.zeros_like(case.target)
    step[case.target_index[0], 1] = 1e-6
    numeric = (bound(case.target + step) - bound(case.target - step)) / 2e-6
    assert float(gradient[case.target_index[0], 1]) == pytest.approx(float(numeric), rel=1e-5, abs=1e-8)
    # Points that all lie on their mean.
    assert np.all(np.isfinite(slope(np.zeros_like(case.target))))


def test_float32() -> None:
    with jax.enable_x64(False):
        votes = np.array([[0.5], [0.25]], np.float32)
        labels = np.array([1.0, 1.0], np.float32)
        weights = np.ones(1, np.float32)
        assert pvm.corollary1(votes, labels, labels, weights).dtype == np.float32
        assert pvm.eps_h(votes, votes).dtype == np.float32
        assert pvm.disagreement_deviation_bound(0.5, votes, weights).dtype == np.float32


ONES = np.ones((3, 2))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("self_labels", lambda: pvm.corollary1(ONES, [2.0, 0, 0], np.ones(3), np.ones(2))),
        ("self_labels", lambda: pvm.corollary1(ONES, np.ones(2), np.ones(3), np.ones(2))),
        ("labels", lambda: pvm.corollary1(ONES, np.ones(3), np.array([np.nan, 1, 1]), np.ones(2))),
        ("weights", lambda: pvm.corollary1(ONES, np.ones(3), np.ones(3), np.ones(3))),
        ("sample_weights", lambda: self_label_gap(np.ones(3), np.ones(3), sample_weights=-np.ones(3))),
        ("source_labels", lambda: pvm.theorem1(ONES, np.ones(2), ONES, np.ones(2))),
        ("target_votes", lambda: pvm.theorem1(ONES, np.ones(3), np.ones((3, 1)), np.ones(2))),
        ("target_labels", lambda: pvm.theorem1(ONES, np.ones(3), ONES, np.ones(2), target_labels=np.ones(9))),
        (
            "target_sample_weights",
            lambda: pvm.theorem1(ONES, np.ones(3), ONES, np.ones(2), target_sample_weights=np.zeros(3)),
        ),
        ("source_votes", lambda: pvm.eps_h(ONES, np.ones((2, 2)))),
        ("target_votes", lambda: pvm.eps_h(ONES, np.full((3, 2), np.nan))),
        ("pair_weights", lambda: pvm.eps_h(ONES, ONES, np.zeros(3))),
        ("eps_h", lambda: pvm.gibbs_deviation_bound(-0.1)),
        ("weights", lambda: pvm.gibbs_deviation_bound(0.1, np.array([np.nan]))),
        ("eps_h", lambda: pvm.disagreement_deviation_bound(np.nan, ONES, np.ones(2))),
        ("target_votes", lambda: pvm.disagreement_deviation_bound(0.1, np.ones(3), np.ones(2))),
        ("gamma", lambda: rbf_smoothness(0.0)),
        ("gamma", lambda: rbf_smoothness(np.ones(3), np.ones(2))),
        ("target", lambda: matched_spread(np.full((3, 2), np.nan), np.ones((2, 3)))),
        ("plan must have a column per target point", lambda: matched_spread(ONES, np.ones((2, 2)))),
        ("plan must not be negative", lambda: matched_spread(ONES, -np.ones((2, 3)))),
        ("plan is empty", lambda: matched_spread(ONES, np.ones((0, 3)))),
        ("moved_votes", lambda: moved_disagreement_bound(
            matched_spread(ONES, np.ones((2, 3))), ONES, np.ones(2), Smoothness(1.0, 1.0))),
    ],
)  # fmt: skip
def test_bad_input(name: str, call) -> None:
    with pytest.raises(ValueError, match=name):
        call()
