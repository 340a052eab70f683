"""Section 2's quantities: each is its equation, and the relations between them hold on every instance drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pvmincq_jax as pvm
from pvmincq_jax.voting import cbound

POINTS, VOTERS = 6, 4
SLACK = 1e-12
on_many = settings(max_examples=120, deadline=None, derandomize=True)

# Multiples of 1/64 make sums exact, so that margins of exactly 0 and weights of exactly 0 are drawn often.
grid = st.integers(-64, 64).map(lambda k: k / 64)
votes_drawn = hnp.arrays(float, (POINTS, VOTERS), elements=grid | st.sampled_from([-1.0, 0.0, 1.0]))
labels_drawn = hnp.arrays(float, POINTS, elements=st.sampled_from([-1.0, 1.0])) | hnp.arrays(
    float, POINTS, elements=grid
)
weights_drawn = hnp.arrays(float, VOTERS, elements=grid)
sample_weights_drawn = hnp.arrays(float, POINTS, elements=st.sampled_from([0.0, 0.0, 0.25, 1.0, 3.0])).filter(np.any)

first_moment, second_moment, gibbs_risk, vote_risk, c_bound, disagreement = map(
    jax.jit,
    (
        pvm.first_moment,
        pvm.second_moment,
        pvm.gibbs_risk,
        pvm.vote_risk,
        pvm.c_bound,
        cbound.expected_disagreement,
    ),
)
QUANTITIES = (first_moment, gibbs_risk, vote_risk, c_bound)


def of_four(quantity):
    """The quantity with its sample weights as fourth argument, for derivatives by position."""
    return jax.jit(lambda votes, labels, weights, sample: quantity(votes, labels, weights, sample_weights=sample))


def close(first, second) -> None:
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, sample_weights_drawn)
def test_each_quantity_is_its_equation(votes, labels, weights, sample_weights) -> None:
    """Expectations as plain sums over points, voters, pairs of voters, and both values of a random label."""
    first = second = error = 0.0
    for i in range(POINTS):
        share = sample_weights[i] / sum(sample_weights)
        vote = sum(weights[j] * votes[i, j] for j in range(VOTERS))
        for j in range(VOTERS):
            for k in range(VOTERS):
                second += share * weights[j] * weights[k] * votes[i, j] * votes[i, k]
        for y, chance in ((1, (1 + labels[i]) / 2), (-1, (1 - labels[i]) / 2)):
            first += share * chance * y * vote
            error += share * chance * (y * vote <= 0)
    close(first_moment(votes, labels, weights, sample_weights=sample_weights), first)
    close(second_moment(votes, weights, sample_weights=sample_weights), second)
    close(gibbs_risk(votes, labels, weights, sample_weights=sample_weights), (1 - first) / 2)
    close(vote_risk(votes, labels, weights, sample_weights=sample_weights), error)
    close(disagreement(votes, weights, sample_weights=sample_weights), (1 - second) / 2)
    bound = c_bound(votes, labels, weights, sample_weights=sample_weights)
    if first > 1e-9:
        close(bound, 1 - first**2 / second)
    elif first < -1e-9:
        assert bound == 1


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, sample_weights_drawn)
def test_the_c_bound_is_above_the_risk_of_the_vote(votes, labels, weights, sample_weights) -> None:
    # Half of all draws have a negative first moment; turned around, they count too.
    first = first_moment(votes, labels, weights, sample_weights=sample_weights)
    assume(bool(first != 0))
    sign = jnp.sign(first)
    bound = c_bound(votes, labels, sign * weights, sample_weights=sample_weights)
    assert bound >= vote_risk(votes, labels, sign * weights, sample_weights=sample_weights) - SLACK
    assert -SLACK <= bound <= 1


def test_the_c_bound_is_reached() -> None:
    """Cantelli's inequality is tight: margins of 0 on some points, and one same margin on the others."""
    votes, labels, weights = np.array([[0.0], [0.5], [0.5], [0.5]]), np.ones(4), np.ones(1)
    close(pvm.c_bound(votes, labels, weights), 0.25)
    close(pvm.vote_risk(votes, labels, weights), 0.25)


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, sample_weights_drawn, st.booleans())
def test_the_vote_errs_at_most_twice_as_often_as_gibbs(votes, labels, weights, sample_weights, signed) -> None:
    """For a distribution over the voters, and for one over the voters and their complements."""
    distribution = weights if signed else np.abs(weights)
    assume(np.any(distribution))
    distribution = distribution / np.sum(np.abs(distribution))
    risk = vote_risk(votes, labels, distribution, sample_weights=sample_weights)
    assert risk <= 2 * gibbs_risk(votes, labels, distribution, sample_weights=sample_weights) + SLACK


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, sample_weights_drawn, st.integers(-40, 40))
def test_the_scale_of_the_weights_does_not_matter(votes, labels, weights, sample_weights, power) -> None:
    for quantity in (vote_risk, c_bound):
        expected = quantity(votes, labels, weights, sample_weights=sample_weights)
        close(quantity(votes, labels, weights * 2.0**power, sample_weights=sample_weights), expected)
    for quantity in QUANTITIES:
        expected = quantity(votes, labels, weights, sample_weights=sample_weights)
        close(quantity(votes, labels, weights, sample_weights=sample_weights * 2.0**power), expected)


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, sample_weights_drawn, st.integers(0, VOTERS - 1))
def test_a_voter_and_its_complement_are_one(votes, labels, weights, sample_weights, voter) -> None:
    flip = np.where(np.arange(VOTERS) == voter, -1.0, 1.0)
    for quantity in QUANTITIES:
        expected = quantity(votes, labels, weights, sample_weights=sample_weights)
        close(quantity(votes * flip, labels, weights * flip, sample_weights=sample_weights), expected)
    close(
        second_moment(votes * flip, weights * flip, sample_weights=sample_weights),
        second_moment(votes, weights, sample_weights=sample_weights),
    )


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, st.permutations(range(POINTS)))
def test_a_sample_twice_is_the_same_sample(votes, labels, weights, order) -> None:
    twice = np.concatenate([votes, votes[list(order)]])
    for quantity in QUANTITIES:
        expected = quantity(votes, labels, weights)
        close(quantity(twice, np.concatenate([labels, labels[list(order)]]), weights), expected)
        close(quantity(votes, labels, weights, sample_weights=np.full(POINTS, 0.3)), expected)
    close(second_moment(twice, weights), second_moment(votes, weights))


@on_many
@given(votes_drawn, labels_drawn, weights_drawn, sample_weights_drawn)
def test_a_point_of_weight_zero_does_not_count(votes, labels, weights, sample_weights) -> None:
    assume(np.any(sample_weights == 0))
    other_votes = np.where(sample_weights[:, None] > 0, votes, np.nan)
    other_labels = np.where(sample_weights > 0, labels, -labels)
    for quantity in QUANTITIES:
        expected = quantity(votes, labels, weights, sample_weights=sample_weights)
        close(quantity(other_votes, other_labels, weights, sample_weights=sample_weights), expected)


def test_a_margin_of_zero_is_an_error_for_either_label() -> None:
    votes, weights = np.array([[1.0, 1.0]]), np.array([0.5, -0.5])
    for label in (-1.0, 0.3, 1.0):
        assert pvm.vote_risk(votes, np.array([label]), weights) == 1


def test_soft_labels_are_means_of_random_ones() -> None:
    votes, weights = np.array([[1.0]]), np.array([1.0])
    close(pvm.vote_risk(votes, np.array([0.5]), weights), 0.25)
    close(pvm.c_bound(votes, np.array([0.5]), weights), 0.75)


@pytest.mark.parametrize(
    ("weights", "holds"), [([0.0, 0.0], False), ([-1.0, 0.0], False), ([1.0, -1.0], False), ([1.0, 0.0], True)]
)
def test_where_the_precondition_fails_the_bound_is_the_trivial_one(weights: list, holds: bool) -> None:
    votes, labels = np.array([[1.0, 1.0], [0.5, 0.5]]), np.ones(2)
    assert bool(pvm.first_moment(votes, labels, np.array(weights)) > 0) is holds
    assert bool(pvm.c_bound(votes, labels, np.array(weights)) < 1) is holds
    assert holds or pvm.c_bound(votes, labels, np.array(weights)) == 1
    # The same, one per lane.
    lanes = jax.vmap(c_bound, in_axes=(None, None, 0))(votes, labels, np.array([weights, [1.0, 0.0]]))
    np.testing.assert_array_equal(lanes < 1, [holds, True])


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize("weights", [np.zeros(VOTERS), -np.ones(VOTERS), np.eye(VOTERS)[0] * 1e-200, np.ones(VOTERS)])
def test_the_gradient_holds_no_nan(weights: np.ndarray) -> None:
    """At zero weights, at a negative first moment, at a second moment that underflows, and at an ordinary point."""
    rng = np.random.default_rng(0)
    votes, labels = rng.uniform(size=(POINTS, VOTERS)), np.ones(POINTS)
    sample_weights = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 1.0])
    gradients = jax.grad(of_four(pvm.c_bound), argnums=ALL)(votes, labels, weights, sample_weights)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))
    if np.sum(weights) <= 1e-100:
        for gradient in gradients:
            np.testing.assert_array_equal(gradient, 0)
    else:
        assert np.any(np.abs(gradients[2]) > 1e-3)


def test_gradients_agree_with_central_differences() -> None:
    rng = np.random.default_rng(3)
    votes, labels = rng.uniform(-1, 1, (POINTS, VOTERS)), rng.uniform(-0.9, 0.9, POINTS)
    weights = votes.T @ labels  # a positive first moment
    at = (votes, labels, weights, rng.uniform(0.1, 1, POINTS))
    step = 1e-5
    for quantity in map(of_four, (first_moment, gibbs_risk, c_bound)):
        gradients = jax.grad(quantity, argnums=ALL)(*at)
        forward = jax.jacfwd(quantity, argnums=ALL)(*at)
        for argument in ALL:
            flat = at[argument].ravel()
            for entry in range(flat.size):
                change = (np.arange(flat.size) == entry).reshape(at[argument].shape) * step
                above, below = (
                    quantity(*at[:argument], at[argument] + sign * change, *at[argument + 1 :]) for sign in (1, -1)
                )
                difference = (above - below) / (2 * step)
                np.testing.assert_allclose(gradients[argument].ravel()[entry], difference, rtol=1e-6, atol=1e-9)
                np.testing.assert_allclose(forward[argument].ravel()[entry], difference, rtol=1e-6, atol=1e-9)


def test_domain_disagreement_is_the_closed_form() -> None:
    # One voter: the squares of its votes, averaged on either side.
    source, target = np.array([[1.0], [0.0]]), np.array([[0.5], [0.5], [0.5]])
    close(pvm.domain_disagreement(source, target, np.ones(1)), abs(0.25 - 0.5))
    # Sample weights that leave one source point.
    close(pvm.domain_disagreement(source, target, np.ones(1), source_sample_weights=np.array([0.0, 1.0])), 0.25)
    close(pvm.domain_disagreement(source, target, np.ones(1), target_sample_weights=np.array([0.0, 2.0, 1.0])), 0.25)


@on_many
@given(votes_drawn, votes_drawn, weights_drawn)
def test_domain_disagreement_is_its_equation(source, target, weights) -> None:
    total = 0.0
    for j in range(VOTERS):
        for k in range(VOTERS):
            pair = np.mean(target[:, j] * target[:, k]) - np.mean(source[:, j] * source[:, k])
            total += weights[j] * weights[k] * pair
    close(pvm.domain_disagreement(source, target, weights), abs(total))
    close(pvm.domain_disagreement(target, source, weights), abs(total))
    close(pvm.domain_disagreement(source, source, weights), 0)


def test_quantities_follow_the_dtype() -> None:
    votes, labels, weights = np.ones((3, 2), np.float32), np.array([1, -1, 1]), np.ones(2, np.float32)
    for quantity in QUANTITIES:
        assert quantity(votes, labels, weights).dtype == np.float32
        np.testing.assert_allclose(
            quantity(votes.astype(int), labels, weights.astype(int)), quantity(votes, labels, weights), rtol=1e-6
        )


VOTES, LABELS, WEIGHTS = np.ones((3, 2)), np.ones(3), np.ones(2)


@pytest.mark.parametrize("quantity", [pvm.first_moment, pvm.gibbs_risk, pvm.vote_risk, pvm.c_bound])
@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("votes", {"votes": np.ones(3)}),
        ("votes", {"votes": np.full((3, 2), np.nan)}),
        ("weights", {"weights": np.ones(3)}),
        ("labels", {"labels": np.ones(2)}),
        ("labels", {"labels": np.array([1.0, 1.5, 1.0])}),
        ("labels", {"labels": np.array([1.0, np.nan, 1.0])}),
        ("sample_weights", {"sample_weights": np.ones(2)}),
        ("sample_weights", {"sample_weights": np.array([1.0, -1.0, 1.0])}),
        ("sample_weights", {"sample_weights": np.zeros(3)}),
        ("sample_weights", {"sample_weights": np.array([1.0, np.inf, 1.0])}),
    ],
)
def test_bad_input_is_named(quantity, argument: str, bad: dict) -> None:
    given_arguments = {"votes": VOTES, "labels": LABELS, "weights": WEIGHTS} | bad
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        quantity(**given_arguments)


@pytest.mark.parametrize(
    "bad",
    [
        {"votes": np.full((3, 2), np.nan)},
        {"weights": np.full(2, np.nan)},
        {"labels": np.array([1.0, 1.5, 1.0])},
        {"labels": np.array([1.0, np.nan, 1.0])},
        {"sample_weights": np.array([1.0, -0.5, 1.0])},
        {"sample_weights": np.zeros(3)},
        {"sample_weights": np.array([1.0, np.nan, 1.0])},
    ],
)
def test_traced_bad_input_gives_nan(bad: dict) -> None:
    arguments = {"votes": VOTES, "labels": LABELS, "weights": WEIGHTS, "sample_weights": np.ones(3)} | bad
    for quantity in QUANTITIES:
        assert np.isnan(quantity(**arguments))
    zero_margin = arguments | {"weights": np.array([1.0, -1.0]) * arguments["weights"]}
    assert np.isnan(vote_risk(**zero_margin))


def test_domain_disagreement_names_bad_input() -> None:
    with pytest.raises(ValueError, match="weights"):
        pvm.domain_disagreement(VOTES, np.ones((2, 3)), WEIGHTS)
    with pytest.raises(ValueError, match="sample_weights"):
        pvm.domain_disagreement(VOTES, VOTES, WEIGHTS, source_sample_weights=np.ones(2))


def test_lanes_are_independent() -> None:
    rng = np.random.default_rng(5)
    votes, labels = rng.uniform(-1, 1, (POINTS, VOTERS)), np.ones(POINTS)
    weights = np.stack([rng.normal(size=VOTERS), np.full(VOTERS, np.nan), rng.normal(size=VOTERS)])
    lanes = jax.vmap(pvm.c_bound, in_axes=(None, None, 0))(votes, labels, weights)
    assert np.isnan(lanes[1])
    for lane in (0, 2):
        close(lanes[lane], pvm.c_bound(votes, labels, weights[lane]))
    gradient = jax.grad(lambda w: jnp.sum(jax.vmap(pvm.c_bound, in_axes=(None, None, 0))(votes, labels, w)[::2]))(
        weights
    )
    assert np.all(np.isfinite(gradient[::2]))
