"""The class ratio of the target: scanned for, and unmixed from a confusion matrix."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import pvmincq_jax as pvm
from tests.adaptation.test_moves import blobs

SCAN = {"draws": 8, "own_scale": False, "radii": [0.1, 0.0], "radius_unit": "pv"}


@pytest.mark.parametrize("true", [0.2, 0.5, 0.8])
def test_the_scan_finds_the_ratio_of_a_moved_target(true):
    rng = np.random.default_rng(11)
    source, labels = blobs(rng, 30, 30)
    target, _ = blobs(rng, round(60 * true), 60 - round(60 * true), shift=2.5)
    found = pvm.estimate_ratio(source, labels, target, ratios=(0.2, 0.8), **SCAN)
    assert found.ratio == true
    np.testing.assert_array_equal(found.ratios, [0.2, 0.5, 0.8])
    assert found.scores[list(found.ratios).index(true)] == np.min(found.scores)


def test_a_fit_with_the_estimated_ratio():
    rng = np.random.default_rng(12)
    source, labels = blobs(rng, 30, 30)
    target, truth = blobs(rng, 12, 48, shift=2.5)
    given = {"gammas": [1.0], "draws": 8, "radii": [0.1, 0.0], "radius_unit": "pv"}
    as_source, estimated, told = (
        pvm.fit_transport_validated(source, labels, target, **given, ratio=ratio)
        for ratio in ("source", "estimated", 0.2)
    )
    right = [np.mean(pvm.predict(one.model, target) == truth) for one in (as_source, estimated, told)]
    assert right[0] < 0.9 < 0.98 < min(right[1:])
    assert as_source.sweep.ratio == 0.5
    assert estimated.sweep.ratio == told.sweep.ratio == 0.2
    with pytest.raises(ValueError, match="ratio must be 'source', 'estimated'"):
        pvm.fit_transport_validated(source, labels, target, **given, ratio="even")


def test_confusion_matrix_undoes_the_errors_of_a_classifier():
    rng = np.random.default_rng(13)
    source, labels = blobs(rng, 4000, 4000, apart=0.8)
    target, truth = blobs(rng, 1000, 4000, apart=0.8)
    held_out = cross_val_predict(LogisticRegression(), source, labels)
    predicted = LogisticRegression().fit(source, labels).predict(target)
    assert np.mean(predicted > 0) > 0.27
    assert pvm.confusion_ratio(labels, held_out, predicted) == pytest.approx(0.2, abs=0.03)
    assert np.mean(truth > 0) == 0.2
    assert np.isnan(pvm.confusion_ratio([1, -1], [1, 1], [1, 1, -1]))
