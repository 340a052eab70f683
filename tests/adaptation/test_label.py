"""PV-MinCq end to end: the fit, its voters, its files, its precision, and what it says to bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.matching.matching import ExpectedMatching
from tests.problems import kernel

GIVEN = {"radius": 0.25, "margin": 0.1, "gamma": 1.0, "margin_unit": "fraction"}


@pytest.fixture(scope="module")
def task():
    return moons_task("20", 0, per_class=40, test_size=600)


@pytest.fixture(scope="module")
def model(task):
    return pvm.pv_mincq(*task[:3], **GIVEN)


def accuracy(model, task):
    return np.mean(np.asarray(pvm.predict(model, task.test)) == task.test_labels)


def test_learns_the_rotated_moons(model, task):
    assert accuracy(model, task) > 0.9
    assert model.kkt_residual < 1e-7
    assert model.c_bound < 0.1
    # What the model says of itself, from its own arrays.
    assert model.pv == pvm.perturbed_variation(task.source, task.target, GIVEN["radius"])
    matched = model.label_weights > 0
    vote = kernel(task.target[matched], model.centers, GIVEN["gamma"]) @ model.weights
    first, second = np.mean(model.labels[matched] * vote), np.mean(vote**2)
    np.testing.assert_allclose(first, model.margin, rtol=1e-7)
    np.testing.assert_allclose(1 - first**2 / second, model.c_bound, atol=1e-9)
    np.testing.assert_allclose(model.margin, GIVEN["margin"] * model.mu_max, rtol=1e-12)
    np.testing.assert_allclose(
        pvm.decision(model, task.test), kernel(task.test, model.centers, GIVEN["gamma"]) @ model.weights, atol=1e-12
    )


def test_labels_come_over_the_pairs(model, task):
    gap = np.linalg.norm(task.source[model.pairs.source] - task.target[model.pairs.target], axis=1)
    assert np.all(gap <= GIVEN["radius"])
    np.testing.assert_array_equal(model.labels[model.pairs.target], task.source_labels[model.pairs.source])


@pytest.mark.parametrize("voters", ["source", "both"])
def test_other_voters(voters, model, task):
    other = pvm.pv_mincq(task.source, task.source_labels, task.target, centers=voters, **GIVEN)
    expected = {"source": task.source, "both": np.concatenate([task.target, task.source])}[voters]
    np.testing.assert_array_equal(other.centers, expected)
    assert accuracy(other, task) > 0.9
    if voters == "both":
        # Unmatched target points do not vote here either, and all source points do.
        np.testing.assert_array_equal(other.weights[: len(task.target)] != 0, model.label_weights > 0)
    assert np.all(other.weights[-len(task.source) :] != 0)


def test_unmatched_target_points_neither_count_nor_vote(model, task):
    unmatched = model.label_weights == 0
    assert 0 < np.sum(unmatched) < len(task.target)
    np.testing.assert_array_equal(model.weights[unmatched], 0)
    np.testing.assert_array_equal(model.labels[unmatched], 0)
    assert np.all(model.weights[~unmatched] != 0)
    # Where they are does not matter, then, as long as it is out of reach.
    moved = np.where(unmatched[:, None], task.target + 50.0, task.target)
    other = pvm.pv_mincq(task.source, task.source_labels, moved, **GIVEN)
    np.testing.assert_array_equal(other.labels, model.labels)
    np.testing.assert_allclose(other.c_bound, model.c_bound, atol=1e-9)
    values = np.asarray(pvm.decision(model, task.test))
    np.testing.assert_allclose(pvm.decision(other, task.test), values, atol=1e-6 * np.max(np.abs(values)))


@pytest.mark.parametrize(("draws", "radius"), [(1, 0.25), (5, 0.7)])
def test_blind_to_the_order_of_the_rows(draws, radius, task):
    given = GIVEN | {"draws": draws, "radius": radius}
    rng = np.random.default_rng(0)
    here, there = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    first = pvm.pv_mincq(*task[:3], **given)
    moved = pvm.pv_mincq(task.source[here], task.source_labels[here], task.target[there], **given)
    np.testing.assert_array_equal(first.labels[there], moved.labels)
    np.testing.assert_array_equal(first.label_weights[there], moved.label_weights)
    assert first.pv == moved.pv
    values = np.asarray(pvm.decision(first, task.test))
    np.testing.assert_allclose(pvm.decision(moved, task.test), values, atol=1e-8 * np.max(np.abs(values)))
    # Several draws give soft labels.
    assert np.any((np.abs(first.labels) > 0) & (np.abs(first.labels) < 1)) == (draws > 1)


def test_saved_and_loaded_to_the_bit(model, task, tmp_path):
    path = tmp_path / "model.npz"
    pvm.save_model(model, path)
    with np.load(path, allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)
    back = pvm.load_model(path)
    assert jax.tree.structure(back) == jax.tree.structure(model)
    for old, new in zip(jax.tree.leaves(model), jax.tree.leaves(back)):
        assert (old.dtype, old.shape, old.tobytes()) == (new.dtype, new.shape, new.tobytes())
    np.testing.assert_array_equal(pvm.decision(back, task.test), pvm.decision(model, task.test))


@pytest.mark.parametrize("name", ["model", "model.dat"])
def test_saved_under_the_name_that_was_given(name, model, tmp_path):
    pvm.save_model(model, tmp_path / name)
    np.testing.assert_array_equal(pvm.load_model(tmp_path / name).weights, model.weights)


def test_another_file_is_not_a_model(tmp_path):
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(ValueError, match=r"other.npz is not a saved PVMinCq.*voters"):
        pvm.load_model(tmp_path / "other.npz")
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"array.npy is not a saved PVMinCq"):
        pvm.load_model(tmp_path / "array.npy")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(ValueError, match=r"text.npz is not a saved PVMinCq"):
        pvm.load_model(tmp_path / "text.npz")
    # An archive of objects is refused, not executed.
    fields = [name for name in pvm.PVMinCq._fields if name not in ("pairs", "voters")]
    objects = {name: np.array([{}], dtype=object) for name in fields}
    more = {"voters.kind": np.asarray("OutputVoters"), "voters.bound": 1.0}
    more |= {f"pairs.{name}": [0] for name in ExpectedMatching._fields}
    np.savez(tmp_path / "objects.npz", **objects, **more)
    with pytest.raises(ValueError, match=r"allow_pickle"):
        pvm.load_model(tmp_path / "objects.npz")


def test_a_pytree_under_jit_vmap_and_grad(model, task):
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(model))
    values = pvm.decision(model, task.test)
    np.testing.assert_allclose(jax.jit(pvm.decision)(model, task.test), values, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(jax.jit(pvm.predict)(model, task.test), np.sign(values))
    two = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), model)
    both = jax.vmap(pvm.decision, in_axes=(0, None))(two, task.test)
    np.testing.assert_allclose(both, np.stack([values, values]), rtol=1e-12, atol=1e-15)
    # d/dx of one expected vote: -2 gamma sum_j w_j (x - c_j) k_j.
    x = task.test[0]
    slope = jax.grad(lambda point: pvm.decision(model, point[None])[0])(x)
    by_hand = (
        -2 * GIVEN["gamma"] * (kernel(x[None], model.centers, GIVEN["gamma"])[0] * model.weights) @ (x - model.centers)
    )
    np.testing.assert_allclose(slope, by_hand, rtol=1e-10)
    # In the model: d/dw_j is the kernel itself.
    by_model = jax.grad(lambda w: pvm.decision(model._replace(weights=w), x[None])[0])(jnp.asarray(model.weights))
    np.testing.assert_allclose(by_model, kernel(x[None], model.centers, GIVEN["gamma"])[0], rtol=1e-12)


def test_a_vote_of_zero_is_no_prediction(model):
    far = np.full((1, 2), 1e4)
    assert pvm.predict(model, far)[0] == 0


def test_double_precision_inside_whatever_the_configuration(model, task):
    with jax.enable_x64(False):
        again = pvm.pv_mincq(*task[:3], **GIVEN)
        assert not jax.config.jax_enable_x64
        assert jnp.ones(1).dtype == jnp.float32
    assert again.weights.dtype == np.float64
    np.testing.assert_array_equal(again.weights, model.weights)
    assert jax.config.jax_enable_x64


def test_single_precision_in_and_out(model, task):
    source, target = task.source.astype(np.float32), task.target.astype(np.float32)
    single = pvm.pv_mincq(source, task.source_labels, target, **GIVEN)
    floats = jax.tree.leaves(single._replace(pairs=None))
    assert all(leaf.dtype == np.float32 for leaf in floats)
    assert accuracy(single, task) > 0.9
    np.testing.assert_allclose(single.c_bound, model.c_bound, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": 0.0}, "radius"),
        ({"radius": np.nan}, "radius"),
        ({"radius": 1e-9}, "radius 1e-09 leaves every point unmatched.*smallest distance"),
        ({"gamma": -1.0}, "gamma must be .*finite and above 0"),
        ({"gamma": np.inf}, "gamma holds 1 entries that are NaN or infinite"),
        ({"margin": 1.1}, r"margin must be in \(0, 1\]"),
        ({"margin": 0.0}, r"margin must be in \(0, 1\]"),
        ({"margin": 0.9, "margin_unit": "absolute"}, r"margin.*mu_max = 0\.\d+ here"),
        ({"margin": -0.1, "margin_unit": "absolute"}, r"margin.*mu_max"),
        ({"margin_unit": "percent"}, "margin_unit must be.*'percent'"),
        ({"voters": "all"}, "voters must be.*'all'"),
        ({"centers": "all"}, "centers must be.*'all'"),
        ({"draws": 0}, "draws"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options_are_named(options, message, task):
    with pytest.raises(ValueError, match=message):
        pvm.pv_mincq(*task[:3], **(GIVEN | options))
