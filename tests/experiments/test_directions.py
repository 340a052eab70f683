"""What the commands on further directions share: tables, options and files."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from experiments import directions, penguins, shared_points, views


def test_mean_and_error_agree_with_scipy():
    values = np.random.default_rng(0).normal(size=9)
    mean, error = directions.mean_and_error(values)
    assert mean == pytest.approx(np.mean(values))
    assert error == pytest.approx(stats.sem(values))
    assert np.isnan(directions.mean_and_error([3.0])[1])


def test_table_is_aligned_and_shows_every_kind_of_cell():
    rows = {"short": [[1.0, 3.0], None], "a longer name": ["text", np.array([50.0, 50.0])]}
    lines = directions.as_table("name", ["first", "second"], rows).splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["name", "first", "second"]
    assert cells[2:] == [["short", "2.0 ± 1.0", ""], ["a longer name", "text", "50.0 ± 0.0"]]


def test_files_hold_what_is_printed(tmp_path, capsys):
    figure, _ = plt.subplots()
    directions.write(tmp_path / "new", "thing", "a table", {"figure": 1.5}, figure)
    assert capsys.readouterr().out == "a table\n"
    assert (tmp_path / "new" / "thing.md").read_text() == "a table\n"
    record = json.loads((tmp_path / "new" / "thing.json").read_text())
    assert record["figure"] == 1.5
    assert {"jax", "numpy", "pvmincq-jax"} <= set(record["versions"])
    assert plt.get_fignums() == []


@pytest.mark.parametrize("command", [views, shared_points, penguins])
def test_help_and_bad_options(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert all(option in out for option in ("--runs", "--seed", "--out", "--quick"))
    for bad, message in (
        (["--runs", "1"], "must be a whole number from 2 on; it is '1'"),
        (["--seed", "-3"], "--seed"),
    ):
        with pytest.raises(SystemExit) as stopped:
            command.main(bad)
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err
