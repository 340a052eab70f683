"""The class ratio of the target: told, or estimated by `label_shift` in the same fit."""

import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.adaptation.validate import class_weights
from tests.adaptation.test_moves import blobs

GRID = {"gammas": [1.0], "draws": 8, "radii": [0.1, 0.0], "radius_unit": "pv"}


def test_a_fit_with_the_estimated_ratio():
    rng = np.random.default_rng(12)
    source, labels = blobs(rng, 30, 30)
    target, truth = blobs(rng, 12, 48, shift=np.array([0.0, 1.5]))
    as_source, estimated, told = (
        pvm.fit_transport_validated(source, labels, target, **GRID, ratio=ratio)
        for ratio in ("source", "estimated", 0.2)
    )
    right = [np.mean(pvm.predict(one.model, target) == truth) for one in (as_source, estimated, told)]
    assert right[0] < 0.9 < 0.94 < min(right[1:])
    assert as_source.sweep.ratio == 0.5
    assert told.sweep.ratio == 0.2
    assert estimated.sweep.ratio == pytest.approx(pvm.label_shift(source, labels, target).shares[1], abs=1e-3)
    assert estimated.sweep.ratio == pytest.approx(0.2, abs=0.15)
    with pytest.raises(ValueError, match="ratio must be 'source', 'estimated'"):
        pvm.fit_transport_validated(source, labels, target, **GRID, ratio="even")


def test_a_class_that_would_vanish_because_points_have_moved_is_no_estimate():
    rng = np.random.default_rng(12)
    source, labels = blobs(rng, 30, 30)
    target, _ = blobs(rng, 30, 30, shift=12.0)
    assert np.min(pvm.label_shift(source, labels, target).shares) < 0.02
    assert pvm.fit_transport_validated(source, labels, target, **GRID, ratio="estimated").sweep.ratio == 0.5


@pytest.mark.parametrize("shares", [(0.3, 0.7), (0.1, 0.6, 0.3)])
def test_weights_bring_the_classes_to_their_shares(shares):
    labels = np.random.default_rng(0).integers(len(shares), size=50) * 3
    weights = class_weights(labels, shares)
    assert np.mean(weights) == pytest.approx(1)
    for label, share in zip(np.unique(labels), shares):
        assert np.sum(weights[labels == label]) / 50 == pytest.approx(share)
