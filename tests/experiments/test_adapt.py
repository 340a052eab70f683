"""The command for one's own files: columns by name, sentences for what is missing, predictions beside the rows."""

import csv

import numpy as np
import pytest

from experiments import adapt
from tests.experiments.commands import check_refused


def write_csv(path, names, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def birds(count, seed, move=0.0):
    """Two classes by size and mass, in units far apart, moved by so many deviations."""
    rng = np.random.default_rng(seed)
    sex = np.repeat(["female", "male"], count)
    size, mass = (rng.normal(np.where(sex == "male", 3.0, -3.0)) + move for _ in range(2))
    return sex, 10 + size, 4000 + 500 * mass


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """What the command printed and wrote: a moved target whose columns have another order, and one row a gap."""
    folder = tmp_path_factory.mktemp("adapt")
    sex, size, mass = birds(15, 0)
    rows = [[f"bird {k}", *row, 7] for k, row in enumerate(zip(sex, size, mass))]
    source = write_csv(folder / "a.csv", ["name", "sex", "size", "mass", "year"], [*rows, ["gap", "male", "", 4000, 7]])
    truth, size, mass = birds(12, 1, move=4.0)
    rows = [[m, label, s, 8] for label, s, m in zip(truth, size, mass)]
    target = write_csv(folder / "b.csv", ["mass", "sex", "size", "year"], [["NA", "male", 14, 8], *rows])
    options = ["--source", str(source), "--label", "sex", "--target", str(target), "--out", str(folder / "new")]
    adapt.main(options)
    return folder / "new", truth


def test_predictions_stand_beside_the_rows(fitted):
    out, truth = fitted
    with (out / "adapt.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["mass", "sex", "size", "year", "predicted_sex", "agreement"]
    # The row that misses a value stays in its place, without an answer.
    assert (rows[0]["mass"], rows[0]["predicted_sex"], rows[0]["agreement"]) == ("NA", "", "")
    assert np.mean([row["predicted_sex"] for row in rows[1:]] == truth) > 0.95
    assert all(0.5 <= float(row["agreement"]) <= 1 for row in rows[1:])
    assert {path.name for path in out.iterdir()} == {"adapt.csv", "adapt.md", "adapt.png", "adapt.pdf"}


def test_it_says_what_it_left_out_and_what_has_changed(fitted):
    said = (fitted[0] / "adapt.md").read_text()
    assert said.startswith("30 source and 24 target rows of 2 features.")
    assert "'name' is left out:" in said
    assert "'bird 0' in it, which is no number" in said
    assert "Column 'year' is left out: it has one value only" in said
    assert "1 of 31 rows of" in said
    assert "(size 1)" in said
    assert "(mass 1)" in said
    assert "the features have changed, too" in said
    assert "Accuracy on the 24 target rows with a label" in said
    assert "nan" not in said


def test_class_shares_alone():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 60)
    source = rng.normal(np.where(labels == "b", 1.0, -1.0), 0.5)[:, None]
    target = rng.normal(np.repeat([-1.0, 1.0], [100, 20]), 0.5)[:, None]
    data = adapt.Data(["x"], source, labels, target, np.arange(120), np.zeros(1), np.ones(1), [])
    said = adapt._changed(data)[0]
    assert said.startswith("Other class shares alone explain the target")
    assert "a 50% to 8" in said  # 100 of 120


def test_missing_labels_and_scales(tmp_path):
    source = write_csv(tmp_path / "a.csv", ["x", "y", "z"], [[1, "u", 1], [3, "v", 5], [9, "", 2], [5, "u", "inf"]])
    target = write_csv(tmp_path / "b.csv", ["x", "z", "w"], [[2, 3, 0], ["?", 3, 0], [4, 7, 0]])
    data = adapt.prepare(adapt.read_table(source), adapt.read_table(target), "y")
    assert data.features == ["x", "z"]
    np.testing.assert_allclose(data.source, [[-1, -1], [1, 1]])
    np.testing.assert_allclose(data.target, [[0, 0], [2, 2]])
    assert list(data.rows) == [0, 2]
    assert data.remarks == [
        f"2 of 4 rows of {source} miss values and are left out (y 1, z 1).",
        f"1 of 3 rows of {target} miss values and are left out (x 1).",
    ]


def test_a_wide_table_is_read_column_by_column(tmp_path):
    """Each name is looked up once: names that count their comparisons."""
    compared = 0

    class Name(str):
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [f"c{k}" for k in range(500)]
    values = np.random.default_rng(0).normal(size=(4, 500))
    rows = [[*row, "uv"[k % 2]] for k, row in enumerate(values)]
    tables = [adapt.read_table(write_csv(tmp_path / name, [*names, "y"], rows)) for name in ("a.csv", "b.csv")]
    named = [table._replace(names={Name(name): place for name, place in table.names.items()}) for table in tables]
    data = adapt.prepare(*named, "y")
    assert data.features == names
    np.testing.assert_allclose(data.source * data.deviation + data.mean, values)
    assert compared < 20 * len(names)


def test_agreement_counts_votes_near_the_best():
    class Model:
        classes_ = np.array(["a", "b"])
        values = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
        sweep_ = type("Sweep", (), {"target_values": values.reshape(3, 1, 1, 2)})

        class choice_:
            score, scores = 1.0, np.array([1.0, 1.1, 1.3]).reshape(3, 1, 1)

    share, votes = adapt.agreement(Model, np.array(["b", "b"]))
    assert votes == 2
    np.testing.assert_array_equal(share, [1.0, 0.5])


def test_three_classes_of_one_feature(tmp_path):
    rng = np.random.default_rng(2)
    names = np.repeat(["low", "mid", "top"], 8)
    x = np.repeat([-5.0, 0.0, 5.0], 8)
    source = write_csv(tmp_path / "a.csv", ["x", "y"], zip(rng.normal(x, 0.5), names))
    target = write_csv(tmp_path / "b.csv", ["x"], [[value] for value in rng.normal(x, 0.5)])
    adapt.main(["--source", str(source), "--label", "y", "--target", str(target), "--out", str(tmp_path / "new")])
    with (tmp_path / "new" / "adapt.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert np.mean([row["predicted_y"] for row in rows] == names) > 0.9
    assert np.mean([float(row["agreement"]) for row in rows]) > 0.9
    # The target has no labels here.
    assert "Accuracy" not in (tmp_path / "new" / "adapt.md").read_text()


def test_names_with_dollar_signs_are_drawn_as_they_are_written(tmp_path):
    rng = np.random.default_rng(3)
    names = np.repeat(["$x^$", "under $100"], 8)
    x = np.repeat([-5.0, 5.0], 8)
    source = write_csv(tmp_path / "a.csv", ["$", "y"], zip(rng.normal(x, 0.5), names))
    target = write_csv(tmp_path / "b.csv", ["$"], [[value] for value in rng.normal(x, 0.5)])
    adapt.main(["--source", str(source), "--label", "y", "--target", str(target), "--out", str(tmp_path / "new")])
    assert (tmp_path / "new" / "adapt.pdf").stat().st_size > 0


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        ("x,y\n1,a\n2,b\n", ["--label", "z"], "has no column 'z'; there are x, y"),
        ("x,y\n1,a\n2,b\n", ["--features", "w"], "--features: 'w' cannot be learnt from"),
        ("w,y\n1,a\n2,b\n", [], "no column is left to learn from. Column 'w' is left out"),
        ("x,y\n1,a\n2,a\n", [], "must hold two classes or more; its complete rows are all 'a'"),
        ("x,y\n,a\n,b\n", [], "it has one value only"),
        ("x,x\n1,a\n", [], "several columns named 'x'"),
        ("x,y\n1\n", [], "has 2 names, and 1 cells in line 2"),
        ("x,y\n", [], "must have a line of names and rows below it; it has 1 lines"),
        (None, [], "could not be read: No such file"),
        ("x,y\n1,a\n2,b\n", ["--ratio", "7"], "must be source, estimated, or a share between 0 and 1"),
    ],
)
def test_refusals(tmp_path, capsys, source, more, message):
    if source is not None:
        (tmp_path / "a.csv").write_text(source)
    (tmp_path / "b.csv").write_text("x\n1\n2\n")
    options = ["--source", str(tmp_path / "a.csv"), "--target", str(tmp_path / "b.csv"), "--label", "y", *more]
    check_refused(adapt.main, [*options, "--out", str(tmp_path / "new")], message, capsys)
    assert not (tmp_path / "new").exists()
