"""The engine against Clarabel; what it compiles; threads and meshes; votes in blocks, and fits that use it."""

import tracemalloc

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.voting import batch, grid, programs
from pvmincq_jax.voting.grid import Problems, VoteBlocks, solve_grid
from pvmincq_jax.voting.programs import padded_rows, padded_size
from pvmincq_jax.voting.voters import OutputVoters
from tests.problems import FRACTIONS as ALL_FRACTIONS
from tests.problems import KINDS, clarabel_objective, kernel, moments, random_problem

FRACTIONS = np.array([0.05, 0.4])


def solve(votes, problems, margins, **options):
    """The engine on votes that are there, of all problems or of each."""
    votes_of = votes if callable(votes) else lambda _: votes
    return solve_grid(lambda i: VoteBlocks(OutputVoters(2.0), votes_of(i)), problems, margins, **options)


def random_problems(count, points, voters, seed=0):
    """Labels, weights and masks of every kind; the last problem has nothing to learn from."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(size=(count, points)) * (rng.uniform(size=(count, points)) < 0.8)
    weights[-1] = 0
    return Problems(rng.choice([-1.0, 1.0], (count, points)), weights, rng.uniform(size=(count, voters)) < 0.7)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(1)
    votes = kernel(rng.normal(size=(45, 2)), rng.normal(size=(30, 2)), 2.0)
    problems = random_problems(6, 45, 30)
    return votes, problems, solve(votes, problems, FRACTIONS)


@pytest.fixture
def no_programs():
    """Nothing compiled before, and nothing left behind."""
    programs.program.cache_clear()
    yield
    programs.program.cache_clear()


def test_every_lane_is_as_good_as_clarabel(problem):
    votes, problems, figures = problem
    assert figures.weights.shape == (6, 2, 30)
    assert np.all(figures.status[:-1] == pvm.Status.SOLVED)
    for lane, (labels, weights, mask) in enumerate(zip(*problems)):
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
        lanes = Problems(np.stack([one.labels for one in problems]), np.stack(weights), np.stack(masks))
        figures = solve(lambda lane, own=problems: own[lane].votes, lanes, np.array(ALL_FRACTIONS))
        np.testing.assert_array_equal(figures.status, pvm.Status.SOLVED, err_msg=kind)
        root, margins, _ = moments(problems[0])
        for k in (3, 5, 8):
            own, mu = figures.weights[0, k, masks[0]], ALL_FRACTIONS[k] * np.mean(np.abs(margins))
            assert margins @ own == pytest.approx(mu, rel=1e-7)
            least = clarabel_objective(root, margins, ALL_FRACTIONS[k])
            assert np.sum((root @ own) ** 2) / mu**2 == pytest.approx(least, rel=1e-6), kind


def test_a_lane_without_points_says_so_and_disturbs_nobody(problem):
    votes, problems, figures = problem
    assert np.all(figures.status[-1] == pvm.Status.BAD_INPUT)
    assert np.all(np.isnan(figures.weights[-1]))
    assert np.isnan(figures.mu_max[-1])
    others = solve(votes, Problems(*(field[:-1] for field in problems)), FRACTIONS)
    np.testing.assert_allclose(others.weights, figures.weights[:-1], atol=1e-9)


def test_votes_of_each_problem(problem):
    votes, problems, figures = problem
    turned = solve(lambda i: votes * (1 if i % 2 else -1), problems, FRACTIONS)
    signs = np.where(np.arange(6) % 2, 1, -1)[:, None, None]
    np.testing.assert_allclose(turned.weights * signs, figures.weights, atol=1e-7)
    one = Problems(*(field[:1] for field in problems))
    absolute = solve(votes, one, FRACTIONS * figures.mu_max[0], unit="absolute")
    np.testing.assert_allclose(absolute.weights[0], figures.weights[0], atol=1e-8)


def test_margins_close_to_zero_and_above_the_largest(problem):
    votes, problems, _ = problem
    figures = solve(votes, problems, np.array([1e-5, 1.0]))
    assert np.all(figures.status[:-1] == pvm.Status.SOLVED)
    above = solve(votes, problems, np.array([2.0]), unit="absolute")
    assert np.all(above.status[:-1] == pvm.Status.INFEASIBLE)


def test_float32_stays_float32(problem):
    votes, problems, figures = problem
    with jax.enable_x64(False):
        single = solve(votes.astype(np.float32), problems, FRACTIONS)
    assert single.weights.dtype == np.float32
    assert np.all(single.status[:-1] == pvm.Status.SOLVED)
    np.testing.assert_allclose(single.c_bound, figures.c_bound, atol=1e-3)


def test_progress_counts_lanes(problem):
    votes, problems, _ = problem
    seen = []
    solve(votes, problems, FRACTIONS, advance=seen.append)
    assert sum(seen) == 6


def test_an_error_of_the_progress_function_ends_the_work(problem, monkeypatch):
    votes, problems, _ = problem
    monkeypatch.setattr(batch, "core_count", lambda: 1)
    begun, run = [], batch._solve
    monkeypatch.setattr(batch, "_solve", lambda *given: (begun.append(1), run(*given))[1])

    def stop(_):
        raise RuntimeError("enough")

    many = Problems(*(np.tile(field, (20, 1)) for field in problems))
    with pytest.raises(RuntimeError, match="enough"):
        solve(votes, many, FRACTIONS, advance=stop)
    assert len(begun) < 60


def test_a_problem_that_quick_steps_leave_unsolved_is_solved_by_sure_ones(problem, monkeypatch, no_programs):
    votes, problems, figures = problem
    seen, run = [], programs.learn

    def give_up(sample, *arguments):
        seen.append(arguments[-1])
        solution = run(sample, *arguments)
        return solution._replace(status=solution.status + 2) if arguments[-1] == "quick" else solution

    monkeypatch.setattr(programs, "learn", give_up)
    again = solve(votes, problems, FRACTIONS)
    assert set(seen) == {"quick", "sure"}
    np.testing.assert_array_equal(again.status, figures.status)
    np.testing.assert_allclose(again.c_bound, figures.c_bound, atol=1e-9)


def test_what_quick_steps_have_solved_stays(problem, monkeypatch, no_programs):
    """They fail at the larger margin; then sure steps run at that one alone, and here they fail, too."""
    votes, problems, figures = problem
    run, solve_some, again_at = programs.learn, batch._solve, []

    def record(some, key):
        again_at.extend(np.isfinite(one.margins) for one in some if one.steps == "sure")
        return solve_some(some, key)

    monkeypatch.setattr(batch, "_solve", record)

    def fail(sample, margin, *arguments):
        solution = run(sample, margin, *arguments)
        fails = (margin > 0.2 * sample.mu_max) | (arguments[-1] == "sure")
        return solution._replace(status=jax.numpy.where(fails, int(pvm.Status.MAX_ITERATIONS), solution.status))

    monkeypatch.setattr(programs, "learn", fail)
    again = solve(votes, problems, FRACTIONS)
    np.testing.assert_array_equal(again.status[:, 0], figures.status[:, 0])
    solved = figures.status[:, 1] == pvm.Status.SOLVED
    assert np.all(again.status[solved, 1] == pvm.Status.MAX_ITERATIONS)
    np.testing.assert_array_equal(again.weights[:, 0], figures.weights[:, 0])
    assert np.all(np.isnan(again.weights[:, 1]))
    assert np.all(np.isfinite(again.kkt_residual[solved, 1]))
    np.testing.assert_array_equal(again_at, np.tile([False, True], (np.sum(solved), 1)))


def test_sizes_have_room_and_are_few():
    sizes = np.arange(1, 3000)
    padded = np.array([padded_size(int(size)) for size in sizes])
    assert np.all(padded >= sizes)
    assert np.all(padded[sizes > 80] < 2 * sizes[sizes > 80])
    assert len(set(padded)) == 7
    for size in set(padded.tolist()):
        rows = [padded_rows(r, size) for r in range(1, size + 2)]
        assert all(padded >= r for r, padded in enumerate(rows, 1))
        # Of the smallest size, few rows are all.
        assert len(set(rows)) == (1 if size == 80 else 2)


@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_padded_problems_of_any_size_are_solved_as_they_are_alone(gamma):
    """With voters and rows beyond their own."""
    rng = np.random.default_rng(5)
    points, labels = rng.normal(size=(130, 2)), np.sign(rng.normal(size=130))
    votes = kernel(points, points[:120], gamma)
    counts = np.array([40, 59, 60, 61, 95, 96, 97, 119, 120])
    mask = rng.permuted(np.arange(120) < counts[:, None], axis=1)
    figures = solve(votes, Problems(np.tile(labels, (9, 1)), np.ones((9, 130)), mask), FRACTIONS)
    for some, bounds in zip(mask, figures.c_bound):
        largest = pvm.max_margin(votes[:, some], labels)
        alone = [pvm.mincq(votes[:, some], labels, fraction * largest).c_bound for fraction in FRACTIONS]
        np.testing.assert_allclose(bounds, alone, rtol=0, atol=1e-8)


def test_options_of_the_compiler_are_those_that_it_knows(monkeypatch):
    monkeypatch.setattr(programs, "_OPTIONS", {"xla_no_such_option": 1, "xla_backend_optimization_level": 1})
    programs.known_options.cache_clear()
    assert programs.known_options("cpu") == {"xla_backend_optimization_level": 1}
    assert programs.known_options("gpu") == {}
    # An error that is not about a name is one of the compiler, and is not hidden.
    monkeypatch.setattr(programs, "_OPTIONS", {"xla_backend_optimization_level": "high"})
    programs.known_options.cache_clear()
    with pytest.raises(Exception, match="high"):
        programs.known_options("cpu")
    programs.known_options.cache_clear()


def test_nearby_problems_share_a_program(no_programs):
    rng, known = np.random.default_rng(3), []
    for points, voters, gamma in ((70, 90, 0.3), (128, 83, 0.3), (99, 160, 0.5), (66, 96, 0.4), (140, 290, 0.3)):
        votes = kernel(rng.normal(size=(points, 2)), rng.normal(size=(voters, 2)), gamma)
        problems = random_problems(4, points, voters)
        solve(votes, problems._replace(mask=np.ones((4, voters), bool)), FRACTIONS)
        known.append(programs.program.cache_info().currsize)
    assert known == [1, 1, 1, 1, 2]


def test_many_margins_take_several_calls_of_one_program(problem, no_programs):
    votes, problems, figures = problem
    margins = np.concatenate([FRACTIONS, np.linspace(0.02, 0.98, 31)])
    many = solve(votes, problems, margins)
    assert np.all(many.status[:-1] == pvm.Status.SOLVED)
    np.testing.assert_array_equal(many.weights[:, :2], figures.weights)
    assert programs.program.cache_info().currsize == 1


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_change_nothing(problem, monkeypatch, cores):
    votes, problems, figures = problem
    monkeypatch.setattr(batch, "core_count", lambda: cores)
    for ours, theirs in zip(solve(votes, problems, FRACTIONS), figures, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_threads_keep_to_the_callers_device(problem, monkeypatch):
    votes, problems, _ = problem
    seen, put = [], programs._put
    monkeypatch.setattr(programs, "_put", lambda *given: (seen.append(jax.config.jax_default_device), put(*given))[1])
    device = jax.devices()[0]
    with jax.default_device(device):
        solve(votes, problems, FRACTIONS)
    assert seen == [device] * 5


def test_a_mesh_and_jaxopt_change_nothing(problem):
    votes, problems, figures = problem
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("problems",))
    over = solve(votes, problems, FRACTIONS, mesh=mesh)
    np.testing.assert_allclose(over.weights, figures.weights, atol=1e-9)
    few = Problems(*(field[:2] for field in problems))
    jaxopt = solve(votes, few, FRACTIONS[1:], solver="jaxopt")
    assert np.any(jaxopt.status == pvm.Status.SOLVED)
    solved = jaxopt.status[:, 0] == pvm.Status.SOLVED
    np.testing.assert_allclose(jaxopt.c_bound[solved, 0], figures.c_bound[:2, 1][solved], atol=1e-6)


def test_an_accelerator_gets_batches(problem, monkeypatch):
    """Several problems in one call, the last call padded, as on a device that solves them side by side."""
    votes, problems, figures = problem
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(batch, "_BATCH", 3 * 16 * 80 * (64 + 80))
    calls, run = [], batch._solve
    monkeypatch.setattr(batch, "_solve", lambda some, key: (calls.append(len(some)), run(some, key))[1])
    together = solve(votes, problems, FRACTIONS)
    assert sorted(calls, reverse=True)[0] > 1
    assert sum(calls) == 5
    np.testing.assert_allclose(together.weights, figures.weights, atol=1e-9)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    points, labels, weights = rng.normal(size=(101, 2)), rng.choice([-1.0, 1.0], 101), rng.random((2, 101))
    family = pvm.GaussianVoters(points[:9], 1.0)
    problems = Problems(np.stack([labels] * 2), weights, rng.random((2, 9)) < 0.8)
    margins = np.array([1e-4, 0.1, 0.5])
    whole = VoteBlocks(family, points)
    expected = solve_grid(lambda _: whole, problems, margins)
    assert len(list(whole)) == 1
    monkeypatch.setattr(grid, "_BLOCK", 90)
    monkeypatch.setattr(grid, "_KEPT", 500)
    parts = VoteBlocks(family, points)
    assert [len(votes) for _, votes in parts] == [10] * 10 + [1]
    figures = solve_grid(lambda _: parts, problems, margins)
    for ours, theirs in zip(figures, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        parts.values(figures.weights), figures.weights @ family.votes(points).T, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("form", ["label", "transport"])
def test_every_point_of_a_fit_is_solved_to_what_mincq_states(form, one_gamma):
    """The chosen point, learnt again by `pvmincq_jax.mincq` on the sample that the model says it learnt from."""
    task = moons_task("40", 1, per_class=60, test_size=20)
    data = task.source, task.source_labels, task.target
    fit = (pvm.fit_validated(*data, draws=3) if form == "label" else
           pvm.fit_transport_validated(*data, draws=3, top_fraction=None))  # fmt: skip
    solved = fit.sweep.status == pvm.Status.SOLVED
    assert np.mean(solved) > 0.5
    assert np.max(fit.sweep.kkt_residual[solved]) <= 1e-7
    r, g, _ = fit.choice.grid_index
    points = task.target if form == "label" else np.asarray(fit.sweep.transports[r].moved)
    mask = fit.sweep.voter_mask[r, g]
    votes = np.asarray(fit.model.voters.votes(points))[:, mask]
    with jax.enable_x64(True):
        again = pvm.mincq(votes, fit.model.labels, float(fit.model.margin), sample_weights=fit.model.label_weights)
    np.testing.assert_allclose(fit.model.c_bound, again.c_bound, rtol=1e-6)
    np.testing.assert_allclose(
        votes @ np.asarray(fit.model.weights)[mask], votes @ np.asarray(again.weights), atol=1e-6
    )


@pytest.mark.parametrize("classifier", [pytest.param(PVMinCqClassifier, marks=pytest.mark.long), PVTransportClassifier])
def test_a_whole_fit_takes_no_memory_for_all_differences(classifier, one_gamma):
    """Distances, radii, matchings, maps, medians, votes and the committee, in many features."""
    rng = np.random.default_rng(0)
    labels = np.tile([-1.0, 1.0], 100)
    source, target = rng.normal(size=(2, 200, 1000))
    source[:, 0] += 6 * labels
    target[:, 0] += 6 * labels
    tracemalloc.start()
    model = classifier().fit_domains(source, labels, target)
    model.predict(target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The samples are 1.6 MB each, and maps keep them as often as there are radii; all differences would be 320 MB.
    assert peak < 120e6


def test_infeasible_and_unmatched_points_are_marked():
    task = moons_task("40", 1, per_class=30, test_size=20)
    given = {"radii": [1e-9, 0.8], "margins": [1e-3, 0.9], "gammas": [1.0], "folds": 2, "margin_unit": "absolute"}
    sweep = pvm.sweep(task.source, task.source_labels, task.target, **given)
    assert sweep.status[0, 0].tolist() == [pvm.Status.BAD_INPUT] * 2
    assert sweep.status[1, 0].tolist() == [pvm.Status.SOLVED, pvm.Status.INFEASIBLE]
    assert np.isnan(sweep.c_bound).tolist() == [[[True, True]], [[False, True]]]
