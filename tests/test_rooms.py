"""The cut of the package: which room may import from which, and what is reachable from where."""

import ast
import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import pvmincq_jax

ROOT = Path(pvmincq_jax.__file__).parent
# Whoever may be imported by a room, besides itself and the files with an underscore at the top.
MAY = {
    "voting": set(),
    "matching": set(),
    "datasets": set(),
    "adaptation": {"voting", "matching"},
    "bounds": {"voting", "matching"},
    "baselines": {"voting", "matching", "adaptation"},
    "faces": {"voting", "matching", "adaptation", "baselines", "_sklearn"},
    "shared": set(),
}
FACES = {"estimators", "scorers", "plots", "_sklearn"}


def imported(path):
    """The modules of the package that a file imports, as names below the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pvmincq_jax."):
            yield node.module.split(".")[1]


def room(path):
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "faces" if first in FACES else "shared" if first.startswith("_") else first


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_imports_go_one_way(path):
    own = room(path)
    others = {name for name in imported(path) if name != own and not (name.startswith("_") and name not in FACES)}
    assert others <= MAY[own]


def test_experiments_use_no_private_module():
    private = {(path.name, name) for path in (ROOT.parent / "experiments").rglob("*.py") for name in imported(path)}
    assert not [pair for pair in private if pair[1].startswith("_")]


def test_experiments_import_public_names_only():
    for path in (ROOT.parent / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pvmincq_jax":
                module = importlib.import_module(node.module)
                for name in (name.name for name in node.names):
                    assert name in module.__all__ or find_spec(f"{node.module}.{name}"), (path, name)


def test_no_module_hides_behind_a_function_of_its_name():
    for found in pkgutil.walk_packages([str(ROOT)], "pvmincq_jax."):
        parent, _, name = found.name.rpartition(".")
        module = importlib.import_module(found.name)
        assert getattr(importlib.import_module(parent), name) is module


def test_the_top_has_a_hundred_names_each_public_in_one_room():
    names = {}
    for found in pkgutil.walk_packages([str(ROOT)], "pvmincq_jax."):
        if found.name.split(".")[1] in ("voting", "matching", "adaptation", "bounds"):
            module = importlib.import_module(found.name)
            for name in getattr(module, "__all__", ()):
                assert names.setdefault(name, module) is module
    assert len(set(pvmincq_jax.__all__)) == len(pvmincq_jax.__all__) <= 100
    for name in set(pvmincq_jax.__all__) - {"datasets", "Status"}:
        assert getattr(pvmincq_jax, name) is getattr(names[name], name)


def test_a_room_has_few_files():
    assert len(list((ROOT / "adaptation").glob("[!_]*.py"))) <= 14
