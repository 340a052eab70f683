"""The committee is one vote of many: a mean that can be taken apart, kept in a file, and asked in JAX."""

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task

GRID = {"radii": [0.7, 1.0, 1.3], "radius_unit": "bottleneck", "margins": [0.1, 0.4], "draws": 8, "seed": 4}


@pytest.fixture(scope="module")
def task():
    return moons_task("30", 1003, per_class=20, test_size=200)


@pytest.fixture(scope="module")
def grid(task):
    return pvm.transport_sweep(task.source, task.source_labels, task.target, **GRID, gammas=[2.0, 6.0])


def mean_of(grid, places, x):
    """Normalised votes, point by point."""
    total = 0.0
    for place in places:
        model = pvm.model_at(grid, place)
        total = total + pvm.decision(model, x) / np.mean(np.abs(grid.target_values[place]))
    return total


def test_it_is_the_mean_of_its_members(grid, task):
    scores = np.full(grid.status.shape, np.inf)
    places = [(1, 0, 0), (1, 0, 1), (2, 1, 1)]
    scores[tuple(np.array(places).T)] = [1.0, 1.1, 1.2]
    together = pvm.committee(grid, scores, top_fraction=1.0)
    expected = mean_of(grid, places, task.test)
    found = pvm.decision(together, task.test)
    np.testing.assert_allclose(found / np.max(np.abs(found)), expected / np.max(np.abs(expected)), atol=1e-9)
    # Two votes at one radius and gamma share their voters.
    assert len(together.weights) == 2 * len(task.source)
    assert np.sum(np.abs(together.weights)) <= 1
    assert together.radius is None
    assert together.pv == grid.pv[1]
    np.testing.assert_array_equal(together.labels, task.source_labels)


def test_it_is_a_model(grid, task, tmp_path):
    together = pvm.committee(grid, pvm.transport_criterion(grid), top_fraction=0.5)
    assert len(together.voters.families) > 1
    assert together.centers.shape == (len(together.weights), 2)
    pvm.save_model(together, tmp_path / "committee")
    again = pvm.load_model(tmp_path / "committee")
    values = pvm.decision(together, task.test)
    np.testing.assert_array_equal(pvm.decision(again, task.test), values)
    assert again.mu_max is again.kkt_residual is again.radius is again.gamma is None
    jax.tree.map(np.testing.assert_array_equal, again, together)
    with jax.enable_x64(True):
        traced = jax.jit(pvm.decision)(together, task.test)
    np.testing.assert_allclose(traced, values, atol=1e-12)


def test_who_disagrees_or_is_worse_has_no_seat(grid, task):
    scores = np.full(grid.status.shape, np.inf)
    scores[1, 0, 0], scores[1, 0, 1], scores[2, 0, 0] = 1.0, 1.5, 1.1
    alone = pvm.decision(pvm.model_at(grid, (1, 0, 0)), task.test)
    turned = grid._replace(target_values=grid.target_values.copy())
    turned.target_values[2, 0, 0] *= -1
    np.testing.assert_allclose(
        pvm.decision(pvm.committee(turned, scores, top_fraction=1.0), task.test), alone, rtol=1e-12
    )
    together = pvm.decision(pvm.committee(grid, scores, top_fraction=1.0), task.test)
    assert not np.allclose(together / np.max(together), alone / np.max(alone))


def test_adapted_votes_sit_apart_from_others(task):
    found = pvm.transport_sweep(
        task.source, task.source_labels, task.target, **GRID, gammas=[2.0], include_identity=True
    )
    scores = np.ones(found.status.shape)
    scores[0, 0, 0] = 0.9
    members = pvm.committee(found, scores, top_fraction=1.0)
    np.testing.assert_array_equal(np.unique(members.centers, axis=0), np.unique(task.source, axis=0))


def test_stumps_and_given_voters(task):
    arguments = task.source, task.source_labels, task.target
    stumps = pvm.transport_sweep(*arguments, **GRID, voters="stumps")
    together = pvm.committee(stumps, stumps.c_bound, top_fraction=1.0)
    assert isinstance(together.voters, pvm.StumpVoters)
    assert np.shape(together.voters.features) == np.shape(together.weights)
    functions = [lambda x: np.tanh(x[:, 0]), lambda x: np.tanh(x[:, 1]), lambda x: np.tanh(x[:, 0] - x[:, 1])]
    given = pvm.transport_sweep(*arguments, **GRID, voters=functions)
    together = pvm.committee(given, given.c_bound, top_fraction=1.0)
    assert np.shape(together.weights) == (3,)
    with pytest.raises(ValueError, match="top_fraction must be above 0"):
        pvm.committee(given, given.c_bound, top_fraction=0.0)
