"""The penguins: the data are the package's, nobody sees a target bird's sex, and sizes are made even."""

import numpy as np
import pytest
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import pvmincq_jax as pvm
from experiments import penguins
from experiments.run import tasks
from experiments.run.methods import first_best
from experiments.run.tasks import drawn_task
from pvmincq_jax._samples import even_rows
from pvmincq_jax.baselines import pv_svm, resampling
from tests.experiments.commands import lines_of


def test_the_birds_are_those_of_the_package():
    birds = tasks.load_birds()
    # Complete rows of palmerpenguins 0.1 by species, males and females.
    counts = {species: (int(np.sum(sex > 0)), int(np.sum(sex < 0))) for species, (_, sex) in birds.items()}
    assert counts == {"Adelie": (73, 73), "Chinstrap": (34, 34), "Gentoo": (61, 58)}
    # Gentoos are the heaviest, and males outweigh females in each species.
    mass = {species: x[:, 3].mean() for species, (x, _) in birds.items()}
    assert mass["Gentoo"] > max(mass["Adelie"], mass["Chinstrap"]) + 1000
    assert all(x[sex > 0, 3].mean() > x[sex < 0, 3].mean() + 300 for x, sex in birds.values())


def test_halves_are_disjoint_and_scaled_on_the_source():
    task = tasks.penguins_task("Adelie", "Chinstrap", 1000)
    np.testing.assert_allclose(task.source.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(task.source.std(axis=0), 1)
    birds = tasks.load_birds()
    mean, deviation = birds["Adelie"][0].mean(axis=0), birds["Adelie"][0].std(axis=0)
    halves = np.concatenate([task.target, task.test]) * deviation + mean
    order = np.lexsort(halves.T)
    np.testing.assert_allclose(halves[order], birds["Chinstrap"][0][np.lexsort(birds["Chinstrap"][0].T)])
    assert len(task.target) == len(task.test) == len(task.test_labels) == 34
    other = tasks.penguins_task("Adelie", "Chinstrap", 1001)
    assert not np.array_equal(other.test, task.test)


def test_drawn_species_are_as_far_apart_as_they_say():
    task = drawn_task(4000, 3000, 7, test_size=4000)
    assert [len(x) for x in (task.source, task.target, task.test)] == [4000, 3000, 4000]
    # A linear discriminant of the domain's own labels is right in 93 % of cases, Phi(3 / 2), on either side.
    for x, y in ((task.source, task.source_labels), (task.test, task.test_labels)):
        right = LinearDiscriminantAnalysis().fit(x[:2000], y[:2000]).score(x[2000:], y[2000:])
        assert right == pytest.approx(stats.norm.cdf(1.5), abs=0.02)
    assert np.linalg.norm(task.target.mean(axis=0)) > 1


def test_own_scales_undo_a_change_of_units():
    rng = np.random.default_rng(0)
    source = rng.normal(size=(40, 4))
    labels = np.where(source[:, 0] > 0, 1.0, -1.0)
    target = rng.normal(size=(30, 4))
    fit = penguins.METHODS["standardised + SVM"]
    near, far = fit(source, labels, target, 0), fit(source, labels, 7 * target - 100, 0)
    np.testing.assert_allclose(far(7 * target - 100), near(target), atol=1e-9)
    assert np.mean(near(target) * np.where(target[:, 0] > 0, 1, -1) > 0) > 0.8


def test_even_rows():
    points = np.random.default_rng(2).normal(size=(7, 2))
    rows = even_rows(points, 24, seed=5)
    counts = np.bincount(rows)
    assert len(rows) == 24
    assert sorted(counts) == [3, 3, 3, 3, 4, 4, 4]
    order = np.random.default_rng(3).permutation(7)
    np.testing.assert_array_equal(np.bincount(even_rows(points[order], 24, seed=5)), counts[order])
    np.testing.assert_array_equal(even_rows(points, 5), np.arange(7))
    # A large target out of reach of PV 0 for a small source is within it once the source is repeated.
    target = points[:3] + 0.1
    assert pvm.perturbed_variation(points, target, 100.0) > 0.2
    assert pvm.perturbed_variation(points, target[even_rows(target, 7)], 100.0) == 0
    with pytest.raises(ValueError, match="size must be at least 1; it is 0"):
        even_rows(points, 0)


def test_a_radius_that_reaches_nobody_is_never_chosen():
    # Domains far apart: at 0.3 of the bottleneck radius nobody is in reach.
    source = np.random.default_rng(4).normal(size=(12, 2))
    labels = np.where(source[:, 0] > 0, 1.0, -1.0)
    grid = [pv_svm.PVSvmParams(1.0, 1.0, 0.3), pv_svm.PVSvmParams(1.0, 1.0, 1.0)]
    apart = pv_svm.fit_grid(source, labels, source + 20.0, grid)
    assert [float(model.pv) for model in apart] == [1.0, 0.0]
    assert np.all(np.isnan(pv_svm.decision(apart[0], source)))
    given = pv_svm.fit, pv_svm.decision, source, labels, source + 20.0, grid, 3, 0
    scores = resampling.rs_pv_validation(*given, fit_grid=pv_svm.fit_grid)
    assert scores[0] == 2.0
    assert first_best(scores) == 1
    with pytest.raises(ValueError, match=r"params\.radius leaves every point unmatched"):
        pv_svm.fit(source, labels, source + 20.0, grid[0])
    with pytest.raises(ValueError, match=r"params\.radius leaves every point unmatched"):
        pv_svm.fit_grid(source, labels, source + 20.0, grid[:1])


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(penguins, "PAIRS", (("Gentoo", "Chinstrap"),))
    monkeypatch.setattr(penguins, "draw", lambda *_: penguins.plt.figure())
    methods = ["CORAL + SVM", "standardised + SVM"]
    penguins.main(["--methods", *methods, "--runs", "2", "--seed", "1000", "--jobs", "0", "--out", str(tmp_path)])
    records = lines_of(tmp_path)
    assert {record["task"] for record in records} == {"Gentoo to Chinstrap"}
    assert [record["method"] for record in records] == ["standardised + SVM"] * 2 + ["CORAL + SVM"] * 2
    means = {name: np.mean([one["accuracy"] for one in records if one["method"] == name]) for name in methods}
    # Birds of another species are told apart far better than by chance.
    assert min(means.values()) > 65
    out = capsys.readouterr().out
    assert f"Best on average: {max(means, key=means.get)}." in out
