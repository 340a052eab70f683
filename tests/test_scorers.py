"""R_S + PV and reverse validation as scorers, on scikit-learn's estimators and on real skada pipelines."""

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import pvmincq_jax as pvm
from pvmincq_jax.baselines import resampling
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.scorers import ReverseValidationScorer, RsPvScorer


@pytest.fixture
def skada():
    """skada, whose import switches on scikit-learn's metadata routing for the whole process."""
    with sklearn.config_context():
        import skada

        sklearn.set_config(enable_metadata_routing=True)
        yield skada


@pytest.fixture(scope="module")
def task():
    return moons_task("40", 1002, per_class=20, test_size=200)


def test_rs_pv_is_the_sum_of_its_parts(both):
    x, y, domain = both
    source = domain >= 0
    model = KNeighborsClassifier(1).fit(x[source][:6], y[source][:6])
    risk = 1 - model.score(x[source], y[source])
    assert 0 < risk < 0.5
    expected = risk + pvm.perturbed_variation(x[source], x[~source], 0.4)
    assert RsPvScorer(0.4)(model, x, y, sample_domain=domain) == pytest.approx(-expected, abs=1e-12)
    other = np.where(source, y, 55)
    assert RsPvScorer(0.4)(model, x, other, sample_domain=domain) == pytest.approx(-expected, abs=1e-12)


def test_rs_pv_in_a_skada_pipeline(skada, both):
    x, y, domain = both
    pipeline = skada.make_da_pipeline(StandardScaler(), skada.CORALAdapter(), SVC(gamma=1.0))
    results = cross_validate(
        pipeline,
        x,
        y,
        cv=skada.model_selection.SourceTargetShuffleSplit(n_splits=2, test_size=0.5, random_state=0),
        params={"sample_domain": domain},
        scoring={"input": RsPvScorer(0.5), "features": RsPvScorer(0.5, space="features")},
        return_estimator=True,
        return_indices=True,
        error_score="raise",
    )
    for fold, (model, rows) in enumerate(zip(results["estimator"], results["indices"]["test"])):
        held, where = x[rows], domain[rows]
        source = where >= 0
        said = model.predict(held[source], sample_domain=where[source], allow_source=True)
        risk = np.mean(said != y[rows][source])
        moved = model[:-1].transform(held, sample_domain=where, allow_source=True)
        for name, points in (("input", held), ("features", moved)):
            pv = pvm.perturbed_variation(points[source], points[~source], 0.5)
            assert results[f"test_{name}"][fold] == pytest.approx(-(risk + pv), abs=1e-12)


def test_pv_mincq_in_a_skada_pipeline(skada, task, both):
    x, y, domain = both
    options = {"margin": 0.2, "gamma": 2.0, "draws": 4}
    pipeline = skada.make_da_pipeline(StandardScaler(), PVMinCqClassifier(radius=0.7, **options))
    pipeline.fit(x, y.copy(), sample_domain=domain)
    model = pipeline[-1].base_estimator_
    alone = PVMinCqClassifier(radius=0.7, **options).fit(pipeline[:-1].transform(x), y, sample_domain=domain)
    np.testing.assert_array_equal(model.weights_, alone.weights_)
    np.testing.assert_array_equal(
        pipeline.predict(task.test), alone.predict(pipeline[:-1].transform(task.test, sample_domain=np.full(200, -2)))
    )
    # Without a radius of its own the scorer takes the model's PV, and the search weighs it against the risk.
    source = domain >= 0
    risk = np.mean(alone.predict(alone.source_) != y[source])
    assert RsPvScorer()(pipeline, x, y, sample_domain=domain) == pytest.approx(-(risk + alone.pv_), abs=1e-12)
    search = GridSearchCV(
        pipeline,
        {"pvmincqclassifier__radius": [0.3, 0.7]},
        scoring=RsPvScorer(),
        cv=skada.model_selection.SourceTargetShuffleSplit(n_splits=2, test_size=0.3, random_state=0),
        error_score="raise",
    )
    search.fit(x, y, sample_domain=domain)
    assert search.best_params_["pvmincqclassifier__radius"] == 0.7


@pytest.mark.parametrize("row", [0, 1], ids=["as it is", "rescaled alone"])
def test_a_search_may_prefer_a_vote_that_matched_nobody(row, both):
    """Nobody is matched at radius 0, and the PV of 1 there says nothing against the vote."""
    x, y, domain = both
    source = domain >= 0
    # No shift: the target's points are the source's, a little moved.
    x = np.concatenate([x[source], x[source] + 0.02])
    y, domain = np.concatenate([y[source], np.full(np.sum(source), -1)]), np.repeat([1, -2], np.sum(source))

    def nobody_matched(sweep):
        scores = np.full(sweep.status.shape, np.inf)
        scores[np.flatnonzero(np.asarray(sweep.radii) == 0)[row]] = 0.0
        return scores

    def fewest_matched(sweep):
        return np.where(np.asarray(sweep.radii) > 0, -np.asarray(sweep.pv), np.inf)[:, None, None] + 0 * sweep.status

    model = PVTransportClassifier(gamma=2.0, margin=0.2, draws=4)
    search = GridSearchCV(
        model, {"criterion": [nobody_matched, fewest_matched]}, scoring=RsPvScorer(), cv=[(np.arange(len(x)),) * 2]
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(x, y, sample_domain=domain)
    chosen = search.best_estimator_
    assert (chosen.radius_, chosen.adapted_) == (0, row == 1)
    risk = np.mean(chosen.predict(x[domain >= 0]) != y[domain >= 0])
    assert search.best_score_ == pytest.approx(-risk, abs=1e-12)


@pytest.mark.parametrize("masked", [-1, np.nan, None, "unknown"])
@pytest.mark.parametrize("kind", [list, tuple, lambda y: np.array(y, dtype=object)], ids=["list", "tuple", "object"])
@pytest.mark.parametrize("scorer", [RsPvScorer(0.4), ReverseValidationScorer(folds=2)], ids=["rs_pv", "reverse"])
def test_labels_of_target_rows_may_be_anything(scorer, kind, masked, both):
    x, y, domain = both
    labels = kind([int(label) if place >= 0 else masked for label, place in zip(y, domain)])
    model = KNeighborsClassifier(1).fit(x[domain >= 0], y[domain >= 0])
    score = scorer(model, x, labels, sample_domain=domain)
    assert score == scorer(model, x, y, sample_domain=domain) > -1


class Undecided(KNeighborsClassifier):
    """NaN for every other target point."""

    def predict(self, X):
        return np.where(np.arange(len(X)) % 2 == 0, super().predict(X), np.nan)


def test_predictions_that_are_no_class_are_errors(both):
    x, y, domain = both
    source = domain >= 0
    undecided = Undecided(1).fit(x[source], y[source])
    risk = 1 - np.mean(np.arange(np.sum(source)) % 2 == 0)
    pv = pvm.perturbed_variation(x[source], x[~source], 0.4)
    assert RsPvScorer(0.4)(undecided, x, y, sample_domain=domain) == pytest.approx(-(risk + pv), abs=1e-12)
    assert ReverseValidationScorer(folds=2)(undecided, x, y, sample_domain=domain) == -1


def test_reverse_validation_is_the_library_s_own(both):
    x, y, domain = both
    source = domain >= 0
    labels = np.where(y[source] == 7, 1.0, -1.0)

    def fit(points, point_labels, target, params, seed):
        return SVC(gamma=1.0).fit(points, point_labels)

    expected = resampling.reverse_validation(
        fit, lambda model, points: model.predict(points), x[source], labels, x[~source], [None], 3, 0
    )[0]
    score = ReverseValidationScorer(folds=3)(SVC(gamma=1.0), x, y, sample_domain=domain)
    assert score == pytest.approx(-expected, abs=1e-12)
    named = np.where(y == 7, "up", "down")
    assert ReverseValidationScorer(folds=3)(SVC(gamma=1.0), x, named, sample_domain=domain) == score


def test_reverse_validation_of_adapters(skada, both):
    x, y, domain = both
    scorer = ReverseValidationScorer(folds=2)
    pipeline = skada.make_da_pipeline(StandardScaler(), skada.CORALAdapter(), SVC(gamma=1.0))
    score = scorer(pipeline, x, y, sample_domain=domain)
    assert -1 <= score <= 0
    assert not hasattr(pipeline[-1], "base_estimator_")
    # It tells a classifier that learns from one that cannot.
    rows = np.arange(len(x))
    search = GridSearchCV(
        skada.make_da_pipeline(StandardScaler(), SVC()),
        {"svc__gamma": [1e-9, 1.0]},
        scoring=scorer,
        cv=[(rows, rows)],
        error_score="raise",
    )
    search.fit(x, y, sample_domain=domain)
    assert search.best_params_["svc__gamma"] == 1.0


def test_pipelines_of_scikit_learn_without_its_routing(both):
    x, y, domain = both
    pipeline = make_pipeline(StandardScaler(), PVMinCqClassifier(radius=0.7, margin=0.2, gamma=2.0, draws=4))
    # Another test may have imported skada, which switches routing on.
    with sklearn.config_context(enable_metadata_routing=False):
        assert -0.5 < ReverseValidationScorer(folds=2)(pipeline, x, y, sample_domain=domain) <= 0


def test_errors_say_what_to_do(both):
    x, y, domain = both
    model = KNeighborsClassifier(1).fit(x, domain)
    with pytest.raises(ValueError, match=r"sample_domain has not reached the scorer.*enable_metadata_routing=True"):
        RsPvScorer(0.4)(model, x, y)
    with pytest.raises(ValueError, match="radius must be given: only a fitted PVMinCqClassifier"):
        RsPvScorer()(model, x, y, sample_domain=domain)
    with pytest.raises(ValueError, match="needs a pipeline of at least two steps"):
        RsPvScorer(0.4, space="features")(model, x, y, sample_domain=domain)
    with pytest.raises(ValueError, match="space must be 'input' or 'features'"):
        RsPvScorer(0.4, space="kernel")(model, x, y, sample_domain=domain)
    for labels in (None, y[1:]):
        with pytest.raises(ValueError, match="y must have one entry per row of X"):
            RsPvScorer(0.4)(model, x, labels, sample_domain=domain)
    with pytest.raises(ValueError, match="one class only"):
        ReverseValidationScorer()(model, x, np.zeros(80), sample_domain=domain)
    with pytest.raises(ValueError, match="folds must be at least 2"):
        ReverseValidationScorer(folds=1)(model, x, y, sample_domain=domain)
