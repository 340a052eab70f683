"""The reference: every public name says what it takes, what it returns and where the paper has it, by an example."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import pvmincq_jax
from pvmincq_jax import datasets, estimators, plots, scorers

ROOT = Path(__file__).parent.parent
METHODS = [
    importlib.import_module(f"pvmincq_jax.baselines.{path.stem}")
    for path in sorted((ROOT / "pvmincq_jax" / "baselines").glob("[!_]*.py"))
]
NAMES = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (pvmincq_jax, datasets, estimators, scorers, plots, *METHODS)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name)) or inspect.isclass(getattr(module, name))
}
PAPER = r"(?i)\b(section|equation|theorem|corollary|algorithm|definition)s?\s\d|not\sin\sthe\spaper"


def sections(thing):
    """What stands under each heading of a docstring; the words before the first under ''."""
    parts = re.split(r"^(Args|Attributes|Returns|Example):", inspect.getdoc(thing), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def is_named(name, text):
    return re.search(rf"\b{name}\b", text) is not None


@pytest.mark.parametrize("name", [name for name, value in NAMES.items() if inspect.isfunction(value)])
def test_functions(name):
    said = sections(NAMES[name])
    for parameter in inspect.signature(NAMES[name]).parameters:
        assert is_named(parameter, said["Args"]), parameter
    assert said["Returns"].strip()
    assert ">>>" in said["Example"]
    assert re.search(PAPER, inspect.getdoc(NAMES[name]))


@pytest.mark.parametrize("name", [name for name, value in NAMES.items() if inspect.isclass(value)])
def test_classes(name):
    said = sections(NAMES[name])
    for field in getattr(NAMES[name], "_fields", ()):
        assert is_named(field, said["Attributes"]), field
    if hasattr(NAMES[name], "get_params"):
        for parameter in inspect.signature(NAMES[name]).parameters:
            assert is_named(parameter, said["Args"]), parameter
        assert ">>>" in said["Example"]
        assert re.search(PAPER, inspect.getdoc(NAMES[name]))


def test_the_way_in_leads_somewhere():
    assert all(f"\n{part}\n" in pvmincq_jax.__doc__ for part in ("Learn", "Measure", "Choose", "Bound", "Plot"))
    for name in re.findall(r"`(\w+)`", pvmincq_jax.__doc__):
        assert name in pvmincq_jax.__all__
    for name in re.findall(r"`(pvmincq_jax\.\w+)`", pvmincq_jax.__doc__):
        importlib.import_module(name)
    start = re.search(r"^    task = (?:.*\n)*?(?=\n)", pvmincq_jax.__doc__, flags=re.MULTILINE)[0]
    for name in re.findall(r"\bpvm\.(\w+)", start):
        assert name in pvmincq_jax.__all__


def test_the_suite_runs_the_examples():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"]
    assert "pvmincq_jax" in options["testpaths"]


@pytest.mark.parametrize("room", ["voting", "matching", "adaptation", "bounds"])
def test_a_room_s_map_names_all_its_files(room):
    said = importlib.import_module(f"pvmincq_jax.{room}").__doc__
    for path in (ROOT / "pvmincq_jax" / room).glob("[!_]*.py"):
        assert f"`{path.stem}`" in said, path.stem
