"""The wheel: what is in it, how it says its version, and that the oldest versions it allows are enough."""

import ast
import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

import pvmincq_jax
from tests.wheels import ROOT, build_wheel

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROOMS = ("voting", "matching", "adaptation", "bounds", "baselines")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    about = f"pvmincq_jax-{pvmincq_jax.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"pvmincq_jax", about}
    package = ROOT / "pvmincq_jax"
    files = {str(path.relative_to(ROOT)) for path in package.rglob("*") if path.suffix in (".py", ".typed")}
    assert {name for name in names if not name.startswith(about)} == files
    assert {f"pvmincq_jax/{room}/__init__.py" for room in ROOMS} | {"pvmincq_jax/py.typed"} <= names


def test_what_the_wheel_says(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(file.read(name))
    assert said["Version"] == pvmincq_jax.__version__
    assert said["License-Expression"] == "Apache-2.0"
    assert set(said.get_all("Provides-Extra")) == {"sklearn", "plots", "progress", "experiments", "docs", "test"}
    assert said.get_payload(decode=True).decode() == (ROOT / "README.md").read_text()


def test_the_version_is_written_once_and_read_without_jax():
    """Setuptools takes a literal from the file as text; anything else would import the package to build it."""
    lines = ast.parse((ROOT / "pvmincq_jax" / "__init__.py").read_text()).body
    (value,) = (
        line.value for line in lines if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__version__"
    )
    assert ast.literal_eval(value) == pvmincq_jax.__version__
    assert PROJECT["dynamic"] == ["version"]


def test_the_changelog_begins_with_this_version():
    versions = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert versions[0] == pvmincq_jax.__version__
    assert len(set(versions)) == len(versions)


def test_every_dependency_has_a_lower_bound_and_a_user():
    for line in PROJECT["dependencies"]:
        name, bound = line.split(">=")
        assert re.fullmatch(r"[\d.]+", bound)
        users = [
            path
            for path in (ROOT / "pvmincq_jax").rglob("*.py")
            if re.search(rf"^\s*(import|from) {name}\b", path.read_text(), re.MULTILINE)
        ]
        assert users, f"nothing imports {name}"


def oldest(*extras):
    """Exactly the lower bounds, as pip wants them."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    pins = [line.replace(">=", "==") for line in lines]
    return [*pins, next(pin.replace("jax==", "jaxlib==") for pin in pins if pin.startswith("jax=="))]


def newest(*extras):
    """Whatever pip takes."""
    return []


python_311 = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the oldest versions have no files for it")


@pytest.mark.long
@pytest.mark.parametrize("pinned", [pytest.param(oldest, marks=python_311), newest])
def test_the_wheel_works_with_the_oldest_and_the_newest_versions(wheel, tmp_path, pinned):
    """Needs an index of packages: a fresh environment, in which first the core runs the README's first example without
    a warning, and then, with extras, tests/smoke.py."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    surroundings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}

    def printed(*arguments):
        # Away from the checkout, so that the wheel is what is imported.
        done = subprocess.run(
            [python, *arguments], cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    printed("-m", "pip", "install", "-q", wheel, *pinned())
    example = re.search(r"## In ten lines\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert "accuracy on 1500 fresh target points: " in printed("-W", "error", "-c", example)
    assert "scikit-learn" not in printed("-m", "pip", "list")

    pins = pinned("sklearn", "plots")
    printed("-m", "pip", "install", "-q", f"{wheel}[sklearn,plots]", *pins)
    shutil.copy(ROOT / "tests" / "smoke.py", tmp_path)
    found = printed("-W", "ignore", "smoke.py")
    assert all(pin.replace("==", " ") in found for pin in pins), found
