"""What MinCq refuses, what it reports when traced, and its other ways in: factors, masks, float32, jaxopt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.voting import batch as batches
from pvmincq_jax.voting.factor import ladder_rank

POINTS, VOTERS = 12, 6


def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.resize([-1.0, 1.0], POINTS)
    return np.tanh(rng.normal(size=(POINTS, VOTERS)) + 0.5 * labels[:, None]), labels


VOTES, LABELS = sample()
MARGINS = VOTES.T @ LABELS / POINTS
MU_MAX = float(np.mean(np.abs(MARGINS)))
GOOD = {
    "votes": VOTES,
    "labels": LABELS,
    "margin": 0.4 * MU_MAX,
    "sample_weights": np.ones(POINTS),
    "voter_mask": np.ones(VOTERS, bool),
}


def changed(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array.flat[0] = value
    return array


@pytest.mark.parametrize(
    ("argument", "bad", "says"),
    [
        ("votes", changed(VOTES, np.nan), "NaN"),
        ("votes", changed(VOTES, np.inf), "infinite"),
        ("votes", VOTES[0], "rank 2"),
        ("votes", VOTES[:, :0], "empty"),
        ("votes", VOTES.astype(str), "numbers"),
        ("labels", LABELS[:-1], "12"),
        ("labels", LABELS[:, None], "rank 1"),
        ("labels", changed(LABELS, np.nan), "NaN"),
        ("labels", changed(LABELS, -1.5), r"\[-1, 1\]"),
        ("margin", 0.0, "mu_max"),
        ("margin", -0.1, "mu_max"),
        ("margin", MU_MAX * (1 + 1e-9), f"{MU_MAX:.6g}"),
        ("margin", np.nan, "NaN"),
        ("margin", np.array([0.1, 0.2]), "rank 0"),
        ("sample_weights", np.ones(POINTS - 1), "12"),
        ("sample_weights", changed(np.ones(POINTS), -1e-3), "negative"),
        ("sample_weights", np.zeros(POINTS), "zero"),
        ("sample_weights", changed(np.ones(POINTS), np.inf), "infinite"),
        ("voter_mask", np.ones(VOTERS - 1, bool), "6"),
        ("voter_mask", np.zeros(VOTERS, bool), "every voter"),
    ],
)
def test_bad_input_is_named(argument: str, bad, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        pvm.mincq(**GOOD | {argument: bad})
    assert str(raised.value).startswith(argument)
    if argument != "margin":
        arguments = {key: value for key, value in (GOOD | {argument: bad}).items() if key != "margin"}
        with pytest.raises(ValueError, match=rf"^{argument}"):
            pvm.max_margin(**arguments)


def test_an_unknown_solver_is_named() -> None:
    with pytest.raises(ValueError, match=r"solver.*'simplex'"):
        pvm.mincq(VOTES, LABELS, 0.1, solver="simplex")


@pytest.mark.parametrize("other", [VOTES[:-1], VOTES[:, :-1]])
def test_a_factor_of_other_votes_is_refused(other: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^factor"):
        pvm.mincq(VOTES, LABELS, 0.1, factor=pvm.vote_factor(other))


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("votes", {"votes": changed(VOTES, np.nan)}),
        ("sample_weights", {"sample_weights": -np.ones(POINTS)}),
        ("tolerance", {"tolerance": 0.0}),
        ("rank", {"rank": 0}),
        ("rank", {"rank": VOTERS + 1}),
    ],
)
def test_vote_factor_names_bad_input(argument: str, arguments: dict) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}"):
        pvm.vote_factor(**{"votes": VOTES} | arguments)


@jax.jit
@jax.vmap
def lanes(votes, labels, margin, sample_weights, voter_mask):
    return pvm.mincq(votes, labels, margin, sample_weights=sample_weights, voter_mask=voter_mask)


def batch(*changes: dict) -> pvm.MinCqSolution:
    """Four lanes: good ones, changed in order."""
    problems = [GOOD | change for change in (*changes, *[{}] * (4 - len(changes)))]
    stacked = [np.stack([np.asarray(p[key]) for p in problems]) for key in GOOD]
    return jax.tree.map(np.asarray, lanes(*stacked))


BAD_LANES = {
    "above mu_max": ({"margin": 1.001 * MU_MAX}, pvm.Status.INFEASIBLE),
    "margin 0": ({"margin": 0.0}, pvm.Status.INFEASIBLE),
    "negative margin": ({"margin": -0.1}, pvm.Status.INFEASIBLE),
    "labels of 0": ({"labels": np.zeros(POINTS)}, pvm.Status.INFEASIBLE),
    "NaN margin": ({"margin": np.nan}, pvm.Status.BAD_INPUT),
    "infinite margin": ({"margin": np.inf}, pvm.Status.BAD_INPUT),
    "NaN votes": ({"votes": changed(VOTES, np.nan)}, pvm.Status.BAD_INPUT),
    "infinite votes": ({"votes": changed(VOTES, np.inf)}, pvm.Status.BAD_INPUT),
    "NaN labels": ({"labels": changed(LABELS, np.nan)}, pvm.Status.BAD_INPUT),
    "labels out of range": ({"labels": changed(LABELS, 1.5)}, pvm.Status.BAD_INPUT),
    "negative sample weight": ({"sample_weights": changed(np.ones(POINTS), -0.1)}, pvm.Status.BAD_INPUT),
    "only negative sample weights": ({"sample_weights": -np.ones(POINTS)}, pvm.Status.BAD_INPUT),
    "no sample weight": ({"sample_weights": np.zeros(POINTS)}, pvm.Status.BAD_INPUT),
    "NaN sample weight": ({"sample_weights": changed(np.ones(POINTS), np.nan)}, pvm.Status.BAD_INPUT),
    "empty mask": ({"voter_mask": np.zeros(VOTERS, bool)}, pvm.Status.BAD_INPUT),
}


@pytest.mark.parametrize("name", BAD_LANES)
def test_a_traced_failure_is_a_status(name: str) -> None:
    """It costs no step, gives no number, and leaves the other lanes' bits alone."""
    change, status = BAD_LANES[name]
    clean, found = batch(), batch({}, change)
    np.testing.assert_array_equal(found.status, [0, status, 0, 0])
    assert found.iterations[1] == 0
    assert np.all(np.isnan(found.weights[1]))
    assert np.all(np.isnan(found.posterior[1]))
    assert np.isnan(found.c_bound[1])
    assert np.isnan(found.kkt_residual[1])
    for part, expected in zip(found, clean):
        np.testing.assert_array_equal(part[[0, 2, 3]], expected[[0, 2, 3]])
    assert np.all(np.isfinite(clean.weights))


def test_an_infeasible_lane_still_tells_the_largest_margin() -> None:
    found = batch({"margin": 10.0})
    np.testing.assert_allclose(found.mu_max, MU_MAX, rtol=1e-14)


def test_a_batch_of_failures_alone_takes_no_step() -> None:
    found = batch(*[{"margin": 2 * MU_MAX}] * 4)
    np.testing.assert_array_equal(found.iterations, 0)


def test_every_status_has_its_sentence() -> None:
    assert [int(status) for status in pvm.Status] == [0, 1, 2, 3]
    assert len({status.sentence for status in pvm.Status}) == 4


def test_masked_voters_are_as_if_they_were_not_there() -> None:
    mask = np.array([True, False, True, True, True, False])
    found = batch({"voter_mask": mask, "margin": 0.1})
    alone = pvm.mincq(VOTES[:, mask], LABELS, 0.1)
    assert found.status[0] == pvm.Status.SOLVED
    np.testing.assert_array_equal(found.weights[0][~mask], 0)
    np.testing.assert_array_equal(found.posterior[0][~mask], 0)
    np.testing.assert_allclose(found.weights[0][mask], alone.weights, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.mu_max[0], np.mean(np.abs(MARGINS[mask])), rtol=1e-14)
    np.testing.assert_allclose(pvm.max_margin(VOTES, LABELS, voter_mask=mask), found.mu_max[0], rtol=1e-14)


def test_points_of_weight_zero_are_as_if_they_were_not_there() -> None:
    weights = np.where(np.arange(POINTS) % 3 == 0, 0.0, 1.5)
    kept = weights > 0
    found = batch({"sample_weights": weights, "margin": 0.1})
    dual = VOTES[kept].T @ LABELS[kept] / kept.sum()
    assert found.status[0] == pvm.Status.SOLVED
    np.testing.assert_allclose(found.mu_max[0], np.mean(np.abs(dual)), rtol=1e-14)
    # The same points with any other votes in the rows that do not count.
    other = batch({"sample_weights": weights, "margin": 0.1, "votes": np.where(kept[:, None], VOTES, 0.123)})
    np.testing.assert_allclose(found.weights[0], other.weights[0], rtol=0, atol=1e-8)


def test_integer_votes_and_labels_are_taken() -> None:
    votes, labels = np.where(VOTES > 0, 1, -1), LABELS.astype(int)
    margin = 0.5 * float(pvm.max_margin(votes, labels))
    whole = pvm.mincq(votes, labels, margin, factor=pvm.vote_factor(votes))
    real = pvm.mincq(votes.astype(float), LABELS, margin, factor=pvm.vote_factor(votes.astype(float)))
    np.testing.assert_array_equal(whole.weights, real.weights)
    alone = [pvm.mincq(*sample, margin).weights for sample in ((votes, labels), (votes.astype(float), LABELS))]
    np.testing.assert_array_equal(*alone)


def test_a_shared_factor_changes_nothing() -> None:
    """One factor for other margins, sample weights and masks over the same voters."""
    rng = np.random.default_rng(1)
    factor = pvm.vote_factor(VOTES)
    mask = np.array([True, True, False, True, True, True])
    for weights in (np.ones(POINTS), rng.uniform(size=POINTS), np.where(np.arange(POINTS) < 5, 1.0, 0.0)):
        margin = 0.3 * float(pvm.max_margin(VOTES, LABELS, sample_weights=weights, voter_mask=mask))
        without = pvm.mincq(VOTES, LABELS, margin, sample_weights=weights, voter_mask=mask)
        given = pvm.mincq(VOTES, LABELS, margin, sample_weights=weights, voter_mask=mask, factor=factor)
        assert given.status == without.status == pvm.Status.SOLVED
        np.testing.assert_allclose(given.c_bound, without.c_bound, rtol=0, atol=1e-9)


def test_masks_share_a_factor_at_the_smallest_margins() -> None:
    """Ill-conditioned voters: what is masked must not cost the others their digits."""
    rng = np.random.default_rng(2)
    points = rng.normal(size=(POINTS, 1)) + 0.5 * LABELS[:, None]
    votes = np.exp(-0.3 * (points - points[:VOTERS].T) ** 2)
    factor = pvm.vote_factor(votes)
    mask = np.array([True, False, True, True, False, True])
    margin = 1e-6 * float(pvm.max_margin(votes, LABELS, voter_mask=mask))
    weights = np.ones(POINTS)
    without = pvm.mincq(votes, LABELS, margin, sample_weights=weights, voter_mask=mask)
    given = pvm.mincq(votes, LABELS, margin, sample_weights=weights, voter_mask=mask, factor=factor)
    assert given.status == without.status == pvm.Status.SOLVED
    np.testing.assert_allclose(given.c_bound, without.c_bound, rtol=0, atol=1e-8)


def test_a_factor_of_the_wrong_votes_is_not_believed() -> None:
    """Of the right shape, it cannot be refused beforehand; the residual, taken on the votes themselves, tells."""
    wrong = pvm.vote_factor(np.random.default_rng(3).normal(size=VOTES.shape))
    solution = pvm.mincq(VOTES, LABELS, 0.4 * MU_MAX, factor=wrong)
    assert solution.status == pvm.Status.MAX_ITERATIONS
    assert solution.kkt_residual > 1e-7
    assert np.all(np.isnan(solution.weights))
    assert np.isnan(solution.c_bound)


@pytest.mark.parametrize("shape", [(300, 250), (250, 300)])
def test_a_large_factor_reproduces_the_votes(shape: tuple) -> None:
    """Above 200 the row space is found by random projection: as small and as exact as by the full SVD."""
    rng = np.random.default_rng(4)
    points, centers = rng.normal(size=(shape[0], 2)), rng.normal(size=(shape[1], 2))
    votes = np.exp(-0.2 * ((points[:, None] - centers[None]) ** 2).sum(-1))
    factor = pvm.vote_factor(votes)
    singular = np.linalg.svd(votes, compute_uv=False)
    rank = int(np.sum(singular > 1e-11 * singular[0]))
    assert rank <= factor.right.shape[0] <= ladder_rank(rank)
    assert np.linalg.norm(votes - factor.left @ factor.right, 2) <= 1e-10 * singular[0]


def test_vote_factor_under_jit_has_a_fixed_rank() -> None:
    right = jax.jit(lambda votes: pvm.vote_factor(votes, rank=3).right)(VOTES)
    assert right.shape == (3, VOTERS)
    np.testing.assert_allclose(right @ right.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.abs(right), np.abs(pvm.vote_factor(VOTES, rank=3).right), atol=1e-10)


def wide_votes(seed: int) -> np.ndarray:
    """300 voters of a rank far below."""
    points = np.random.default_rng(seed).normal(size=(300, 2))
    return np.exp(-0.2 * ((points[:, None] - points[None]) ** 2).sum(-1))


def test_captured_votes_are_factored_before_the_trace() -> None:
    """Inside jit, with traced margins and masks or with nothing traced at all, as outside."""
    votes, labels = jnp.asarray(wide_votes(5)), np.resize([-1.0, 1.0], 300)
    rank, shapes = pvm.vote_factor(votes).right.shape[0], []
    largest = float(pvm.max_margin(votes, labels))

    @jax.jit
    def solve(margins, weights):
        shapes.append(pvm.vote_factor(votes).right.shape)
        return jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, sample_weights=weights))(margins)

    margins = np.array([0.1, 0.6]) * largest
    inside = solve(margins, np.ones(300))
    outside = jax.vmap(lambda margin: pvm.mincq(votes, labels, margin))(margins)
    assert shapes == [(rank, 300)]
    assert rank < 100
    np.testing.assert_array_equal(inside.status, pvm.Status.SOLVED)
    np.testing.assert_allclose(inside.c_bound, outside.c_bound, rtol=0, atol=1e-9)
    alone = jax.jit(lambda: pvm.mincq(votes, labels, margins[1]))()
    np.testing.assert_allclose(alone.c_bound, outside.c_bound[1], rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"^margin.*mu_max"):
        jax.jit(lambda: pvm.mincq(votes, labels, 2 * largest))()


def test_the_certificate_says_when_the_rank_of_traced_votes_was_too_small() -> None:
    """Votes in lanes: at the measured rank they are solved as with all of it, at rank 4 they are not believed."""
    votes, labels = np.stack([wide_votes(5), wide_votes(6)]), np.resize([-1.0, 1.0], 300)
    margin = 0.3 * float(pvm.max_margin(votes[0], labels))
    rank = max(pvm.vote_factor(one).right.shape[0] for one in votes)
    enough, small = (
        jax.jit(jax.vmap(lambda votes, rank=rank: pvm.mincq(votes, labels, margin, rank=rank)))(votes)
        for rank in (rank, 4)
    )
    np.testing.assert_array_equal(enough.status, pvm.Status.SOLVED)
    for lane in (0, 1):
        np.testing.assert_allclose(
            enough.c_bound[lane], pvm.mincq(votes[lane], labels, margin).c_bound, rtol=0, atol=1e-9
        )
    np.testing.assert_array_equal(small.status, pvm.Status.MAX_ITERATIONS)
    assert np.all(np.isnan(small.weights))


def test_a_rank_beside_a_factor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^rank"):
        pvm.mincq(VOTES, LABELS, 0.1, factor=pvm.vote_factor(VOTES), rank=3)


def test_the_ladder_of_ranks_is_short_and_wastes_little() -> None:
    steps = sorted({ladder_rank(rank) for rank in range(1, 513)})
    assert all(ladder_rank(rank) >= rank for rank in range(1, 513))
    assert [ladder_rank(step) for step in steps] == steps
    assert len(steps) <= 13
    assert np.all(np.divide(steps[1:], steps[:-1]) <= 1.46)
    assert ladder_rank(50) == ladder_rank(60)


def test_jaxopt_agrees_where_it_converges() -> None:
    for fraction in (0.3, 0.9):
        exact = pvm.mincq(VOTES, LABELS, fraction * MU_MAX)
        other = pvm.mincq(VOTES, LABELS, fraction * MU_MAX, solver="jaxopt")
        assert other.status == pvm.Status.SOLVED
        assert other.iterations > exact.iterations
        np.testing.assert_allclose(other.weights, exact.weights, rtol=0, atol=1e-6 / VOTERS)
        np.testing.assert_allclose(other.c_bound, exact.c_bound, rtol=0, atol=1e-7)


@pytest.mark.long
def test_jaxopt_says_where_it_stopped_short() -> None:
    """Wide Gaussian voters at a small margin, beyond a first-order method; the default solves the same problem."""
    points = np.random.default_rng(5).normal(size=(POINTS, 1)) + 0.5 * LABELS[:, None]
    votes = np.exp(-0.3 * (points - points[:VOTERS].T) ** 2)
    margin = 1e-4 * float(pvm.max_margin(votes, LABELS))
    other = pvm.mincq(votes, LABELS, margin, solver="jaxopt")
    assert other.status == pvm.Status.MAX_ITERATIONS
    assert np.all(np.isnan(other.weights))
    assert pvm.mincq(votes, LABELS, margin).status == pvm.Status.SOLVED


def test_a_failed_lane_of_jaxopt_takes_no_step_either() -> None:
    solution = jax.vmap(lambda margin: pvm.mincq(VOTES, LABELS, margin, solver="jaxopt"))(np.array([0.4, 2.0]) * MU_MAX)
    np.testing.assert_array_equal(solution.status, [pvm.Status.SOLVED, pvm.Status.INFEASIBLE])
    assert solution.iterations[1] == 0


@pytest.mark.parametrize("kind", ["signed", "gaussian", "stumps"])
def test_float32_reaches_its_stated_accuracy(kind: str) -> None:
    """SOLVED means 1e-4; margins between 0.05 and 0.9 mu_max. Far below, it says that it did not reach it."""
    rng = np.random.default_rng(6)
    labels = np.resize([-1.0, 1.0], 50)
    points = rng.normal(size=(50, 2)) + 0.7 * labels[:, None]
    votes = {
        "signed": np.tanh(rng.normal(size=(50, 24)) + 0.2 * labels[:, None]),
        "gaussian": np.exp(-((points[:, None] - points[None, :24]) ** 2).sum(-1)),
        "stumps": np.where(points[:, rng.integers(0, 2, 24)] > rng.normal(size=24), 1.0, -1.0),
    }[kind]
    factor32, factor64 = (pvm.vote_factor(votes.astype(dtype), rank=24) for dtype in (np.float32, np.float64))
    margins = np.array([0.05, 0.1, 0.3, 0.6, 0.9]) * float(pvm.max_margin(votes, labels))
    solve = jax.vmap(lambda margin: pvm.mincq(votes.astype(np.float32), labels, margin, factor=factor32))
    single = solve(margins.astype(np.float32))
    double = jax.vmap(lambda margin: pvm.mincq(votes, labels, margin, factor=factor64))(margins)
    assert single.weights.dtype == single.kkt_residual.dtype == np.float32
    np.testing.assert_array_equal(single.status, pvm.Status.SOLVED)
    np.testing.assert_array_equal(double.status, pvm.Status.SOLVED)
    objectives = [np.mean((votes @ np.asarray(s.weights, float).T) ** 2, axis=0) for s in (single, double)]
    relative = np.abs(objectives[0] / objectives[1] - 1)
    assert np.max(relative) <= 1e-4
    assert np.median(relative) <= 1e-5
    reached = np.asarray(single.weights, float) @ (votes.T @ labels / 50)
    np.testing.assert_allclose(reached, margins, rtol=1e-4)
    assert np.max(np.abs(single.weights)) * 24 <= 1 + 1e-6
    tiny = solve(np.full(5, 1e-5 * margins[-1], np.float32))
    assert np.all((tiny.kkt_residual <= 1e-4) | (tiny.status == pvm.Status.MAX_ITERATIONS))


@pytest.mark.parametrize("wrap", [jax.jit, lambda function: function], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("argument", "bad"),
    [("votes", changed(VOTES, np.nan)), ("votes", changed(VOTES, np.inf)), ("sample_weights", -np.ones(POINTS))],
)
def test_jax_arrays_that_are_captured_are_checked(argument: str, bad: np.ndarray, wrap) -> None:
    given = {name: value for name, value in (GOOD | {argument: jnp.asarray(bad)}).items() if name != "margin"}
    with pytest.raises(ValueError, match=rf"^{argument}"):
        wrap(jax.vmap(lambda margin: pvm.mincq(margin=margin, **given)))(np.array([0.1, 0.2]) * MU_MAX)
    if argument == "votes":
        with pytest.raises(ValueError, match=rf"^{argument}"):
            pvm.vote_factor(given["votes"])


def test_votes_of_half_precision_are_taken_in_the_default_one() -> None:
    half = pvm.mincq(VOTES.astype(np.float16), LABELS, 0.4 * MU_MAX)
    assert half.weights.dtype == jnp.result_type(float)
    np.testing.assert_allclose(half.c_bound, pvm.mincq(VOTES, LABELS, 0.4 * MU_MAX).c_bound, atol=1e-2)


def test_jaxopt_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, solve = [], batches._solve

    def stop_short(problems, key):
        calls.append(key.steps)
        return [found._replace(status=np.full(1, int(pvm.Status.MAX_ITERATIONS))) for found in solve(problems, key)]

    monkeypatch.setattr(batches, "_solve", stop_short)
    pvm.mincq(VOTES, LABELS, 0.4 * MU_MAX, solver="jaxopt")
    assert calls == ["quick"]
    pvm.mincq(VOTES, LABELS, 0.4 * MU_MAX)
    assert calls == ["quick", "quick", "sure"]
