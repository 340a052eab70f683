"""The experiments around the transport form: their tasks, their rules, their laws, and the picture of its limits."""

import networkx as nx
import numpy as np
import pytest

import pvmincq_jax as pvm
from experiments.run.shifts import SHAPES, Shift, draw_shape, first_tasks, large_tasks, second_tasks, shifted_task
from experiments.studies import transport_laws, transport_limits, transport_study
from pvmincq_jax.datasets import draw_moons, moons_task
from tests.experiments.commands import check_chosen_rule, lines_of

SMALL = Shift("moons", 40, noise=0.07, per_class=20, seed=1234)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    points, labels = draw_shape(shape, 50, 0.0, np.random.default_rng(0))
    assert points.shape == (100, 2)
    np.testing.assert_array_equal(labels, np.repeat([1, -1], 50))
    again = shifted_task(Shift(shape, 30, per_class=10, seed=4), 15)
    other = shifted_task(Shift(shape, 30, per_class=10, seed=4), 15)
    np.testing.assert_array_equal(again.target, other.target)
    assert (len(again.source), len(again.target), len(again.test)) == (20, 20, 30)
    # Rows in random order, and a target that is no copy of the source.
    assert np.any(np.diff(again.source_labels) > 0)
    assert not np.isin(again.target, again.source).any()
    with pytest.raises(ValueError, match="shape must be one of"):
        draw_shape("cube", 5, 0.0, np.random.default_rng(0))


def test_the_moons_are_those_of_the_table():
    ours, _ = draw_shape("moons", 4000, 0.05, np.random.default_rng(1))
    theirs, _ = draw_moons(4000, np.random.default_rng(2))
    np.testing.assert_allclose(np.cov(ours.T), np.cov(theirs.T), atol=0.03)
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.03)


def test_no_task_is_one_of_the_table():
    tasks = [*first_tasks(), *second_tasks(), *large_tasks(), *transport_study.confirmed_tasks()]
    assert len(tasks) == len(set(tasks))
    assert all(task.seed not in range(2014, 2024) for task in tasks)
    assert all(task.noise != 0.05 for task in tasks if task.shape == "moons")
    groups = {task.group for task in tasks}
    assert len(groups) == 6


def test_digits():
    task = shifted_task(Shift("digits", 30, seed=1, digits=(3, 8)))
    assert task.source.shape == task.target.shape == (85, 5)
    assert set(np.unique(task.test_labels)) == {-1, 1}
    with pytest.raises(ValueError, match=r"shift\.digits"):
        shifted_task(Shift("digits", 30))


def test_rules_see_no_target_label():
    """Every rule on the grid, and the accuracies, from the arrays of the sweep."""
    found = transport_study.look(SMALL)
    data, fitted = check_chosen_rule(transport_study, found, SMALL, pvm.fit_transport_validated)
    # Turned around, the test labels change the accuracies and no choice.
    turned = data._replace(test_labels=-data.test_labels)
    accuracies = transport_study.accuracies(fitted.sweep, turned)
    assert accuracies[fitted.choice.grid_index] == pytest.approx(1 - found["chosen"], abs=1e-9)


def test_summary():
    found = [
        {"settings": {"group": "a"}, "accuracy": {"rule": 0.5, "best of the grid": 0.95}},
        {"settings": {"group": "b"}, "accuracy": {"rule": 1.0, "best of the grid": 1.0}},
        {"settings": {"group": "b"}, "accuracy": {"rule": 0.1, "best of the grid": 0.2}},
    ]
    text = transport_study.summary(found)
    assert ["rule", "50.0", "100.0", "75.0"] in [line.replace("|", " ").split() for line in text.splitlines()]
    assert "1 more tasks" in text


def test_random_costs_give_maximum_matchings():
    rng = np.random.default_rng(3)
    source, target = rng.uniform(size=(9, 2)), rng.uniform(size=(9, 2))
    radius = 0.8 * pvm.bottleneck_radius(source, target)
    plan = transport_laws.cost_matching(source, target, radius, 20, 0)
    near = np.linalg.norm(source[:, None] - target[None], axis=-1) <= radius
    assert np.all(plan[~near] == 0)
    graph = nx.Graph([(int(s), f"t{t}") for s, t in np.argwhere(near)])
    assert plan.sum() == pytest.approx(len(nx.max_weight_matching(graph, maxcardinality=True)))
    drawn = transport_laws.drawn_matching(source, target, radius, 20, 0)
    assert drawn.sum() == pytest.approx(plan.sum())


def test_the_uniform_mean_of_a_small_graph():
    graph = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
    # Three perfect matchings: the identity, and the two with one neighbouring pair exchanged.
    expected = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    every = transport_laws.perfect_matchings(graph)
    assert {tuple(columns) for columns in every} == {(0, 1, 2), (1, 0, 2), (0, 2, 1)}
    np.testing.assert_allclose(transport_laws.mean_matching(every), expected)


@pytest.mark.parametrize("case", list(transport_limits.CASES))
def test_limits_tasks(case):
    task = transport_limits.limits_task(case, 1, per_class=50, test_size=200)
    assert len(task.source) == len(task.target) == 100
    share = np.mean(task.test_labels > 0)
    assert share == pytest.approx(0.2 if case == "ratio" else 0.5)
    if case == "mirror":
        plain, _ = draw_moons(2000, np.random.default_rng(0))
        mirrored = transport_limits.limits_task(case, 1, per_class=2000).target
        np.testing.assert_allclose(np.cov(mirrored.T)[0, 1], -np.cov(plain.T)[0, 1], atol=0.03)
    with pytest.raises(ValueError, match="case must be one of"):
        transport_limits.limits_task("upside down", 1)


@pytest.mark.long
@pytest.mark.usefixtures("one_gamma")
def test_the_limits_are_drawn(tmp_path, capsys):
    arguments = ["--runs", "1", "--per-class", "20", "--methods", "SVM", "--jobs", "0", "--out", str(tmp_path)]
    transport_limits.main(arguments)
    records = lines_of(tmp_path)
    assert [(one["case"], one["method"]) for one in records] == [
        (case, method) for case in transport_limits.CASES for method in ("PV-Transport-MinCq", "SVM")
    ]
    shown = capsys.readouterr().out
    assert all(title in shown for title in transport_limits.CASES.values())
    for ending, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert (tmp_path / f"transport_limits.{ending}").read_bytes().startswith(start)


@pytest.mark.long
@pytest.mark.usefixtures("one_gamma")
def test_the_laws_are_compared(tmp_path, monkeypatch, capsys):
    for name, value in {"_DRAWS": (4,), "_MULTIPLES": (1.3,), "tasks": lambda: [SMALL]}.items():
        monkeypatch.setattr(transport_laws, name, value)
    arguments = ["--graphs", "2", "--draws", "200", "--jobs", "0", "--out", str(tmp_path)]
    transport_laws.main(arguments)
    records = lines_of(tmp_path)
    assert [one["table"] for one in records] == ["graphs", "draws", "laws", "laws", "laws"]
    first = records[0]["figures"]
    # As many draws of the uniform law are nearer to its exact mean than half of a point's mass, and so are all laws.
    assert all(0 <= share < 0.5 for share in first.values())
    assert all(0.5 < one["figures"]["median"] <= one["figures"]["best"] for one in records[2:])
    shown = capsys.readouterr().out
    assert "drawn: median, best" in shown
    assert f"{100 * first['costs']:.1f}" in shown


@pytest.mark.usefixtures("one_gamma")
def test_transport_is_far_ahead_at_a_large_rotation():
    """One small honest case, with the criterion's own choice of radius and margin."""
    task = moons_task("70", 1234, per_class=50, test_size=600, noise=0.06)
    fitted = pvm.fit_transport_validated(task.source, task.source_labels, task.target, seed=1)
    accuracy = np.mean(np.asarray(pvm.predict(fitted.model, task.test)) == task.test_labels)
    at_rest = np.mean(pvm.values_at(fitted.sweep, task.test)[0] * task.test_labels > 0, axis=-1)
    assert accuracy > 0.95 > 0.6 > np.max(at_rest)
