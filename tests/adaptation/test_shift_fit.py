"""The default fits ask what has changed before they move a point."""

import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.estimators import PVTransportClassifier
from tests.adaptation.test_shift import disc_task, gaussian_task


def test_a_mirrored_target_is_matched_in_the_subspace(one_gamma):
    source, labels, target, truth = disc_task(2, mirror=True, points=160)
    fitted = pvm.fit_transport_validated(source, labels, target, draws=8)
    assert fitted.shift.sentence == pvm.detect_shift(source, labels, target).sentence
    assert fitted.shift.kind == "subspace"
    assert fitted.adapted
    assert np.mean(pvm.predict(fitted.model, target) == truth) > 0.9
    # Where the radii are given, nothing is asked, and points move as they are nearest: to the other class.
    told = pvm.fit_transport_validated(source, labels, target, radii=[1.0], margins=[0.2], draws=8)
    assert told.shift is None
    assert np.mean(pvm.predict(told.model, target) == truth) < 0.5


def test_a_class_ratio_moves_nothing(one_gamma):
    source, labels, target, truth = disc_task(3, rare=True)
    fitted = pvm.fit_transport_validated(source, labels, target)
    assert fitted.shift.kind == "ratio"
    assert not fitted.adapted
    assert np.array_equal(fitted.sweep.transports[0].moved, source)
    np.testing.assert_array_equal(fitted.sweep.transports[0].weights, fitted.shift.weights)
    assert np.mean(pvm.predict(fitted.model, target) == truth) > 0.9
    weighed = pvm.fit_transport_validated(source, labels, target, ratio="estimated")
    share = fitted.shift.label_shift.shares[1]
    assert weighed.sweep.ratio == pytest.approx(share)
    weights = np.asarray(weighed.sweep.transports[0].weights)
    assert np.average(labels > 0, weights=weights) == pytest.approx(share)
    model = PVTransportClassifier().fit_domains(source, np.where(labels > 0, "middle", "both sides"), target)
    assert not model.adapted_
    assert model.shift_.sentence == fitted.shift.sentence
    np.testing.assert_array_equal(model.predict(target) == "middle", pvm.predict(fitted.model, target) > 0)


def test_given_weights_are_kept(one_gamma):
    """Whoever gives weights of source points that stay knows what has changed, as whoever gives the maps."""
    source, labels, target, _ = disc_task(3, rare=True)
    given = np.where(labels > 0, 1.0, 3.0)
    fitted = pvm.fit_transport_validated(source, labels, target, identity_weights=given)
    assert fitted.shift is None
    assert not fitted.adapted
    (still,) = fitted.sweep.transports
    np.testing.assert_array_equal(still.weights, given)


def test_many_classes(one_gamma):
    source, labels, target = gaussian_task(np.random.default_rng(5), [40, 40, 40], [10, 90, 20])
    model = PVTransportClassifier(ratio="estimated").fit_domains(source, labels, target)
    assert model.shift_.kind == "ratio"
    assert not model.adapted_
    shares = model.shift_.label_shift.shares
    np.testing.assert_allclose(shares, [10 / 120, 90 / 120, 20 / 120], atol=0.15)
    heavy = np.asarray(model.sweep_.transports[0].weights)
    np.testing.assert_allclose(np.bincount(labels, heavy) / len(labels), shares, rtol=1e-6)
    moved = PVTransportClassifier().fit_domains(source, labels, target + 8)
    assert moved.adapted_
    assert moved.shift_.sentence.startswith("points had to move")
