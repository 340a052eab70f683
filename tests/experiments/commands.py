"""What the tests of commands share: reading their results, their refusals, and the rules of a study."""

import json

import numpy as np
import pytest

import pvmincq_jax as pvm
from experiments.run.shifts import shifted_task


def lines_of(out):
    """The cells of a results file."""
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def check_refused(command, arguments, message, capsys):
    """The command ends with exit code 2 and says why."""
    with pytest.raises(SystemExit) as stopped:
        command(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def check_chosen_rule(study, found, shift, fit_validated):
    """A study's accuracies hold every rule, and its chosen one is the library's default; returns task and fit."""
    assert set(found) == {*study.RULES, "best of the grid", "median of the grid"}
    assert all(0 <= value <= found["best of the grid"] for value in found.values())
    data = shifted_task(shift)
    fitted = fit_validated(data.source, data.source_labels, data.target, seed=3)
    best = pvm.model_at(fitted.sweep, fitted.choice.grid_index)
    accuracy = np.mean(np.asarray(pvm.predict(best, data.test)) == data.test_labels)
    assert found["chosen"] == pytest.approx(accuracy)
    return data, fitted
