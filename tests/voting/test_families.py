"""Families of a user's own, in JAX and in NumPy, with a width that is an axis of the grid, through all entry points."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.voting.centers import place_voters
from pvmincq_jax.voting.families import JoinedVoters, family_grid, one_family, read_votes
from pvmincq_jax.voting.voters import OutputVoters

WIDTHS = [0.4, 1.5]


class LaplacianJax(NamedTuple):
    """exp(-|x - c|_1 / width), written as a user of JAX does."""

    width: float
    centers: Any = None
    one_per_point = True

    @staticmethod
    def default_values(target):
        return np.array(WIDTHS) * np.median(cdist(target, target, "cityblock"))

    def on(self, points):
        return self._replace(centers=points)

    def votes(self, x):
        return jnp.exp(-jnp.sum(jnp.abs(x[:, None] - self.centers), axis=-1) / self.width)


class LaplacianNumpy(LaplacianJax):
    """The same by SciPy."""

    def votes(self, x):
        return np.exp(-cdist(x, self.centers, "cityblock") / self.width)


@pytest.fixture(scope="module")
def task():
    return moons_task("20", 3, per_class=10, test_size=40)


CALLS = {
    "pv_mincq": lambda data, voters: pvm.pv_mincq(*data, radius=0.6, margin=0.3, gamma=0.7, voters=voters),
    "pv_transport_mincq": lambda data, voters: pvm.pv_transport_mincq(
        *data, radius=0.6, margin=0.3, gamma=0.7, voters=voters, draws=4
    ),
    "sweep": lambda data, voters: pvm.sweep(
        *data, radii=[0.5, 0.8], margins=[0.3], gammas=WIDTHS, folds=2, voters=voters
    ),
    "transport_sweep": lambda data, voters: pvm.transport_sweep(
        *data, radii=[0.5, 0.8], margins=[0.3], gammas=WIDTHS, draws=4, voters=voters
    ),
    "fit_validated": lambda data, voters: pvm.fit_validated(
        *data, radii=[0.5, 0.8], margins=[0.3], gammas=WIDTHS, folds=2, draws=4, voters=voters, centers="both"
    ),
    "fit_transport_validated": lambda data, voters: pvm.fit_transport_validated(
        *data, radii=[0.5, 0.8], margins=[0.3], draws=4, voters=voters, top_fraction=1.0, most_voters=12
    ),
    "MinCqClassifier": lambda data, voters: MinCqClassifier(voters, gamma=WIDTHS, margin=0.3, folds=2).fit(*data[:2]),
    "PVMinCqClassifier": lambda data, voters: PVMinCqClassifier(
        voters=voters, gamma=WIDTHS, margin=0.3, radius=0.8, folds=2, draws=4
    ).fit_domains(*data),
    "PVTransportClassifier": lambda data, voters: PVTransportClassifier(
        voters=voters, gamma=WIDTHS, margin=0.3, radius=[0.5, 0.8], draws=4
    ).fit_domains(*data),
}


def model_of(result):
    return result if isinstance(result, pvm.PVMinCq) else getattr(result, "model", None) or result.model_


@pytest.mark.parametrize("call", CALLS)
def test_a_family_in_jax_and_in_numpy_learn_the_same_vote(call, task, tmp_path):
    """With 64-bit floats on and off, to predictions and files."""
    data, values = task[:3], []
    for voters in (LaplacianNumpy, LaplacianJax, lambda width: LaplacianJax(width)):
        if call == "fit_transport_validated" and not hasattr(voters, "default_values"):
            continue
        for wide in (True, False):
            with jax.enable_x64(wide):
                result = CALLS[call](data, voters)
                if call.endswith("sweep"):
                    assert result.gammas.tolist() == WIDTHS
                    assert np.all(result.status == pvm.Status.SOLVED)
                    values.append(pvm.values_at(result, task.test))
                    continue
                model = model_of(result)
                values.append(pvm.decision(model, task.test))
                pvm.save_model(model, tmp_path / "model.npz")
                with pytest.raises(ValueError, match="pass the model's voters to load_model as voters="):
                    pvm.load_model(tmp_path / "model.npz")
                again = pvm.load_model(tmp_path / "model.npz", voters=model.voters)
                np.testing.assert_array_equal(pvm.decision(again, task.test), values[-1])
    for one in values:
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, values[0], rtol=0, atol=1e-6)
    assert np.max(np.abs(values[0])) > 1e-3


def test_a_file_takes_back_voters_of_its_class_alone(task, tmp_path):
    model = pvm.pv_mincq(*task[:3], radius=0.8, margin=0.3, voters=LaplacianNumpy(0.7))
    pvm.save_model(model, tmp_path / "model.npz")
    same = model.voters._replace()
    assert pvm.load_model(tmp_path / "model.npz", voters=same).voters is same
    for other in (pvm.GaussianVoters(task.target, 1.0), LaplacianNumpy, "rbf"):
        message = f"voters must be a LaplacianNumpy, as in the file; it is of type {type(other).__name__}"
        with pytest.raises(ValueError, match=message):
            pvm.load_model(tmp_path / "model.npz", voters=other)


def test_the_width_that_is_chosen_is_told(task):
    fit = pvm.fit_validated(*task[:3], radii=[0.8], margins=[0.3], folds=2, draws=2, voters=LaplacianJax)
    np.testing.assert_allclose(fit.sweep.gammas, LaplacianJax.default_values(task.target))
    assert fit.choice.gamma == fit.model.voters.width
    assert fit.model.gamma is None
    again = {"radius": fit.choice.radius, "margin": 0.3, "gamma": fit.choice.gamma, "draws": 2}
    np.testing.assert_allclose(pvm.pv_mincq(*task[:3], **again, voters=LaplacianJax).weights, fit.model.weights)
    model = MinCqClassifier(LaplacianJax, margin=0.3, folds=2).fit(task.source, task.source_labels)
    assert model.gamma_ == model.model_.voters.width
    assert model.gamma_ in model.gammas_
    np.testing.assert_array_equal(model.centers_, task.source)


@pytest.mark.parametrize("form", ["label", "transport"])
def test_a_list_of_families_is_the_axis(form, task, tmp_path):
    """Families of different numbers of voters, some of them on points; each votes as it does alone."""
    given = pvm.GaussianVoters(task.target[:3], 1.0)
    families = [LaplacianNumpy(0.7), pvm.StumpVoters(per_feature=3), given]
    learn, options = (
        (pvm.sweep, {"folds": 2}) if form == "label" else (pvm.transport_sweep, {"draws": 4, "include_identity": True})
    )
    options |= {"radii": [0.5, 0.8], "margins": [0.3]}
    together = learn(*task[:3], **options, voters=families)
    assert together.gammas.tolist() == [0, 1, 2]
    assert np.all(together.voter_counts[:, 0] == 20)
    assert np.all(together.voter_counts[:, 2] == 3)
    assert together.voters[0][2] is given
    values = pvm.values_at(together, task.test)
    for number, family in enumerate(families):
        alone = learn(*task[:3], **options, voters=family)
        assert np.all(np.isnan(alone.gammas))
        np.testing.assert_allclose(pvm.values_at(alone, task.test), values[:, [number]], atol=1e-9)
        for r in range(len(together.radii)):
            model = pvm.model_at(together, (r, number, 0))
            np.testing.assert_allclose(pvm.decision(model, task.test), values[r, number, 0], atol=1e-12)
    scores = np.where(together.radii[:, None, None] > 0, np.ones(together.status.shape), np.inf)
    members = together._replace(target_values=np.abs(together.target_values) + 1)
    committee = pvm.committee(members, scores, top_fraction=1.0)
    assert isinstance(committee.voters, JoinedVoters)
    size = np.mean(members.target_values, axis=-1)[..., None]
    expected = np.mean((values / size)[together.radii > 0], axis=(0, 1, 2)) * np.min(size[together.radii > 0])
    np.testing.assert_allclose(pvm.decision(committee, task.test), expected, atol=1e-12)
    pvm.save_model(committee, tmp_path / "committee.npz")
    again = pvm.load_model(tmp_path / "committee.npz", voters=committee.voters)
    np.testing.assert_array_equal(pvm.decision(again, task.test), pvm.decision(committee, task.test))
    one = pvm.pv_mincq(*task[:3], radius=0.8, margin=0.3, voters=families, gamma=2)
    assert one.voters is given
    assert one.gamma == 1.0


def test_the_function_of_gaussian_voters_is_what_their_name_means(task):
    grid = {"radii": [0.8], "margins": [0.3], "folds": 2}
    named = pvm.sweep(*task[:3], **grid)
    for voters in (pvm.GaussianVoters, lambda gamma: pvm.GaussianVoters(None, gamma)):
        given = pvm.sweep(*task[:3], **grid, voters=voters, gammas=pvm.default_gammas(task.target))
        np.testing.assert_array_equal(given.weights, named.weights)
    np.testing.assert_array_equal(pvm.sweep(*task[:3], **grid, voters=pvm.GaussianVoters).gammas, named.gammas)


class Odd(NamedTuple):
    """Votes that are given."""

    answer: Any

    def votes(self, x):
        return self.answer(x)


class Pretender:
    """Says that it has a voter for each point, and has one."""

    one_per_point = True

    def votes(self, x):
        return np.zeros((len(x), 1))


X = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda x: jnp.zeros(len(x)), r"voters must give one row of votes per point, an array \[4, n\]; its shape"),
        (lambda x: np.zeros((len(x) + 1, 2)), "voters must give one row of votes per point"),
        (lambda x: np.zeros((len(x), 0)), "voters must give one row of votes per point"),
        (
            lambda x: np.full((len(x), 2), np.nan),
            r"voters must give finite votes in \[-1, 1\]; the largest size is nan",
        ),
        (lambda x: jnp.full((len(x), 2), -1.5), "voters must give finite votes .* the largest size is 1.5"),
    ],
)
def test_votes_that_cannot_be_are_named(answer, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_votes(Odd(answer), X)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: family_grid("trees"), "voters must be 'rbf', 'stumps', .*it is 'trees'"),
        (lambda: family_grid([]), r"voters must be .*it is \[\]"),
        (lambda: family_grid([OutputVoters(), np.tanh]), "voters must be"),
        (lambda: family_grid(lambda value: value, [1.0]), "voters, a function, must give a family .* it gives 1.0"),
        (lambda: family_grid(lambda value: value), "gammas must be a number, of which voters="),
        (
            lambda: family_grid(pvm.GaussianVoters, [1.0, -1.0]),
            "gammas must be .* gamma must be finite and above 0; it holds -1.0",
        ),
        (lambda: family_grid(LaplacianJax, [np.nan]), "gammas holds 1 entries that are NaN or infinite"),
        (lambda: family_grid("stumps", [1.0]), "gammas must be None: voters is one family"),
        (lambda: family_grid([Odd(1), Odd(2)], [2.0]), "gammas must be numbers of families, 0 to 1, .*it holds 2"),
        (lambda: one_family("rbf", None), "gamma must be a number, of which voters='rbf' makes a family; it is None"),
        (lambda: one_family([Odd(1), Odd(2)], None), "gamma must be the number of one of the 2 families in voters"),
        (lambda: place_voters([Pretender()], X, X, "source", 9, 0), "voters must have one voter on each of 4 points"),
        (lambda: pvm.GaussianVoters(None, 1.0).votes(X), "centers are None"),
        (lambda: pvm.StumpVoters().votes(X), "thresholds are None"),
        (
            lambda: pvm.FunctionVoters((lambda x: x,)).votes(X),
            r"voters\[0\], a function, must give one value per point",
        ),
    ],
)
def test_voters_that_cannot_be_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_family_may_join_twice_and_a_missing_weight_is_said():
    kernel = pvm.GaussianVoters(np.array([[0.0], [1.0]]), 1.0)
    twice = SimpleNamespace(voters=JoinedVoters((kernel, kernel)), weights=np.array([0.1, 0.2, 0.3, -0.4]))
    points = np.array([[0.2], [0.9]])
    expected = np.asarray(kernel.votes(points)) @ [0.4, -0.2]
    np.testing.assert_allclose(pvm.decision(twice, points), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="model has 5 weights, and its voters give 4 votes"):
        pvm.decision(SimpleNamespace(voters=twice.voters, weights=np.ones(5) / 5), points)
