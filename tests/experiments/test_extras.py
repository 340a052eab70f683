"""Without the packages of the extras a command ends with a sentence, or works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import experiments

ROOT = Path(experiments.__file__).parent
NAMES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in (ROOT, ROOT / "studies")
    for path in sorted(folder.glob("*.py"))
    if path.name != "__init__.py"
]
# Commands that need arguments; the others are called without any.
ARGUMENTS = {
    "adapt": ["--source", "a.csv", "--target", "b.csv", "--label", "y"],
    "benchmark": ["classes"],
    "differentiate": ["--per-class", "8", "--steps", "1", "--folds", "0"],
    "over_hosts": ["--help"],
    "reference": ["--out", "reference"],
}
EXTRAS = {"benchmark": "test", "reference": "docs"}
CORE_ALONE = {"differentiate", "over_hosts"}
MISSING = ("sklearn", "matplotlib", "skada", "palmerpenguins", "joblib", "tqdm", "distributed", "pdoc", "latex2mathml")
# Also where the command asks for versions: as if nothing but the package's own dependencies were installed.
PROGRAM = f"""
import importlib.metadata, runpy, sys
sys.modules.update(dict.fromkeys({MISSING}))
version = importlib.metadata.version
def installed_version(name):
    if name in ("scikit-learn", *{MISSING}):
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = installed_version
name = sys.argv.pop(1)
runpy.run_module(f"experiments.{{name}}", run_name="__main__", alter_sys=True)
"""


def ended(name, arguments, folder):
    # Commands that keep to one core start their process anew, unless they find it so.
    one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PJRT_NPROC": "1"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, name, *arguments],
        cwd=folder,
        env=os.environ | one_core | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "arguments"), [*((name, ARGUMENTS.get(name, [])) for name in NAMES), ("benchmark", ["fit"])]
)
def test_a_command_without_extras(name, arguments, tmp_path):
    done = ended(name, arguments, tmp_path)
    assert "Traceback" not in done.stderr
    if name in CORE_ALONE:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert f"is missing or too old: pip install -e '.[{EXTRAS.get(name, 'experiments')}]'" in line


def test_help_needs_no_extra_where_the_import_needs_none(tmp_path):
    done = ended("table1", ["--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "python -m experiments.table1" in done.stdout
