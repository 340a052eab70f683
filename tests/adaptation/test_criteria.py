"""The criteria on a sweep made by hand, the rule for ties, and fits that choose for themselves."""

import textwrap

import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.adaptation import criteria
from pvmincq_jax.baselines import resampling
from pvmincq_jax.datasets import moons_task

SOLVED, INFEASIBLE = int(pvm.Status.SOLVED), int(pvm.Status.INFEASIBLE)
SHAPE = (3, 2, 2)


@pytest.fixture
def made():
    """Two folds, three radii, two gammas, two margins; (2, 1, 1) fails as a whole and (1, 1, 1) in one fold."""
    rng = np.random.default_rng(0)
    status, fold_status = np.full(SHAPE, SOLVED), np.full((2, *SHAPE), SOLVED)
    source_risk, c_bound, self_risk = rng.uniform(size=(2, *SHAPE)), rng.uniform(size=SHAPE), rng.uniform(size=SHAPE)
    status[2, 1, 1], fold_status[0, 1, 1, 1] = INFEASIBLE, INFEASIBLE
    c_bound[2, 1, 1] = self_risk[2, 1, 1] = source_risk[0, 1, 1, 1] = np.nan
    return pvm.Sweep(
        radii=np.array([0.1, 0.2, 0.4]),
        gammas=np.array([1.0, 4.0]),
        margins=np.array([0.05, 0.5]),
        margin_unit="fraction",
        source_risk=source_risk,
        pv=np.array([0.5, 0.25, 0.0]),
        c_bound=c_bound,
        self_risk=self_risk,
        matched=np.array([5, 8, 10]),
        fold_matched=np.array([[4, 6, 8], [4, 7, 8]]),
        status=status,
        fold_status=fold_status,
        kkt_residual=np.where(status == SOLVED, 1e-12, np.nan),
        fold_kkt_residual=np.where(fold_status == SOLVED, 1e-12, np.nan),
        mu_max=np.ones(SHAPE[:2]),
        weights=np.where(status == SOLVED, 0.1, np.nan)[..., None],
        voters=(),
        target_values=np.where(status == SOLVED, 1.0, np.nan)[..., None] * rng.normal(size=(*SHAPE, 10)),
        self_labels=(),
        source_labels=np.array([1.0, -1, -1, -1]),
        target=np.arange(10.0)[:, None] ** 2,
        voter_mask=np.ones((3, 1, 1), bool),
        voter_counts=np.ones((3, 1), int),
    )


CRITERIA = [
    (pvm.rs, lambda risk, pv, bound, own: risk),
    (pvm.rs_pv, lambda risk, pv, bound, own: risk + pv),
    (pvm.rs_pv_cbound, lambda risk, pv, bound, own: risk + pv + bound),
    (pvm.rs_pv_risk, lambda risk, pv, bound, own: risk + pv + 2 * own),
]


@pytest.mark.parametrize(("criterion", "formula"), CRITERIA)
def test_formulas(criterion, formula, made):
    scores = criterion(made)
    assert scores.shape == SHAPE
    for r, g, k in np.ndindex(SHAPE):
        if (r, g, k) in {(2, 1, 1), (1, 1, 1)}:
            assert scores[r, g, k] == np.inf
            continue
        risk = (made.source_risk[0, r, g, k] + made.source_risk[1, r, g, k]) / 2
        expected = formula(risk, made.pv[r], made.c_bound[r, g, k], made.self_risk[r, g, k])
        assert scores[r, g, k] == pytest.approx(expected, abs=1e-15)


def test_the_cut_and_the_gap(made):
    """Points at the squares: the nearest of i^2 is (i - 1)^2, and of 0 it is 1. A quarter of the source is positive."""
    labels = np.sign(made.target_values)
    nearest = np.r_[1, np.arange(9)]
    gap = np.mean(labels == 1, axis=-1) - 0.25
    expected = pvm.rs_pv_cbound(made) + 4 * np.mean(labels != labels[..., nearest], axis=-1) + 4 * gap**2
    scores = pvm.label_criterion(made)
    solved = np.isfinite(expected) & (made.status == SOLVED)
    assert np.sum(solved) == 10
    np.testing.assert_allclose(scores[solved], expected[solved], rtol=1e-14)
    assert np.all(scores[~solved] == np.inf)


def test_chooses_the_least(made):
    scores = np.full(SHAPE, 0.5)
    scores[1, 0, 1] = 0.4
    choice = pvm.choose(made, scores)
    assert choice.grid_index == (1, 0, 1)
    assert (choice.radius, choice.gamma, choice.margin, choice.margin_unit) == (0.2, 1.0, 0.5, "fraction")
    assert choice.score == 0.4
    np.testing.assert_array_equal(choice.scores, scores)


@pytest.mark.parametrize(
    ("tied", "index"),
    [
        (list(np.ndindex(SHAPE)), (0, 0, 1)),
        ([(2, 0, 1), (1, 1, 0)], (1, 1, 0)),  # the radius before the rest
        ([(1, 1, 1), (1, 0, 0)], (1, 0, 0)),  # then the gamma
        ([(1, 1, 0), (1, 1, 1)], (1, 1, 1)),  # then the largest margin
    ],
)
def test_ties(tied, index, made):
    scores = np.ones(SHAPE)
    for number, point in enumerate(tied):
        scores[point] = 0.3 - 1e-13 * number  # equal but for rounding
    assert pvm.choose(made, scores).grid_index == index
    # It is the values that decide, not their places in the grid.
    turned = made._replace(gammas=made.gammas[::-1], margins=made.margins[::-1])
    r, g, k = index
    assert pvm.choose(turned, scores[:, ::-1, ::-1]).grid_index == (r, 1 - g, 1 - k)


@pytest.mark.parametrize("never", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_never_chosen(never, made):
    scores = np.full(SHAPE, never)
    scores[2, 1, 0] = 7.0
    assert pvm.choose(made, scores).grid_index == (2, 1, 0)
    with pytest.raises(ValueError, match="scores hold no finite number"):
        pvm.choose(made, np.full(SHAPE, never))


def test_scores_of_another_shape(made):
    with pytest.raises(ValueError, match=r"scores must have the grid's shape \(3, 2, 2\); theirs is \(3, 2\)"):
        pvm.choose(made, np.ones((3, 2)))


def test_the_documented_criterion_runs(made):
    """The few lines in the module's docstring, as they stand there."""
    lines = textwrap.dedent(criteria.__doc__.split("::\n", 1)[1].split("\nOf c > 2", 1)[0])
    scope = {"rs_pv": pvm.rs_pv, "choose": pvm.choose, "sweep": made}
    exec(lines, scope)
    expected = pvm.rs_pv(made) + 0.1 * (1 - np.array([0.5, 0.8, 1.0]))[:, None, None]
    np.testing.assert_allclose(scope["choice"].scores, expected)
    assert scope["choice"].score == np.min(expected)


# Fits that choose for themselves.

# Gammas large enough for votes of full rank: all shapes are the same.
GRID = {"radii": [0.4, 0.1, 0.0], "margins": [0.05, 0.3], "gammas": [5.0, 8.0]}
GRID |= {"folds": 3, "seed": 2, "radius_unit": "pv"}


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 1, per_class=20, test_size=400)


@pytest.mark.parametrize(
    ("options", "criterion", "draws"),
    [({}, pvm.label_criterion, 16), ({"criterion": pvm.rs_pv, "draws": 1}, pvm.rs_pv, 1)],
    ids=["ours", "paper"],
)
def test_fit_validated(options, criterion, draws, task):
    arguments = task.source, task.source_labels, task.target
    model, choice, figures = pvm.fit_validated(*arguments, **options, **GRID)
    expected = pvm.sweep(*arguments, draws=draws, **GRID)
    np.testing.assert_array_equal(figures.c_bound, expected.c_bound)
    scores = criterion(expected)
    np.testing.assert_array_equal(choice.scores, scores)
    assert choice.score <= np.min(scores) + 1e-9
    r, g, k = choice.grid_index
    # The model is the sweep's own at that point: the same labels, the same C-bound.
    np.testing.assert_array_equal(model.labels, figures.self_labels[r].labels)
    assert float(model.c_bound) == figures.c_bound[r, g, k]
    assert model.kkt_residual <= 1e-7
    np.testing.assert_allclose(model.margin / model.mu_max, figures.margins[k], rtol=1e-12)
    assert (float(model.radius), float(model.gamma)) == (figures.radii[r], figures.gammas[g])
    assert np.mean(np.asarray(pvm.predict(model, task.test)) == task.test_labels) > 0.8


def test_fit_validated_without_a_choice(task):
    with pytest.raises(ValueError, match="scores hold no finite number"):
        pvm.fit_validated(
            task.source,
            task.source_labels,
            task.target,
            criterion=lambda figures: np.full(figures.status.shape, np.nan),
            **GRID,
        )


def test_one_point_is_taken_and_scored_on_folds(task):
    arguments = task.source, task.source_labels, task.target
    point = {"radii": [0.6], "margins": [0.3], "gammas": [5.0]}
    alone = pvm.fit_validated(*arguments, **point)
    assert np.isnan(alone.choice.score)
    found = pvm.fit_validated(*arguments, **point, folds=2)
    np.testing.assert_array_equal(found.choice.scores, pvm.label_criterion(found.sweep))
    assert found.choice.score == found.choice.scores.item() > 0
    never = pvm.fit_validated(*arguments, **point, folds=2, criterion=lambda one: np.full(one.status.shape, np.inf))
    assert never.choice.score == np.inf
    for one in (found, never):
        np.testing.assert_array_equal(one.model.weights, alone.model.weights)
    with pytest.raises(ValueError, match="scores must have the grid's shape"):
        pvm.fit_validated(*arguments, **point, folds=2, criterion=lambda one: np.zeros(3))


def test_on_one_domain_nothing_is_adapted(task):
    own = pvm.fit_mincq_validated(task.source, task.source_labels, margins=[0.3], gammas=[5.0])
    assert not own.adapted
    carried = pvm.fit_validated(*task[:3], radii=[0.6], margins=[0.3], gammas=[5.0])
    assert carried.adapted


# Validation of any fit function; what it computes is checked by hand in test_baselines_form.py.


def sign_fit(seen):
    def fit(source, labels, target, params, seed):
        seen.append((source, labels, target, params, seed))
        return params

    return fit


def sign_decision(params, x):
    return params * x[:, 0]


def rows_of(x):
    return {tuple(row) for row in x}


def test_reverse_validation_has_the_target_in_its_folds(task):
    """Every target point is hidden from both fits of exactly one fold, and so is every source point."""
    seen, asked = [], []

    def decision(params, x):
        asked.append(rows_of(x))
        return sign_decision(params, x)

    fit = sign_fit(seen)
    resampling.reverse_validation(fit, decision, task.source, task.source_labels, task.target, [1.0], 5, 3)
    source, target = rows_of(task.source), rows_of(task.target)
    assert len(seen) == len(asked) == 10
    hidden = {"source": [], "target": []}
    for forward, back, labelled, judged in zip(seen[::2], seen[1::2], asked[::2], asked[1::2]):
        here, there = rows_of(forward[0]), rows_of(forward[2])
        hidden["source"].append(source - here)
        hidden["target"].append(target - there)
        assert len(target - there) == 8
        # The way back learns from the same target points, labelled by the first model, towards the same source points.
        assert (rows_of(back[0]), rows_of(back[2])) == (there, here)
        np.testing.assert_array_equal(back[1], np.where(back[0][:, 0] >= 0, 1.0, -1.0))
        assert labelled == there
        assert judged == source - here
        assert forward[4] == back[4] == 3
    for name, whole in (("source", source), ("target", target)):
        assert set.union(*hidden[name]) == whole
        assert sum(map(len, hidden[name])) == len(whole)


def test_cross_validation_gives_every_fit_the_whole_target(task):
    seen = []
    arguments = task.source, task.source_labels, task.target
    scores = resampling.cross_validation(sign_fit(seen), sign_decision, *arguments, [1.0, -1.0], 4, 0)
    assert len(seen) == 8
    assert all(rows_of(one[2]) == rows_of(task.target) for one in seen)
    wrong = np.mean(task.source_labels * task.source[:, 0] <= 0)
    np.testing.assert_allclose(scores, [wrong, 1 - wrong])


@pytest.mark.parametrize("name", ["cross_validation", "reverse_validation", "rs_pv_validation"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 21}, r"folds must be at least 2 and at most.*\(20\)"),
        ({"folds": "5"}, "folds must be an integer"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_options_are_named(name, options, message, task):
    with pytest.raises(ValueError, match=message):
        getattr(resampling, name)(sign_fit([]), sign_decision, *task[:3], [1.0], **options)


def test_reverse_validation_needs_target_points_for_its_folds(task):
    with pytest.raises(ValueError, match=r"folds must be.*\(3\); it is 5"):
        resampling.reverse_validation(
            sign_fit([]), sign_decision, task.source, task.source_labels, task.target[:3], [1.0]
        )
