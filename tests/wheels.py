"""The wheel of this checkout, for tests of what a user installs."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def build_wheel(folder: Path) -> Path:
    """Built from a copy, without the network: setuptools is part of the tests' environment."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("pvmincq_jax", "experiments", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "."]
    done = subprocess.run([*command, "-w", "built"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = (folder / "built").iterdir()
    return built
