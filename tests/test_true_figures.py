"""Every figure that a model or an estimator reports is true of the weights that it predicts with.

Votes, margins, moments, C-bounds, mu_max and PV are computed anew here, in NumPy alone, from what the model shows.
"""

import os
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier

NAMES = np.array(["ash", "beech", "cedar"])


def votes_of(voters, x):
    """Votes ``[m, n]`` of Gaussian kernels, stumps, functions, or a family of the test's own."""
    x = np.asarray(x, float)
    if hasattr(voters, "families"):
        return np.concatenate([votes_of(family, x) for family in voters.families], axis=1)
    if hasattr(voters, "centers"):
        square = np.sum((x[:, None] - np.asarray(voters.centers, float)[None]) ** 2, axis=-1)
        return np.exp(-np.asarray(voters.gamma, float) * square)
    if hasattr(voters, "thresholds"):
        return np.where(x[:, np.asarray(voters.features)] > np.asarray(voters.thresholds), 1.0, -1.0)
    if hasattr(voters, "functions"):
        return np.stack([function(x) for function in voters.functions], axis=1)
    return np.asarray(voters.votes(x), float)


def heavy_sides(labels, weights):
    """Labels and shares in which the class weighs as much as the rest, as each of several classes is learnt."""
    sides = np.stack([weights * (1 + labels), weights * (1 - labels)])
    total = sides.sum(axis=1, keepdims=True)
    sides = np.divide(sides, total, out=np.zeros_like(sides), where=total > 0)
    shares = sides.sum(axis=0)
    new = np.divide(sides[0] - sides[1], shares, out=np.zeros_like(shares), where=shares > 0)
    return new, shares / shares.sum()


class Figures(NamedTuple):
    margin: float
    mu_max: float
    c_bound: float
    largest: float


def figures_of(voters, weights, points, labels, label_weights, against_rest, active=None):
    """First moment, mu_max of the voters that take part, C-bound, and the largest weight times their number."""
    labels, label_weights = np.asarray(labels, float), np.asarray(label_weights, float)
    labels, shares = (
        heavy_sides(labels, label_weights) if against_rest else (labels, label_weights / label_weights.sum())
    )
    votes, weights = votes_of(voters, points), np.asarray(weights, float)
    values = votes @ weights
    first, second = np.sum(shares * labels * values), np.sum(shares * values**2)
    if active is None:
        # Kernels on points without a match do not take part, and weigh 0; of other voters all do.
        active = weights != 0 if hasattr(voters, "centers") else np.ones(len(weights), bool)
    margins = (shares * labels) @ votes[:, active]
    return Figures(first, np.mean(np.abs(margins)), 1 - first**2 / second, np.max(np.abs(weights)) * np.sum(active))


def moved_points(pairs, source, target):
    """Each source point at the mean of its matched target points, where there are any."""
    total = np.bincount(pairs.source, pairs.weights, minlength=len(source))
    sums = np.zeros((len(source), target.shape[1]))
    np.add.at(sums, pairs.source, np.asarray(pairs.weights)[:, None] * target[pairs.target])
    return np.where(total[:, None] > 0, sums / np.where(total > 0, total, 1.0)[:, None], source)


def check_model(model, points, *, rel=1e-6, active=None):
    """What a model says of its weights, on the points ``[m, d]`` that it learnt from, or its best member did."""
    single = np.ndim(model.weights) == 1
    rows = [np.asarray(getattr(model, name)) for name in ("weights", "margin", "c_bound", "labels")]
    rows = [[field] for field in rows] if single else rows
    for number, (weights, margin, c_bound, labels) in enumerate(zip(*rows)):
        found = figures_of(model.voters, weights, points, labels, model.label_weights, not single, active)
        assert float(margin) == pytest.approx(found.margin, rel=rel)
        assert float(c_bound) == pytest.approx(found.c_bound, abs=rel)
        assert np.sum(np.abs(weights)) <= 1 + rel
        if model.mu_max is None:
            assert model.kkt_residual is None
            assert model.radius is None
            assert model.gamma is None
        else:
            mu_max = float(model.mu_max if single else model.mu_max[number])
            assert mu_max == pytest.approx(found.mu_max, rel=rel)
            assert found.largest <= 1 + rel
            assert 0 < float(margin) <= mu_max * (1 + rel)


def check_estimator_figures(model, points=None):
    """What an estimator reports is what its model does; the values that it predicts by are in [-1, 1]."""
    own = model.model_
    for name in ("weights", "margin", "mu_max", "c_bound", "kkt_residual", "radius", "pv", "centers", "gamma"):
        if not hasattr(model, f"{name}_"):
            continue
        value, expected = getattr(model, f"{name}_"), getattr(own, name, None)
        if expected is None:
            assert value is None, name
        else:
            np.testing.assert_array_equal(value, expected, err_msg=name)
    if own.mu_max is None:
        assert model.margin_fraction_ is None
    else:
        np.testing.assert_allclose(model.margin_fraction_, np.asarray(own.margin) / np.asarray(own.mu_max))
    points = model.target_ if points is None else points
    values = votes_of(own.voters, points) @ np.asarray(own.weights).T
    np.testing.assert_allclose(model.decision_function(points), values, atol=1e-12)
    assert np.max(np.abs(values)) <= 1 + 1e-9


# The committee.


@pytest.fixture(scope="module")
def moons():
    return moons_task("40", 7, per_class=30, test_size=100)


@pytest.fixture(scope="module")
def committee_fit(moons):
    return pvm.fit_transport_validated(*moons[:3], draws=8)


def best_points(fit, task):
    """Where the best member learnt."""
    assert len(fit.model.pairs.source) > 0
    return moved_points(fit.model.pairs, task.source, task.target)


def test_a_committee_reports_its_own_margin_and_c_bound(committee_fit, moons):
    model = committee_fit.model
    assert model.mu_max is None
    check_model(model, best_points(committee_fit, moons))
    # Its pairs, PV and labels are those of its best member.
    assert float(model.pv) == committee_fit.sweep.pv[committee_fit.choice.grid_index[0]]
    np.testing.assert_array_equal(model.labels, moons.source_labels)
    # All kernels that vote are there, of every member.
    assert np.shape(model.centers) == (len(model.weights), 2)
    assert len(model.voters.families) > 1


def test_a_committee_s_best_point_is_not_solved_again(committee_fit):
    """Nobody asks which voters would take part in a program."""
    without = committee_fit.sweep._replace(voter_mask=None)
    again = pvm.committee(without, committee_fit.choice.scores)
    np.testing.assert_array_equal(again.weights, committee_fit.model.weights)


def test_a_committee_of_one_is_that_vote_with_all_its_figures(committee_fit):
    figures, choice = committee_fit.sweep, committee_fit.choice
    scores = np.full(figures.status.shape, np.inf)
    scores[choice.grid_index] = 1.0
    alone, single = pvm.committee(figures, scores), pvm.model_at(figures, choice.grid_index)
    np.testing.assert_array_equal(alone.weights, single.weights)
    assert (alone.kkt_residual, alone.mu_max, alone.radius) == (single.kkt_residual, single.mu_max, single.radius)
    assert alone.gamma == single.gamma


def test_the_classifier_s_committee(moons):
    model = PVTransportClassifier(draws=8).fit_domains(*moons[:3])
    assert model.mu_max_ is None
    check_estimator_figures(model)
    check_model(model.model_, moved_points(model.pairs_, model.source_, model.target_))
    # What was chosen is still told, beside what votes.
    assert model.choice_.radius > 0
    assert model.choice_.gamma > 0


def three_classes(seed, shift=0.0, count=45):
    rng = np.random.default_rng(seed)
    numbers = np.arange(count) % 3
    centers = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    return centers[numbers] + 0.4 * rng.normal(size=(count, 2)) + shift, NAMES[numbers]


@pytest.mark.parametrize("part", [None, 0.5])
def test_figures_and_votes_of_three_classes(part):
    source, names = three_classes(0)
    target, _ = three_classes(1, shift=0.4)
    model = PVTransportClassifier(radius=[0.8, 1.2], margin=[0.1, 0.4], gamma=[0.5, 2.0], draws=4, top_fraction=part)
    model.fit_domains(source, names, target)
    check_model(model.model_, moved_points(model.pairs_, source, target))
    check_estimator_figures(model)
    chances = model.predict_proba(target)
    assert np.min(chances) > 0
    np.testing.assert_allclose(chances.sum(axis=1), 1)


def test_figures_of_three_classes_on_one_domain():
    x, names = three_classes(0)
    model = MinCqClassifier(gamma=1.0, margin=0.3).fit(x, names)
    check_model(model.model_, x)
    check_estimator_figures(model, x)


# Options that broke a fit, or were dropped.


def whole_numbers(seed, shift=0, count=40):
    """Features of few values, which stumps at ten thresholds cannot all tell apart."""
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(count) % 2, 1.0, -1.0)
    second = rng.integers(0, 3, count)
    return np.stack([rng.integers(0, 3, count) + (labels > 0), second], axis=1).astype(float) + shift, labels


@pytest.mark.parametrize("part", [None, 1.0])
def test_stumps_on_moved_points_of_few_values(part):
    """Every map leaves other values, and so another number of stumps."""
    source, labels = whole_numbers(0)
    target, _ = whole_numbers(1, shift=1)
    fit = pvm.fit_transport_validated(source, labels, target, voters="stumps", draws=2, top_fraction=part)
    row = fit.choice.grid_index[0]
    active = None if fit.model.mu_max is None else fit.sweep.voter_mask[row, 0, : len(fit.model.weights)]
    check_model(fit.model, fit.sweep.transports[row].moved, active=active)
    if part is None:
        again = pvm.predict(fit.model, target)
        assert set(again) <= {-1.0, 0.0, 1.0}
        single = pvm.pv_mincq(source, labels, target, radius=2.0, margin=0.3, voters="stumps")
        check_model(single, target)


def other_voters():
    return [lambda x: np.tanh(x[:, 0]), lambda x: np.tanh(x[:, 1]), lambda x: np.tanh(x[:, 0] - x[:, 1])]


@pytest.mark.parametrize("voters", ["stumps", "functions"])
def test_the_ratio_is_estimated_with_any_voters(voters, moons):
    given = {"voters": "stumps" if voters == "stumps" else other_voters(), "draws": 2, "radii": [0.1, 0.0]}
    fit = pvm.fit_transport_validated(*moons[:3], **given, radius_unit="pv", ratio="estimated")
    assert 0 < fit.sweep.ratio < 1


def test_the_ratio_is_estimated_for_the_grid_that_is_fitted(moons):
    """With any maps and voters, the classes weigh as `label_shift` says in the very grid that is judged."""
    given = {"radii": [0.5, 0.2], "radius_unit": "pv", "most_voters": 20, "equal_sizes": False, "match_moments": True}
    given |= {"include_identity": True, "seed": 3}
    target = moons.target[:30]
    fit = pvm.fit_transport_validated(*moons[:2], target, **given, gammas=[8.0, 0.5], draws=2, ratio="estimated")
    share = pvm.label_shift(*moons[:2], target, seed=3).shares[1]
    assert fit.sweep.ratio == pytest.approx(share, abs=1e-3)
    heavy = np.asarray(fit.sweep.transports[0].weights)
    assert np.mean(heavy[moons.source_labels > 0]) / 2 == pytest.approx(share, abs=0.02)


def test_samples_are_not_made_even_unasked_where_a_ratio_is_given(moons):
    """A target of half the size can match half of the source; with its rows repeated, all of it."""
    target = moons.target[::2]
    matched = []
    for even in (True, False):
        grid = pvm.transport_sweep(
            moons.source, moons.source_labels, target, radii=[0.0], radius_unit="pv", gammas=[2.0], margins=[0.2],
            draws=2, equal_sizes=even, ratio=0.4,
        )  # fmt: skip
        pairs, (r,) = grid.transports[-1].pairs, grid.radii
        matched.append(np.sum(pairs.weights))
        if even:
            assert grid.pv[0] == pytest.approx(1 - matched[0] / 60)
        else:
            assert grid.pv[0] == pytest.approx(1 - matched[1] / 2 * (1 / 60 + 1 / 30))
        assert r > 0
    assert matched[0] == pytest.approx(60)
    assert matched[1] == pytest.approx(30)


def test_the_narrowest_gamma_is_the_largest(moons):
    """Whether a grid is large, by the rank of its votes, does not depend on the order of the gammas."""
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(200, 5)), rng.normal(size=(200, 5)) + 0.2
    labels = np.where(source[:, 0] > 0, 1.0, -1.0)
    given = {"radii": [1.5], "margins": [0.3], "draws": 1, "folds": 2}
    for grid in (pvm.sweep, pvm.transport_sweep):
        options = given if grid is pvm.sweep else {name: given[name] for name in ("radii", "margins", "draws")}
        one, other = (grid(source, labels, target, **options, gammas=order) for order in ([1e-3, 5.0], [5.0, 1e-3]))
        np.testing.assert_allclose(other.c_bound[:, ::-1], one.c_bound, rtol=0, atol=1e-9)


# A model's file.


def test_only_a_model_is_written(committee_fit, moons, tmp_path):
    classifier = MinCqClassifier(gamma=1.0, margin=0.3).fit(moons.source, moons.source_labels)
    for thing, hint in ((committee_fit, r"ValidatedFit.*\.model"), (committee_fit.sweep, "Sweep"),
                        (classifier, r"MinCqClassifier.*\.model_"), (None, "NoneType")):  # fmt: skip
        with pytest.raises(ValueError, match=f"model must be a PVMinCq.*{hint}"):
            pvm.save_model(thing, tmp_path / "vote.npz")
    assert not list(tmp_path.iterdir())


def test_an_older_file_stays_until_the_new_one_is_whole(committee_fit, tmp_path, monkeypatch):
    path = tmp_path / "vote.npz"
    pvm.save_model(committee_fit.model, path)
    before, rights = path.read_bytes(), path.stat().st_mode

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(OSError, match="No space left"):
            pvm.save_model(committee_fit.model, path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["vote.npz"]
    pvm.save_model(committee_fit.model, os.fspath(path))
    assert path.stat().st_mode == rights


@pytest.mark.parametrize("names", [["no", "yes"], [3, 7], [False, True], ["ash", "beech", "cedar"], [0.0, 1.0, 2.0]])
def test_a_file_keeps_the_names_of_the_classes(names, tmp_path):
    x, y = three_classes(0)
    y = np.array(names)[np.searchsorted(NAMES, y) % len(names)]
    model = MinCqClassifier(gamma=1.0, margin=0.3).fit(x, y)
    pvm.save_model(model.model_, tmp_path / "vote")
    again = pvm.load_model(tmp_path / "vote")
    assert list(again.classes) == names == list(model.classes_)
    jax.tree.map(np.testing.assert_array_equal, again, model.model_)
    # Names are no arrays: a model with names goes through jit, too.
    values = jax.jit(pvm.decision)(again, x)
    np.testing.assert_allclose(values, model.decision_function(x), atol=1e-12)


def test_a_file_of_version_0_2_0_is_read():
    """Written by that version: four kernels, one on each target point."""
    path = Path(__file__).parent / "model_0_2_0.npz"
    model = pvm.load_model(path)
    source = np.array([[0.0, 0.1], [0.2, 0.0], [1.0, 1.0], [1.2, 0.9]])
    np.testing.assert_allclose(model.centers, source + 0.1)
    assert (float(model.radius), float(model.gamma)) == (0.2, 2.0)
    assert float(model.margin) == pytest.approx(0.5 * float(model.mu_max))
    check_model(model, source + 0.1)
    np.testing.assert_array_equal(pvm.predict(model, source), [1, 1, -1, -1])
    assert model.classes is None


# A chosen point, had again by its own parameters.


@pytest.mark.parametrize("unequal", [False, True])
def test_every_point_of_the_transport_grid_can_be_had_again(moons, unequal):
    """At every radius and on both scales, nobody matched included."""
    target = moons.target[::2] if unequal else moons.target
    given = {"draws": 3, "seed": 5}
    ratio = {"ratio": 0.4} if unequal else {}
    grid = pvm.transport_sweep(moons.source, moons.source_labels, target, **given, **ratio, gammas=[2.0], margins=[0.3])
    assert np.sum(grid.radii == 0) == 2
    for place in range(0, len(grid.radii), 3 if unequal else 2):
        scores = np.ones(grid.status.shape)
        scores[place, 0, 0] = 0.0
        choice = pvm.choose(grid, scores)
        point = {name: getattr(choice, name) for name in ("radius", "gamma", "margin", "margin_unit", "match_moments")}
        again = pvm.pv_transport_mincq(
            moons.source, moons.source_labels, target, **point, identity=choice.identity, **given, **ratio
        )
        expected = pvm.model_at(grid, (place, 0, 0))
        np.testing.assert_allclose(
            pvm.decision(again, moons.test), pvm.decision(expected, moons.test), atol=1e-3 * float(expected.margin)
        )
        for name in ("radius", "pv", "label_weights"):
            np.testing.assert_allclose(getattr(again, name), getattr(expected, name), rtol=1e-12)
        jax.tree.map(np.testing.assert_array_equal, again.pairs, expected.pairs)
        assert choice.identity == (choice.radius == 0)


def test_a_choice_among_carried_labels_has_no_map(moons):
    fit = pvm.fit_validated(*moons[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2, draws=2)
    assert (fit.choice.match_moments, fit.choice.identity) == (False, False)
    again = pvm.pv_mincq(*moons[:3], radius=fit.choice.radius, margin=fit.choice.margin, gamma=2.0, draws=2)
    np.testing.assert_allclose(again.weights, fit.model.weights, atol=1e-8)


def test_a_map_without_a_matching_has_no_radius(moons):
    given = {"margin": 0.3, "gamma": 2.0, "draws": 2}
    still = pvm.pv_transport_mincq(*moons[:3], identity=True, **given)
    assert (float(still.radius), float(still.pv), len(still.pairs.source)) == (0.0, 1.0, 0)
    check_model(still, moons.source)
    with pytest.raises(ValueError, match="radius must be None or 0 where identity is True"):
        pvm.pv_transport_mincq(*moons[:3], radius=0.5, identity=True, **given)
    for radius, unit in ((None, "absolute"), (None, "pv"), (0.0, "absolute")):
        with pytest.raises(ValueError, match="radius must be"):
            pvm.pv_transport_mincq(*moons[:3], radius=radius, radius_unit=unit, **given)


# What criteria and checks are told.


def test_a_criterion_of_one_s_own_is_told_the_pv_that_is_there():
    source, names = three_classes(0)
    target, _ = three_classes(1, shift=0.4)
    given = {"radius": [0.6, 1.2], "margin": 0.3, "gamma": 1.0, "draws": 2}
    expected = [pvm.perturbed_variation(source, target, radius) for radius in (0.6, 1.2)]
    told = []

    def criterion(sweep):
        told.append(np.array(sweep.pv))
        return sweep.c_bound + sweep.pv[:, None, None]

    for classifier in (
        PVMinCqClassifier(**given, criterion=criterion),
        PVTransportClassifier(**given, criterion=criterion),
    ):
        told.clear()
        classifier.fit_domains(source, names, target)
        np.testing.assert_allclose(told, [expected])


@pytest.mark.parametrize("name", ["rs_pv", "rs_pv_cbound", "rs_pv_risk", "label_criterion"])
def test_pv_counts_once_whatever_the_number_of_classes(name):
    """Half the sum over the classes of what a criterion has without PV, and PV."""
    source, names = three_classes(0)
    target, _ = three_classes(1, shift=0.4)
    given = {"radius": [0.6, 1.2], "margin": 0.3, "gamma": 1.0, "draws": 2, "folds": 2}
    model = PVMinCqClassifier(**given, criterion=name).fit_domains(source, names, target)
    bare = [getattr(pvm, name)(grid._replace(pv=np.zeros(2))) for grid in model.sweep_.each_class()]
    expected = np.sum(bare, axis=0) / 2 + model.sweep_.pv[:, None, None]
    np.testing.assert_allclose(model.criterion_, expected, atol=1e-12)


def test_self_labels_may_all_be_of_one_class():
    """+1 where matched and 0 elsewhere; 0 and 1 of points that count are still taken for another coding."""
    votes, labels = np.array([[1.0, 0.2], [0.5, 1.0], [0.3, 0.1]]), np.array([1.0, 1.0, 0.0])
    weights = np.array([1.0, 1.0, 0.0])
    found = pvm.mincq(votes, labels, 0.3, sample_weights=weights)
    assert int(found.status) == pvm.Status.SOLVED
    first, second = (weights * labels / 2) @ votes @ found.weights, weights / 2 @ (votes @ found.weights) ** 2
    assert float(first) == pytest.approx(0.3, rel=1e-6)
    assert float(pvm.c_bound(votes, labels, found.weights, sample_weights=weights)) == pytest.approx(
        float(1 - first**2 / second), abs=1e-9
    )
    assert float(pvm.max_margin(votes, labels, sample_weights=weights)) == pytest.approx(0.675)
    for call in (pvm.max_margin, lambda *arguments: pvm.gibbs_risk(*arguments, np.array([0.5, 0.5]))):
        with pytest.raises(ValueError, match=r"labels are all 0 or 1.*give 2 \* labels - 1"):
            call(votes, labels)


# Words in place of tracebacks, and of pages of numbers.


def test_a_class_of_one_point_is_named():
    x, y = np.arange(12.0).reshape(6, 2), np.array([1, -1, -1, -1, -1, -1])
    for fit in (pvm.fit_validated, pvm.sweep):
        with pytest.raises(
            ValueError, match="folds need at least 2 points of each class and sample; the smallest has 1"
        ):
            fit(x, y, x + 0.1, radii=[1.0], margins=[0.5], gammas=[1.0], folds=2)


@pytest.mark.parametrize("rank", [3.5, "all", 0, 9])
def test_a_rank_is_an_integer(rank):
    votes, labels = np.eye(4) + 0.1, np.array([1.0, -1.0, 1.0, 1.0])
    for call in (lambda: pvm.mincq(votes, labels, 0.01, rank=rank), lambda: pvm.vote_factor(votes, rank=rank)):
        with pytest.raises(ValueError, match="rank must be"):
            call()
    # A rank is a shape, and no traced value.
    with pytest.raises(ValueError, match="rank must be an integer"):
        jax.jit(lambda rank: pvm.vote_factor(votes, rank=rank).left)(3)


def test_fits_and_grids_are_printed_in_a_few_lines(committee_fit, moons):
    label = pvm.fit_validated(*moons[:3], radii=[0.4, 0.6], margins=[0.5], gammas=[2.0], folds=2, draws=2)
    for fit in (committee_fit, label):
        for thing, most in ((fit, 3000), (fit.sweep, 1600), (fit.choice, 500), (fit.model, 1000)):
            assert repr(thing).startswith(f"{type(thing).__name__}(")
            assert len(repr(thing)) < most
        assert f"radius={fit.choice.radius!r}" in repr(fit)
    assert f"scores=float64{list(committee_fit.choice.scores.shape)}" in repr(committee_fit.choice)
