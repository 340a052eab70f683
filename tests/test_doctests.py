"""Every public name of the scikit-learn faces, scorers and pictures shows an example, and the suite runs it."""

import doctest
import tomllib
from pathlib import Path

import pytest

import pvmincq_jax
from pvmincq_jax import estimators, plots, scorers

ROOT = Path(__file__).parent.parent
NAMES = [(module, name) for module in (estimators, scorers, plots) for name in module.__all__]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_public_names_have_an_example(module, name):
    assert doctest.DocTestParser().get_examples(getattr(module, name).__doc__)


def test_the_suite_collects_the_examples_of_the_package():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"]
    assert Path(pvmincq_jax.__file__).parent.name in options["testpaths"]
