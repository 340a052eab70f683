"""The grid of the transport form, its criterion and its choice, against single fits and other people's code."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

import pvmincq_jax as pvm
from pvmincq_jax.adaptation.criteria import normalised_cut
from pvmincq_jax.adaptation.transport_criteria import class_distance, matching_penalty
from pvmincq_jax.datasets import moons_task
from tests.problems import clarabel_objective, kernel

GRID = {"radii": [0.6, 1.0, 1.4], "margins": [0.1, 0.4], "gammas": [2.0, 6.0], "draws": 32, "seed": 4}
GRID |= {"radius_unit": "bottleneck"}


@pytest.fixture(scope="module")
def task():
    return moons_task("50", 1003, per_class=20, test_size=400)


@pytest.fixture(scope="module")
def grid(task):
    return pvm.transport_sweep(task.source, task.source_labels, task.target, **GRID)


def test_radii_and_moved_points(grid, task):
    np.testing.assert_allclose(grid.radii, np.array(GRID["radii"]) * pvm.bottleneck_radius(task.source, task.target))
    for radius, pv, found in zip(grid.radii, grid.pv, grid.transports, strict=True):
        alone = pvm.pv_transport(task.source, task.target, radius, draws=32, seed=4, source_labels=task.source_labels)
        np.testing.assert_array_equal(found.moved, alone.moved)
        assert found.pv == pv == alone.pv
    assert grid.pv[0] > 0 == grid.pv[1]


def test_every_point_is_a_vote_of_least_c_bound(grid, task):
    assert np.all(grid.status == pvm.Status.SOLVED)
    assert np.all(grid.kkt_residual <= 1e-7)
    for r, g, k in np.ndindex(grid.status.shape):
        found, gamma = grid.transports[r], grid.gammas[g]
        matched = found.weights > 0
        share = found.weights[matched] / np.sum(found.weights)
        votes = kernel(found.moved[matched], found.moved[matched], gamma)
        margins = votes.T @ (share * task.source_labels[matched])
        least = clarabel_objective(np.sqrt(share)[:, None] * votes, margins, grid.margins[k])
        assert grid.c_bound[r, g, k] == pytest.approx(1 - 1 / least, abs=1e-6)
        weights = grid.weights[r, g, k]
        assert np.all(weights[~matched] == 0)
        np.testing.assert_allclose(
            grid.target_values[r, g, k], kernel(task.target, found.moved, gamma) @ weights, atol=1e-12
        )


def test_the_model_of_a_point_is_the_single_fit(grid, task):
    index = (1, 1, 0)
    model = pvm.model_at(grid, index)
    alone = pvm.pv_transport_mincq(
        task.source, task.source_labels, task.target, radius=grid.radii[1], margin=0.1, gamma=6.0, draws=32, seed=4,
        margin_unit="fraction",
    )  # fmt: skip
    np.testing.assert_array_equal(model.centers, alone.centers)
    for name in ("margin", "mu_max", "c_bound"):
        np.testing.assert_allclose(getattr(model, name), getattr(alone, name), atol=1e-7)
    values = np.asarray(pvm.decision(alone, task.test))
    np.testing.assert_allclose(pvm.decision(model, task.test), values, atol=1e-4 * np.max(np.abs(values)))
    np.testing.assert_array_equal(model.labels, alone.labels)
    np.testing.assert_array_equal(model.label_weights, alone.label_weights)
    unsolved = grid._replace(status=np.full_like(grid.status, pvm.Status.INFEASIBLE))
    with pytest.raises(ValueError, match=r"index \(1, 1, 0\)"):
        pvm.model_at(unsolved, index)


def test_terms_of_the_criterion(grid, task):
    ratio, risk = pvm.class_ratio_gap(grid), grid.self_risk
    # Forty points: an eighth of them is fewer than 16, and the two scales are one.
    for neighbours, k in ((3, 3), (None, 5)):
        disagreement = pvm.neighbour_disagreement(grid, neighbours)
        near = NearestNeighbors(n_neighbors=k).fit(task.target).kneighbors(return_distance=False)
        for index in np.ndindex(grid.status.shape):
            labels = np.sign(grid.target_values[index])
            assert disagreement[index] == pytest.approx(np.mean(labels[near] != labels[:, None]))
    for index in np.ndindex(grid.status.shape):
        share = grid.transports[index[0]].weights / np.sum(grid.transports[index[0]].weights)
        plus = np.mean(grid.target_values[index] > 0)
        assert ratio[index] == pytest.approx(abs(plus - 0.5))
        moved = grid.transports[index[0]].moved
        values = kernel(moved, moved, grid.gammas[index[1]]) @ grid.weights[index]
        assert risk[index] == pytest.approx(np.sum(share[values * task.source_labels <= 0]))
    cut = normalised_cut(grid)
    for index in np.ndindex(grid.status.shape):
        labels = np.sign(grid.target_values[index])
        plus = np.mean(labels > 0)
        # A quarter of the rarer class is fewer than eight of forty.
        near = NearestNeighbors(n_neighbors=8).fit(task.target).kneighbors(return_distance=False)
        assert cut[index] == pytest.approx(np.mean(labels[near] != labels[:, None]) / (4 * plus * (1 - plus)))
    squares = ratio**2 + risk**2 + matching_penalty(grid)[:, None, None] ** 2
    expected = (cut + 0.01) * np.exp(8 * squares + 0.3 * class_distance(grid))
    np.testing.assert_allclose(pvm.transport_criterion(grid), expected)
    np.testing.assert_array_equal(pvm.class_ratio_gap(grid._replace(ratio=0.22)) != ratio, True)


def test_two_scales_of_neighbours(grid):
    rng = np.random.default_rng(2)
    shape = grid.status.shape
    many = grid._replace(target=rng.normal(size=(200, 2)), target_values=rng.normal(size=(*shape, 200)))
    expected = (pvm.neighbour_disagreement(many, 16) + pvm.neighbour_disagreement(many, 25)) / 2
    np.testing.assert_allclose(pvm.neighbour_disagreement(many), expected)
    alone = grid._replace(target=np.zeros((1, 2)), target_values=np.ones((*shape, 1)))
    np.testing.assert_array_equal(pvm.neighbour_disagreement(alone), 0)
    with pytest.raises(ValueError, match="neighbours must be at least 1"):
        pvm.neighbour_disagreement(grid, 0)


def test_what_is_not_solved_is_not_chosen(grid):
    status = grid.status.copy()
    best = pvm.choose(grid, pvm.transport_criterion(grid)).grid_index
    status[best] = pvm.Status.MAX_ITERATIONS
    marked = grid._replace(status=status)
    for term in (pvm.neighbour_disagreement, pvm.class_ratio_gap, pvm.transport_criterion):
        assert np.isinf(term(marked)[best])
        assert np.sum(np.isinf(term(marked))) == 1
    assert pvm.choose(marked, pvm.transport_criterion(marked)).grid_index != best


def test_fit_transport_validated(grid, task):
    arguments = task.source, task.source_labels, task.target
    model, choice, figures = pvm.fit_transport_validated(*arguments, **GRID, top_fraction=None)
    assert figures.shift is None  # radii are given
    np.testing.assert_array_equal(figures.weights, grid.weights)
    assert choice.score == pytest.approx(np.min(pvm.transport_criterion(grid)))
    r, g, k = choice.grid_index
    assert (choice.radius, choice.gamma, choice.margin) == (grid.radii[r], grid.gammas[g], grid.margins[k])
    np.testing.assert_array_equal(model.weights, grid.weights[r, g, k])
    accuracy = np.mean(np.asarray(pvm.predict(model, task.test)) == task.test_labels)
    # Forty points and few radii: more is for the experiments.
    assert accuracy > 0.8
    voted = pvm.fit_transport_validated(*arguments, **GRID)
    together = pvm.committee(grid, pvm.transport_criterion(grid))
    np.testing.assert_array_equal(pvm.decision(voted.model, task.test), pvm.decision(together, task.test))
    other = pvm.fit_transport_validated(*arguments, criterion=lambda one: one.c_bound, **GRID)
    assert other.choice.score == pytest.approx(np.min(grid.c_bound))


def test_blind_to_the_order_of_the_rows(grid, task):
    here, there = np.argsort(task.source_labels, kind="stable"), np.random.default_rng(1).permutation(40)
    other = pvm.transport_sweep(task.source[here], task.source_labels[here], task.target[there], **GRID)
    np.testing.assert_allclose(other.c_bound, grid.c_bound, atol=1e-7)
    np.testing.assert_allclose(pvm.transport_criterion(other), pvm.transport_criterion(grid), atol=1e-9)


def test_ties_between_neighbours_do_not_depend_on_the_rows(grid):
    """On a lattice all distances tie."""
    lattice = np.stack(np.meshgrid(np.arange(8.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    values = np.random.default_rng(0).normal(size=grid.target_values.shape)
    order = np.random.default_rng(1).permutation(40)
    first = pvm.neighbour_disagreement(grid._replace(target=lattice, target_values=values))
    other = pvm.neighbour_disagreement(grid._replace(target=lattice[order], target_values=values[..., order]))
    np.testing.assert_allclose(first, other)


def test_radii_that_reach_nobody_are_left_out(task):
    nearest = np.min(np.linalg.norm(task.source[:, None] - task.target[None], axis=-1))
    given = GRID | {"gammas": [6.0], "radius_unit": "absolute"}
    arguments = task.source, task.source_labels, task.target
    figures = pvm.transport_sweep(*arguments, **given | {"radii": [nearest / 2, 1.0]})
    np.testing.assert_array_equal(figures.radii, [1.0])
    with pytest.raises(ValueError, match="leaves every point unmatched: the smallest distance"):
        pvm.transport_sweep(*arguments, **given | {"radii": [nearest / 2]})


def test_absolute_margins(grid, task):
    given = GRID | {"gammas": [6.0], "radii": [1.0], "margin_unit": "absolute"}
    arguments = task.source, task.source_labels, task.target
    mu = 0.1 * grid.mu_max[1, 1]
    figures = pvm.transport_sweep(*arguments, **given | {"margins": [mu, 5.0]})
    np.testing.assert_array_equal(figures.status[0, 0], [pvm.Status.SOLVED, pvm.Status.INFEASIBLE])
    assert figures.c_bound[0, 0, 0] == pytest.approx(grid.c_bound[1, 1, 0], abs=1e-7)
    assert float(pvm.model_at(figures, (0, 0, 0)).margin) == pytest.approx(mu)
    with pytest.raises(ValueError, match="no point of the grid could be solved"):
        pvm.transport_sweep(*arguments, **given | {"margins": [4.0, 5.0]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margins": []}, "margins is empty"),
        ({"margins": [1.5]}, "margins must be in"),
        ({"margin_unit": "share"}, "margin_unit must be"),
        ({"gammas": [-1.0]}, "gammas must be"),
        ({"draws": 0}, "draws must be"),
        ({"radius_unit": "pv"}, "radii must be in"),
        ({"ratio": 1.0}, "ratio must be the share"),
    ],
)
def test_bad_input_is_named(change, message, task):
    with pytest.raises(ValueError, match=message):
        pvm.transport_sweep(task.source, task.source_labels, task.target, **GRID | change)


def test_narrow_kernels_of_high_rank_are_solved():
    """Votes of more than 128 directions, each kernel all but alone."""
    task = moons_task("40", 3, per_class=90, test_size=10)
    given = {
        "radii": [1.0],
        "radius_unit": "bottleneck",
        "margins": [0.2],
        "gammas": [300.0],
        "draws": 2,
    }
    figures = pvm.transport_sweep(task.source, task.source_labels, task.target, **given)
    moved = np.asarray(figures.transports[0].moved)
    votes = np.exp(-300.0 * np.sum((moved[:, None] - moved[None]) ** 2, axis=-1))
    assert np.linalg.matrix_rank(votes, tol=1e-6) > 128
    assert np.all(figures.status == pvm.Status.SOLVED)
    assert np.all(figures.kkt_residual < 1e-7)


def test_another_family_votes(task):
    """Stumps between the moved points: the same problem by `mincq`, radius by radius."""
    given = GRID | {"margins": [0.4], "gammas": None}
    figures = pvm.transport_sweep(task.source, task.source_labels, task.target, **given, voters="stumps")
    for r, transport in enumerate(figures.transports):
        votes = pvm.stump_votes(transport.moved, *pvm.stump_thresholds(transport.moved, 10))
        weights = np.asarray(transport.weights)
        largest = pvm.max_margin(votes, task.source_labels, sample_weights=weights)
        alone = pvm.mincq(votes, task.source_labels, 0.4 * largest, sample_weights=weights)
        np.testing.assert_allclose(figures.c_bound[r, 0, 0], alone.c_bound, atol=1e-7)
