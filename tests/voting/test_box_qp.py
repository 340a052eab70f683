"""The public quadratic program against Clarabel, closed forms and central differences."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import pvmincq_jax as pvm

# Rows and columns: fewer rows, square, and more rows.
SHAPES = [(5, 8), (8, 8), (12, 8), (30, 60), (60, 30)]


def random_program(rows, columns, seed):
    """F, a, level and bounds; a is in the row space of F where that is not everything."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(rows, columns))
    normal = rng.normal(size=columns) if rows >= columns else rng.normal(size=rows) @ factor
    bound = rng.uniform(0.2, 2.0, columns) if seed % 2 else np.full(columns, 1.3)
    level = rng.choice([-1, 1]) * rng.uniform(0.01, 0.99) * np.sum(np.abs(normal) * bound)
    return factor, normal, level, bound


def least_objective(factor, normal, level, bound):
    """Clarabel's."""
    n = len(normal)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.tol_gap_rel, settings.tol_gap_abs, settings.tol_feas = False, 1e-11, 1e-13, 1e-11
    rows = sp.csc_matrix(np.vstack([normal[None], np.eye(n), -np.eye(n)]))
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    quadratic = sp.csc_matrix(np.triu(factor.T @ factor))
    sides = np.concatenate([[level], bound, bound])
    x = np.array(clarabel.DefaultSolver(quadratic, np.zeros(n), rows, sides, cones, settings).solve().x)
    return np.sum((factor @ x) ** 2) / 2


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_as_good_as_clarabel(shape):
    for seed in range(4):
        factor, normal, level, bound = program = random_program(*shape, seed)
        result = pvm.solve_box_qp(*program)
        assert result.status == pvm.Status.SOLVED
        assert result.kkt_residual < 1e-7
        assert float(normal @ result.x) == pytest.approx(level, rel=1e-8)
        assert np.all(np.abs(result.x) <= bound * (1 + 1e-8))
        assert float(result.objective) == pytest.approx(float(np.sum((factor @ result.x) ** 2) / 2), rel=1e-12)
        assert float(result.objective) == pytest.approx(least_objective(*program), rel=1e-7)
        # The multiplier is the slope of the least objective.
        step = 1e-5 * level
        ends = [least_objective(factor, normal, level + sign * step, bound) for sign in (-1, 1)]
        assert float(result.multiplier) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-3)


def test_without_a_bound_that_counts_it_is_a_closed_form():
    factor, normal, *_ = random_program(12, 8, 0)
    inverse = np.linalg.solve(factor.T @ factor, normal)
    result = pvm.solve_box_qp(factor, normal, 0.1, 100.0)
    np.testing.assert_allclose(result.x, 0.1 * inverse / (normal @ inverse), rtol=1e-6)


def test_mincq_is_this_program():
    rng = np.random.default_rng(0)
    votes, labels = np.tanh(rng.normal(size=(40, 12))), rng.choice([-1.0, 1.0], 40)
    margin = 0.4 * float(pvm.max_margin(votes, labels))
    ours = pvm.solve_box_qp(votes / np.sqrt(40), votes.T @ labels / 40, margin, 1 / 12)
    np.testing.assert_allclose(ours.x, pvm.mincq(votes, labels, margin).weights, atol=1e-8)


LONG = [pytest.param(argument, marks=pytest.mark.long) for argument in (1, 2)]


@pytest.mark.parametrize("argument", [0, *LONG, 3])
def test_first_and_second_derivatives_are_those_of_differences(argument):
    factor, normal, _, bound = random_program(12, 8, 5)
    program = [factor, normal, 0.7 * np.sum(np.abs(normal) * bound), bound]
    toward = np.random.default_rng(4).normal(size=np.shape(program[argument]))

    def along(t):
        moved = [part + t * toward if place == argument else part for place, part in enumerate(program)]
        return jnp.sum(jnp.sin(3 * pvm.solve_box_qp(*moved).x))

    slope, step = jax.jit(jax.grad(along)), 1e-4
    assert abs(slope(0.0)) > 0.01
    np.testing.assert_allclose(slope(0.0), jax.jit(jax.jacfwd(along))(0.0), rtol=1e-8)
    np.testing.assert_allclose(slope(0.0), (along(step) - along(-step)) / (2 * step), rtol=1e-4)
    curvature = (slope(step) - slope(-step)) / (2 * step)
    second = jax.grad(jax.grad(along)) if argument % 2 else jax.hessian(along)
    np.testing.assert_allclose(jax.jit(second)(0.0), curvature, rtol=1e-3)


def test_levels_and_programs_go_through_vmap_and_jit():
    programs = [random_program(8, 6, seed) for seed in (0, 2, 4)]
    stacked = [np.stack(parts) for parts in zip(*programs)]
    together = jax.jit(jax.vmap(pvm.solve_box_qp))(*stacked)
    for place, program in enumerate(programs):
        np.testing.assert_allclose(together.x[place], pvm.solve_box_qp(*program).x, atol=1e-7)
    factor, normal, level, bound = programs[0]
    levels = np.array([level, -level, 0.0, 100.0, np.nan])
    status = jax.vmap(lambda one: pvm.solve_box_qp(factor, normal, one, bound).status)(levels)
    solved, infeasible, bad = pvm.Status.SOLVED, pvm.Status.INFEASIBLE, pvm.Status.BAD_INPUT
    assert status.tolist() == [solved, solved, infeasible, infeasible, bad]
    slope = jax.grad(lambda level: jnp.nansum(pvm.solve_box_qp(factor, normal, level, bound).x))
    assert slope(100.0) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_start_nearby_saves_steps_and_changes_nothing(sign):
    """Over forty levels of Gaussian voters, each from the solution before."""
    points = np.random.default_rng(0).normal(size=(80, 2))
    factor = np.asarray(pvm.rbf_votes(points, points, 2.0)) / np.sqrt(80)
    normal = np.sign(points[:, 0]) @ factor / np.sqrt(80)
    levels = sign * np.geomspace(0.05, 0.9, 40) * np.sum(np.abs(normal)) / 80
    cold = [pvm.solve_box_qp(factor, normal, level, 1 / 80) for level in levels]
    warm = [cold[0]]
    for level in levels[1:]:
        warm.append(pvm.solve_box_qp(factor, normal, level, 1 / 80, start=warm[-1].x))
    assert all(result.status == pvm.Status.SOLVED for result in warm)
    np.testing.assert_allclose([one.objective for one in warm], [one.objective for one in cold], rtol=1e-7)
    assert sum(int(one.iterations) for one in warm) < sum(int(one.iterations) for one in cold)


def test_float32_and_jaxopt():
    program = random_program(12, 8, 1)
    exact = pvm.solve_box_qp(*program)
    single = pvm.solve_box_qp(*(np.asarray(part, np.float32) for part in program))
    assert single.x.dtype == jnp.float32
    assert single.status == pvm.Status.SOLVED
    np.testing.assert_allclose(single.objective, exact.objective, rtol=1e-3)
    jaxopt = pvm.solve_box_qp(*program, solver="jaxopt")
    assert jaxopt.kkt_residual < 1e-3
    np.testing.assert_allclose(jaxopt.objective, exact.objective, rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factor": np.full((3, 2), np.nan)}, "factor holds 6 entries"),
        ({"normal": np.ones(3)}, r"normal must have one entry per column of factor \(2\)"),
        ({"level": np.ones(2)}, "level must be"),
        ({"level": np.inf}, "level"),
        ({"bound": 0.0}, "bound must be finite and above 0"),
        ({"bound": np.ones(3)}, "bound must have one entry per column of factor"),
        ({"start": np.ones(3)}, "start must have one entry"),
        ({"solver": "simplex"}, "solver must be"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"factor": np.ones((3, 2)), "normal": np.ones(2), "level": 1.0, "bound": 1.0} | change
    with pytest.raises(ValueError, match=message):
        pvm.solve_box_qp(given.pop("factor"), given.pop("normal"), given.pop("level"), given.pop("bound"), **given)


def test_a_normal_outside_of_the_row_space_has_derivatives_too():
    """Fewer rows than columns, and a level that the null space of F alone cannot reach."""
    rng = np.random.default_rng(1)
    factor, normal, bound = rng.normal(size=(6, 8)), rng.normal(size=8), rng.uniform(0.2, 0.5, 8)
    level = 0.8 * np.sum(np.abs(normal) * bound)
    values = jax.jit(lambda level: pvm.solve_box_qp(factor, normal, level, bound).x)
    assert pvm.solve_box_qp(factor, normal, level, bound).status == pvm.Status.SOLVED
    step = 1e-5 * level
    expected = (values(level + step) - values(level - step)) / (2 * step)
    found, slope = jax.jvp(values, (level,), (1.0,))
    np.testing.assert_allclose(found, values(level), atol=1e-6)
    np.testing.assert_allclose(slope, expected, atol=1e-5)
