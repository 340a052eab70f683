"""What a newcomer may hand in by mistake is named in a sentence, whichever door it comes through."""

import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.baselines import resampling, svm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import PVMinCqClassifier

SOURCE, LABELS, TARGET = moons_task("30", 0, per_class=8, test_size=2)[:3]
TASK = SOURCE, LABELS, TARGET
VOTES, ONE = np.column_stack([LABELS, 0.5 * LABELS]), np.array([0.5, 0.5])
POINT = {"radius": 0.5, "margin": 0.2, "gamma": 2.0}


@pytest.mark.parametrize("text", ["0.5", "wide", None])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((name, lambda text, name=name: pvm.pv_mincq(*TASK, **POINT | {name: text})) for name in POINT),
        *((name, lambda text, name=name: pvm.pv_transport_mincq(*TASK, **POINT | {name: text})) for name in POINT),
        ("radius", lambda text: pvm.match(SOURCE, TARGET, text)),
        ("radius", lambda text: pvm.perturbed_variation(SOURCE, TARGET, text)),
        ("radius", lambda text: pvm.self_label(*TASK, text)),
        ("radius", lambda text: pvm.soft_pv(SOURCE, TARGET, text, 0.1)),
        ("pv", lambda text: pvm.bottleneck_radius(SOURCE, TARGET, text)),
        ("radii", lambda text: pvm.grid_radii(SOURCE, TARGET, [text], "absolute")),
        ("radii", lambda text: pvm.sweep(*TASK, radii=[text])),
        ("margins", lambda text: pvm.sweep(*TASK, margins=[text])),
        ("gammas", lambda text: pvm.sweep(*TASK, gammas=[text])),
        ("gamma", lambda text: pvm.rbf_votes(SOURCE, SOURCE, text)),
        ("margin", lambda text: pvm.mincq(np.ones((16, 2)), LABELS, text)),
        ("radius", lambda text: PVMinCqClassifier(radius=[text]).fit_domains(*TASK)),
        ("params.gamma", lambda text: svm.fit(*TASK, {"gamma": text, "cost": 1.0})),
    ],
)
def test_what_is_no_number_is_named(name, call, text):
    said = (
        "(be a number; it is|hold numbers; it holds|be a number unless identity is True; it is|be a number, .*; it is)"
    )
    with pytest.raises(ValueError, match=f"^{name} must {said} {text!r}$"):
        call(text)


def holed(x):
    x = x.copy()
    x[3, 1] = np.nan
    return x


@pytest.mark.parametrize(
    "learn",
    [
        lambda *task: pvm.pv_mincq(*task, **POINT),
        lambda *task: pvm.pv_transport_mincq(*task, **POINT),
        pvm.sweep,
        pvm.transport_sweep,
        pvm.fit_validated,
        pvm.fit_transport_validated,
        pvm.learn_map,
        lambda *task: resampling.cross_validation(svm.fit, svm.decision, *task, svm.GRID[:1]),
        lambda *task: resampling.reverse_validation(svm.fit, svm.decision, *task, svm.GRID[:1]),
        lambda *task: resampling.rs_pv_validation(svm.fit, svm.decision, *task, svm.GRID[:1]),
    ],
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, y, t: (holed(s), y, t), "source holds 1 entries that are NaN"),
        (lambda s, y, t: (s, y, holed(t)), "target holds 1 entries that are NaN"),
        (lambda s, y, t: (s[:, 0], y, t), "source must be an array of rank 2"),
        (lambda s, y, t: (s, y, t[:0]), "target is empty"),
        (lambda s, y, t: (s, y, t[:, :1]), "same number of features"),
        (lambda s, y, t: (s, y[:-1], t), "source_labels must have one entry"),
        (lambda s, y, t: (s, (y + 1) / 2, t), "source_labels must be -1 or"),
        (lambda s, y, t: (s, -np.ones_like(y), t), "source_labels must hold both classes"),
    ],
)
def test_what_is_no_task_is_named(learn, change, message):
    with pytest.raises(ValueError, match=message):
        learn(*change(*TASK))


def test_parameters_of_another_method_are_named():
    with pytest.raises(ValueError, match="params must be a SvmParams or a mapping of gamma, cost; it is"):
        svm.fit(*TASK, {"gamma": 1.0, "C": 1.0})


def test_lists_are_arrays_too():
    votes, labels, weights = [[1.0, 0.2], [0.3, 1.0], [-1.0, 0.1]], [1, 1, -1], [0.5, 0.5]
    arrays = np.array(votes), np.array(labels), np.array(weights)
    assert pvm.c_bound(votes, labels, weights) == pvm.c_bound(*arrays)
    np.testing.assert_array_equal(pvm.mincq(votes, labels, 0.3).weights, pvm.mincq(*arrays[:2], 0.3).weights)


def test_moons_need_points():
    with pytest.raises(ValueError, match="per_class must be at least 1; it is 0"):
        moons_task("30", 0, per_class=0)


@pytest.mark.parametrize("fit", [pvm.fit_validated, pvm.fit_transport_validated])
def test_a_criterion_by_name_is_told_before_the_grid(fit):
    task = pvm.datasets.moons_task("30", 0, per_class=4)
    with pytest.raises(ValueError, match=r"criterion must be a function, such as pvmincq_jax.rs_pv; it is 'rs_pv'"):
        fit(*task[:3], criterion="rs_pv")


@pytest.mark.parametrize("call", [lambda y: pvm.mincq(VOTES, y, 0.1), lambda y: pvm.c_bound(VOTES, y, ONE)])
def test_classes_0_and_1_are_told_from_soft_labels(call):
    """Soft labels may be 0 or 1; a whole sample of nothing else is one whose classes have other names."""
    with pytest.raises(ValueError, match="labels are all 0 or 1, and classes are -1 and \\+1 here"):
        call((LABELS + 1) / 2)
    call(np.where(np.arange(16) < 4, 0.0, LABELS))


@pytest.mark.parametrize("what", [pvm.decision, pvm.predict])
def test_a_fit_is_no_model(what):
    with pytest.raises(ValueError, match=r"such as the \.model of a fit; it is of type SelfLabels"):
        what(pvm.self_label(*TASK, 0.5), SOURCE)
