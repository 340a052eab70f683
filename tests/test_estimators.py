"""The scikit-learn faces: its own checks, the library's answers, and what happens to everything that is not given."""

import inspect
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.voting.families import family_grid
from tests.adaptation.test_moves import blobs
from tests.problems import clarabel_objective

GIVEN = {"radius": 0.6, "margin": 0.2, "gamma": 2.0}
# Five, as many as there are by default: the tests share their compiled programs.
MARGINS = [0.01, 0.05, 0.1, 0.2, 0.5]


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 1001, per_class=16, test_size=200)


@pytest.fixture(scope="module")
def adapted(both):
    x, y, domain = both
    return PVMinCqClassifier(**GIVEN).fit(x, y, sample_domain=domain)


@pytest.mark.parametrize(
    "classifier",
    [
        # Few voters: the checks come in many sizes, and each would have a program of its own. That of class weights has
        # 50 points, each of which needs its voter.
        pytest.param(MinCqClassifier(most_voters=50), id="MinCq"),
        pytest.param(PVMinCqClassifier(most_voters=30), id="PVMinCq"),
        pytest.param(PVTransportClassifier(most_voters=30, keep_sweep=False), id="PVTransport"),
        pytest.param(MinCqClassifier("stumps"), id="stumps", marks=pytest.mark.long),
    ],
)
def test_scikit_learn_s_own_checks(classifier, one_gamma):
    # Voters sit on points, and folds are dealt row by row: repeated rows are more voters, and other folds.
    unlike = {"check_sample_weight_equivalence_on_dense_data": "repeated rows are more voters and other folds"}
    results = check_estimator(classifier, on_skip=None, expected_failed_checks=unlike)
    assert len(results) > 50
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, one in status.items() if one != "passed"} <= {"check_array_api_input", *unlike}
    assert {"check_classifiers_classes", "check_sample_weights_shape", "check_class_weight_classifiers"} <= {*status}


def test_two_domains_are_the_library_s_own_fit(task):
    grid = {"radii": [0.4, 0.8], "margins": MARGINS, "gammas": [0.5, 4.0], "radius_unit": "absolute"}
    found = pvm.fit_validated(task.source, task.source_labels, task.target, seed=3, folds=3, **grid)
    given = {"radius": grid["radii"], "margin": grid["margins"], "gamma": grid["gammas"]}
    own = PVMinCqClassifier(**given, folds=3, random_state=3)
    own.fit_domains(task.source, task.source_labels, task.target)
    assert own.choice_.grid_index == found.choice.grid_index
    for name in found.sweep._fields:
        if isinstance(getattr(found.sweep, name), np.ndarray) and "residual" not in name:
            np.testing.assert_allclose(getattr(own.sweep_, name), getattr(found.sweep, name), atol=1e-7)
    np.testing.assert_allclose(own.criterion_, found.choice.scores, atol=1e-7)
    for name, values in found.model._asdict().items():
        if name not in ("pairs", "voters", "kkt_residual", "classes"):
            np.testing.assert_allclose(getattr(own.model_, name), values, atol=1e-7)
    jax.tree.map(np.testing.assert_array_equal, own.model_.voters, found.model.voters)
    jax.tree.map(np.testing.assert_array_equal, own.pairs_, found.model.pairs)
    values = np.asarray(pvm.decision(own.model_, task.test))
    np.testing.assert_allclose(own.decision_function(task.test), values, atol=1e-12)
    assert own.kkt_residual_ < 1e-7
    assert np.max(own.sweep_.kkt_residual) < 1e-3
    # The choice is that of a grid that is solved to the last digit.
    exact = pvm.fit_validated(task.source, task.source_labels, task.target, seed=3, folds=3, **grid)
    assert np.max(exact.sweep.kkt_residual) < 1e-7
    assert exact.choice.grid_index == found.choice.grid_index
    size = np.max(np.abs(values))
    np.testing.assert_allclose(pvm.decision(exact.model, task.test) / size, values / size, atol=1e-4)


@pytest.mark.parametrize("voters", ["rbf", "stumps"])
def test_mincq_is_optimal_for_the_sample_as_it_is(task, voters):
    gamma = 3.0 if voters == "rbf" else None
    model = MinCqClassifier(voters, margin=0.3, gamma=gamma).fit(task.source, task.source_labels)
    votes = model.model_.voters.votes(task.source)
    shares = np.full(len(votes), 1 / len(votes))
    margins = votes.T @ (shares * task.source_labels)
    assert model.mu_max_ == pytest.approx(np.mean(np.abs(margins)), rel=1e-12)
    assert model.margin_ == pytest.approx(0.3 * model.mu_max_, rel=1e-12)
    assert margins @ model.weights_ == pytest.approx(model.margin_, rel=1e-7)
    assert np.max(np.abs(model.weights_)) <= (1 + 1e-7) / votes.shape[1]
    objective = shares @ (votes @ model.weights_) ** 2 / model.margin_**2
    assert objective == pytest.approx(clarabel_objective(votes * np.sqrt(shares)[:, None], margins, 0.3), rel=1e-6)
    assert model.c_bound_ == pytest.approx(1 - 1 / objective, abs=1e-7)


def test_cross_validation_chooses_and_stumps_learn(task):
    model = MinCqClassifier("stumps", margin=MARGINS).fit(task.source, task.source_labels)
    assert model.cv_risk_.shape == (1, 5)
    assert model.margin_fraction_ == pytest.approx(model.margins_[model.cv_risk_[0] == model.cv_risk_.min()].max())
    assert model.score(task.source, task.source_labels) > 0.85
    assert model.gamma_ is None
    assert model.centers_ is None
    absolute = MinCqClassifier("stumps", margin=model.margin_, margin_unit="absolute")
    absolute.fit(task.source, task.source_labels)
    np.testing.assert_allclose(absolute.weights_, model.weights_, atol=1e-4 * model.margin_)


def test_one_domain_is_mincq(task):
    given = {"margin": 0.2, "gamma": [0.5, 2.0]}
    plain = MinCqClassifier(**given).fit(task.source, task.source_labels)
    model = PVMinCqClassifier(**given, criterion="rs_pv").fit(task.source, task.source_labels)
    np.testing.assert_array_equal(model.weights_, plain.weights_)
    np.testing.assert_array_equal(model.criterion_[0], plain.cv_risk_)
    np.testing.assert_array_equal(model.pairs_.source, model.pairs_.target)
    np.testing.assert_array_equal(model.self_labels_, task.source_labels)
    assert (model.pv_, model.radius_) == (0.0, 0.0)


@pytest.mark.parametrize("fill", [-1, 12, np.nan, None, "masked", "third"])
def test_target_labels_are_never_read(both, adapted, fill):
    x, y, domain = both
    labels = y.astype(object if fill is None or isinstance(fill, str) else float)
    labels[domain < 0] = fill
    model = PVMinCqClassifier(**GIVEN).fit(x, labels, sample_domain=domain)
    assert set(model.classes_) == {3, 7}
    np.testing.assert_array_equal(model.weights_, adapted.weights_)
    np.testing.assert_array_equal(model.predict(x), adapted.predict(x))
    listed = PVMinCqClassifier(**GIVEN).fit(x, [int(a) if b >= 0 else fill for a, b in zip(y, domain)], domain)
    assert listed.classes_.dtype == adapted.classes_.dtype
    np.testing.assert_array_equal(listed.weights_, adapted.weights_)


def test_domains_apart_or_together_are_the_same(task, both, adapted):
    x, y, domain = both
    apart = PVMinCqClassifier(**GIVEN).fit_domains(x[domain >= 0], y[domain >= 0], x[domain < 0])
    np.testing.assert_array_equal(apart.weights_, adapted.weights_)
    np.testing.assert_array_equal(adapted.source_, x[domain >= 0])
    np.testing.assert_array_equal(adapted.target_, x[domain < 0])
    # Pairs are within the radius, and carry the labels that the classifier learnt from.
    pairs = adapted.pairs_
    gaps = np.linalg.norm(adapted.source_[pairs.source] - adapted.target_[pairs.target], axis=1)
    assert np.max(gaps) <= adapted.radius_ == GIVEN["radius"]
    carried = np.bincount(pairs.target, pairs.weights * adapted.source_labels_[pairs.source], minlength=32)
    np.testing.assert_allclose(carried, adapted.self_labels_ * adapted.self_label_weights_, atol=1e-12)
    assert adapted.pv_ == pytest.approx(pvm.perturbed_variation(adapted.source_, adapted.target_, 0.6))
    assert np.all(np.isnan(adapted.criterion_))


def test_it_adapts():
    task = moons_task("50", 1001, per_class=32, test_size=200)
    model = PVTransportClassifier(gamma=[2.0, 8.0]).fit_domains(task.source, task.source_labels, task.target)
    plain = MinCqClassifier(gamma=[2.0, 8.0]).fit(task.source, task.source_labels)
    assert model.score(task.test, task.test_labels) > plain.score(task.test, task.test_labels) + 0.1


def test_transport_form_is_the_library_s_own_fit(task):
    found = pvm.fit_transport_validated(task.source, task.source_labels, task.target, seed=3, gammas=[2.0])
    own = PVTransportClassifier(gamma=2.0, random_state=3)
    own.fit_domains(task.source, task.source_labels, task.target)
    assert own.model_.classes == (-1.0, 1.0)
    jax.tree.map(np.testing.assert_array_equal, own.model_._replace(classes=None), found.model)
    np.testing.assert_array_equal(own.criterion_, found.choice.scores)
    np.testing.assert_array_equal(own.self_labels_, task.source_labels)
    values = np.asarray(pvm.decision(found.model, task.test))
    np.testing.assert_allclose(own.decision_function(task.test), values, atol=1e-12)
    # With one domain nothing moves.
    still, plain = (
        one(gamma=2.0, margin=0.2).fit(task.source, task.source_labels)
        for one in (PVTransportClassifier, MinCqClassifier)
    )
    np.testing.assert_array_equal(still.weights_, plain.weights_)
    assert own.adapted_ == found.adapted
    assert not still.adapted_


def test_the_class_ratio_of_the_target_may_be_given():
    rng = np.random.default_rng(4)
    source, labels = blobs(rng, 20, 20)
    target, truth = blobs(rng, 8, 32, shift=2.5)
    given = {"radius": [0.1, 0.0], "radius_unit": "pv", "gamma": 1.0, "draws": 8}
    even, told = (
        PVTransportClassifier(**given, ratio=ratio).fit_domains(source, labels, target) for ratio in ("source", 0.2)
    )
    assert even.score(target, truth) < 0.9
    assert told.score(target, truth) == 1


def test_the_gibbs_reading_is_that_of_the_gibbs_classifier(task, adapted):
    values, probabilities = adapted.decision_function(task.test), adapted.predict_gibbs(task.test)
    np.testing.assert_allclose(probabilities, np.stack([1 - values, 1 + values], axis=1) / 2, atol=1e-15)
    # The Gibbs risk is the mean probability of the wrong class.
    labels = task.test_labels
    risk = pvm.gibbs_risk(adapted.model_.voters.votes(task.test), labels, adapted.weights_)
    wrong = np.where(labels > 0, probabilities[:, 0], probabilities[:, 1])
    assert np.mean(wrong) == pytest.approx(float(risk), abs=1e-12)


def test_a_row_is_judged_by_itself_alone(task, adapted):
    together = adapted.decision_function(task.test)
    apart = np.concatenate([adapted.decision_function(row[None]) for row in task.test[:40]])
    np.testing.assert_array_equal(together[:40], apart)
    np.testing.assert_array_equal(adapted.decision_function(task.test[::-1]), together[::-1])
    far = adapted.predict(np.full((1, 2), 1e6))
    assert far == adapted.classes_[0]


def test_the_order_of_training_rows_does_not_matter(task, both, adapted):
    x, y, domain = both
    order = np.random.default_rng(1).permutation(len(x))
    other = PVMinCqClassifier(**GIVEN).fit(x[order], y[order], sample_domain=domain[order])
    np.testing.assert_allclose(
        other.decision_function(task.test), adapted.decision_function(task.test), atol=1e-9 * adapted.margin_
    )


@pytest.mark.parametrize(
    ("names", "dtype"), [(("no", "yes"), object), ((False, True), bool), ((-1, 1), int), ((0.0, 1.0), float)]
)
def test_any_two_classes(task, adapted, names, dtype):
    y = np.array([names[int(label > 0)] for label in task.source_labels], dtype)
    model = PVMinCqClassifier(**GIVEN).fit_domains(task.source, y, task.target)
    assert list(model.classes_) == list(names)
    expected = np.array(names)[(adapted.predict(task.test) == 7).astype(int)]
    np.testing.assert_array_equal(model.predict(task.test), expected)


def test_pickle_clone_and_seeds(task, both, adapted):
    x, y, domain = both
    again = pickle.loads(pickle.dumps(adapted))
    np.testing.assert_array_equal(again.decision_function(task.test), adapted.decision_function(task.test))
    assert clone(adapted).get_params() == adapted.get_params()
    with pytest.raises(NotFittedError, match="Call 'fit'"):
        clone(adapted).predict(task.test)
    for state in (np.random.RandomState(5), None):
        PVMinCqClassifier(**GIVEN, draws=1, random_state=state).fit(x, y, sample_domain=domain)


def test_search_and_pipeline_hand_the_domains_on(task, both):
    x, y, domain = both
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), PVMinCqClassifier(**GIVEN))
        pipeline.fit(x, y, sample_domain=domain)
        assert len(pipeline[-1].target_) == 32
    # Without routing too: what has one entry per row is split along with the rows.
    scored = []

    def source_accuracy(model, held_x, held_y):
        scored.append(model)
        return np.mean(model.predict(held_x)[held_y >= 0] == held_y[held_y >= 0])

    search = GridSearchCV(
        PVMinCqClassifier(**GIVEN), {"radius": [0.5, 0.8]}, cv=2, scoring=source_accuracy, error_score="raise"
    )
    search.fit(x, y, sample_domain=domain)
    assert search.best_params_["radius"] in (0.5, 0.8)
    assert all(len(model.target_) < 32 for model in scored)
    assert set(search.predict(task.test)) <= {3, 7}


def test_feature_names(task):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(task.source, columns=["east", "north"])
    model = PVMinCqClassifier(**GIVEN).fit_domains(frame, pandas.Series(task.source_labels), frame + 0.1)
    assert list(model.feature_names_in_) == ["east", "north"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["north", "east"]])


def test_double_precision_inside_and_the_caller_s_configuration_outside(task, both, adapted):
    x, y, domain = both
    with jax.enable_x64(False):
        model = PVMinCqClassifier(**GIVEN).fit(x, y, sample_domain=domain)
        assert not jax.config.jax_enable_x64
        np.testing.assert_array_equal(model.weights_, adapted.weights_)
        assert model.decision_function(task.test.astype(np.float32)).dtype == np.float64
        assert jax.numpy.ones(1).dtype == np.float32


def test_fits_in_threads_wait_for_each_other(both, adapted):
    x, y, domain = both
    with ThreadPoolExecutor(3) as pool:
        fits = [pool.submit(PVMinCqClassifier(**GIVEN).fit, x, y, domain) for _ in range(3)]
        for one in fits:
            np.testing.assert_array_equal(one.result(timeout=300).weights_, adapted.weights_)


def test_samples_that_share_points_or_repeat_them(task):
    target = np.concatenate([task.source[:20], task.target[:5]])
    model = PVTransportClassifier(gamma=2.0, margin=0.2, radius=[0.0, 0.5], radius_unit="pv", draws=2)
    model.fit_domains(task.source, task.source_labels, target)
    assert model.sweep_.radii[0] > 0
    # Most points coincide: the scale comes from the distinct ones.
    x = np.concatenate([np.zeros((20, 1)), [[1.0], [2.0]]])
    y = np.repeat([0, 1], [20, 2])
    assert np.all(MinCqClassifier(margin=0.2).fit(x, y).gammas_ > 0)


def test_a_criterion_of_one_s_own(task):
    def nearest(sweep):
        return rs_only(sweep) * 0 + sweep.radii[:, None, None]

    rs_only = pvm.rs
    model = PVMinCqClassifier(radius=[0.7, 0.4], margin=0.2, gamma=2.0, criterion=nearest, draws=1)
    model.fit_domains(task.source, task.source_labels, task.target)
    assert model.radius_ == 0.4
    np.testing.assert_allclose(model.criterion_[:, 0, 0], [0.4, 0.7])


X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])
DOMAIN = np.array([1, 1, 1, -2, -2, -2])


@pytest.mark.parametrize(
    ("classifier", "arguments", "message"),
    [
        (MinCqClassifier(), (X, np.zeros(6)), r"one class only, .*0\.0.*two classes to learn from"),
        (MinCqClassifier("trees"), (X, Y), "voters must be 'rbf', 'stumps', .*it is 'trees'"),
        (MinCqClassifier(margin=1.5), (X, Y), r"margin must be in \(0, 1\] as a fraction.*1.5"),
        (
            MinCqClassifier(margin=0.9, gamma=1.0, margin_unit="absolute"),
            (X, Y),
            "largest margin that these labels allow",
        ),
        (MinCqClassifier(margin_unit="share"), (X, Y), "margin_unit must be 'fraction' or 'absolute'"),
        (MinCqClassifier(gamma=[1.0, -1.0]), (X, Y), "gamma must be .* finite and above 0; it holds -1"),
        (MinCqClassifier(gamma=0.0), (X, Y), "gamma must be .* finite and above 0; it holds 0"),
        (MinCqClassifier(folds=1), (X, Y), "folds must be at least 2; it is 1"),
        (MinCqClassifier(), (np.ones((6, 2)), Y), "all points.*coincide.*Give gamma"),
        (PVMinCqClassifier(), (X, Y, [1] * 5 + [-1]), "of the target.*coincide"),
        (PVMinCqClassifier(), (X, Y, [1] * 6), "no target row .below 0.*leave sample_domain out"),
        (PVMinCqClassifier(), (X, Y, [-1] * 6), "no source row"),
        (PVMinCqClassifier(), (X, Y, [1, -1]), r"one entry per row of X \(6\)"),
        (PVMinCqClassifier(), (X, Y, ["s"] * 6), "sample_domain must hold numbers"),
        (PVMinCqClassifier(), (X, None, DOMAIN), "y must have one entry per row"),
        (PVMinCqClassifier(radius=0.1), (X, Y, DOMAIN), "smallest distance.*is 2.8.*larger radius"),
        (PVTransportClassifier(radius=0.1), (X, Y, DOMAIN), "is 2.8.*larger radius"),
        (PVTransportClassifier(criterion="rs_pv"), (X, Y, DOMAIN), "None or a function of a Sweep"),
        (PVMinCqClassifier(radius=0.0), (X, Y, DOMAIN), "radius must be finite and above 0"),
        (PVMinCqClassifier(criterion="best"), (X, Y, DOMAIN), "criterion must be one of rs, rs_pv"),
        (PVMinCqClassifier(draws=0), (X, Y, DOMAIN), "draws must be at least 1"),
        (PVTransportClassifier(draws=0), (X, Y, DOMAIN), "draws must be at least 1"),
        (PVTransportClassifier(radius=0.0), (X, Y, DOMAIN), "radius must be finite and above 0"),
        (
            PVMinCqClassifier(centers="all"),
            (X, Y, DOMAIN),
            "centers must be 'target', 'source' or 'both'",
        ),
    ],
)
def test_errors_say_what_to_do(classifier, arguments, message):
    with pytest.raises(ValueError, match=message):
        classifier.fit(*arguments)


@pytest.mark.parametrize(
    ("classifier", "fit"),
    [
        (MinCqClassifier, pvm.fit_mincq_validated),
        (PVMinCqClassifier, pvm.fit_validated),
        (PVTransportClassifier, pvm.fit_transport_validated),
    ],
)
def test_every_parameter_is_an_option_of_the_fit(classifier, fit):
    names = {"margin": "margins", "gamma": "gammas", "radius": "radii", "random_state": "seed"}
    weights = "sample_weights" if classifier is MinCqClassifier else "source_weights"
    parameters = set(classifier().get_params()) - {"class_weight", "keep_sweep"}
    assert {names.get(name, name) for name in parameters} | {weights} <= set(inspect.signature(fit).parameters)


@pytest.mark.parametrize("classifier", [PVMinCqClassifier, PVTransportClassifier])
def test_one_class_for_each_method(classifier):
    for form in ("label", "transport"):
        with pytest.raises(
            ValueError, match=r"form is no parameter of.*PVMinCqClassifier for the paper.*PVTransportClass"
        ):
            classifier(form=form)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        classifier(colour=1)
    assert "form" not in classifier().get_params()
    with pytest.raises(ValueError, match="Invalid parameter 'form'"):
        classifier().set_params(form="label")
    apart = (
        {"centers", "folds"}
        if classifier is PVMinCqClassifier
        else {"match_moments", "equal_sizes", "ratio", "top_fraction"}
    )
    other = PVTransportClassifier if classifier is PVMinCqClassifier else PVMinCqClassifier
    assert set(classifier().get_params()) - set(other().get_params()) == apart


@pytest.mark.parametrize("classifier", [PVMinCqClassifier(), PVTransportClassifier()])
def test_masked_labels_without_domains_are_a_warning(both, classifier):
    """skada masks labels of target rows by -1, which is a class like any other where nobody says so."""
    x, y, domain = both
    classifier.set_params(radius=0.8, gamma=2.0, margin=0.3, draws=2)
    with pytest.warns(UserWarning, match="y holds -1 beside 2 other classes.*pass sample_domain"):
        classifier.fit(x, y)
    classifier.fit(x, y, sample_domain=domain)
    assert list(classifier.classes_) == [3, 7]
    for classes in ((-1, 1), (0, 1, 2), (-2, -1, 0)):
        classifier.fit(x, np.array(classes)[np.arange(len(x)) % len(classes)])


def test_a_classifier_without_its_grid_is_small(task):
    given = {"draws": 2, "gamma": [1.0, 2.0]}
    whole, small = (
        PVTransportClassifier(**given, keep_sweep=keep).fit_domains(task.source, task.source_labels, task.target)
        for keep in (True, False)
    )
    assert small.sweep_ is None
    assert 5 * len(pickle.dumps(small)) < len(pickle.dumps(whole))
    np.testing.assert_array_equal(small.predict(task.test), whole.predict(task.test))


def test_sparse_input_and_other_features_are_refused(both, adapted):
    from scipy import sparse

    x, y, domain = both
    with pytest.raises(TypeError, match=r"dense data is required.*toarray"):
        PVMinCqClassifier().fit(sparse.csr_matrix(x), y, sample_domain=domain)
    with pytest.raises(ValueError, match="expecting 2 features"):
        adapted.predict(np.ones((3, 5)))
    with pytest.raises(ValueError, match="expecting 2 features"):
        PVMinCqClassifier().fit_domains(x, np.arange(64) % 2, np.ones((4, 3)))


def test_without_scikit_learn_the_package_imports_and_the_estimators_say_why():
    code = """
import sys
sys.modules["sklearn"] = None
import pvmincq_jax
for name in ("estimators", "scorers"):
    try:
        __import__(f"pvmincq_jax.{name}")
    except ImportError as error:
        print(error)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = "sklearn is missing or too old; in a checkout of pvmincq_jax: pip install -e '.[sklearn]'"
    assert done.stdout.count(said) == 2
    check = "import sys, pvmincq_jax; print('sklearn' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run([*command[:-1], check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_criterion_may_fit_an_estimator(task):
    """One that needs another fit must not wait for the fit that called it."""

    def criterion(sweep):
        inner = MinCqClassifier(gamma=2.0, margin=0.3).fit(task.source, task.source_labels)
        return np.full(sweep.status.shape, inner.c_bound_)

    given = {"radius": [0.5, 0.8], "margin": 0.3, "gamma": 2.0, "folds": 2, "draws": 2}
    model = PVMinCqClassifier(**given, criterion=criterion).fit_domains(task.source, task.source_labels, task.target)
    assert np.unique(model.criterion_).size == 1


def test_the_default_gamma_does_not_depend_on_the_order_of_many_rows():
    """One cluster of points per thousand rows: the first thousand alone would say that all points are close."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(1000, 2)), 50 + 9 * rng.normal(size=(600, 2))])
    first, last = (family_grid("rbf", None, rows).values for rows in (points, points[::-1]))
    np.testing.assert_array_equal(first, last)


@pytest.mark.parametrize("kind", ["stumps", "functions", "family"])
@pytest.mark.parametrize("form", ["label", "transport"])
def test_any_voters_vote_in_both_forms(kind, form, task, tmp_path):
    functions = [lambda x: np.tanh(3 * x[:, 0]), lambda x: np.tanh(3 * x[:, 1]), lambda x: np.tanh(x[:, 0] + x[:, 1])]
    family = pvm.StumpVoters(*pvm.stump_thresholds(task.target, 3))
    voters = {"stumps": "stumps", "functions": functions, "family": family}[kind]
    given = {"radius": 0.8, "margin": [0.1, 0.4], "draws": 2, "voters": voters}
    model = (
        PVMinCqClassifier(**given, folds=2) if form == "label" else PVTransportClassifier(**given, top_fraction=None)
    )
    model.fit_domains(task.source, task.source_labels, task.target)
    assert model.gamma_ is None
    assert model.kkt_residual_ < 1e-7
    values = model.decision_function(task.test)
    np.testing.assert_array_equal(values, pvm.decision(model.model_, task.test))
    own = MinCqClassifier(voters, margin=0.3).fit(task.source, task.source_labels)
    assert own.score(task.source, task.source_labels) > 0.6
    pvm.save_model(model.model_, tmp_path / "model.npz")
    if kind == "functions":
        with pytest.raises(ValueError, match="voters="):
            pvm.load_model(tmp_path / "model.npz")
    again = pvm.load_model(tmp_path / "model.npz", voters=model.model_.voters if kind == "functions" else None)
    np.testing.assert_array_equal(pvm.decision(again, task.test), values)


@pytest.mark.parametrize("classifier", [MinCqClassifier(), PVMinCqClassifier(), PVTransportClassifier()])
def test_predictions_are_in_double_precision_whatever_the_configuration(classifier, task):
    model = classifier.set_params(gamma=2.0, margin=0.3).fit(task.source, task.source_labels)
    with jax.enable_x64(False):
        values = pvm.decision(model.model_, task.test)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, model.decision_function(task.test))


def test_threads_fit_side_by_side(task):
    """Votes of 128 directions, which several computations at once were known to hang on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(130, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=130) > 0

    def fit(margin):
        return MinCqClassifier(margin=margin, gamma=5.0).fit(X, y).weights_

    margins = np.linspace(0.1, 0.6, 8)
    alone = [fit(margin) for margin in margins]
    together = joblib.Parallel(4, prefer="threads")(joblib.delayed(fit)(margin) for margin in margins)
    np.testing.assert_array_equal(together, alone)
