"""The engine against one problem at a time and against Clarabel; what it compiles; meshes; the factor's tolerance."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.adaptation import grid
from pvmincq_jax.adaptation.grid import solve_grid
from pvmincq_jax.adaptation.lanes import Lanes, factor_tolerance, ladder_size, program_rank
from pvmincq_jax.voting.factor import row_basis
from tests.problems import FRACTIONS as ALL_FRACTIONS
from tests.problems import KINDS, clarabel_objective, kernel, moments, random_problem

FRACTIONS = np.array([0.05, 0.4])


def random_lanes(count, points, voters, seed=0):
    """Labels, weights and masks of every kind; the last lane has nothing to learn from."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(size=(count, points)) * (rng.uniform(size=(count, points)) < 0.8)
    weights[-1] = 0
    return Lanes(rng.choice([-1.0, 1.0], (count, points)), weights, rng.uniform(size=(count, voters)) < 0.7)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(1)
    votes = kernel(rng.normal(size=(45, 2)), rng.normal(size=(30, 2)), 2.0)
    lanes = random_lanes(6, 45, 30)
    return votes, lanes, solve_grid(votes, lanes, FRACTIONS)


def test_every_lane_is_as_good_as_clarabel(problem):
    votes, lanes, figures = problem
    assert figures.weights.shape == (6, 2, 30)
    assert np.all(figures.status[:-1] == pvm.Status.SOLVED)
    for lane, (labels, weights, mask) in enumerate(zip(*lanes)):
        if lane == 5:
            continue
        shares = weights / weights.sum()
        margins = (shares * labels) @ votes[:, mask]
        assert figures.mu_max[lane] == pytest.approx(np.mean(np.abs(margins)), rel=1e-12)
        for k, fraction in enumerate(FRACTIONS):
            own = figures.weights[lane, k]
            assert np.all(own[~mask] == 0)
            mu = fraction * figures.mu_max[lane]
            assert margins @ own[mask] == pytest.approx(mu, rel=1e-8)
            moment = shares @ (votes @ own) ** 2
            least = clarabel_objective(votes[:, mask] * np.sqrt(shares)[:, None], margins, fraction)
            assert moment / mu**2 == pytest.approx(least, rel=1e-6)
            assert figures.c_bound[lane, k] == pytest.approx(1 - mu**2 / moment, abs=1e-8)


LARGE = [pytest.param(*size, marks=pytest.mark.long) for size in ((300, 300), (400, 120), (100, 400))]


@pytest.mark.parametrize(("points", "voters"), [(40, 60), *LARGE])
def test_voters_of_every_kind_are_solved(points, voters):
    """From 1e-6 mu_max to mu_max itself, at the rank that the engine takes."""
    for kind in KINDS:
        problems = [random_problem(kind, seed, points, voters) for seed in (300, 301)]
        weights = [np.ones(points) if one.sample_weights is None else one.sample_weights for one in problems]
        masks = [np.ones(voters, bool) if one.voter_mask is None else one.voter_mask for one in problems]
        lanes = Lanes(np.stack([one.labels for one in problems]), np.stack(weights), np.stack(masks))
        figures = solve_grid(lambda lane, own=problems: own[lane].votes, lanes, np.array(ALL_FRACTIONS))
        np.testing.assert_array_equal(figures.status, pvm.Status.SOLVED, err_msg=kind)
        root, margins, _ = moments(problems[0])
        for k in (3, 5, 8):
            own, mu = figures.weights[0, k, masks[0]], ALL_FRACTIONS[k] * np.mean(np.abs(margins))
            assert margins @ own == pytest.approx(mu, rel=1e-7)
            least = clarabel_objective(root, margins, ALL_FRACTIONS[k])
            assert np.sum((root @ own) ** 2) / mu**2 == pytest.approx(least, rel=1e-6), kind


def test_a_lane_without_points_says_so_and_disturbs_nobody(problem):
    votes, lanes, figures = problem
    assert np.all(figures.status[-1] == pvm.Status.BAD_INPUT)
    assert np.all(np.isnan(figures.weights[-1]))
    assert np.isnan(figures.mu_max[-1])
    others = solve_grid(votes, Lanes(*(field[:-1] for field in lanes)), FRACTIONS)
    np.testing.assert_allclose(others.weights, figures.weights[:-1], atol=1e-9)


def test_votes_of_each_lane_and_margins_of_each_lane(problem):
    votes, lanes, figures = problem
    own = solve_grid(lambda lane: votes * (1 if lane % 2 else -1), lanes, FRACTIONS)
    signs = np.where(np.arange(6) % 2, 1, -1)[:, None, None]
    np.testing.assert_allclose(own.weights * signs, figures.weights, atol=1e-7)
    each = np.stack([FRACTIONS, FRACTIONS[::-1], *[FRACTIONS] * 4])
    turned = solve_grid(votes, lanes, each)
    np.testing.assert_allclose(turned.weights[1], figures.weights[1, ::-1], atol=1e-8)
    absolute = solve_grid(votes, lanes, each * np.nan_to_num(figures.mu_max, nan=1.0)[:, None], unit="absolute")
    np.testing.assert_allclose(absolute.weights, turned.weights, atol=1e-8)


def test_margins_close_to_zero_and_above_the_largest(problem):
    votes, lanes, _ = problem
    figures = solve_grid(votes, lanes, np.array([1e-5, 1.0]))
    assert np.all(figures.status[:-1] == pvm.Status.SOLVED)
    above = solve_grid(votes, lanes, np.array([2.0]), unit="absolute")
    assert np.all(above.status[:-1] == pvm.Status.INFEASIBLE)


def test_float32_stays_float32(problem):
    votes, lanes, figures = problem
    with jax.enable_x64(False):
        single = solve_grid(votes.astype(np.float32), lanes, FRACTIONS)
    assert single.weights.dtype == np.float32
    assert np.all(single.status[:-1] == pvm.Status.SOLVED)
    np.testing.assert_allclose(single.c_bound, figures.c_bound, atol=1e-3)


def test_progress_counts_lanes(problem):
    votes, lanes, _ = problem
    seen = []
    solve_grid(votes, lanes, FRACTIONS, advance=seen.append)
    assert sum(seen) == 6


def test_an_error_of_the_progress_function_ends_the_work(problem, monkeypatch):
    votes, lanes, _ = problem
    monkeypatch.setattr(grid, "core_count", lambda: 1)
    begun, run = [], grid._run
    monkeypatch.setattr(grid, "_run", lambda *given: (begun.append(1), run(*given))[1])

    def stop(_):
        raise RuntimeError("enough")

    many = Lanes(*(np.tile(field, (20, 1)) for field in lanes))
    with pytest.raises(RuntimeError, match="enough"):
        solve_grid(votes, many, FRACTIONS, advance=stop)
    assert len(begun) < 60


def test_the_ladders():
    sizes = np.arange(1, 3000)
    padded = np.array([ladder_size(int(size)) for size in sizes])
    assert np.all(padded >= sizes)
    assert np.all(padded <= np.maximum(2 * sizes, 64))
    assert np.unique(padded[sizes <= 1024]).size <= 12
    ranks = np.array([program_rank(int(rank), 320, 320) for rank in range(1, 321)])
    assert np.all(ranks >= np.arange(1, 321))
    assert np.unique(ranks).size <= 10


NEARBY = """
import numpy as np
import jax
import pvmincq_jax as pvm
from pvmincq_jax.adaptation import grid
from pvmincq_jax.voting.program import solve_mincq
from tests.adaptation.test_grid import FRACTIONS, kernel, random_lanes

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(3)
traced = []
grid.solve_mincq = lambda *args: (traced.append(args[0].shape), solve_mincq(*args))[1]
for points, voters, gamma, lanes in {sizes}:
    votes = kernel(rng.normal(size=(points, 2)), rng.normal(size=(voters, 2)), gamma)
    figures = grid.solve_grid(votes, random_lanes(lanes, points, voters), FRACTIONS)
    assert np.all(figures.status[:-1] == pvm.Status.SOLVED)
    print(len(traced))
"""


def test_nearby_problems_share_a_program():
    """In a process of its own: JAX forgets programs of one that has compiled thousands."""
    sizes = ((70, 90, 0.3, 5), (128, 65, 0.3, 2), (99, 100, 5.0, 9), (66, 128, 0.01, 4), (140, 90, 0.3, 5))
    ran = subprocess.run(
        [sys.executable, "-c", NEARBY.format(sizes=sizes)], capture_output=True, text=True, check=True, timeout=300
    )
    once, *nearby, larger = [int(count) for count in ran.stdout.split()]
    assert once > 0
    assert nearby == [once] * 3
    assert larger == 2 * once


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_change_nothing(problem, monkeypatch, cores):
    """Nor do several lanes in a call, as 47 of them have on one core; the last call is then filled up."""
    votes, lanes, figures = problem
    monkeypatch.setattr(grid, "core_count", lambda: cores)
    for ours, theirs in zip(solve_grid(votes, lanes, FRACTIONS), figures, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    calls, run = [], grid._run
    monkeypatch.setattr(grid, "_run", lambda *given: (calls.append(1), run(*given))[1])
    repeated = np.arange(47) % 6
    for ours, theirs in zip(solve_grid(votes, lanes.part(repeated), FRACTIONS), figures, strict=True):
        np.testing.assert_allclose(ours, theirs[repeated], rtol=0, atol=1e-10)
    assert len(calls) == (16 if cores == 1 else 47)


def test_threads_keep_to_the_callers_device(problem, monkeypatch):
    votes, lanes, _ = problem
    seen, run = [], grid._run
    monkeypatch.setattr(grid, "_run", lambda *given: (seen.append(jax.config.jax_default_device), run(*given))[1])
    device = jax.devices()[0]
    with jax.default_device(device):
        solve_grid(votes, lanes, FRACTIONS)
    assert seen == [device] * len(lanes.labels)


def test_a_mesh_changes_nothing(problem):
    votes, lanes, figures = problem
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lanes",))
    over = solve_grid(votes, lanes, FRACTIONS, mesh=mesh)
    np.testing.assert_allclose(over.weights, figures.weights, atol=1e-9)
    own = solve_grid(lambda _: votes, lanes, FRACTIONS, mesh=mesh)
    np.testing.assert_allclose(own.c_bound, figures.c_bound, atol=1e-9)


@pytest.mark.parametrize("unit", ["fraction", "absolute"])
def test_what_the_factor_drops_stays_within_the_bound(unit):
    """Random votes with a falling spectrum; the second moment of the best w at either rank, on the votes themselves."""
    rng = np.random.default_rng(4)
    spectrum = 10.0 ** -np.linspace(0, 9, 30)
    votes = np.linalg.qr(rng.normal(size=(40, 30)))[0] * spectrum @ np.linalg.qr(rng.normal(size=(30, 30)))[0]
    votes /= np.max(np.abs(votes))
    lanes = Lanes(
        labels=rng.choice([-1.0, 1.0], (3, 40)),
        weights=(rng.uniform(size=(3, 40)) < 0.7) * rng.uniform(0.5, 1, (3, 40)),
        mask=rng.uniform(size=(3, 30)) < 0.8,
    )
    margins = np.array([0.02, 0.3]) * (1.0 if unit == "fraction" else 0.01)
    largest = [np.mean(np.abs((w / w.sum() * y) @ votes)[mask]) for y, w, mask in zip(*lanes)]
    mu = margins * np.array(largest)[:, None] if unit == "fraction" else np.tile(margins, (3, 1))
    tolerance = factor_tolerance(votes, lanes, mu, sure=True)
    assert 1e-9 < tolerance < 1e-3
    with jax.enable_x64(True):
        rank = len(row_basis(votes, tolerance))
        assert rank < 30
        factors = pvm.vote_factor(votes, rank=rank), pvm.vote_factor(votes, rank=30)
        compared = 0
        for labels, weights, mask in zip(lanes.labels, lanes.weights, lanes.mask):
            largest = float(pvm.max_margin(votes, labels, sample_weights=weights, voter_mask=mask))
            for margin in margins * (largest if unit == "fraction" else 1.0):
                if margin > largest:
                    continue
                options = {"sample_weights": weights, "voter_mask": mask}
                low, full = (pvm.mincq(votes, labels, margin, factor=one, **options) for one in factors)
                moments = [np.average((votes @ np.asarray(one.weights)) ** 2, weights=weights) for one in (low, full)]
                assert moments[0] == pytest.approx(moments[1], rel=1e-7)
                assert low.status == pvm.Status.SOLVED
                compared += 1
    assert compared >= 3


def test_lanes_without_pairs_do_not_count():
    lanes = Lanes(np.zeros((2, 3)), np.array([[0.0, 0, 0], [1, 1, 0]]), np.ones((2, 2), bool))
    votes = np.array([[1.0, 0.5], [0.5, 1.0], [0.2, 0.1]])
    for sure in (True, False):
        assert factor_tolerance(votes, lanes, np.zeros((2, 1)), sure) == 1e-3
        assert 0 < factor_tolerance(votes, lanes, np.full((2, 1), 1e-9), sure) < 1e-9


@pytest.mark.parametrize("own", [False, True])
def test_a_lane_whose_factor_was_too_small_is_solved_again(own):
    """Next to mu_max all voters vote alike, and half of them along the one direction for which there was no room."""
    rng = np.random.default_rng(6)
    points, half, room = 300, 48, 24
    labels = rng.choice([-1.0, 1.0], points)
    right = np.where(rng.uniform(size=(room + 1, points)) < 0.9, labels, -labels)
    lanes = Lanes(np.tile(labels, (2, 1)), np.ones((2, points)), np.ones((2, 2 * half), bool))
    margins = np.full((2, 1), 0.99)

    def votes_of(small):
        return np.r_[np.repeat(right[:room], half // room, axis=0), np.tile(small * right[room], (half, 1))].T

    mu = 0.99 * np.full((2, 1), np.mean(labels * right[:room]) / 2)
    votes = votes_of(1.2 * factor_tolerance(votes_of(0.0), lanes, mu, sure=False))
    assert program_rank(room, 320, 128) == room
    given = (lambda lane: votes if lane else votes_of(1.0)) if own else votes
    first = grid._solve_lanes(given, lanes, margins, "fraction", None, lambda lanes: None, sure=False)
    assert first.status[1, 0] == pvm.Status.MAX_ITERATIONS
    assert (first.status[0, 0] == pvm.Status.SOLVED) == own
    seen = []
    figures = solve_grid(given, lanes, margins, advance=seen.append)
    assert sum(seen) == 2
    assert np.all(figures.status == pvm.Status.SOLVED)
    assert np.all(figures.kkt_residual < 1e-7)
    w = figures.weights[1, 0]
    normal = labels @ votes / points
    least = clarabel_objective(votes / np.sqrt(points), normal, 0.99)
    assert np.mean((votes @ w) ** 2) / (normal @ w) ** 2 == pytest.approx(least, rel=1e-6)
