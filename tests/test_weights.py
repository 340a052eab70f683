"""Weights of source points and classes, and domains of predicted rows, in the scikit-learn faces."""

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

import pvmincq_jax as pvm
from pvmincq_jax._samples import fold_numbers
from pvmincq_jax.adaptation.label import mincq_sweep
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from tests.problems import clarabel_objective

GIVEN = {"radius": 0.6, "margin": 0.2, "gamma": 2.0}
CLASSIFIERS = [MinCqClassifier, PVMinCqClassifier, PVTransportClassifier]


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 1002, per_class=16, test_size=200)


@pytest.fixture(scope="module")
def heavy(task):
    return np.random.default_rng(3).integers(0, 4, len(task.source))


def fitted(kind, task, rows=slice(None), weights=None, **given):
    x, y = task.source[rows], task.source_labels[rows]
    if kind is MinCqClassifier:
        return kind(margin=0.2, gamma=2.0, **given).fit(x, y, sample_weight=weights)
    draws = {} if kind is PVMinCqClassifier else {"top_fraction": None}
    return kind(**GIVEN, **draws, **given).fit_domains(x, y, task.target, sample_weight=weights)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_row_of_weight_0_is_left_out_of_everything(kind, task, heavy):
    rows = heavy > 0
    whole, part = fitted(kind, task, weights=heavy), fitted(kind, task, rows, heavy[rows])
    np.testing.assert_array_equal(whole.weights_, part.weights_)
    np.testing.assert_array_equal(whole.predict_proba(task.test), part.predict_proba(task.test))
    # Weights have no unit.
    twice = fitted(kind, task, weights=2 * heavy)
    np.testing.assert_allclose(twice.weights_, whole.weights_, atol=1e-9 * whole.margin_)
    np.testing.assert_array_equal(fitted(kind, task, weights=np.ones(32)).weights_, fitted(kind, task).weights_)


def test_integer_weights_are_repeated_rows(task, heavy):
    stumps = pvm.StumpVoters(*pvm.stump_thresholds(task.source, 4))
    rows = np.repeat(np.arange(32), heavy)
    given = {"voters": stumps, "margin": 0.2}
    weighed = MinCqClassifier(**given).fit(task.source, task.source_labels, heavy)
    repeated = MinCqClassifier(**given).fit(task.source[rows], task.source_labels[rows])
    np.testing.assert_allclose(weighed.weights_, repeated.weights_, atol=1e-7 * repeated.margin_)
    votes, shares = stumps.votes(task.source), heavy / heavy.sum()
    first = votes.T @ (shares * task.source_labels)
    second = shares @ (votes @ weighed.weights_) ** 2
    assert weighed.mu_max_ == pytest.approx(np.mean(np.abs(first)), rel=1e-12)
    assert weighed.c_bound_ == pytest.approx(1 - (first @ weighed.weights_) ** 2 / second, abs=1e-9)
    assert weighed.c_bound_ == pytest.approx(repeated.c_bound_, abs=1e-7)
    # scikit-learn's own check of the same, with voters and margin that do not depend on the rows.
    functions = [lambda x, k=k: np.tanh(x[:, k]) for k in range(3)]
    check_sample_weight_equivalence_on_dense_data("MinCq", OnlyVotes(functions, margin=0.2))


class OnlyVotes(MinCqClassifier):
    """Without probabilities, whose smoothing counts points, and with two classes, which are not balanced by number."""

    predict_proba = property()

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, np.asarray(y) % 2, sample_weight)


def test_the_source_risk_weighs_the_points_of_a_fold(task):
    heavy = np.random.default_rng(4).uniform(0.1, 3, 32)
    stumps = pvm.StumpVoters(*pvm.stump_thresholds(task.source, 4))
    figures = mincq_sweep(task.source, task.source_labels, voters=stumps, margins=[0.2], folds=3, sample_weights=heavy)
    votes, folds = stumps.votes(task.source), fold_numbers(task.source, task.source_labels, 3, 0)
    for fold in range(3):
        kept = folds != fold
        model = MinCqClassifier(stumps, margin=0.2).fit(task.source[kept], task.source_labels[kept], heavy[kept])
        values = votes[~kept] @ model.weights_
        np.testing.assert_allclose(figures.source_values[0, 0, 0, ~kept], values, atol=1e-7 * model.margin_)
        wrong = values * task.source_labels[~kept] <= 0
        assert figures.source_risk[fold, 0, 0, 0] == pytest.approx(np.average(wrong, weights=heavy[~kept]), abs=1e-12)


@pytest.mark.parametrize("kind", CLASSIFIERS[1:])
def test_matchings_pair_points_whatever_they_weigh(kind, task):
    heavy = np.random.default_rng(5).uniform(0.1, 3, 32)
    plain, model = fitted(kind, task), fitted(kind, task, weights=heavy)
    for before, after in zip(plain.pairs_, model.pairs_, strict=True):
        np.testing.assert_array_equal(before, after)
    assert model.pv_ == plain.pv_
    source, target, shares = plain.pairs_
    heavy = heavy / heavy.mean()
    if kind is PVMinCqClassifier:
        points, mass = task.target, np.bincount(target, shares * heavy[source], 32)
        sums = np.bincount(target, shares * heavy[source] * task.source_labels[source], 32)
        np.testing.assert_allclose(model.self_labels_ * mass, sums, atol=1e-12)
    else:
        mass = np.bincount(source, shares, 32) * heavy
        points = np.asarray(model.sweep_.transports[0].moved)
    np.testing.assert_allclose(model.self_label_weights_, mass, atol=1e-12)
    # MinCq is optimal for the sample so weighed.
    votes = model.model_.voters.votes(points)[:, model.weights_ != 0]
    part = mass / mass.sum()
    first, weights = votes.T @ (part * model.self_labels_), model.weights_[model.weights_ != 0]
    assert first @ weights == pytest.approx(model.margin_, rel=1e-7)
    objective = part @ (votes @ weights) ** 2 / model.margin_**2
    assert objective == pytest.approx(clarabel_objective(votes * np.sqrt(part)[:, None], first, 0.2), rel=1e-6)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_class_weights_multiply_those_of_the_rows(kind, task, heavy):
    rows = np.flatnonzero((task.source_labels > 0) | (np.arange(32) % 3 > 0))
    y = task.source_labels[rows]
    balanced = fitted(kind, task, rows, heavy[rows] + 1, class_weight="balanced")
    by_hand = fitted(kind, task, rows, (heavy[rows] + 1) * compute_sample_weight("balanced", y))
    np.testing.assert_array_equal(balanced.weights_, by_hand.weights_)
    named = fitted(kind, task, rows, class_weight={-1.0: 3, 1.0: 0.5})
    by_hand = fitted(kind, task, rows, np.where(y > 0, 0.5, 3.0))
    np.testing.assert_array_equal(named.weights_, by_hand.weights_)


def test_weights_of_three_classes():
    rng = np.random.default_rng(0)
    y = np.repeat(np.array(["ash", "oak", "yew"]), 12)
    x = rng.normal(size=(36, 2)) + np.repeat([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]], 12, axis=0)
    given = {"gamma": 0.5, "margin": 0.3}
    plain = MinCqClassifier(**given).fit(x, y)
    np.testing.assert_array_equal(MinCqClassifier(**given, class_weight="balanced").fit(x, y).weights_, plain.weights_)
    tilted = MinCqClassifier(**given, class_weight={"oak": 20}).fit(x, y)
    assert np.sum(tilted.predict(x) == "oak") > np.sum(plain.predict(x) == "oak") + 3
    # A class against the rest, whose sides are as heavy as the mean weights of their points.
    votes, labels = tilted.model_.voters.votes(x), np.where(y == "oak", 1.0, -1.0)
    shares = np.where(labels > 0, 20 / 12, 1 / 24)
    objective = (shares / shares.sum()) @ (votes @ tilted.weights_[1]) ** 2
    first = votes.T @ (shares / shares.sum() * labels)
    assert tilted.mu_max_[1] == pytest.approx(np.mean(np.abs(first)), rel=1e-9)
    assert tilted.c_bound_[1] == pytest.approx(1 - (first @ tilted.weights_[1]) ** 2 / objective, abs=1e-9)


def test_weights_and_domains_are_routed(task, both):
    x, y, domain = both
    weights = np.where(domain >= 0, np.random.default_rng(6).uniform(0.5, 2, len(x)), np.nan)
    model = PVMinCqClassifier(**GIVEN).fit(x, y, sample_domain=domain, sample_weight=weights)
    source = domain >= 0
    np.testing.assert_array_equal(model.source_weights_, weights[source])
    apart = PVMinCqClassifier(**GIVEN).fit_domains(x[source], y[source], x[~source], weights[source])
    np.testing.assert_array_equal(apart.weights_, model.weights_)
    votes = model.decision_function(x)
    for given in (-2, 1, domain, list(domain)):
        np.testing.assert_array_equal(model.decision_function(x, sample_domain=given), votes)
        np.testing.assert_array_equal(model.predict(x, given), model.predict(x))
        np.testing.assert_array_equal(model.predict_proba(x, given), model.predict_proba(x))
        assert model.score(x, y, sample_domain=given) == np.mean(model.predict(x) == y)
    right = model.predict(x[source]) == y[source]
    assert model.score(x[source], y[source], weights[source]) == np.average(right, weights=weights[source])
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, PVMinCqClassifier(**GIVEN))
        pipeline.fit(x, y, sample_domain=domain, sample_weight=weights)
        np.testing.assert_array_equal(pipeline[-1].source_weights_, weights[source])
        assert pipeline.score(x, y, sample_domain=domain) == np.mean(pipeline.predict(x, sample_domain=domain) == y)
        search = GridSearchCV(PVMinCqClassifier(**GIVEN), {"radius": [0.5, 0.8]}, cv=2, error_score="raise")
        search.fit(x, y, sample_domain=domain)
    assert search.best_params_["radius"] in (0.5, 0.8)


def test_another_target_for_a_fitted_source(task):
    heavy = np.random.default_rng(7).uniform(0.5, 2, 32)
    model = PVMinCqClassifier(**GIVEN).fit_domains(task.source, task.source_labels, task.target[:20], heavy)
    again = model.fit_target(task.target)
    other = fitted(PVMinCqClassifier, task, weights=heavy)
    assert again is model
    np.testing.assert_array_equal(model.weights_, other.weights_)
    np.testing.assert_array_equal(model.classes_, other.classes_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weight": -np.ones(32)}, "sample_weight must not be negative"),
        ({"sample_weight": np.zeros(32)}, "sample_weight are all zero"),
        ({"sample_weight": np.ones(3)}, "sample_weight.*32"),
        ({"sample_weight": np.full(32, np.nan)}, "sample_weight"),
    ],
)
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_errors_say_what_to_do(kind, task, options, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(task.source, task.source_labels, **options)


def test_errors_of_functions_and_domains(task, both):
    with pytest.raises(ValueError, match=r"source_weights must be above 0; row 5 has 0. Leave such rows out"):
        pvm.fit_validated(*task[:3], source_weights=np.arange(32) != 5)
    with pytest.raises(ValueError, match="class_weight"):
        MinCqClassifier(class_weight="even").fit(task.source, task.source_labels)
    x, y, domain = both
    with pytest.raises(ValueError, match=r"sample_weight.*64"):
        PVMinCqClassifier().fit(x, y, sample_domain=domain, sample_weight=np.ones(3))
    model = fitted(MinCqClassifier, task)
    with pytest.raises(ValueError, match=r"one entry per row of X \(200\)"):
        model.predict(task.test, sample_domain=[1, -1])
    with pytest.raises(ValueError, match="sample_domain must hold numbers"):
        model.predict(task.test, sample_domain="target")
