"""Random options in random company: each fits, with true figures, or raises a ValueError that names an argument.

What is reported is computed anew in NumPy, see `tests.test_true_figures`; of the package the fits alone are called.
"""

import inspect
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from tests.test_true_figures import check_estimator_figures, check_model, heavy_sides, moved_points, votes_of

CALLS = {
    "pv_mincq": pvm.pv_mincq,
    "pv_transport_mincq": pvm.pv_transport_mincq,
    "fit_validated": pvm.fit_validated,
    "fit_transport_validated": pvm.fit_transport_validated,
    "PVMinCqClassifier": PVMinCqClassifier,
    "PVTransportClassifier": PVTransportClassifier,
    "MinCqClassifier": MinCqClassifier,
}


class Task(NamedTuple):
    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray


class Waves:
    """A family of the test's own."""

    def votes(self, x):
        """Three waves along the first feature."""
        return np.stack([np.sin(k * np.asarray(x, float)[:, 0] + k) for k in (1, 2, 3)], axis=1)


def random_task(rng, classes):
    """Clouds around a point of each class: of many kinds, in few points."""
    features = int(rng.choice([1, 2, 2, 3, 5]))
    sizes = rng.choice([8, 15, 24, 24, 40], 2)
    sizes[1] = rng.choice([sizes[0], sizes[1]])
    middles = rng.normal(size=(classes, features)) * rng.choice([0.5, 1.5, 3.0])
    shift = rng.normal(size=features) * rng.choice([0.0, 0.3, 1.5])
    chances = np.ones(classes) / classes if rng.random() < 0.7 else rng.dirichlet(np.ones(classes))
    samples = []
    for size in sizes:
        numbers = rng.choice(classes, size, p=chances)
        numbers[:classes] = np.arange(classes)
        samples.append((middles[numbers] + 0.5 * rng.normal(size=(size, features)), numbers))
    (source, numbers), (target, _) = samples
    target = target + shift
    kind = rng.choice(["plain", "plain", "plain", "integer", "constant", "copies", "float32", "large"])
    if kind == "integer":
        source, target = np.round(source), np.round(target)
    elif kind == "constant":
        source[:, 0] = target[:, 0] = 2.0
    elif kind == "copies":
        source[::2], target[1::2] = source[:1], target[:1]
    elif kind == "float32":
        source, target = source.astype(np.float32), target.astype(np.float32)
    elif kind == "large":
        source, target = 1e3 * source + 1e4, 1e3 * target + 1e4
    return Task(source, numbers, target)


def some(rng, choices, *, listed=False):
    """One of the choices, or where that is allowed two of them."""
    if listed and rng.random() < 0.4:
        return sorted(float(one) for one in rng.choice(choices, 2, replace=False))
    return choices[rng.integers(len(choices))]


def random_case(seed):
    """The name of a call, a task, and options; most of them valid."""
    rng = np.random.default_rng([27, seed])
    name = some(rng, [*CALLS])
    estimator = name.endswith("Classifier")
    classes = int(rng.choice([2, 2, 3, 4])) if estimator else 2
    task = random_task(rng, classes)
    scale = float(np.median(np.linalg.norm(task.source[:, None] - task.target[None], axis=-1).astype(float))) or 1.0
    many = name.startswith("fit") or estimator
    margin, radius, gamma = ("margins", "radii", "gammas") if name.startswith("fit") else ("margin", "radius", "gamma")
    options: dict[str, Any] = {}

    def give(option, choices, *, odds=0.5, listed=False):
        if rng.random() < odds:
            value = some(rng, choices, listed=listed)
            options[option] = [value] if name.startswith("fit") and listed and np.ndim(value) == 0 else value

    functions = [lambda x: np.tanh(np.asarray(x)[:, 0]), lambda x: -np.tanh(np.asarray(x)[:, -1] / 2)]
    give("voters", ["rbf", "stumps", functions, Waves()], odds=0.5)
    give("margin_unit", ["fraction", "absolute"], odds=0.3)
    absolute = options.get("margin_unit") == "absolute"
    give(
        margin,
        [0.001, 0.01, 0.05] if absolute else [0.01, 0.2, 0.5, 1.0],
        odds=0.6 if many and not absolute else 1.0,
        listed=many,
    )
    if options.get("voters", "rbf") == "rbf" or rng.random() < 0.1:
        give(gamma, [0.3 / scale**2, 2 / scale**2, 8 / scale**2], odds=0.4 if many else 1.0, listed=many)
    give("most_voters", [5, 12, 300], odds=0.3)
    if estimator:
        give("random_state", [1, np.random.RandomState(0)], odds=0.3)
        give("keep_sweep", [True], odds=0.1)
    else:
        give("seed", [1, 2], odds=0.3)
    if name in ("fit_validated", "PVMinCqClassifier", "MinCqClassifier"):
        give("folds", [2, 3], odds=0.5)
    if name == "MinCqClassifier":
        return name, task, options
    give("radius_unit", ["absolute", "pv", "bottleneck"], odds=0.5)
    unit = options.get("radius_unit", "absolute")
    lengths = {"absolute": [0.5 * scale, scale, 1.5 * scale], "pv": [0.5, 0.2, 0.0], "bottleneck": [0.7, 1.0, 1.4]}[
        unit
    ]
    give(radius, lengths, odds=0.5 if many else 1.0, listed=many)
    give("draws", [1, 3], odds=0.9 if many else 0.5)
    give("metric", ["cityblock", "chebyshev", "cosine", "precomputed"], odds=0.25)
    if options.get("metric") == "precomputed":
        options["metric"] = pvm.Precomputed(np.abs(task.source[:, None] - task.target[None]).sum(axis=-1))
    if name in ("pv_mincq", "fit_validated", "PVMinCqClassifier"):
        give("centers", ["target", "source", "both"], odds=0.4)
    if name == "fit_validated":
        give("criterion", [pvm.rs, pvm.rs_pv, pvm.rs_pv_risk, lambda sweep: sweep.c_bound], odds=0.4)
    if name == "PVMinCqClassifier":
        give("criterion", ["rs", "rs_pv", "rs_pv_cbound", "rs_pv_risk", lambda sweep: sweep.c_bound], odds=0.4)
    if "ransport" in name:
        if many:
            give("criterion", [lambda sweep: sweep.c_bound, lambda sweep: sweep.self_risk], odds=0.3)
            give("top_fraction", [None, 0.5, 1.0], odds=0.6)
        give("match_moments", [True, False], odds=0.4)
        give("equal_sizes", [True, False], odds=0.4)
        if not estimator:
            give("include_identity" if many else "identity", [True, False], odds=0.3)
            if options.get("identity"):
                options[radius] = None
        shares = [float(one) for one in rng.dirichlet(5 * np.ones(classes))]
        ratios = (
            [None, 0.3, 0.6] if not many else [0.3, "source", "estimated"] if classes == 2 else ["source", shares, 0.3]
        )
        give("ratio", ratios, odds=0.3)
    return name, task, options


def names_an_argument(call, message):
    """Whether an error names a parameter of the call, of its `fit`, or one of the samples."""
    known = {*inspect.signature(call).parameters, "y", "X", "Xs", "ys", "Xt", "source", "source_labels", "target"}
    known |= {"radius", "margin", "gamma"} & {name.rstrip("s") for name in known} | {"radii", "margins", "gammas"}
    return any(re.search(rf"\b{name}s?\b", message) for name in known)


def frank_wolfe_gap(votes, labels, shares, weights, active):
    """How far a feasible point is from optimal: its distance to the least value that its gradient promises, relative.

    w'Mw is to be least under m'w = mu and |w_j| <= 1/n; the linear program over these has its optimum at a kink of its
    dual, a function of one number.
    """
    votes, weights = votes[:, active], weights[active]
    margins, box = (shares * labels) @ votes, 1 / np.sum(active)
    gradient = 2 * votes.T @ (shares * (votes @ weights))
    kinks = (gradient / np.where(margins == 0, np.inf, margins))[:, None]
    dual = kinks[:, 0] * (margins @ weights) - box * np.abs(gradient - kinks * margins).sum(axis=1)
    return (gradient @ weights - np.max(dual)) / (gradient @ weights)


def on_a_threshold(voters, points):
    """Whether rounding decides what a stump says."""
    return np.any(np.abs(points[:, voters.features] - voters.thresholds) < 1e-9)


def check_pairs(model, task, options, moved):
    """PV, weights and labels are those that the pairs have."""
    pairs, (m_s, m_t) = model.pairs, (len(task.source), len(task.target))
    total, dtype = float(np.sum(pairs.weights)), np.asarray(model.weights).dtype
    near = 1e-9 if dtype == np.float64 else 1e-4
    if not total:
        assert moved
        assert float(model.pv) == 1
        return
    even = moved and options.get("equal_sizes", True)
    expected = 1 - total / m_s if even else 1 - total / 2 * (1 / m_s + 1 / m_t)
    assert float(model.pv) == pytest.approx(expected, abs=near)
    rows, count = (pairs.source, m_s) if moved else (pairs.target, m_t)
    weights = np.bincount(rows, pairs.weights, minlength=count)
    np.testing.assert_allclose(model.label_weights, weights, atol=near)
    truth = (
        task.labels
        if np.ndim(model.labels) == 1
        else np.where(task.labels == np.arange(len(model.labels))[:, None], 1, -1)
    )
    for own, labels in zip(np.atleast_2d(truth), np.atleast_2d(model.labels)):
        if moved:
            np.testing.assert_array_equal(labels, own)
        else:
            carried = np.bincount(pairs.target, pairs.weights * own[pairs.source], minlength=m_t)
            np.testing.assert_allclose(labels * model.label_weights, carried, atol=near)


def check_case(seed):
    """One case: an error that names an argument, or a fit whose figures hold. Whether it was fitted."""
    name, task, options = random_case(seed)
    call, estimator = CALLS[name], name.endswith("Classifier")
    two = task._replace(labels=np.where(task.labels > 0, 1.0, -1.0))
    names = np.array(["ash", "beech", "cedar", "date"])[task.labels]
    try:
        if name == "MinCqClassifier":
            fit = call(**options).fit(task.source, names)
        else:
            fit = call(**options).fit_domains(task.source, names, task.target) if estimator else call(*two, **options)
    except ValueError as error:
        if names_an_argument(call, str(error)):
            return False
        raise
    model = fit.model_ if estimator else fit if name.startswith("pv_") else fit.model
    choice = fit.choice_ if estimator else None if name.startswith("pv_") else fit.choice
    single, moved = name == "MinCqClassifier", "ransport" in name
    points = np.asarray(task.source if single else task.target, float)
    exact = np.asarray(model.weights).dtype == np.float64
    active = np.ones(np.shape(model.weights)[-1], bool)
    if options.get("voters", "rbf") == "rbf":
        active = np.any(np.atleast_2d(model.weights) != 0, axis=0)
        if options.get("centers", "target") != "target":
            # Kernels on source points all take part, also those that reach nobody.
            on_source = np.any(np.all(np.asarray(model.centers)[:, None] == task.source[None], axis=-1), axis=1)
            if len(active) == len(task.source) + len(task.target):
                # Those on target points come first, and may share their place with a source point.
                on_source[: len(task.target)] = False
            active |= on_source
    if moved:
        points = moved_points(model.pairs, np.asarray(task.source, float), np.asarray(task.target, float))
        if choice is not None:
            sweep = fit.sweep_ if estimator else fit.sweep
            places = np.asarray(sweep.transports[choice.grid_index[0]].moved, float)
            if not (choice.identity and choice.match_moments):
                np.testing.assert_allclose(places, points, atol=1e-9 if exact else 1e-2)
            points = places
            if model.mu_max is not None and options.get("voters") == "stumps":
                active = sweep.voter_mask[choice.grid_index[0], 0, : np.shape(model.weights)[-1]]
        elif options.get("identity") and options.get("match_moments"):
            # Where the points went is not told by pairs, which there are none.
            return True
        elif options.get("voters") == "stumps" and on_a_threshold(model.voters, points):
            return True
    check_model(model, points, rel=1e-5 if exact else 2e-2, active=active)
    if not single:
        check_pairs(model, two if len(np.unique(task.labels)) == 2 else task, options, moved)
    if model.kkt_residual is not None and exact:
        assert np.max(model.kkt_residual) <= 1e-7
        rows = zip(np.atleast_2d(model.weights), np.atleast_2d(model.labels))
        for number, (weights, labels) in enumerate(rows):
            if np.ndim(model.weights) == 2:
                labels, shares = heavy_sides(labels, model.label_weights)
                asked = choice.margin * (model.mu_max[number] if choice.margin_unit == "fraction" else 1.0)
                weights = weights * asked / model.margin[number]
            else:
                shares = model.label_weights / np.sum(model.label_weights)
            assert frank_wolfe_gap(votes_of(model.voters, points), labels, shares, weights, active) < 1e-3
    if estimator:
        check_estimator_figures(fit, task.source)
        assert set(fit.predict(task.target)) <= set(names)
        np.testing.assert_allclose(fit.predict_proba(task.target).sum(axis=1), 1, atol=1e-12)
    return True


@pytest.mark.parametrize("part", range(6))
def test_some_options(part):
    fitted = [check_case(seed) for seed in range(10 * part, 10 * part + 10)]
    assert np.mean(fitted) > 0.4


@pytest.mark.long
@pytest.mark.parametrize("part", range(50))
def test_many_options(part):
    fitted = [check_case(seed) for seed in range(1000 + 20 * part, 1020 + 20 * part)]
    assert np.mean(fitted) > 0.4
