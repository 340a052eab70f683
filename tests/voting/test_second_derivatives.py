"""Second and third derivatives of MinCq against central differences of first ones, and against closed forms."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pvmincq_jax as pvm

STEP = 1e-5
PARAMETERS = 5  # width, votes, labels, sample weights, margin
MODES = {
    "forward over forward": lambda function: jax.jacfwd(jax.jacfwd(function)),
    "reverse over reverse": lambda function: jax.jacrev(jax.jacrev(function)),
    "forward over reverse": lambda function: jax.jacfwd(jax.jacrev(function)),
    "reverse over forward": lambda function: jax.jacrev(jax.jacfwd(function)),
}
# The last three are functions of the votes on the sample, which the program determines whatever its rank.
OUTPUTS = "combination of the weights", "vote at a new point", "C-bound on other labels", "C-bound", "exponential loss"
DETERMINED = slice(2, None)


class Task(NamedTuple):
    """A problem at parameters 0, and the directions in which they move it."""

    points: np.ndarray
    centers: np.ndarray
    gamma: float
    labels: np.ndarray
    shares: np.ndarray
    mask: np.ndarray
    margin: float
    others: np.ndarray
    new: np.ndarray
    combination: np.ndarray
    votes_towards: np.ndarray
    labels_towards: np.ndarray
    shares_towards: np.ndarray


def task(seed: int, points: int, voters: int, gamma: float, fraction: float, masked: bool = False) -> Task:
    rng = np.random.default_rng(seed)
    signs = np.resize([-1.0, 1.0], points)
    x = rng.normal(size=(points, 2)) + 0.7 * signs[:, None]
    centers = rng.normal(size=(voters, 2)) + 0.7 * np.resize([-1.0, 1.0], voters)[:, None]
    labels, shares = signs * rng.uniform(0.3, 0.95, points), rng.uniform(0.3, 1, points)
    mask = np.arange(voters) != 1 if masked else np.ones(voters, bool)
    largest = pvm.max_margin(pvm.rbf_votes(x, centers, gamma), labels, sample_weights=shares, voter_mask=mask)
    return Task(
        points=x,
        centers=centers,
        gamma=gamma,
        labels=labels,
        shares=shares,
        mask=mask,
        margin=fraction * float(largest),
        others=signs * np.where(rng.uniform(size=points) < 0.15, -1, 1),
        new=rng.normal(size=(1, 2)),
        combination=rng.normal(size=voters),
        votes_towards=0.1 * rng.normal(size=(points, voters)),
        labels_towards=0.1 * rng.normal(size=points),
        shares_towards=0.1 * rng.normal(size=points),
    )


def learn(at, task: Task, factor=None):
    """The weights, and what follows from them."""
    gamma = task.gamma * (1 + at[0])
    votes = pvm.rbf_votes(task.points, task.centers, gamma) + at[1] * task.votes_towards
    labels, shares = task.labels + at[2] * task.labels_towards, task.shares + at[3] * task.shares_towards
    solution = pvm.mincq(
        votes, labels, task.margin * (1 + at[4]), sample_weights=shares, voter_mask=task.mask, factor=factor
    )
    w = solution.weights
    figures = [
        task.combination @ w,
        (pvm.rbf_votes(task.new, task.centers, gamma) @ w)[0],
        pvm.c_bound(votes, task.others, w, sample_weights=shares),
        solution.c_bound,
        jnp.mean(jnp.exp(-labels * (votes @ w) / task.margin)),
    ]
    return jnp.stack(figures), w


def figures(at, task: Task, factor=None):
    return learn(at, task, factor)[0]


@functools.cache
def compiled(mode: str):
    """Of a batch of tasks."""
    return jax.jit(jax.vmap(jax.jacfwd(learn, has_aux=True) if mode == "first" else MODES[mode](figures)))


def stack(tasks: list[Task]) -> Task:
    return Task(*(np.stack(parts) for parts in zip(*tasks)))


def first_derivatives(at: np.ndarray, tasks: Task) -> tuple[np.ndarray, np.ndarray]:
    """First derivatives, and -1, 0 or 1 for voters at the lower bound, inside, and at the upper bound ``[b, n]``."""
    slopes, weights = map(np.asarray, compiled("first")(np.broadcast_to(at, (len(tasks.mask), PARAMETERS)), tasks))
    assert np.all(np.isfinite(weights))
    size = np.sum(tasks.mask, axis=1, keepdims=True)
    return slopes, np.where(np.abs(weights) * size > 1 - 1e-6, np.sign(weights), 0)


def differences(tasks: Task) -> tuple[np.ndarray, np.ndarray]:
    """Second derivatives ``[b, outputs, 5, 5]``, and where no set of bound voters changes on the way ``[b, 5]``."""
    found, same = [], []
    for step in STEP * np.eye(PARAMETERS):
        (up, bound_up), (down, bound_down) = (first_derivatives(at, tasks) for at in (step, -step))
        found.append((up - down) / (2 * STEP))
        same.append(np.all(bound_up == bound_down, axis=1))
    return np.stack(found, axis=-1), np.stack(same, axis=-1)


def check(tasks: Task, mode: str, outputs: slice, tolerance: float, least: float = 0.9) -> None:
    """A mode against central differences, relative to the largest second derivative of an output of a task."""
    expected, same = differences(tasks)
    found = np.asarray(compiled(mode)(np.zeros((len(same), PARAMETERS)), tasks))
    size = np.max(np.abs(expected), axis=(2, 3), keepdims=True)
    wrong = np.abs(found - expected) > tolerance * size
    assert np.mean(same) >= least
    assert not np.any(wrong[:, outputs] & same[:, None, None, :])


def general(seeds) -> Task:
    """Few voters in general position, soft labels."""
    fractions = 0.1, 0.4, 0.7, 0.9
    return stack([task(seed, 24, 6, 1.0, fractions[seed % 4]) for seed in seeds])


def crowded(seeds) -> Task:
    """More voters than points: where many of them are free, weights and votes at new points are not determined."""
    return stack([task(seed, 6, 9, 0.5, (0.1, 0.6)[seed % 2]) for seed in seeds])


def masked(seeds) -> Task:
    return stack([task(seed, 24, 6, 1.0, (0.3, 0.7)[seed % 2], masked=True) for seed in seeds])


def wide(seeds) -> Task:
    """Rank far below the number of voters."""
    gammas, fractions = (0.3, 0.6, 1.0, 2.0), (0.05, 0.2, 0.5, 0.9)
    return stack([task(seed, 60, 50, gammas[seed % 4], fractions[seed // 4 % 4]) for seed in seeds])


KINDS = {
    "general": (general, slice(None), 1e-6),
    "crowded": (crowded, DETERMINED, 1e-6),
    "masked": (masked, slice(None), 1e-6),
    "wide": (wide, DETERMINED, 1e-3),
}


# Mixed modes take long to compile. `test_box_qp` has one of them in the suite.
MIXED = [pytest.param(mode, marks=pytest.mark.long) for mode in MODES if mode.split()[0] != mode.split()[-1]]


@pytest.mark.parametrize("mode", [*[mode for mode in MODES if mode.split()[0] == mode.split()[-1]], *MIXED])
def test_every_mode_agrees_with_central_differences(mode: str) -> None:
    check(general(range(4)), mode, slice(None), 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_problems_of_every_kind(kind: str, mode: str) -> None:
    make, outputs, tolerance = KINDS[kind]
    # With votes of low rank, a voter enters or leaves the box within a step more often.
    check(make(range(25)), mode, outputs, tolerance, 0.7 if kind == "wide" else 0.9)


def one_parameter(parameter: int, seed: int, factor: bool = False):
    """The figures along one parameter, on a task of its own, and its step."""
    at = general([seed])
    alone = Task(*(part[0] for part in at))
    given = pvm.vote_factor(pvm.rbf_votes(alone.points, alone.centers, alone.gamma)) if factor else None
    return lambda value: figures(jnp.zeros(PARAMETERS).at[parameter].set(value), alone, given)


def captured(seed: int, fraction: float):
    """The C-bound on other labels as a function of the margin alone: the votes are constants, prepared on the host."""
    at = task(seed, 24, 6, 1.0, fraction)
    votes = np.asarray(pvm.rbf_votes(at.points, at.centers, at.gamma))

    def bound(change):
        w = pvm.mincq(votes, at.labels, at.margin * (1 + change), sample_weights=at.shares).weights
        return pvm.c_bound(votes, at.others, w, sample_weights=at.shares)

    return bound


def slope_of(function, step: float = STEP) -> float:
    return float(function(step) - function(-step)) / (2 * step)


def test_third_derivatives_of_captured_votes() -> None:
    """Under jit, and under vmap over margins."""
    bound = captured(1, 0.9)
    first = jax.jit(jax.grad(bound))
    second = jax.jit(jax.grad(first))
    third = jax.jit(jax.jacfwd(second))
    assert abs(float(third(0.0))) > 1e-3
    np.testing.assert_allclose(second(0.0), slope_of(first), rtol=1e-6)
    np.testing.assert_allclose(third(0.0), slope_of(second), rtol=1e-6)
    some = np.linspace(-1e-3, 1e-3, 3)
    np.testing.assert_allclose(jax.vmap(second)(some), [second(each) for each in some], rtol=1e-9)


@pytest.mark.long
def test_an_eager_call_has_the_derivatives_of_a_jitted_one() -> None:
    bound = captured(1, 0.9)
    for second in (jax.hessian(bound), jax.grad(jax.grad(bound))):
        np.testing.assert_allclose(second(0.0), jax.jit(second)(0.0), rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("parameter", "factor"), [*((each, False) for each in range(PARAMETERS)), (2, True), (3, True), (4, True)]
)
def test_third_derivatives_along_every_parameter(parameter: int, factor: bool) -> None:
    for seed in range(3):
        function = one_parameter(parameter, seed, factor)
        second = jax.jit(jax.jacfwd(jax.jacrev(function)))
        third = np.asarray(jax.jit(jax.jacfwd(jax.jacfwd(jax.jacfwd(function))))(0.0))
        expected = (np.asarray(second(STEP)) - np.asarray(second(-STEP))) / (2 * STEP)
        # Some third derivatives are 0, where differences are rounding.
        scale = np.maximum(np.abs(expected), 1 + np.abs(np.asarray(second(0.0))))
        assert np.all(np.abs(third - expected) <= 1e-4 * scale)


@pytest.mark.long
def test_a_given_factor_is_a_constant() -> None:
    plain, given = (jax.jit(jax.hessian(one_parameter(1, 0, factor)))(0.0) for factor in (False, True))
    np.testing.assert_allclose(plain, given, rtol=1e-7, atol=1e-12)


def test_the_sample_s_votes_have_second_derivatives_at_low_rank() -> None:
    check(wide(range(4)), "forward over forward", DETERMINED, 1e-3, 0.7)


DIAGONAL = np.diag([1.0, 2.0])  # w = (mu, mu / 2) up to mu = 1/2, where the first voter stays: (1/2, mu - 1/4)


def second_moment(mu):
    w = pvm.mincq(DIAGONAL, np.ones(2), mu).weights
    return jnp.mean((DIAGONAL @ w) ** 2)


@pytest.fixture(scope="module")
def slopes():
    """First, second and third derivatives of the second moment with respect to the margin."""
    functions = [second_moment]
    for _ in range(3):
        functions.append(jax.grad(functions[-1]))
    return jax.jit(lambda mu: jnp.stack([function(mu) for function in functions[1:]]))


@pytest.mark.parametrize(
    ("mu", "expected"), [(0.2, (0.4, 2, 0)), (0.6, (1.4, 4, 0)), (0.75, (0, 0, 0)), (0.8, (0, 0, 0))]
)
def test_closed_form_on_either_side_of_a_bound_at_mu_max_and_beyond(slopes, mu: float, expected: tuple) -> None:
    """The second moment is mu^2, then 1/8 + (2 mu - 1/2)^2 / 2; at mu_max, 3/4, and where it is infeasible all is 0."""
    np.testing.assert_allclose(slopes(mu), expected, rtol=1e-6, atol=1e-6)


def test_a_voter_that_just_reaches_its_bound_has_one_of_the_two_derivatives_or_nan(slopes) -> None:
    first, second, third = map(float, slopes(0.5))
    assert first == pytest.approx(1, abs=1e-4)
    assert np.isnan(second) or min(abs(second - 2), abs(second - 4)) < 1e-3
    assert np.isnan(third) or abs(third) < 1e-3


@pytest.mark.long
def test_second_derivatives_are_nan_in_float32() -> None:
    """Of every kind, in every mode; first ones are right."""
    votes, ones = DIAGONAL.astype(np.float32), np.ones(2, np.float32)

    def weight(mu):
        return pvm.mincq(votes, ones, mu).weights[1]

    mu = np.float32(0.6)
    assert jax.grad(weight)(mu) == pytest.approx(1, rel=1e-4)
    for second in MODES.values():
        assert np.isnan(second(weight)(mu))
