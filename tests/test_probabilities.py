"""`predict_proba`: calibrated without target labels, in the order of the predictions, and of use to skada's scorers."""

import numpy as np
import pytest
import sklearn
from scipy.stats import kendalltau
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from experiments.run.shifts import Shift, shifted_task
from pvmincq_jax import default_gammas
from pvmincq_jax._labels import probabilities, probability_scale
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier


def calibration_error(chances, right, bins=10):
    """The expected gap between the probability of the predicted class and how often it is right, bin by bin."""
    surest = np.max(chances, axis=1)
    bin_numbers = np.minimum((bins * surest).astype(int), bins - 1)
    gaps = np.bincount(bin_numbers, surest - right, bins)
    return np.sum(np.abs(gaps)) / len(right)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PVTransportClassifier, "digits"),
        (PVMinCqClassifier, "moons"),
        pytest.param(PVTransportClassifier, "moons", marks=pytest.mark.long),
        pytest.param(PVMinCqClassifier, "digits", marks=pytest.mark.long),
    ],
)
def test_target_probabilities_are_calibrated(kind, name):
    """On tasks that no choice was made on: mean errors below 0.12, and a third of the Gibbs reading's at most."""
    if name == "moons":
        tasks = [moons_task(turn, 7, per_class=40, test_size=400) for turn in ("20", "40")]
    else:
        tasks = [shifted_task(Shift("digits", 20, seed=90 + a, digits=(a, b))) for a, b in ((0, 1), (3, 5))]
    errors = []
    for task in tasks:
        model = kind(gamma=[0.5, 2.0]).fit_domains(*task[:3])
        chances = model.predict_proba(task.test)
        right = model.predict(task.test) == task.test_labels
        np.testing.assert_array_equal(model.classes_[np.argmax(chances, axis=1)], model.predict(task.test))
        errors.append([calibration_error(some, right) for some in (chances, model.predict_gibbs(task.test))])
    ours, gibbs = np.mean(errors, axis=0)
    assert ours < 0.12
    assert 3 * ours < gibbs


def test_probabilities_of_ten_classes():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    model = MinCqClassifier(gamma=[0.1, 0.2], margin=0.2).fit(x[:300], y[:300])
    test, labels = x[300:], y[300:]
    votes, chances = model.decision_function(test), model.predict_proba(test)
    right = model.predict(test) == labels
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(np.argmax(chances, axis=1), np.argmax(votes, axis=1))
    assert calibration_error(chances, right) < 0.1 < 0.5 < calibration_error(model.predict_gibbs(test), right)


def test_no_probability_is_0_or_1_and_the_order_is_that_of_the_votes():
    votes = np.array([-1.0, -1e-3, -1e-300, 0.0, 1e-300, 1e-17, 1e-3, 1.0])
    for scale in (1e-6, 1.0, 1e3, 1e12):
        chances = probabilities(votes, scale)
        assert np.all((chances > 0) & (chances < 1))
        np.testing.assert_array_equal(np.argmax(chances, axis=1), votes > 0)
        assert np.all(np.diff(chances[:, 1]) >= 0)
        three = np.random.default_rng(0).normal(size=(50, 3))
        three[0] = 0.0
        three[1] = [0.1, 0.1, np.nextafter(0.1, 1)]
        chances = probabilities(three, scale)
        assert np.all((chances > 0) & (chances < 1))
        np.testing.assert_array_equal(np.argmax(chances, axis=1), np.argmax(three, axis=1))


@pytest.mark.parametrize("kind", ["labels", "soft labels"])
def test_the_scale_is_that_of_a_logistic_regression(kind):
    rng = np.random.default_rng(0)
    votes, weights = 0.01 * rng.normal(size=40), rng.uniform(0, 2, 40)
    labels = np.sign(votes + 0.01 * rng.normal(size=40)) * (1.0 if kind == "labels" else rng.uniform(0, 1, 40))
    # 20 points a class on average: shares t become (20 t + 1) / 22.
    target = (20 * (1 + labels) / 2 + 1) / 22
    x, y = np.concatenate([votes, votes])[:, None] / 0.01, np.repeat([1, -1], 40)
    model = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10)
    model.fit(x, y, np.concatenate([weights * target, weights * (1 - target)]))
    assert probability_scale(votes, labels, weights) == pytest.approx(model.coef_[0, 0] / 0.01, rel=1e-3)
    assert probability_scale(np.zeros(40), labels, weights) == 1


@pytest.fixture
def scorers():
    """skada's scorers, whose import switches on metadata routing for the whole process."""
    with sklearn.config_context():
        from skada.metrics import PredictionEntropyScorer, SoftNeighborhoodDensity

        sklearn.set_config(enable_metadata_routing=True)
        yield PredictionEntropyScorer(), SoftNeighborhoodDensity()


def test_skada_s_scorers_rank_our_models_as_they_rank_svcs(scorers):
    """Six widths of the kernels; how scores go with the accuracy on the target, and what choosing by them costs."""
    orders, costs = {}, {}
    for turn in ("20", "30", "40"):
        task = moons_task(turn, 11, per_class=40, test_size=500)
        x = np.concatenate([task.source, task.target])
        y, domain = np.concatenate([task.source_labels, np.zeros(80)]), np.repeat([1, -2], 80)
        families = {"votes": [], "Gibbs": [], "SVC": []}
        for gamma in (0.05, 0.2, 0.5, 2, 8, 32):
            vote = PVMinCqClassifier(gamma=gamma, margin=0.2, radius=0.1, radius_unit="pv").fit_domains(*task[:3])
            svc = CalibratedClassifierCV(SVC(gamma=gamma), ensemble=False).fit(task.source, task.source_labels)
            families["votes"].append((vote, vote))
            families["Gibbs"].append((Chances(vote.predict_gibbs), vote))
            families["SVC"].append((Chances(svc.predict_proba), svc))
        for name, models in families.items():
            accuracies = [model.score(task.test, task.test_labels) for _, model in models]
            for scorer in scorers:
                scores = [scorer(judged, x, y, sample_domain=domain) for judged, _ in models]
                key = name, type(scorer).__name__
                orders.setdefault(key, []).append(kendalltau(scores, accuracies).statistic)
                costs.setdefault(key, []).append(max(accuracies) - accuracies[int(np.argmax(scores))])
    for scorer in ("PredictionEntropyScorer", "SoftNeighborhoodDensity"):
        ours, gibbs, svc = (np.mean(orders[name, scorer]) for name in ("votes", "Gibbs", "SVC"))
        assert ours > 0.7
        assert ours > max(svc, gibbs + 0.3)
        assert np.mean(costs["votes", scorer]) <= 0.01 + np.mean(costs["SVC", scorer])


@pytest.mark.long
def test_choosing_digits_by_entropy_costs_no_more_than_of_svcs(scorers):
    """On six pairs all widths but the widest do about alike, so that the order says little, and the choice counts."""
    entropy, costs = scorers[0], {}
    for a, b in ((0, 1), (3, 5), (4, 9), (2, 7), (1, 8), (5, 6)):
        task = shifted_task(Shift("digits", 20, seed=90 + a, digits=(a, b)))
        x = np.concatenate([task.source, task.target])
        domain = np.repeat([1, -2], [len(task.source), len(task.target)])
        y = np.concatenate([task.source_labels, np.zeros(len(task.target))])
        families = {PVMinCqClassifier: [], PVTransportClassifier: [], SVC: []}
        for gamma in default_gammas(task.target)[1] * np.array([0.05, 0.2, 0.5, 1, 4, 16]):
            for kind in (PVMinCqClassifier, PVTransportClassifier):
                vote = kind(gamma=gamma, margin=0.2, radius=0.1, radius_unit="pv").fit_domains(*task[:3])
                families[kind].append((vote, vote))
            svc = CalibratedClassifierCV(SVC(gamma=gamma), ensemble=False).fit(task.source, task.source_labels)
            families[SVC].append((Chances(svc.predict_proba), svc))
        for kind, models in families.items():
            accuracies = [model.score(task.test, task.test_labels) for _, model in models]
            scores = [entropy(judged, x, y, sample_domain=domain) for judged, _ in models]
            costs.setdefault(kind, []).append(max(accuracies) - accuracies[int(np.argmax(scores))])
    for kind in (PVMinCqClassifier, PVTransportClassifier):
        assert np.mean(costs[kind]) <= 0.005 + np.mean(costs[SVC])


class Chances:
    """A fitted classifier as a scorer sees it."""

    def __init__(self, predict_proba):
        self._predict_proba = predict_proba

    def predict_proba(self, x, sample_domain=None):
        return self._predict_proba(x)
