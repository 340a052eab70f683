"""MinCq's weights against other solvers, the paper's own program, and exact arithmetic."""

import decimal
import functools

import clarabel
import jax
import numpy as np
import pytest
from scipy import sparse

import pvmincq_jax as pvm
from pvmincq_jax.voting import program
from pvmincq_jax.voting.factor import leading_rank
from pvmincq_jax.voting.interior_point import solve_interior_point
from pvmincq_jax.voting.newton import by_gradients
from pvmincq_jax.voting.program import prepare, solve_prepared
from tests.problems import KINDS, Problem, clarabel_objective, kernel, moments, random_problem

SEEDS = range(16)


@jax.jit
@jax.vmap
def solve_lanes(votes, labels, margin, sample_weights, voter_mask):
    return pvm.mincq(votes, labels, margin, sample_weights=sample_weights, voter_mask=voter_mask)


def margin_of(problem: Problem) -> float:
    return problem.fraction * np.mean(np.abs(moments(problem)[1]))


@functools.cache
def lanes(kind: str) -> tuple[list[Problem], pvm.MinCqSolution]:
    """Every problem of a kind, solved as one batch; kinds of one shape share one compiled program."""
    problems = [random_problem(kind, seed) for seed in SEEDS]
    count, voters = problems[0].votes.shape
    solution = solve_lanes(
        np.stack([p.votes for p in problems]),
        np.stack([p.labels for p in problems]),
        np.array([margin_of(p) for p in problems]),
        np.stack([np.ones(count) if p.sample_weights is None else p.sample_weights for p in problems]),
        np.stack([np.ones(voters, bool) if p.voter_mask is None else p.voter_mask for p in problems]),
    )
    return problems, jax.tree.map(np.asarray, solution)


def check_solution(problem: Problem, weights: np.ndarray) -> float:
    """The constraints; returns the objective over mu^2."""
    root, margins, _ = moments(problem)
    if problem.voter_mask is not None:
        np.testing.assert_array_equal(weights[~problem.voter_mask], 0)
        weights = weights[problem.voter_mask]
    mu = margin_of(problem)
    assert abs(margins @ weights - mu) <= 1e-8 * mu
    assert np.max(np.abs(weights)) * len(weights) <= 1 + 1e-8
    return np.sum((root @ weights) ** 2) / mu**2


def check_against_clarabel(problem: Problem, weights: np.ndarray) -> None:
    root, margins, _ = moments(problem)
    objective, other = check_solution(problem, weights), clarabel_objective(root, margins, problem.fraction)
    assert objective <= other * (1 + 1e-6)
    if problem.fraction >= 1e-2:  # below, it is Clarabel that is not exact; see the exact tests further down
        assert objective >= other * (1 - 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_agrees_with_clarabel(kind: str) -> None:
    problems, solution = lanes(kind)
    np.testing.assert_array_equal(solution.status, pvm.Status.SOLVED)
    assert np.all(solution.kkt_residual <= 1e-7)
    for problem, weights in zip(problems, solution.weights):
        check_against_clarabel(problem, weights)


def test_there_are_enough_problems() -> None:
    problems = [random_problem(kind, seed) for kind in KINDS for seed in SEEDS]
    assert len(problems) >= 200
    assert {p.fraction for p in problems} == {1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 0.999, 1.0}


@pytest.mark.parametrize("kind", ["duplicated", "few_samples", "zero_weights", "masked", "single"])
def test_one_at_a_time_with_a_measured_rank(kind: str) -> None:
    """Concrete input, whose factor keeps only the rank that the votes have."""
    problems, batch = lanes(kind)
    for lane in (0, 1):
        problem = problems[lane]
        solution = pvm.mincq(
            problem.votes,
            problem.labels,
            margin_of(problem),
            sample_weights=problem.sample_weights,
            voter_mask=problem.voter_mask,
        )
        assert solution.status == pvm.Status.SOLVED
        check_against_clarabel(problem, np.asarray(solution.weights))
        np.testing.assert_allclose(solution.c_bound, batch.c_bound[lane], rtol=0, atol=1e-9)
        np.testing.assert_allclose(solution.mu_max, batch.mu_max[lane], rtol=1e-14)


@pytest.mark.parametrize("gamma", [0.01, pytest.param(0.1, marks=pytest.mark.long), 1.0, 1000.0])
def test_every_width_and_many_margins(gamma: float) -> None:
    """The widths of the Gaussian voters from all but constant to all but disjoint, one factor for all margins."""
    rng = np.random.default_rng(7)
    labels = rng.choice([-1.0, 1.0], 50)
    points = rng.normal(size=(50, 2)) + 0.7 * labels[:, None]
    votes = np.exp(-gamma * ((points[:, None] - points[None, :40]) ** 2).sum(-1))
    fractions = np.array([1e-2, 0.1, 0.3, 0.6, 0.9, 0.99, 1.0])
    largest = pvm.max_margin(votes, labels)
    solutions = jax.vmap(lambda margin: pvm.mincq(votes, labels, margin))(fractions * largest)
    np.testing.assert_array_equal(solutions.status, pvm.Status.SOLVED)
    for fraction, weights in zip(fractions, np.asarray(solutions.weights)):
        check_against_clarabel(Problem(votes, labels, None, None, fraction), weights)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_solution_says_of_itself(kind: str) -> None:
    problems, solution = lanes(kind)
    for lane, problem in enumerate(problems):
        weights = solution.weights[lane]
        _, margins, shares = moments(problem)
        active = np.ones(len(weights), bool) if problem.voter_mask is None else problem.voter_mask
        number = active.sum()
        np.testing.assert_allclose(solution.mu_max[lane], np.mean(np.abs(margins)), rtol=1e-12)
        np.testing.assert_allclose(2 * solution.posterior[lane][active] - 1 / number, weights[active], atol=1e-15)
        np.testing.assert_array_equal(solution.posterior[lane][~active], 0)
        assert np.all((solution.posterior[lane] >= -1e-15) & (solution.posterior[lane] <= (1 + 1e-8) / number))
        vote = problem.votes @ weights
        expected = 1 - (shares @ (problem.labels * vote)) ** 2 / (shares @ vote**2)
        np.testing.assert_allclose(solution.c_bound[lane], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_largest_margin_every_voter_is_at_its_bound(kind: str) -> None:
    problems, _ = lanes(kind)
    problems = [p._replace(fraction=1.0) for p in problems]
    count, voters = problems[0].votes.shape
    masks = np.stack([np.ones(voters, bool) if p.voter_mask is None else p.voter_mask for p in problems])
    # Slightly above mu_max by rounding alone is mu_max too.
    margins = np.array([margin_of(p) * (1 + 2e-15 * (i % 2)) for i, p in enumerate(problems)])
    solution = solve_lanes(
        np.stack([p.votes for p in problems]),
        np.stack([p.labels for p in problems]),
        margins,
        np.stack([np.ones(count) if p.sample_weights is None else p.sample_weights for p in problems]),
        masks,
    )
    np.testing.assert_array_equal(solution.status, pvm.Status.SOLVED)
    for problem, mask, weights in zip(problems, masks, np.asarray(solution.weights)):
        _, active_margins, _ = moments(problem)
        binding = np.abs(active_margins) > 1e-12  # a voter without a margin is free to choose
        expected = np.sign(active_margins) / mask.sum()
        np.testing.assert_array_equal(weights[mask][binding], expected[binding])


def algorithm_1(votes: np.ndarray, labels: np.ndarray, mu: float) -> tuple[np.ndarray, float]:
    """The paper's program in Q, as printed, by Clarabel: Q and its objective Q'MQ - A'Q."""
    count, n = votes.shape
    M = sum(np.outer(row, row) for row in votes) / count
    m = sum(label * row for label, row in zip(labels, votes)) / count
    A = np.array([sum(row[i] * row[j] for j in range(n) for row in votes) / (n * count) for i in range(n)])
    level = mu / 2 + sum(label * row[j] for j in range(n) for label, row in zip(labels, votes)) / (2 * n * count)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(2 * M)),
        -A,
        sparse.csc_matrix(np.vstack([m, np.eye(n), -np.eye(n)])),
        np.r_[level, np.full(n, 1 / n), np.zeros(n)],
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)],
        settings,
    ).solve()
    Q = np.array(solution.x)
    return Q, Q @ M @ Q - A @ Q


@pytest.mark.parametrize("kind", ["signed", "stumps", "narrow", "many_samples"])
def test_it_is_the_paper_s_algorithm_1(kind: str) -> None:
    problems, solution = lanes(kind)
    compared = 0
    for problem, posterior, weights in zip(problems, solution.posterior, solution.weights):
        if problem.fraction < 0.1:  # the printed form drowns small margins in its constants
            continue
        Q, objective = algorithm_1(problem.votes, problem.labels, margin_of(problem))
        M = problem.votes.T @ problem.votes / len(problem.votes)
        ours = posterior @ M @ posterior - np.mean(M, axis=1) @ posterior
        # The printed objective is ours less a constant, A'1 / 4n, which sets the size of its rounding.
        np.testing.assert_allclose(ours, objective, rtol=0, atol=1e-9 * np.mean(M))
        if kind == "signed":  # more points than voters, in general position: the solution is unique
            np.testing.assert_allclose(posterior, Q, rtol=0, atol=1e-7 / len(Q))
            np.testing.assert_allclose(weights, 2 * Q - 1 / len(Q), rtol=0, atol=2e-7 / len(Q))
        compared += 1
    assert compared >= 5


def test_the_classifier_does_not_depend_on_a_margin_that_leaves_the_box_slack() -> None:
    problem = random_problem("signed", 0)
    largest = float(pvm.max_margin(problem.votes, problem.labels))
    margins = largest * np.array([1e-6, 1e-3, 1e-2])
    solution = jax.vmap(lambda margin: pvm.mincq(problem.votes, problem.labels, margin))(margins)
    directions = np.asarray(solution.weights) / margins[:, None]
    assert np.max(np.abs(solution.weights)) * 40 < 0.9
    # The closed form of the program without a box.
    M, m = problem.votes.T @ problem.votes / 50, problem.votes.T @ problem.labels / 50
    expected = np.linalg.solve(M, m) / (m @ np.linalg.solve(M, m))
    for direction in directions:
        np.testing.assert_allclose(direction, expected, rtol=0, atol=1e-7 * np.max(np.abs(expected)))


def exact_gap(problem: Problem, weights: np.ndarray) -> float:
    """How far, relative, the objective can be above the least one: a lower bound by duality, in 80 digits.

    Any z and y give w'Mw / 2 >= y mu - |z|^2 / 2 - 1/n sum_j |(V'z - y m)_j|. Good ones come from the program that
    keeps the voters at the box there, solved on the normal equations, whose condition 80 digits can take.
    """
    with decimal.localcontext(prec=80):
        exact = np.vectorize(decimal.Decimal, otypes=[object])
        mask = slice(None) if problem.voter_mask is None else problem.voter_mask
        votes, w, labels = exact(problem.votes[:, mask]), exact(weights[mask]), exact(problem.labels)
        shares = exact(np.ones(len(votes)) if problem.sample_weights is None else problem.sample_weights)
        votes, labels, shares = (
            part[problem.sample_weights > 0] if problem.sample_weights is not None else part
            for part in (votes, labels, shares)
        )
        shares = shares / shares.sum()
        n = len(w)
        m, gram = votes.T @ (shares * labels), votes.T @ (shares[:, None] * votes)
        mu = exact(margin_of(problem)).item()
        inside = np.abs(weights[mask]) * n < 1 - 1e-7
        k = inside.sum()
        # A ridge far below float64 but far above 80 digits picks one solution where several exist.
        ridge = gram.trace() * decimal.Decimal("1e-45")
        system = np.zeros((k + 1, k + 2), object) + decimal.Decimal(0)
        system[:k, :k] = gram[np.ix_(inside, inside)] + np.diag([ridge] * k)
        system[:k, k], system[k, :k] = -m[inside], m[inside]
        fixed = np.where(inside, decimal.Decimal(0), np.sign(weights[mask]).astype(int) / decimal.Decimal(int(n)))
        system[:k, -1] = -(gram @ fixed)[inside]
        system[k, -1] = mu - m @ fixed
        for column in range(k + 1):
            pivot = column + int(np.argmax(np.abs(system[column:, column])))
            system[[column, pivot]] = system[[pivot, column]]
            system[column, column:] /= system[column, column]
            for row in range(k + 1):
                if row != column:
                    system[row, column:] -= system[row, column] * system[column, column:]
        fixed[inside] = system[:k, -1]
        y = system[k, -1]
        lower = y * mu - (fixed @ gram @ fixed) / 2 - np.sum(np.abs(gram @ fixed - y * m)) / n
        objective = (w @ gram @ w) / 2
        return float((objective - lower) / objective)


@pytest.mark.parametrize("fraction", [1e-6, 1e-4])
@pytest.mark.parametrize("kind", ["gaussian", "wide", "soft", "zero_weights", "stumps", "zero_margin"])
def test_small_margins_are_exact(kind: str, fraction: float) -> None:
    """Where double-precision solvers fail, the objective is within 1e-6 of a bound computed with 80 digits."""
    problems, solution = lanes(kind)
    lane = next((i for i, p in enumerate(problems) if p.fraction == fraction), None)
    if lane is None:
        problem = random_problem(kind, 0)._replace(fraction=fraction)
        weights = pvm.mincq(
            problem.votes, problem.labels, margin_of(problem), sample_weights=problem.sample_weights
        ).weights
    else:
        problem, weights = problems[lane], solution.weights[lane]
    check_solution(problem, np.asarray(weights))
    assert exact_gap(problem, np.asarray(weights)) <= 1e-6


def test_a_voter_that_rounds_onto_its_bound_does_not_end_the_search() -> None:
    # At a millionth of the largest margin the box is a million times wider than the equality, and a slack may be 0.
    problem = random_problem("wide", 4)
    largest = float(pvm.max_margin(problem.votes, problem.labels))
    solution = pvm.mincq(problem.votes, problem.labels, 1e-6 * largest)
    root, margins, _ = moments(problem)
    best = clarabel_objective(root, margins, 1e-6)
    value = np.sum((root @ np.asarray(solution.weights)) ** 2) / (1e-6 * largest) ** 2
    assert int(solution.status) == pvm.Status.SOLVED
    assert float(solution.kkt_residual) < 1e-7
    assert value <= best * (1 + 1e-6)


def test_leading_rows_are_taken_where_they_are_enough() -> None:
    """Captured votes at margins for which a part of their factor will do, all of it, and both, beside all of it."""
    points = np.random.default_rng(0).uniform(-1, 1, (220, 2))
    labels = np.where(points[:, 0] > 0, 1.0, -1.0)
    votes = np.asarray(pvm.rbf_votes(points, points, 2.0))
    factor = pvm.vote_factor(votes)
    rank, lead = factor.right.shape[0], leading_rank(factor)
    largest = float(pvm.max_margin(votes, labels))
    margins = np.array([1e-6, 1e-5, 0.1, 0.9]) * largest
    assert lead < rank
    shares, mask = np.full(220, 1 / 220), np.ones(220, bool)
    sample = prepare(votes, labels, shares, mask, factor, lead=lead)
    quick = [solve_prepared(*sample, mu, "interior_point", "quick") for mu in margins]
    assert [float(one.kkt_residual) < 1e-9 for one in quick] == [False, False, True, True]
    inside = jax.jit(jax.vmap(lambda margin: pvm.mincq(votes, labels, margin)))
    whole = jax.jit(lambda factor: jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, factor=factor))(margins))
    reference = whole(factor)
    # Traced, a factor is taken whole.
    np.testing.assert_array_equal(reference.status, pvm.Status.SOLVED)
    for chosen in ([0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 2, 3]):
        found = inside(margins[chosen])
        np.testing.assert_array_equal(found.status, pvm.Status.SOLVED)
        assert np.max(np.asarray(found.kkt_residual)) < 1e-9
        np.testing.assert_allclose(found.c_bound, reference.c_bound[np.array(chosen)], rtol=0, atol=1e-9)
    for margin, bound in zip(margins, reference.c_bound):
        alone = pvm.mincq(votes, labels, margin)
        assert float(alone.kkt_residual) < 1e-9
        np.testing.assert_allclose(alone.c_bound, bound, rtol=0, atol=1e-9)


def test_a_batch_traces_one_loop_for_each_kind_of_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch goes one by one with both kinds of steps, or side by side with sure ones alone; tracing takes long."""
    traces = []

    def solve(problem, rows, newton):
        traces.append("quick" if newton is by_gradients else "sure")
        return solve_interior_point(problem, rows, newton)

    monkeypatch.setattr(program, "solve_interior_point", solve)
    points = np.random.default_rng(0).normal(size=(70, 2))
    votes, labels = kernel(points, points, 8.0), np.sign(points[:, 0])
    jax.jit(jax.vmap(lambda margin: pvm.mincq(votes, labels, margin))).lower(np.array([0.01, 0.02]))
    assert sorted(traces) == ["quick", "sure", "sure"]


def test_what_is_known_is_not_compiled() -> None:
    """Captured votes are factored on the host, and votes that are an argument in the program; both give one vote."""
    points = np.random.default_rng(0).normal(size=(70, 2))
    votes, labels, mask = kernel(points, points, 2.0), np.sign(points[:, 0]), np.arange(70) % 3 > 0
    margins = np.array([1e-4, 0.1, 0.8]) * float(pvm.max_margin(votes, labels, voter_mask=mask))

    def solve(votes: np.ndarray, labels: np.ndarray = labels) -> pvm.MinCqSolution:
        return jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, voter_mask=mask, rank=70))(margins)

    traced = [str(jax.make_jaxpr(function)(votes)) for function in (lambda _: solve(votes), solve)]
    assert ["= qr[" in text for text in traced] == [False, True]
    captured, argument = jax.jit(lambda: solve(votes))(), jax.jit(solve)(votes)
    for found in (captured, argument):
        np.testing.assert_array_equal(found.status, pvm.Status.SOLVED)
    np.testing.assert_allclose(captured.c_bound, argument.c_bound, rtol=0, atol=1e-9)


def test_a_second_attempt_is_kept_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).normal(size=(71, 2))
    votes, labels = kernel(points, points, 2.0), np.sign(points[:, 0])
    mu = 0.3 * float(pvm.max_margin(votes, labels))
    alone = pvm.mincq(votes, labels, mu)

    def spoilt(problem, rows, newton):
        solution = solve_interior_point(problem, rows, newton)
        return solution if newton is by_gradients else solution._replace(x=0.9 * solution.x)

    monkeypatch.setattr(program, "_GOOD", 0.0)
    monkeypatch.setattr(program, "solve_interior_point", spoilt)
    found = jax.jit(lambda margin: pvm.mincq(votes, labels, margin))(mu)
    assert found.iterations > alone.iterations + 5
    assert found.status == pvm.Status.SOLVED
    np.testing.assert_allclose(found.c_bound, alone.c_bound, rtol=0, atol=1e-9)


def test_a_masked_voter_of_another_size_costs_nothing() -> None:
    points = np.random.default_rng(0).normal(size=(150, 2))
    votes, labels, mask = kernel(points, points, 2.0), np.sign(points[:, 0]), np.arange(150) > 0
    mu = 0.3 * float(pvm.max_margin(votes, labels, voter_mask=mask))
    votes[:, 0] = 0.0
    without = jax.jit(lambda votes: pvm.mincq(votes, labels, mu, voter_mask=mask, rank=100))(votes)
    votes[:, 0] = 1e6 * labels
    found = jax.jit(lambda votes: pvm.mincq(votes, labels, mu, voter_mask=mask, rank=100))(votes)
    assert found.status == without.status == pvm.Status.SOLVED
    assert found.iterations <= without.iterations + 2
    np.testing.assert_allclose(found.c_bound, without.c_bound, rtol=0, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.5, 20.0])
def test_problems_side_by_side_are_those_in_turn(gamma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an accelerator is given, run here: sure steps alone, in a batch over margins and over votes."""
    points = np.random.default_rng(0).normal(size=(73, 2))
    labels = np.sign(points[:, 0])
    votes = np.stack([kernel(points, points, gamma), kernel(points, points + 0.1, gamma)])
    margins = np.array([1e-5, 0.02, 0.3, 0.9, 1.0]) * np.min([pvm.max_margin(one, labels) for one in votes])

    def solve(votes: np.ndarray, margins: np.ndarray) -> pvm.MinCqSolution:
        return jax.vmap(lambda votes: jax.vmap(lambda margin: pvm.mincq(votes, labels, margin))(margins))(votes)

    in_turn = jax.jit(solve)(votes, margins)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *arguments, cpu, default: default(*arguments))
    side_by_side = jax.jit(lambda *arguments: solve(*arguments))(votes, margins)
    np.testing.assert_array_equal(in_turn.status, pvm.Status.SOLVED)
    np.testing.assert_array_equal(side_by_side.status, pvm.Status.SOLVED)
    np.testing.assert_allclose(side_by_side.c_bound, in_turn.c_bound, rtol=0, atol=1e-9)


def test_a_factor_that_is_known_leads_by_few_rows_whatever_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (150, 2))
    labels, votes = np.sign(points[:, 0]), np.asarray(pvm.rbf_votes(points, points, 1.0))
    factor, mu = pvm.vote_factor(votes), 0.3 * float(pvm.max_margin(votes, labels))
    seen = []

    def solve(problem, rows, newton):
        seen.append(len(rows.factor))
        return solve_interior_point(problem, rows, newton)

    monkeypatch.setattr(program, "solve_interior_point", solve)
    found = jax.jit(lambda labels: pvm.mincq(votes, labels, mu, factor=factor))(labels)
    assert found.status == pvm.Status.SOLVED
    assert 0 < seen[0] < factor.right.shape[0] == seen[1]
