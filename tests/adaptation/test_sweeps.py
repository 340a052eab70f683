"""The sweep against the same fits one at a time, its units, its marks for points that fail, and its errors."""

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax._samples import fold_numbers
from pvmincq_jax._threads import progress_bar
from pvmincq_jax.datasets import moons_task
from tests.problems import kernel

# Gammas large enough for votes of full rank: all shapes are then the same, and little is compiled.
GAMMA = 6.0
GRID = {"radii": [0.3, 0.1], "margins": [0.05, 0.2], "gammas": [GAMMA, 9.0], "folds": 3, "seed": 1, "radius_unit": "pv"}
ABSOLUTE = GRID | {"gammas": [GAMMA], "radius_unit": "absolute", "margin_unit": "absolute"}


@pytest.fixture(scope="module")
def task():
    return moons_task("40", 3, per_class=20, test_size=10)


@pytest.fixture(scope="module")
def grid(task):
    return pvm.sweep(*task[:3], **GRID)


def share_wrong(x, labels, centers, gamma, weights):
    return np.mean(~(labels * (kernel(x, centers, gamma) @ weights) > 0))


def fit(task, figures, index, rows=slice(None), voters="target"):
    """Algorithm 3 by hand for one point of the grid: self-labels, centers and MinCq's solution."""
    radius, gamma, margin = figures.radii[index[0]], figures.gammas[index[1]], figures.margins[index[2]]
    source, labels = task.source[rows], task.source_labels[rows]
    found = pvm.self_label(source, labels, task.target, radius, seed=GRID["seed"])
    matched = found.weights > 0
    # Kernels that do not vote stay in the arrays, for the sake of their shapes, with a mask of False.
    taken = np.zeros(len(task.source), bool)
    taken[rows] = True
    centers = {"target": [task.target], "source": [task.source], "both": [task.target, task.source]}[voters]
    mask = np.concatenate({"target": [matched], "source": [taken], "both": [matched, taken]}[voters])
    centers = np.concatenate(centers)
    votes = kernel(task.target, centers, gamma)
    mu = margin * np.mean(np.abs((found.weights * found.labels) @ votes / np.sum(found.weights))[mask])
    solution = pvm.mincq(
        votes,
        found.labels,
        mu,
        sample_weights=found.weights,
        voter_mask=mask,
        factor=pvm.vote_factor(votes, rank=min(votes.shape)),
    )
    assert solution.status == pvm.Status.SOLVED
    return found, centers, solution


def test_shapes(grid):
    assert grid.source_risk.shape == grid.fold_status.shape == (3, 2, 2, 2)
    assert grid.status.shape == grid.c_bound.shape == grid.self_risk.shape == grid.kkt_residual.shape == (2, 2, 2)
    assert grid.pv.shape == grid.matched.shape == (2,)
    assert grid.fold_matched.shape == (3, 2)
    assert np.all(grid.status == pvm.Status.SOLVED)
    assert np.all(grid.fold_status == pvm.Status.SOLVED)
    assert np.all(grid.kkt_residual <= 1e-7)


def test_the_whole_sample_agrees_with_single_fits(grid, task):
    for r, g, k in np.ndindex(grid.status.shape):
        found, centers, solution = fit(task, grid, (r, g, k))
        np.testing.assert_array_equal(grid.self_labels[r].labels, found.labels)
        np.testing.assert_array_equal(grid.self_labels[r].weights, found.weights)
        assert grid.pv[r] == pvm.perturbed_variation(task.source, task.target, grid.radii[r])
        matched = found.weights > 0
        assert grid.matched[r] == np.sum(matched)
        np.testing.assert_allclose(grid.c_bound[r, g, k], solution.c_bound, atol=1e-7)
        own = share_wrong(
            task.target[matched], found.labels[matched], centers, grid.gammas[g], np.asarray(solution.weights)
        )
        assert grid.self_risk[r, g, k] == pytest.approx(own)
        square = np.sum((task.target[:, None] - centers) ** 2, axis=-1)
        values = np.exp(-grid.gammas[g] * square) @ np.asarray(solution.weights)
        # Objectives that agree to 1e-8 leave votes that agree to its root.
        np.testing.assert_allclose(grid.target_values[r, g, k], values, atol=1e-3 * np.max(np.abs(values)))
    np.testing.assert_array_equal(grid.target, task.target)


def held_out(task, figures, fold, index, voters="target"):
    """Risk on a fold of the vote learnt without it, and how many target points it was learnt from."""
    numbers = fold_numbers(task.source, task.source_labels, GRID["folds"], GRID["seed"])
    found, centers, solution = fit(task, figures, index, np.flatnonzero(numbers != fold), voters)
    held = numbers == fold
    weights = np.asarray(solution.weights)
    risk = share_wrong(task.source[held], task.source_labels[held], centers, figures.gammas[index[1]], weights)
    return risk, np.sum(found.weights > 0)


def test_held_out_risks_agree_with_single_fits(grid, task):
    expected = np.empty_like(grid.source_risk)
    for fold in range(GRID["folds"]):
        for index in np.ndindex(grid.status.shape):
            expected[(fold, *index)], matched = held_out(task, grid, fold, index)
            assert grid.fold_matched[fold, index[0]] == matched
    np.testing.assert_allclose(grid.source_risk, expected, atol=1e-12)
    # The comparison is worth something only where there are errors to agree on.
    assert np.unique(expected).size > 2


@pytest.mark.parametrize("voters", ["source", "both"])
def test_other_voters_agree_with_single_fits(voters, task):
    figures = pvm.sweep(*task[:3], **(GRID | {"gammas": [GAMMA]}), centers=voters)
    for index in np.ndindex(figures.status.shape):
        np.testing.assert_allclose(
            figures.c_bound[index], fit(task, figures, index, voters=voters)[2].c_bound, atol=1e-7
        )
        risk, _ = held_out(task, figures, 0, index, voters)
        assert figures.source_risk[(0, *index)] == pytest.approx(risk)


def test_blind_to_the_order_of_the_rows(grid, task):
    rng = np.random.default_rng(0)
    here, there = rng.permutation(len(task.source)), rng.permutation(len(task.target))
    moved = pvm.sweep(task.source[here], task.source_labels[here], task.target[there], **GRID)
    for name in ("radii", "source_risk", "pv", "self_risk", "matched", "fold_matched", "status", "fold_status"):
        np.testing.assert_array_equal(getattr(moved, name), getattr(grid, name))
    np.testing.assert_allclose(moved.c_bound, grid.c_bound, rtol=0, atol=1e-9)
    for one, other in zip(grid.self_labels, moved.self_labels):
        np.testing.assert_array_equal(one.labels[there], other.labels)


def test_configuration_is_left_alone(grid, task):
    with jax.enable_x64(False):
        again = pvm.sweep(*task[:3], **GRID)
        assert not jax.config.jax_enable_x64
    assert again.c_bound.dtype == np.float64
    np.testing.assert_array_equal(again.c_bound, grid.c_bound)


def test_single_precision(grid, task):
    source, target = task.source.astype(np.float32), task.target.astype(np.float32)
    single = pvm.sweep(source, task.source_labels, target, **(GRID | {"gammas": [GAMMA]}))
    assert single.c_bound.dtype == np.float32
    solved = single.status == pvm.Status.SOLVED
    assert np.any(solved)
    np.testing.assert_allclose(single.c_bound[solved], grid.c_bound[:, :1][solved], atol=2e-2)


def test_several_draws_give_soft_labels(task):
    soft = pvm.sweep(*task[:3], **GRID, draws=4)
    found = pvm.self_label(task.source, task.source_labels, task.target, soft.radii[1], draws=4, seed=GRID["seed"])
    np.testing.assert_array_equal(soft.self_labels[1].labels, found.labels)
    np.testing.assert_array_equal(soft.self_labels[1].weights, found.weights)
    assert np.any((found.labels != 0) & (np.abs(found.labels) < 1))
    # A fold learns from soft labels of its own: votes are judged against them by their sign.
    assert np.all(soft.status == pvm.Status.SOLVED)


def test_progress_counts_to_the_total(task):
    seen = []
    figures = pvm.sweep(*task[:3], **GRID, progress=lambda done, total: seen.append((done, total)))
    total = 4 * 2 * 3  # folds and the whole, radii, one step for matching and one per gamma
    assert {one[1] for one in seen} == {total}
    done = [one[0] for one in seen]
    assert done == sorted(done)
    assert done[-1] == total
    assert np.all(figures.status == pvm.Status.SOLVED)


def test_progress_bar_goes_to_standard_error(capsys):
    with progress_bar(True, 4, "work") as advance:
        advance(1)
        advance(3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "work [" in err
    assert "4/4" in err
    with progress_bar(False, 4, "work") as advance:
        advance(4)
    with progress_bar(None, 4, "work") as advance:  # no terminal here
        advance(4)
    assert capsys.readouterr() == ("", "")


# Units.


def test_radii_as_levels_of_pv(task):
    levels = [0.5, 0.2, 0.0]
    radii = pvm.grid_radii(task.source, task.target, levels, "pv")
    assert np.all(np.diff(radii) > 0)
    for radius, level in zip(radii, levels):
        assert pvm.perturbed_variation(task.source, task.target, radius) <= level + 1e-12
        # It is the smallest radius that does.
        assert pvm.perturbed_variation(task.source, task.target, radius * (1 - 1e-9)) > level
    assert radii[-1] == pvm.bottleneck_radius(task.source, task.target)


def test_radii_of_samples_of_different_size(task):
    """Of 40 and 20 points 20 pairs can be made: level 0 asks for all of them, level 0.5 for half."""
    radii = pvm.grid_radii(task.source, task.target[:20], [0.5, 0.0], "pv")
    pairs = [pvm.match(task.source, task.target[:20], radius).source.size for radius in radii]
    assert pairs[1] == 20
    assert 10 <= pairs[0] < 20


def test_radii_as_fractions_of_the_bottleneck(task):
    bottleneck = pvm.bottleneck_radius(task.source, task.target)
    radii = pvm.grid_radii(task.source, task.target, [1.0, 0.4], "bottleneck")
    np.testing.assert_allclose(radii, [0.4 * bottleneck, bottleneck], rtol=1e-12)


def test_absolute_radii_are_sorted(task):
    np.testing.assert_array_equal(pvm.grid_radii(task.source, task.target, [0.7, 0.2], "absolute"), [0.2, 0.7])


def test_default_gammas_follow_the_scale(task):
    square = np.sum((task.target[:, None] - task.target[None]) ** 2, axis=-1)[np.triu_indices(40, 1)]
    np.testing.assert_allclose(pvm.default_gammas(task.target), np.array([0.5, 2, 8]) / np.median(square))
    np.testing.assert_allclose(pvm.default_gammas(10 * task.target), pvm.default_gammas(task.target) / 100)
    with pytest.raises(ValueError, match=r"points of the target.*coincide"):
        pvm.default_gammas(np.ones((4, 2)))


# Points of the grid that fail.


def test_points_that_fail_are_marked(grid, task):
    """No pair at the first radius, a margin beyond mu_max; the rest is as if these had not been asked for."""
    radius = grid.radii[0]
    margin = grid.margins[1] * float(fit(task, grid, (0, 0, 1))[2].mu_max)
    figures = pvm.sweep(*task[:3], **(ABSOLUTE | {"radii": [1e-9, radius], "margins": [margin, 2.0]}))
    status = pvm.Status
    np.testing.assert_array_equal(figures.status[0], [[status.BAD_INPUT] * 2])
    np.testing.assert_array_equal(figures.status[1], [[status.SOLVED, status.INFEASIBLE]])
    np.testing.assert_array_equal(figures.fold_status[:, 0], np.full((3, 1, 2), status.BAD_INPUT))
    np.testing.assert_array_equal(figures.fold_status[:, 1, 0, 1], [status.INFEASIBLE] * 3)
    np.testing.assert_array_equal(figures.matched, [0, grid.matched[0]])
    np.testing.assert_array_equal(figures.pv, [1.0, grid.pv[0]])
    failed = figures.status != status.SOLVED
    for name in ("c_bound", "self_risk", "kkt_residual"):
        np.testing.assert_array_equal(np.isnan(getattr(figures, name)), failed)
    np.testing.assert_array_equal(np.isnan(figures.source_risk), figures.fold_status != status.SOLVED)
    np.testing.assert_allclose(figures.c_bound[1, 0, 0], grid.c_bound[0, 0, 1], atol=1e-7)
    np.testing.assert_array_equal(figures.self_risk[1, 0, 0], grid.self_risk[0, 0, 1])


def test_all_points_failing_says_why(task):
    arguments = task.source, task.source_labels, task.target
    with pytest.raises(ValueError, match=r"radius 1e-08 leaves every point unmatched: .*smallest distance"):
        pvm.sweep(*arguments, **(ABSOLUTE | {"radii": [1e-9, 1e-8]}))
    with pytest.raises(ValueError, match=r"no point of the grid could be solved: .*\(4 of 4 points\).*smaller margins"):
        pvm.sweep(*arguments, **(ABSOLUTE | {"radii": [0.5, 0.7], "margins": [1.5, 2.0]}))
    with pytest.raises(ValueError, match=r"margin must be in \(0, mu_max\], with mu_max = .* it is 1\.5"):
        pvm.sweep(*arguments, **(ABSOLUTE | {"radii": [0.5], "margins": [1.5]}))


def test_a_vote_of_some_folds_is_no_point_of_the_grid(task, grid):
    """Without some source points the labels may allow a larger margin than with all of them."""
    arguments, beyond = (task.source, task.source_labels, task.target), 1.001 * float(grid.mu_max[0, 0])
    both = pvm.sweep(*arguments, **(ABSOLUTE | {"radii": grid.radii[:1], "margins": [0.01, beyond]}))
    assert both.status.tolist() == [[[pvm.Status.SOLVED, pvm.Status.INFEASIBLE]]]
    assert np.any(both.fold_status[..., 1] == pvm.Status.SOLVED)
    with pytest.raises(ValueError, match="margin must be in"):
        pvm.sweep(*arguments, **(ABSOLUTE | {"radii": grid.radii[:1], "margins": [beyond]}))


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radii": []}, "radii is empty"),
        ({"radii": 0.3}, "radii must be an array of rank 1"),
        ({"radii": [1.0]}, r"radii must be in \[0, 1\) as levels of PV"),
        ({"radii": [np.nan]}, r"radii must be in \[0, 1\) as levels of PV"),
        ({"radii": [0.1, 0.0], "radius_unit": "absolute"}, "radii must be.*above 0"),
        ({"radii": [-0.1], "radius_unit": "bottleneck"}, "radii must be.*above 0"),
        ({"radius_unit": "metres"}, "radius_unit must be.*'metres'"),
        ({"margins": []}, "margins is empty"),
        ({"margins": [0.5, 1.5]}, r"margins must be in \(0, 1\].*1\.5"),
        ({"margins": [0.0]}, r"margins must be in \(0, 1\]"),
        ({"margin_unit": "percent"}, "margin_unit must be.*'percent'"),
        ({"gammas": []}, "gammas is empty"),
        ({"gammas": [-1.0]}, "gammas must be .* finite and above 0"),
        ({"folds": 21}, r"folds must be at least 2.*\(20\); it is 21"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"folds": 2.5}, "folds must be"),
        ({"centers": "all"}, "centers must be.*'all'"),
        ({"voters": "all"}, "voters must be 'rbf', .*it is 'all'"),
        ({"voters": "all", "gammas": None}, "voters must be.*'all'"),
        ({"draws": 0}, "draws must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_options_are_named(options, message, task):
    with pytest.raises(ValueError, match=message):
        pvm.sweep(*task[:3], **(GRID | options))


def test_nothing_is_solved_again(grid, task, monkeypatch):
    """The model of a point of the grid, and the grid's values at new points, are products of what is there."""

    def solve(*_, **__):
        raise AssertionError("solved again")

    monkeypatch.setattr("pvmincq_jax.adaptation.sweeps.solve_grid", solve)
    values = pvm.values_at(grid, task.test)
    for index in np.ndindex(grid.status.shape):
        model = pvm.model_at(grid, index)
        np.testing.assert_allclose(pvm.decision(model, task.test), values[index], rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(pvm.decision(model, task.target), grid.target_values[index], rtol=1e-9, atol=1e-15)
        assert model.margin == pytest.approx(grid.margins[index[2]] * grid.mu_max[index[:2]])
    failed = grid._replace(status=np.full_like(grid.status, pvm.Status.INFEASIBLE))
    with pytest.raises(ValueError, match=r"index \(0, 0, 0\): no vote there"):
        pvm.model_at(failed, (0, 0, 0))
