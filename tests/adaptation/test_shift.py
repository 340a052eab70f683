"""What has changed between two domains: class shares against a closed form and SciPy, the test by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax.adaptation.distance import votes_in
from pvmincq_jax.adaptation.shift import contradicted


def gaussian_task(rng, sizes, target_sizes, moved=0.0, features=2):
    """A class per entry of sizes, centred on the first axis at 0, 2, 4 and so on; the target moves along the second."""
    samples = []
    for counts in (sizes, target_sizes):
        numbers = np.repeat(np.arange(len(counts)), counts)
        points = rng.normal(size=(len(numbers), features))
        points[:, 0] += 2 * numbers
        samples.append((points, numbers))
    (source, labels), (target, _) = samples
    target[:, 1] += moved
    return source, labels, target


def energy(source, labels, target, shares):
    """The squared energy distance, written out."""
    classes = [source[labels == c] for c in np.unique(labels)]
    across = np.array([cdist(one, target).mean() for one in classes])
    between = np.array([[cdist(one, two).mean() for two in classes] for one in classes])
    return 2 * shares @ across - shares @ between @ shares - cdist(target, target).mean()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0, 3, 10, 20]), moved=st.sampled_from([0.0, 1.0, 9.0]))
def test_two_classes_have_a_closed_form(seed, share, moved):
    source, labels, target = gaussian_task(np.random.default_rng(seed), [12, 18], [20 - share, share], moved)
    found = pvm.label_shift(source, 2 * labels - 1, target, draws=1)
    # D(p) is a parabola of the second share: through three of its points, and its lowest one in [0, 1].
    ends = [energy(source, labels, target, np.array([1 - p, p])) for p in (0.0, 0.5, 1.0)]
    curve = np.polyfit([0.0, 0.5, 1.0], ends, 2)
    best = np.clip(-curve[1] / (2 * curve[0]), 0, 1)
    np.testing.assert_allclose(found.shares, [1 - best, best], atol=1e-9)
    assert found.distance == pytest.approx(np.polyval(curve, best), abs=1e-9)


@pytest.mark.parametrize("counts", [[20, 0, 5], [3, 9, 20], [0, 0, 30, 0], [4, 8, 0, 2, 16, 3]])
def test_many_classes_against_scipy(counts):
    source, labels, target = gaussian_task(np.random.default_rng(4), [10] * len(counts), counts, 0.5)
    found = pvm.label_shift(source, labels, target, draws=1)
    assert found.shares.sum() == pytest.approx(1)
    assert np.all(found.shares >= 0)
    assert found.distance == pytest.approx(energy(source, labels, target, found.shares), abs=1e-9)
    scipy = minimize(
        lambda p: energy(source, labels, target, p),
        np.full(len(counts), 1 / len(counts)),
        bounds=[(0, 1)] * len(counts),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-12},
    )
    np.testing.assert_allclose(found.shares, scipy.x, atol=1e-3)
    assert found.distance <= scipy.fun + 1e-9


def test_neither_rows_nor_names_nor_origin_matter():
    rng = np.random.default_rng(7)
    source, labels, target = gaussian_task(rng, [20, 25, 15], [10, 30, 5])
    found = pvm.label_shift(source, labels, target, draws=50, seed=3)
    rows, columns = rng.permutation(60), rng.permutation(45)
    again = pvm.label_shift(source[rows], np.array(["a", "b", "c"])[labels[rows]], target[columns], draws=50, seed=3)
    np.testing.assert_allclose(again.shares, found.shares, atol=1e-12)
    assert again.p_value == found.p_value
    moved = pvm.label_shift(source + 100, labels, target + 100, draws=50, seed=3)
    np.testing.assert_allclose(moved.shares, found.shares, atol=1e-6)
    assert moved.distance == pytest.approx(found.distance)


def test_large_samples_are_looked_at_in_part():
    rng = np.random.default_rng(8)
    source, labels, target = gaussian_task(rng, [6000, 30], [400, 2600])
    found = pvm.label_shift(source, labels, target)
    assert found.p_value > 0.05
    np.testing.assert_allclose(found.shares, [400 / 3000, 2600 / 3000], atol=0.1)
    rows = rng.permutation(6030)
    np.testing.assert_array_equal(pvm.label_shift(source[rows], labels[rows], target).shares, found.shares)


def test_equal_points():
    # Copies of one point, and a sample that is its own target.
    same = pvm.label_shift(np.zeros((6, 2)), [0, 0, 0, 1, 1, 1], np.zeros((4, 2)), draws=20)
    assert same.distance == 0
    assert same.p_value == 1
    assert same.deviations == 0
    source, labels, _ = gaussian_task(np.random.default_rng(9), [20, 40], [1, 1])
    own = pvm.label_shift(source, labels, source, draws=20)
    np.testing.assert_allclose(own.shares, [1 / 3, 2 / 3], atol=1e-6)
    assert own.distance == pytest.approx(0, abs=1e-12)
    assert own.p_value == 1


def rejected(times, seed, **task):
    """How often p is at most .05."""
    rng = np.random.default_rng(seed)
    found = [pvm.label_shift(*gaussian_task(rng, **task), draws=99, seed=i).p_value for i in range(times)]
    return np.mean(np.array(found) <= 0.05)


def test_level_and_power():
    # Of 60 tests of level .05, more than 7 reject once in 100 times.
    assert rejected(60, 0, sizes=[30, 30], target_sizes=[50, 10]) <= 7 / 60
    assert rejected(20, 1, sizes=[30, 30], target_sizes=[50, 10], moved=1.0) >= 0.9


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "target_sizes", "features"),
    [([20, 20], [20, 20], 2), ([50, 50], [90, 10], 2), ([60, 60], [60, 60], 50), ([40, 40, 40], [100, 10, 5], 3)],
)
def test_level_over_many_draws(sizes, target_sizes, features):
    task = {"sizes": sizes, "target_sizes": target_sizes, "features": features}
    # Three standard errors above .05.
    assert rejected(600, 2, **task) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
    assert rejected(100, 3, moved=1.0 if features < 9 else 3.0, **task) >= 0.8


def test_bad_input():
    source, labels, target = gaussian_task(np.random.default_rng(0), [5, 5], [5, 5])
    with pytest.raises(ValueError, match="source_labels must hold two classes or more; every label is 3"):
        pvm.label_shift(source, np.full(10, 3), target)
    with pytest.raises(ValueError, match="source_labels must have one entry per sample point"):
        pvm.label_shift(source, labels[:4], target)
    with pytest.raises(ValueError, match="same number of features"):
        pvm.label_shift(source, labels, target[:, :1])
    with pytest.raises(ValueError, match="NaN or infinite"):
        pvm.label_shift(source, labels, target * np.nan)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        pvm.label_shift(source, labels, target, draws=0)


def square_task(seed, points=400):
    """Points all over a square, of two classes; the target is selected around a place, and nothing else differs."""
    rng = np.random.default_rng(seed)
    source, many = rng.uniform(-2, 2, (points, 2)), rng.uniform(-2, 2, (40 * points, 2))
    kept = many[rng.random(len(many)) < np.exp(-np.sum((many - [0.6, 0.4]) ** 2, axis=1))]
    return source, np.where(source[:, 0] + source[:, 1] ** 2 > 1, 1.0, -1.0), kept[:points]


def disc_task(seed, *, rare=False, mirror=False, points=240):
    """Two classes in three groups of the plane; the target has fewer of one class, or is mirrored."""
    rng = np.random.default_rng(seed)

    def draw(count):
        labels = rng.permutation(np.repeat([1.0, -1.0], count // 2))
        # Along the first feature both classes are symmetric around 0, +1 in the middle and -1 on both sides.
        side = rng.choice([-1.5, 1.5], count)
        middle = labels > 0
        return np.column_stack([np.where(middle, 0, side), np.where(middle, 1.4, -0.7)]) + 0.35 * rng.normal(
            size=(count, 2)
        ), labels

    source, labels = draw(points)
    target, truth = draw(40 * points)
    kept = np.ones(len(target), bool)
    if rare:
        kept = (truth > 0) | (rng.random(len(target)) < 0.15)
    rows = np.flatnonzero(kept)[:points]
    return source, labels, target[rows] * (-1 if mirror else 1), truth[rows]


def test_kinds_of_shift():
    ratio = pvm.detect_shift(*disc_task(0, rare=True)[:3])
    assert ratio.kind == "ratio"
    assert ratio.label_shift.p_value > 0.05
    assert ratio.map is None
    np.testing.assert_array_equal(ratio.weights, 1)
    np.testing.assert_allclose(ratio.label_shift.shares, [0.13, 0.87], atol=0.08)
    assert f"(p = {ratio.label_shift.p_value:.2g}): nothing is moved" in ratio.sentence
    source, labels, target = square_task(1)
    selected = pvm.detect_shift(source, labels, target)
    assert selected.kind == "covariate"
    assert selected.label_shift.p_value <= 0.05 < selected.p_value
    # Weighed, the source has the target's mean.
    np.testing.assert_allclose(np.average(source, axis=0, weights=selected.weights), target.mean(axis=0), atol=0.1)
    assert np.mean(selected.weights) == pytest.approx(1)
    # Of a translation alone, nothing has changed across it.
    across = pvm.detect_shift(source, labels, target + 20)
    assert across.kind == "subspace"
    assert abs(np.sum(across.map.matrix)) < 0.1 * np.linalg.norm(across.map.matrix)
    moved = pvm.detect_shift(source, labels, 3 * target + 20)
    assert (moved.kind, moved.weights, moved.votes) == ("move", None, None)
    assert not np.any(contradicted(moved, np.ones((3, len(target)))))


@pytest.fixture(scope="module")
def mirrored():
    """Nothing has changed along the first feature, and the second has its sign turned."""
    source, labels, target, truth = disc_task(2, mirror=True)
    return source, labels, target, truth, pvm.detect_shift(source, labels, target)


def test_a_subspace_in_which_nothing_has_changed(mirrored):
    *_, truth, shift = mirrored
    assert shift.kind == "subspace"
    direction = np.asarray(shift.map.matrix)[0]
    assert abs(direction[0]) > 0.95 * np.linalg.norm(direction)
    # The class shares are those that the subspace shows.
    np.testing.assert_allclose(shift.label_shift.shares, 0.5, atol=0.1)
    # The vote of the subspace is as good as its risk says: the truth does not contradict it, and its opposite does.
    assert np.mean(shift.votes != truth) == pytest.approx(shift.risk, abs=0.06)
    assert not contradicted(shift, truth)
    assert contradicted(shift, -truth)


def test_few_points_are_not_trusted_to_say_that_nothing_has_changed():
    stayed = []
    for points, level in ((40, 0.2), (100, 0.05)):
        for seed in range(8):
            rng = np.random.default_rng(seed)
            source, labels, target = gaussian_task(rng, [points // 2] * 2, [points // 2] * 2, 0.5)
            found = pvm.detect_shift(source, labels, target)
            stayed.append(found.kind == "ratio")
            if stayed[-1]:
                assert min(found.p_value, found.label_shift.p_value) > level
            if found.kind == "move":
                assert min(found.p_value, found.label_shift.p_value) <= level
    assert any(stayed)
    assert not all(stayed)


def test_many_points_refuse_only_what_is_far_beyond_chance():
    # A draw of which nothing but the class ratio has changed, and that a bootstrap of 200 never sees as far away.
    source, labels, target = gaussian_task(np.random.default_rng(199), [150, 150], [260, 40])
    classes = pvm.label_shift(source, labels, target)
    assert classes.p_value <= 0.01
    assert 2 < classes.deviations < 5
    signs = 2.0 * labels - 1
    assert pvm.detect_shift(source, signs, target).kind == "ratio"
    # A change that is as clear to the eye is far beyond it.
    moved = target + np.array([0.0, 0.7])
    assert pvm.label_shift(source, labels, moved).deviations > 10
    assert pvm.detect_shift(source, signs, moved).kind != "ratio"
    turned = pvm.datasets.moons_task("10", 0)
    assert pvm.detect_shift(*turned[:3]).kind != "ratio"


def test_deviations_are_those_of_draws_without_a_change():
    rng = np.random.default_rng(3)
    drawn = [pvm.label_shift(*gaussian_task(rng, [60, 60], [90, 30]), draws=50, seed=i).deviations for i in range(60)]
    assert abs(np.mean(drawn)) < 0.4
    assert 0.6 < np.std(drawn) < 1.5


def test_what_detect_shift_finds_does_not_depend_on_the_rows(mirrored):
    source, labels, target, _, shift = mirrored
    rows, columns = (np.random.default_rng(seed).permutation(len(source)) for seed in (0, 1))
    again = pvm.detect_shift(source[rows], labels[rows], target[columns])
    assert again.sentence == shift.sentence
    np.testing.assert_array_equal(again.votes, shift.votes[columns])
    source, labels, target = square_task(1)
    rows = np.random.default_rng(2).permutation(len(source))
    one, other = pvm.detect_shift(source, labels, target), pvm.detect_shift(source[rows], labels[rows], target)
    np.testing.assert_allclose(other.weights, one.weights[rows], rtol=1e-6)


def test_subspaces_that_contradict_each_other_are_not_believed():
    """Of three features one is as it was and two are mirrored: some direction has the classes the wrong way round."""
    rng = np.random.default_rng(2)
    labels, truth = (np.where(rng.random(400) < 0.5, 1.0, -1.0) for _ in range(2))
    source, target = rng.normal(size=(400, 3)), rng.normal(size=(400, 3))
    source += labels[:, None] * (2, 2, 1)
    target += truth[:, None] * (2, -2, -1)
    maps = pvm.learn_map(source, labels, target, seed=0).others
    right = []
    for linear, _, _ in maps:
        votes = votes_in(source, labels, target, linear, np.full(2, 0.5))[0]
        right.append(np.mean(votes == truth))
    assert min(right) < 0.1
    assert max(right) > 0.9
    assert pvm.detect_shift(source, labels, target).kind == "move"
