"""More than two classes: each class against the rest by hand, risks by scikit-learn, rare classes."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import zero_one_loss
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

import pvmincq_jax as pvm
from pvmincq_jax._samples import fold_numbers
from pvmincq_jax.adaptation.criteria import scores_of
from pvmincq_jax.adaptation.label import mincq_sweep
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.plots import plot_criterion, plot_transfer
from pvmincq_jax.scorers import ReverseValidationScorer, RsPvScorer
from pvmincq_jax.voting.classes import ahead, balance_classes, one_against_rest
from tests.problems import clarabel_objective

NAMES = np.array(["ash", "beech", "cedar", "date"])
# Five, as many as there are by default: the tests share their compiled programs.
MARGINS = [0.05, 0.1, 0.2, 0.3, 0.4]
GRID = {"radius": [0.5, 0.9], "margin": MARGINS, "gamma": [1.0]}
GIVEN = {"radius": 0.8, "margin": 0.3, "gamma": 1.0}


def corners(seed, count=60, classes=4, shift=(0.0, 0.0)):
    """Clouds on a circle: points, and class numbers of which the first is rarer than the others."""
    rng = np.random.default_rng(seed)
    numbers = np.concatenate([np.arange(classes), rng.integers(1, classes, count - classes - 4), np.zeros(4, int)])
    angles = 2 * np.pi * numbers / classes
    return np.stack([np.cos(angles), np.sin(angles)], axis=1) * 2 + 0.3 * rng.normal(size=(count, 2)) + shift, numbers


@pytest.fixture(scope="module")
def task():
    """Source, class numbers, target, its class numbers."""
    return *corners(0), *corners(1, shift=(0.5, -0.4))


@pytest.fixture(scope="module", params=["label", "transport"])
def adapted(request, task):
    """One vote for each class: that of the chosen point alone."""
    source, numbers, target, _ = task
    label = request.param == "label"
    model = (
        PVMinCqClassifier(**GRID, draws=4, folds=2)
        if label
        else PVTransportClassifier(**GRID, draws=4, top_fraction=None)
    )
    return model.fit_domains(source, NAMES[numbers], target)


def test_it_adapts_and_predicts_the_largest_vote(task, adapted):
    _, _, target, truth = task
    assert adapted.score(target, NAMES[truth]) > 0.9
    assert list(adapted.classes_) == list(NAMES)
    votes, chances = adapted.decision_function(target), adapted.predict_proba(target)
    assert votes.shape == chances.shape == (60, 4)
    np.testing.assert_array_equal(adapted.predict(target), NAMES[np.argmax(votes, axis=1)])
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(np.argsort(chances, axis=1), np.argsort(votes, axis=1))
    assert adapted.predict(np.full((1, 2), 1e6)) == "ash"
    row, gamma, column = adapted.choice_.grid_index
    leads = np.stack([sweep.target_values[row, gamma, column] for sweep in adapted.sweep_.each_class()])
    np.testing.assert_array_equal(NAMES[np.argmax(leads, axis=0)], adapted.predict(target))
    np.testing.assert_array_equal(np.sum(leads > 0, axis=0), 1)


def test_weights_are_those_of_each_class_against_the_rest(task, adapted):
    """`mincq` on each class by hand, and Clarabel's objective; the class weighs as much as the rest."""
    points = adapted.target_ if isinstance(adapted, PVMinCqClassifier) else np.asarray(adapted.centers_)
    votes = adapted.model_.voters.votes(points)
    factor, mask = pvm.vote_factor(votes), adapted.self_label_weights_ > 0
    for k in range(4):
        own, weights = adapted.self_labels_[k], adapted.self_label_weights_
        mass = weights * np.stack([1 + own, 1 - own]) / 2
        mass /= 2 * mass.sum(axis=1, keepdims=True)
        shares, labels = mass.sum(axis=0), np.divide(mass[0] - mass[1], mass.sum(axis=0), where=mask, out=np.zeros(60))
        assert np.sum(shares * labels) == pytest.approx(0, abs=1e-12)
        given = {"sample_weights": shares, "voter_mask": mask, "factor": factor}
        asked = adapted.choice_.margin * adapted.mu_max_[k]
        by_hand = pvm.mincq(votes, labels, asked, **given)
        scale = adapted.margin_[k] / asked
        expected = scale * votes @ np.asarray(by_hand.weights)
        np.testing.assert_allclose(adapted.decision_function(points)[:, k], expected, atol=1e-3 * adapted.margin_.min())
        assert adapted.c_bound_[k] == pytest.approx(float(by_hand.c_bound), abs=1e-7)
        active, weights = votes[:, mask], adapted.weights_[k][mask] / scale
        margins = active.T @ (shares * labels)
        assert adapted.mu_max_[k] == pytest.approx(np.mean(np.abs(margins)), rel=1e-10)
        assert margins @ weights == pytest.approx(asked, rel=1e-7)
        found = shares @ (active @ weights) ** 2 / asked**2
        least = clarabel_objective(active * np.sqrt(shares)[:, None], margins, adapted.choice_.margin)
        assert found == pytest.approx(least, rel=1e-6)
    np.testing.assert_allclose(adapted.margin_, adapted.choice_.margin * np.min(adapted.mu_max_), rtol=1e-12)


def test_a_committee_of_several_classes_is_the_mean_of_its_members(task):
    """Of each class the same members sit in it, every one in units of its margin and of its mean lead."""
    source, numbers, target, truth = task
    given = {**GRID, "draws": 4, "match_moments": False}
    model = PVTransportClassifier(**given, top_fraction=1.0).fit_domains(source, NAMES[numbers], target)
    sweeps, scores = model.sweep_.each_class(), model.criterion_
    best = model.choice_.grid_index
    leads = np.stack([sweep.target_values for sweep in sweeps])
    expected, members = np.zeros((60, 4)), 0
    for place in zip(*np.nonzero(np.isfinite(scores))):
        same = np.argmax(leads[:, *place], axis=0) == np.argmax(leads[:, *best], axis=0)
        if scores[place] <= 1.35 * scores[best] and np.mean(same) >= 0.9:
            members += 1
            size = np.mean(np.abs(leads[:, *place]))
            for k, sweep in enumerate(sweeps):
                margin = sweep.margins[place[2]] * sweep.mu_max[place[:2]]
                votes = sweep.voters[place[0]][place[1]].votes(target)
                expected[:, k] += votes @ sweep.weights[place] / margin / size
    assert members > 2
    found = model.decision_function(target)
    np.testing.assert_allclose(found / np.max(found), expected / np.max(expected), atol=1e-9)
    assert model.score(target, NAMES[truth]) > 0.9
    np.testing.assert_array_equal(model.predict(target), NAMES[np.argmax(expected, axis=1)])


def test_self_labels_are_means_over_the_same_matchings(task):
    source, numbers, target, _ = task
    model = PVMinCqClassifier(**GIVEN, draws=5).fit_domains(source, NAMES[numbers], target)
    shares = np.zeros((60, 4))
    np.add.at(shares, (model.pairs_.target, numbers[model.pairs_.source]), model.pairs_.weights)
    np.testing.assert_allclose(model.self_label_weights_, shares.sum(axis=1), atol=1e-12)
    matched = shares.sum(axis=1) > 0
    carried = 2 * shares[matched] / shares[matched].sum(axis=1, keepdims=True) - 1
    np.testing.assert_allclose(model.self_labels_[:, matched], carried.T, atol=1e-12)
    assert model.pv_ == pytest.approx(pvm.perturbed_variation(source, target, 0.8))


def test_half_the_sum_of_the_risks_is_that_of_predictions_without_the_fold(task):
    source, numbers, _, _ = task
    model = MinCqClassifier(margin=MARGINS, gamma=[0.3], folds=2).fit(source, NAMES[numbers])
    risks = np.sum([sweep.source_risk for sweep in model.sweep_.each_class()], axis=0)[:, 0, 0] / 2
    held = fold_numbers(source, numbers, 2, seed=0)
    for fold, k in np.ndindex(2, 5):
        rest = held != fold
        without = MinCqClassifier(margin=model.margins_[k], gamma=0.3).fit(source[rest], NAMES[numbers[rest]])
        expected = zero_one_loss(NAMES[numbers[~rest]], without.predict(source[~rest]))
        assert risks[fold, k] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(model.cv_risk_[0], risks.mean(axis=0), atol=1e-12)


def test_two_classes_against_each_other_are_the_binary_vote():
    """Of two classes numbered 0 and 1, each against the rest is the binary vote, with one sign or the other."""
    rng = np.random.default_rng(3)
    numbers = np.arange(40) % 2
    points = rng.normal(size=(40, 2)) + 1.2 * numbers[:, None]
    grid = {"gammas": [0.5, 2.0], "margins": MARGINS, "folds": 4}
    binary = mincq_sweep(points, 2 * numbers - 1, **grid)
    both = one_against_rest(numbers, 2)
    everybody = np.ones((1, 40))
    labels, weights = balance_classes(both, everybody)
    np.testing.assert_allclose(weights, 1.0)
    np.testing.assert_array_equal(labels, both)
    values = np.stack([-binary.target_values, binary.target_values])
    np.testing.assert_allclose(np.sign(ahead(values)[1]), np.sign(binary.target_values))
    for criterion in (pvm.rs, pvm.rs_pv, pvm.rs_pv_risk, pvm.label_criterion):
        twice = two_as_classes(binary)
        np.testing.assert_allclose(criterion(twice), criterion(binary), atol=1e-9)


def two_as_classes(binary):
    """A grid of two classes, written as one with a class axis."""

    def both(field, axis=0, sign=1):
        return np.stack([sign * field, field], axis=axis)

    same = {name: both(getattr(binary, name)) for name in ("c_bound", "kkt_residual", "mu_max", "self_risk")}
    names = "weights", "target_values", "source_labels", "source_values"
    signed = {name: both(getattr(binary, name), sign=-1) for name in names}
    folds = {name: both(getattr(binary, name), axis=1) for name in ("source_risk", "fold_kkt_residual")}
    labels = tuple(one._replace(labels=both(one.labels, sign=-1)) for one in binary.self_labels)
    return binary._replace(**same, **signed, **folds, self_labels=labels)


def test_criteria_are_those_of_the_predictions(task, adapted):
    _, numbers, target, _ = task
    said = np.argmax([sweep.target_values for sweep in adapted.sweep_.each_class()], axis=0)
    near = NearestNeighbors(n_neighbors=8).fit(target).kneighbors(return_distance=False)
    cut = np.sum([pvm.neighbour_disagreement(sweep, 7) for sweep in adapted.sweep_.each_class()], axis=0) / 2
    expected = np.mean([said[..., near[:, k]] != said for k in range(7)], axis=(0, -1))
    np.testing.assert_allclose(cut, expected, atol=1e-12)
    np.testing.assert_allclose(pvm.neighbour_disagreement(adapted.sweep_, 7), cut, atol=1e-12)
    scores = scores_of(adapted.sweep_, lambda sweep: sweep.c_bound)
    np.testing.assert_allclose(
        scores, np.sum([sweep.c_bound for sweep in adapted.sweep_.each_class()], axis=0) / 2, atol=1e-12
    )
    if isinstance(adapted, PVTransportClassifier):
        sweep = adapted.sweep_
        moved = np.empty((*sweep.status.shape, len(numbers)), int)
        for r, g, k in np.ndindex(sweep.status.shape):
            votes = sweep.voters[r][g].votes(sweep.transports[r].moved)
            # In units of the margins, as predictions are made.
            moved[r, g, k] = np.argmax(votes @ (sweep.weights[:, r, g, k] / sweep.mu_max[:, r, g, None]).T, axis=1)
        risk = np.sum([sweep.self_risk for sweep in adapted.sweep_.each_class()], axis=0) / 2
        for index in np.ndindex(risk.shape):
            weights = np.asarray(sweep.transports[index[0]].weights)
            assert risk[index] == pytest.approx(zero_one_loss(numbers, moved[index], sample_weight=weights), abs=1e-12)


def test_shares_of_several_classes_may_be_given():
    source, numbers = corners(4, classes=3)
    kept = np.concatenate([np.flatnonzero(numbers == 0)[:5], np.flatnonzero(numbers > 0)])
    target = source[kept] + 0.5
    shares = np.bincount(numbers[kept]) / len(kept)
    given = {"gamma": [0.3], "draws": 4, "random_state": 0}
    model = PVTransportClassifier(**given, ratio=list(shares)).fit_domains(source, numbers, target)
    for number, sweep in enumerate(model.sweep_.each_class()):
        assert sweep.ratio == pytest.approx(shares[number])
        weights = np.asarray(sweep.transports[-1].weights)
        assert np.sum(weights[numbers == number]) == pytest.approx(shares[number] * np.sum(weights), abs=1)
    assert np.mean(model.predict(target) == numbers[kept]) > 0.9
    for ratio in ("even", 0.3, [0.5, 0.5], [0.5, 0.6, -0.1]):
        with pytest.raises(ValueError, match=r"3 shares above 0|a share for each"):
            PVTransportClassifier(**given, ratio=ratio).fit_domains(source, numbers, target)


def test_a_lead_is_above_zero_for_the_prediction_alone():
    values = np.array([[0.3, 0.0, np.nan], [0.3, 0.0, 1.0], [-0.1, 0.0, 2.0]])
    leads = ahead(values)
    np.testing.assert_array_equal(np.argmax(leads[:, :2], axis=0), np.argmax(values[:, :2], axis=0))
    np.testing.assert_array_equal(np.sum(leads > 0, axis=0), [1, 1, 0])
    assert np.all(np.isnan(leads[:, 2]))
    labels, weights = balance_classes(np.full((1, 3), -1.0), np.ones((1, 3)))
    assert np.all(labels == -1)
    assert np.all(weights > 0)


def test_a_rare_class_is_learnt_and_found():
    """One point of it, fewer than there are folds."""
    source, numbers = corners(4, classes=3)
    source, numbers = np.concatenate([source, [[8.0, 8.0]]]), np.concatenate([numbers, [3]])
    for model in (
        MinCqClassifier(margin=MARGINS, gamma=1.0).fit(source, NAMES[numbers]),
        PVMinCqClassifier(margin=MARGINS, gamma=1.0, radius=1.5).fit_domains(source, NAMES[numbers], source + 0.1),
    ):
        assert model.predict([[8.0, 8.0]]) == "date"
        assert model.score(source, NAMES[numbers]) > 0.9


@pytest.mark.parametrize("classifier", [PVMinCqClassifier, PVTransportClassifier])
def test_a_radius_at_which_a_class_has_no_label_cannot_win(classifier, task):
    source, numbers, target, _ = task
    far = source + np.where(numbers == 2, 3.0, 0.0)[:, None]
    model = classifier(radius=[0.6, 4.5], margin=0.3, gamma=1.0, draws=2)
    model.fit_domains(far, NAMES[numbers], target)
    assert np.all(np.isinf(model.criterion_[0]))
    assert model.radius_ == 4.5
    with pytest.raises(ValueError, match=r"no radius of the grid carries a label of class 'cedar'.*larger radii"):
        model.set_params(radius=0.6).fit_domains(far, NAMES[numbers], target)


def test_a_margin_that_one_class_does_not_allow_is_an_error(task):
    source, numbers, _, _ = task
    free = MinCqClassifier(margin=0.3, gamma=1.0).fit(source, numbers)
    least, most = np.min(free.mu_max_), np.max(free.mu_max_)
    model = MinCqClassifier(margin=(least + most) / 2, margin_unit="absolute", gamma=1.0)
    with pytest.raises(ValueError, match=f"with mu_max = {least:.6g} here"):
        model.fit(source, numbers)


def test_ten_classes():
    x, y = load_digits(return_X_y=True)
    x = x / 16
    model = MinCqClassifier(gamma=0.05, margin=MARGINS).fit(x[:120], y[:120])
    peer = KNeighborsClassifier(3).fit(x[:120], y[:120])
    assert model.weights_.shape == (10, 120)
    assert model.score(x[120:], y[120:]) > peer.score(x[120:], y[120:]) - 0.03


def test_a_model_is_kept_in_a_file(task, adapted, tmp_path):
    target = task[2]
    pvm.save_model(adapted.model_, tmp_path / "model.npz")
    again = pvm.load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(pvm.decision(again, target), adapted.decision_function(target))
    np.testing.assert_array_equal(NAMES[pvm.predict(again, target)], adapted.predict(target))


def test_rows_and_labels_in_another_order_are_the_same_task(task, adapted):
    source, numbers, target, _ = task
    order = np.random.default_rng(1).permutation(60)
    other = type(adapted)(**adapted.get_params()).fit_domains(source[order], NAMES[numbers][order], target[::-1])
    np.testing.assert_allclose(other.criterion_, adapted.criterion_, atol=1e-7)
    np.testing.assert_array_equal(other.predict(target), adapted.predict(target))


def test_pictures(adapted):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = plot_transfer(adapted)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[:4] == [f"source, class {name}" for name in NAMES]
    for k, text in enumerate(texts[:4]):
        (drawn,) = (one for one in ax.collections if one.get_label() == text)
        np.testing.assert_array_equal(drawn.get_offsets(), adapted.source_[adapted.source_labels_ == k])
    assert len(plot_criterion(adapted).patches) == 1
    matplotlib.pyplot.close("all")


def test_scorers(task):
    source, numbers, target, _ = task
    x, domain = np.concatenate([source, target]), np.repeat([1, -2], 60)
    y = np.concatenate([NAMES[numbers], np.repeat("hidden", 60)])
    model = PVMinCqClassifier(**GIVEN, draws=2).fit(x, y, sample_domain=domain)
    risk = zero_one_loss(NAMES[numbers], model.predict(source))
    assert RsPvScorer()(model, x, y, sample_domain=domain) == pytest.approx(-(risk + model.pv_), abs=1e-12)
    learns, guesses = (
        ReverseValidationScorer(folds=2)(KNeighborsClassifier(k), x, y, sample_domain=domain) for k in (1, 25)
    )
    assert -0.3 < learns <= 0
    assert learns > guesses
    # By hand: from the source to the target and back, on the same folds.
    order_s, order_t = np.lexsort(source.T[::-1]), np.lexsort(target.T[::-1])
    points, kinds, there = source[order_s], numbers[order_s], target[order_t]
    own, others = fold_numbers(points, kinds, 2, 0), fold_numbers(there, None, 2, 0)
    wrong = []
    for fold in range(2):
        forth = KNeighborsClassifier(1).fit(points[own != fold], kinds[own != fold])
        seen = there[others != fold]
        back = KNeighborsClassifier(1).fit(seen, forth.predict(seen))
        wrong.append(zero_one_loss(kinds[own == fold], back.predict(points[own == fold])))
    assert learns == pytest.approx(-np.mean(wrong), abs=1e-12)
