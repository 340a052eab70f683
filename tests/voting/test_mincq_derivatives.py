"""Derivatives of MinCq against central differences, in both modes, in batches, and at degenerate points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import pvmincq_jax as pvm

POINTS, VOTERS = 12, 6
FRACTIONS = (0.15, 0.5, 0.8, 0.97)
STEP = 1e-6


def problem(seed: int, fraction: float) -> dict:
    """Votes in general position, soft labels inside (-1, 1), positive sample weights: all may move both ways."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([-1.0, 1.0], POINTS) * rng.uniform(0.3, 0.95, POINTS)
    votes = np.tanh(rng.normal(size=(POINTS, VOTERS)) + labels[:, None])
    return with_margin({"votes": votes, "labels": labels, "sample_weights": rng.uniform(0.2, 1, POINTS)}, fraction)


def with_margin(at: dict, fraction: float) -> dict:
    shares = at["sample_weights"] / np.sum(at["sample_weights"])
    return at | {"margin": fraction * np.mean(np.abs(at["votes"].T @ (shares * at["labels"])))}


UNRAVEL = ravel_pytree(problem(0, 0.5))[1]


def outputs(flat):
    """The weights, then what follows from them: the C-bound and the vote on a point outside the sample."""
    at = UNRAVEL(flat)
    solution = pvm.mincq(at["votes"], at["labels"], at["margin"], sample_weights=at["sample_weights"])
    return jnp.concatenate([solution.weights, solution.c_bound[None], (solution.weights @ jnp.arange(VOTERS))[None]])


def ravel(at: dict) -> np.ndarray:
    return np.asarray(ravel_pytree(at)[0])


def in_lanes(function, lanes: int):
    """Vmapped, and always compiled for as many lanes: fewer are filled up with copies of the first."""
    compiled = jax.jit(jax.vmap(function))

    def call(flat: np.ndarray) -> np.ndarray:
        filled = np.concatenate([flat, np.repeat(flat[:1], lanes - len(flat), axis=0)])
        return np.asarray(compiled(filled))[: len(flat)]

    return call


values = in_lanes(outputs, POINTS * VOTERS + 2 * POINTS + 1)
forward = in_lanes(jax.jacfwd(outputs), 12)
reverse = in_lanes(jax.jacrev(outputs), 12)


def central_differences(function, flat: np.ndarray) -> np.ndarray:
    steps = STEP * np.eye(flat.size)
    return (function(flat + steps) - function(flat - steps)).T / (2 * STEP)


def is_degenerate(at: dict, weights: np.ndarray) -> bool:
    """Whether a voter is about to reach the box, or to leave it: a small slack, or a small multiplier."""
    shares = at["sample_weights"] / at["sample_weights"].sum()
    gram, margins = at["votes"].T @ (shares[:, None] * at["votes"]), at["votes"].T @ (shares * at["labels"])
    slack = 1 - np.abs(weights) * VOTERS
    inside = slack > 1e-6
    gradient = gram @ weights
    gradient -= margins * (margins[inside] @ gradient[inside]) / (margins[inside] @ margins[inside])
    return bool(np.any(slack[inside] < 1e-2) or np.any(np.abs(gradient[~inside]) < 1e-2 * (weights @ gram @ weights)))


@functools.cache
def ordinary() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and their Jacobians in both modes, one batch each."""
    flat = np.stack([ravel(problem(seed, fraction)) for seed in range(3) for fraction in FRACTIONS])
    return flat, forward(flat), reverse(flat)


@functools.cache
def differences(lane: int) -> np.ndarray:
    """The Jacobian of such a point by central differences."""
    return central_differences(values, ordinary()[0][lane])


@pytest.mark.parametrize("argument", ["votes", "labels", "sample_weights", "margin"])
def test_both_modes_agree_with_central_differences(argument: str) -> None:
    flat, by_forward, by_reverse = ordinary()
    columns = np.flatnonzero(
        ravel({key: np.full_like(value, key == argument) for key, value in UNRAVEL(flat[0]).items()})
    )
    assert columns.size == {"votes": POINTS * VOTERS, "labels": POINTS, "sample_weights": POINTS, "margin": 1}[argument]
    partly_bound, compared = 0, 0
    for lane, at in enumerate(flat):
        weights = values(at[None])[0, :VOTERS]
        if is_degenerate(UNRAVEL(at), weights):
            continue
        compared += 1
        partly_bound += bool(np.any(1 - np.abs(weights) * VOTERS < 1e-6))
        difference = differences(lane)[:, columns]
        # One scale for the weights, one for each other output.
        size = np.max(np.abs(difference), axis=1, keepdims=True)
        size[:VOTERS] = np.max(size[:VOTERS])
        assert np.all(size[:VOTERS] > 1e-3)
        size = np.maximum(size, 1e-3)  # the C-bound does not depend on a margin that leaves the box slack
        assert np.all(np.abs(by_forward[lane][:, columns] - difference) <= 1e-5 * size)
        assert np.all(np.abs(by_reverse[lane][:, columns] - difference) <= 1e-5 * size)
    assert compared >= 8
    assert 4 <= partly_bound < compared


def test_the_modes_agree_with_each_other() -> None:
    _, by_forward, by_reverse = ordinary()
    np.testing.assert_allclose(by_forward, by_reverse, rtol=1e-9, atol=1e-10)


def test_the_scale_of_sample_weights_has_no_derivative() -> None:
    flat, by_forward, _ = ordinary()
    for at, jacobian in zip(flat, by_forward):
        direction = ravel({k: v if k == "sample_weights" else np.zeros_like(v) for k, v in UNRAVEL(at).items()})
        np.testing.assert_allclose(jacobian @ direction, 0, atol=1e-9)


def test_a_slack_box_gives_weights_proportional_to_the_margin() -> None:
    at = problem(1, 0.05)
    flat = ravel(at)[None]
    weights = values(flat)[0, :VOTERS]
    assert np.max(np.abs(weights)) * VOTERS < 0.9
    column = int(np.flatnonzero(ravel({k: np.full_like(v, k == "margin") for k, v in at.items()}))[0])
    np.testing.assert_allclose(forward(flat)[0, :VOTERS, column], weights / at["margin"], rtol=1e-8)


def test_a_factor_made_before_gives_the_same_derivatives() -> None:
    """Derivatives come from the votes, not from the factor, which is a constant."""
    at = problem(2, 0.5)
    factor = pvm.vote_factor(at["votes"])

    @jax.jit
    @jax.grad
    def gradient(votes):
        return pvm.mincq(votes, at["labels"], at["margin"], sample_weights=at["sample_weights"], factor=factor).c_bound

    is_votes = ravel({key: np.full_like(value, key == "votes") for key, value in at.items()}) > 0
    expected = reverse(ravel(at)[None])[0, VOTERS, is_votes].reshape(POINTS, VOTERS)
    np.testing.assert_allclose(gradient(at["votes"]), expected, rtol=1e-8, atol=1e-12)


KERNEL_POINTS, CENTERS = 14, 5


def kernel_at(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    labels = np.resize([-1.0, 1.0], KERNEL_POINTS)
    points = rng.normal(size=(KERNEL_POINTS, 2)) + labels[:, None]
    return {"points": points, "centers": points[:CENTERS] + 0.1, "gamma": np.array(0.6)}


UNRAVEL_KERNEL = ravel_pytree(kernel_at(0))[1]


def kernel_outputs(flat):
    at = UNRAVEL_KERNEL(flat)
    votes = pvm.rbf_votes(at["points"], at["centers"], at["gamma"])
    labels = jnp.resize(jnp.array([-1.0, 1.0]), KERNEL_POINTS)
    solution = pvm.mincq(votes, labels, 0.6 * pvm.max_margin(votes, labels))
    return jnp.concatenate([solution.weights, solution.c_bound[None]])


def test_derivatives_pass_through_gaussian_voters() -> None:
    """Points, centres and gamma, with the margin a fraction of mu_max that moves with them."""
    flat = np.stack([ravel(kernel_at(seed)) for seed in range(3)])
    function = in_lanes(kernel_outputs, flat.shape[1])
    by_forward = in_lanes(jax.jacfwd(kernel_outputs), 3)(flat)
    by_reverse = in_lanes(jax.jacrev(kernel_outputs), 3)(flat)
    for lane, at in enumerate(flat):
        difference = central_differences(function, at)
        # One column per number, one scale per row and argument: gamma's column stands on its own.
        for argument in ("points", "centers", "gamma"):
            columns = ravel({k: np.full_like(v, k == argument) for k, v in kernel_at(0).items()}) > 0
            size = np.max(np.abs(difference[:, columns]), axis=1, keepdims=True)
            size[:CENTERS] = np.max(size[:CENTERS])
            assert np.all(size > 1e-3)
            assert np.all(np.abs((by_forward[lane] - difference)[:, columns]) <= 1e-5 * size)
            assert np.all(np.abs((by_reverse[lane] - difference)[:, columns]) <= 1e-5 * size)


def degenerate(name: str) -> dict:
    at = problem(0, 0.5)
    votes = at["votes"].copy()
    if name == "duplicated voters":
        votes[:, 1] = votes[:, 0]
    elif name == "all voters alike":
        votes[:] = votes[:, :1]
    elif name == "rank 2":
        votes = votes[:, :2] @ np.random.default_rng(0).uniform(0.1, 0.5, (2, VOTERS))
    elif name == "zero voter":
        votes[:, 0] = 0
    elif name in ("zero margin", "zero margin at mu_max"):
        shares = at["sample_weights"] / at["sample_weights"].sum()
        votes[:, 0] -= at["labels"] * (shares @ (at["labels"] * votes[:, 0])) / (shares @ at["labels"] ** 2)
    elif name == "zero weights":
        at["sample_weights"] = np.where(np.arange(POINTS) < 4, 1.0, 0.0)
    fraction = 1.0 if "mu_max" in name else 1e-6 if name == "tiny margin" else 0.5
    return with_margin(at | {"votes": votes}, fraction)


DEGENERATE = (
    "duplicated voters",
    "all voters alike",
    "rank 2",
    "zero voter",
    "zero margin",
    "zero margin at mu_max",
    "at mu_max",
    "zero weights",
    "tiny margin",
)


@functools.cache
def degenerate_jacobians() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flat = np.stack([ravel(degenerate(name)) for name in DEGENERATE] + [ravel(problem(0, 0.5))] * 3)
    return values(flat), forward(flat), reverse(flat)


@pytest.mark.parametrize("name", DEGENERATE)
def test_derivatives_are_finite_at_degenerate_points(name: str) -> None:
    lane = DEGENERATE.index(name)
    found, by_forward, by_reverse = (part[lane] for part in degenerate_jacobians())
    assert np.all(np.isfinite(found))
    assert np.all(np.isfinite(by_forward))
    assert np.all(np.isfinite(by_reverse))
    np.testing.assert_allclose(by_forward, by_reverse, rtol=1e-6, atol=1e-8 * np.max(np.abs(by_forward)))


@pytest.mark.parametrize("name", ["duplicated voters", "rank 2", "zero voter", "zero margin", "zero weights"])
def test_the_c_bound_s_derivative_is_right_where_the_weights_are_not_unique(name: str) -> None:
    """In the directions that keep the degeneracy: labels, and the margin."""
    at = degenerate(name)
    flat = ravel(at)
    _, by_forward, _ = (part[DEGENERATE.index(name)] for part in degenerate_jacobians())
    columns = ravel({key: np.full_like(value, key in ("labels", "margin")) for key, value in at.items()}) > 0
    difference = central_differences(values, flat)[VOTERS, columns]
    np.testing.assert_allclose(by_forward[VOTERS, columns], difference, rtol=0, atol=1e-5 * np.max(np.abs(difference)))


def test_duplicates_share_their_derivative() -> None:
    """The choice of least norm: what two equal voters gain, they gain in equal parts."""
    at = degenerate("duplicated voters")
    _, by_forward, _ = (part[DEGENERATE.index("duplicated voters")] for part in degenerate_jacobians())
    column = int(np.flatnonzero(ravel({k: np.full_like(v, k == "margin") for k, v in at.items()}))[0])
    np.testing.assert_allclose(by_forward[0, column], by_forward[1, column], rtol=1e-6)


def test_at_mu_max_the_weights_stay() -> None:
    _, by_forward, _ = (part[DEGENERATE.index("at mu_max")] for part in degenerate_jacobians())
    np.testing.assert_array_equal(by_forward[:VOTERS], 0)


@pytest.mark.parametrize("margins", [(2.0, 0.5), (-1.0, 0.5), (np.nan, 0.5)])
def test_a_failed_lane_has_derivative_zero_and_spoils_no_other(margins: tuple) -> None:
    at = problem(0, 0.5)
    flat = np.stack([ravel(at | {"margin": at["margin"] * 2 * margin}) for margin in margins])
    alone = reverse(flat[1:])[0]
    for jacobians in (reverse(flat), forward(flat)):
        np.testing.assert_array_equal(jacobians[0], 0)
        np.testing.assert_allclose(jacobians[1], alone, rtol=1e-9, atol=1e-10)


BAD = {
    "infeasible": {"margin": np.array(10.0)},
    "NaN margin": {"margin": np.array(np.nan)},
    "NaN labels": {"labels": np.full(POINTS, np.nan)},
    "labels out of range": {"labels": np.full(POINTS, 2.0)},
    "no sample weight": {"sample_weights": np.zeros(POINTS)},
    "negative sample weight": {"sample_weights": -np.ones(POINTS)},
}


@pytest.fixture(scope="module")
def shared_votes_gradient():
    """The gradient of a sum over lanes with respect to votes that all lanes share."""
    at = problem(0, 0.5)

    @jax.jit
    def gradient(labels, sample_weights, margin):
        def total(votes):
            def lane(labels, sample_weights, margin):
                solution = pvm.mincq(votes, labels, margin, sample_weights=sample_weights)
                return jnp.where(solution.status == pvm.Status.SOLVED, solution.c_bound, 0.0)

            return jnp.sum(jax.vmap(lane)(labels, sample_weights, margin))

        return jax.grad(total)(at["votes"])

    return at, gradient


@pytest.mark.parametrize("bad", BAD)
def test_a_failed_lane_adds_nothing_to_what_lanes_share(shared_votes_gradient, bad: str) -> None:
    at, gradient = shared_votes_gradient
    good = [at["labels"], at["sample_weights"], at["margin"]]
    with_bad = [BAD[bad].get(key, at[key]) for key in ("labels", "sample_weights", "margin")]
    together = gradient(*(np.stack(pair) for pair in zip(good, with_bad)))
    twice = gradient(*(np.stack(pair) for pair in zip(good, good)))
    assert np.max(np.abs(twice)) > 1e-3
    np.testing.assert_allclose(together, twice / 2, rtol=1e-10, atol=1e-14)


def test_derivatives_of_masked_voters_are_zero_and_of_the_others_right() -> None:
    at = problem(1, 0.4)
    mask = np.array([True, False, True, True, False, True])
    margin = 0.5 * pvm.max_margin(at["votes"], at["labels"], sample_weights=at["sample_weights"], voter_mask=mask)

    @jax.jit
    def bound(votes, voter_mask):
        solution = pvm.mincq(votes, at["labels"], margin, sample_weights=at["sample_weights"], voter_mask=voter_mask)
        return solution.c_bound

    gradient = np.asarray(jax.jit(jax.grad(bound))(at["votes"], mask))
    np.testing.assert_allclose(gradient[:, ~mask], 0, atol=1e-20)
    for i, j in ((0, 0), (3, 2), (7, 5)):
        step = np.zeros((POINTS, VOTERS))
        step[i, j] = STEP
        difference = (bound(at["votes"] + step, mask) - bound(at["votes"] - step, mask)) / (2 * STEP)
        np.testing.assert_allclose(gradient[i, j], difference, rtol=0, atol=1e-5 * np.max(np.abs(gradient)))


@pytest.mark.long
@pytest.mark.parametrize("gamma", [1.0, 8.0])
def test_second_derivatives_are_right_in_float64_and_nan_in_float32(gamma) -> None:
    rng = np.random.default_rng(3)
    labels = rng.choice([-1.0, 1.0], 60)
    points = rng.normal(size=(60, 2)) + 0.7 * labels[:, None]
    votes = np.exp(-gamma * ((points[:, None] - points[None]) ** 2).sum(-1))
    mu = 0.2 * float(np.mean(np.abs(votes.T @ labels / 60)))

    def bound(votes, labels):
        return lambda margin: pvm.mincq(votes, labels, margin).c_bound

    slope = jax.grad(bound(votes, labels))
    step = 1e-4 * mu
    expected = (slope(mu + step) - slope(mu - step)) / (2 * step)
    for second in (jax.hessian, lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.jacfwd(f))):
        np.testing.assert_allclose(second(bound(votes, labels))(mu), expected, rtol=1e-2)
    single = bound(votes.astype(np.float32), labels.astype(np.float32))
    np.testing.assert_allclose(jax.grad(single)(np.float32(mu)), slope(mu), rtol=2e-2)
    assert np.isnan(jax.hessian(single)(np.float32(mu)))
    assert np.isnan(jax.grad(jax.grad(single))(np.float32(mu)))


@pytest.mark.parametrize("platform", ["cuda", pytest.param("tpu", marks=pytest.mark.long)])
def test_a_batch_on_an_accelerator_has_no_more_loops_than_one_problem(platform) -> None:
    """Lowered for it, which needs none: factorisations of a batch go side by side there."""
    rng = np.random.default_rng(0)
    votes, labels = np.tanh(rng.normal(size=(4, 30, 20))), rng.choice([-1.0, 1.0], (4, 30))

    def bound(votes, labels, margin):
        return pvm.mincq(votes, labels, margin).c_bound

    for function in (bound, jax.grad(bound, argnums=(0, 2))):
        loops = [
            jax.export.export(jax.jit(each), platforms=[platform])(*arguments).mlir_module().count("stablehlo.while")
            for each, arguments in (
                (function, (votes[0], labels[0], 0.01)),
                (jax.vmap(function), (votes, labels, np.full(4, 0.01))),
            )
        ]
        assert loops[1] <= loops[0]
