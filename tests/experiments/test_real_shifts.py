"""Real shifts: tasks are what they say, the study's are not the reported ones, and the command keeps its figures."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

import pvmincq_jax as pvm
from experiments import real_shifts
from experiments.run import peers
from experiments.run import tasks as real_tasks
from experiments.run.tasks import PAIRED, REPORTED, STUDIED
from experiments.studies import shift_study


def test_no_task_is_both_studied_and_reported():
    assert not set(REPORTED) & set(real_shifts.tasks(True))

    def subject(name):
        """The digits, or the data set and the variable."""
        return name.split()[0] if "/" in name else name

    assert not {subject(name) for name in REPORTED} & {subject(name) for name in (*STUDIED, *PAIRED)}
    seeds = {task.seed for tasks in shift_study.SETS.values() for task in tasks()}
    assert not seeds & {*range(2014, 2024), *range(3000, 3010)}
    assert len(real_tasks.DIGITS) == 10


def test_digits_are_changed_images_of_the_package():
    task = real_tasks.digits_task((3,), (8,), "in dim light", 5)
    images, digits = load_digits(return_X_y=True)
    known = {tuple(np.round(row, 9)): digit for row, digit in zip(images / 16, digits)}
    assert [known[tuple(row)] for row in np.round(task.source, 9)] == [3 if y > 0 else 8 for y in task.source_labels]
    assert [known[tuple(row)] for row in np.round(task.test / 0.4, 9)] == [3 if y > 0 else 8 for y in task.test_labels]
    used = [tuple(row) for x in (task.source, task.target / 0.4, task.test / 0.4) for row in np.round(x, 9)]
    assert len(used) == np.isin(digits, (3, 8)).sum()
    assert task.source.shape == task.target.shape == (119, 64)
    rarer = real_tasks.digits_task((3,), (8,), "in dim light", 5, rarer=4)
    assert np.mean(rarer.test_labels > 0) == 0.2
    np.testing.assert_array_equal(rarer.source, task.source)


def test_splits_are_halves_without_their_variable():
    task = real_tasks.split_task("breast cancer", "mean texture", True, 4)
    data = load_breast_cancer()
    assert task.source.shape == (150, data.data.shape[1] - 1)
    np.testing.assert_allclose(task.source.mean(axis=0), 0, atol=1e-9)
    # Few tumours of low texture are malignant: the classes are not as frequent in both halves.
    assert np.mean(task.source_labels > 0) > np.mean(task.test_labels > 0) + 0.2
    assert len(task.target) + len(task.test) == np.sum(data.data[:, 1] > np.median(data.data[:, 1]))


def test_unequal_moons():
    task = real_tasks.moons_unequal("20", 4, 3)
    assert np.mean(task.source_labels > 0) == 0.5
    assert np.mean(task.test_labels > 0) == pytest.approx(0.2)
    assert len(task.target) == 300


def test_labels_of_the_target_are_not_handed_to_skada(monkeypatch):
    import skada

    seen = []

    class Spy(skada.CORALAdapter):
        def fit_transform(self, x, y=None, **more):
            seen.append(y)
            return super().fit_transform(x, y, **more)

    monkeypatch.setattr(skada, "CORALAdapter", Spy)
    task = real_tasks.split_task("wine", "malic_acid", True, 4)
    decide = peers.PEERS["CORAL + SVM"](task.source, task.source_labels, task.target, 4)
    assert decide(task.test).shape == task.test_labels.shape
    np.testing.assert_array_equal(seen[0][len(task.source) :], -1)


@pytest.mark.filterwarnings("ignore:Sinkhorn did not converge")
@pytest.mark.parametrize(
    ("method", "by"),
    [
        ("CORAL + SVM", 3.0),
        ("OT + SVM", 3.0),
        ("class-regularised OT + SVM", 0.5),
        ("subspace alignment + SVM", 0.5),
    ],
)
def test_peers_find_a_translation(method, by):
    rng = np.random.default_rng(1)
    labels = np.repeat([1.0, -1.0], 20)
    source, target = (rng.normal(size=(40, 4)) * 0.3 + labels[:, None] for _ in range(2))
    decide = peers.PEERS[method](source, labels, target[rng.permutation(40)] + by, 0)
    assert np.mean(np.asarray(decide(target + by)) * labels > 0) > 0.9


def test_rules_of_the_study_see_no_target_label(monkeypatch):
    def first_few(seed):
        task = STUDIED["3/5 turned 30°"](seed)
        return task._replace(source=task.source[:30], source_labels=task.source_labels[:30], target=task.target[:30])

    monkeypatch.setattr(shift_study, "_makers", lambda: {"few": first_few})
    found = shift_study.look(shift_study.Task("few", 1000, "digits"))
    best = found.pop("best of the grid")
    assert set(shift_study.RULES) < set(found)
    assert all(0 <= found[rule] <= best for rule in shift_study.RULES)
    task = first_few(1000)
    fitted = pvm.fit_transport_validated(task.source, task.source_labels, task.target, seed=3)
    right = np.mean(pvm.predict(fitted.model, task.test) == task.test_labels)
    assert found["chosen, committee"] == pytest.approx(right)


def test_the_command(tmp_path, capsys):
    methods = ["PV-Transport", "standardised + SVM"]
    options = ["--runs", "2", "--seed", "1600", "--jobs", "0", "--out", str(tmp_path), "--tasks", "wine by malic acid"]
    real_shifts.main(["--methods", *methods, *options])
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(one["method"], one["run"]) for one in records] == [(method, run) for method in methods for run in (0, 1)]
    ours = records[0]
    assert max(ours["best_point"], ours["not_adapted"]) <= ours["oracle"]
    out = capsys.readouterr().out
    assert "its grid, best in hindsight" in out
    assert f"{np.mean([one['accuracy'] for one in records[:2]]):.1f}" in out
    assert (tmp_path / "real_shifts.png").exists()
    with pytest.raises(SystemExit):
        real_shifts.main(["--tasks", "drawn, 146 to 34", "--out", str(tmp_path)])
