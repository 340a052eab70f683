"""The tutorial, a script in ``# %%`` cells, as a Jupyter notebook, and its options as a command.

A notebook needs nothing but Jupyter to open it, and has no command line: cells of kind ``[script]`` are left out.
"""

import argparse
import importlib
import json
import re
from pathlib import Path
from typing import Any

from experiments.run.command import needs, new_file, number

__all__ = ["check_packages", "tutorial_options", "write_notebook"]


def _cell(place: int, kind: str, body: str) -> dict[str, Any]:
    cell = {"id": f"cell-{place}", "metadata": {}}
    if "[markdown]" in kind:
        text = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE).strip('"')
        return cell | {"cell_type": "markdown", "source": text.splitlines(keepends=True)}
    source = body.strip().splitlines(keepends=True)
    return cell | {"cell_type": "code", "source": source, "outputs": [], "execution_count": None}


def write_notebook(script: Path, path: Path) -> None:
    """Writes the cells of a script as a notebook.

    Args:
      script: with a line ``# %%`` before each cell of code, ``# %% [markdown]`` before each cell of text, and
        ``# %% [script]`` before code that is for the command line alone.
      path: of the notebook, whose folder is made.
    """
    parts = re.split(r"^# %%(.*)\n", script.read_text(), flags=re.MULTILINE)[1:]
    kept = [(kind, body) for kind, body in zip(parts[::2], parts[1::2]) if "[script]" not in kind]
    cells = [_cell(place, *part) for place, part in enumerate(kept)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    with new_file(path) as fresh:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(notebook, indent=1) + "\n")


def check_packages(*names: str) -> None:
    """Ends the tutorial with a sentence if one of these packages cannot be imported."""
    with needs("experiments"):
        for name in names:
            importlib.import_module(name)


def tutorial_options(
    script: str, description: str | None, angle: str, seed: int, per_class: int, folder: Path
) -> tuple[str, int, int, Path]:
    """Reads the tutorial's command line; with --notebook, writes the notebook and ends.

    Args:
      script: the tutorial's file.
      description: its docstring.
      angle, seed, per_class, folder: the defaults.

    Returns:
      The four values.
    """
    from pvmincq_jax.datasets import moons_task

    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments.tutorial", description=description, formatter_class=shape)
    add = parser.add_argument
    add("--task", default=angle, help="degrees of rotation, or 'translation' (default: %(default)s)")
    add("--seed", type=number(0), default=seed, help="of samples, folds and matchings (default: %(default)s)")
    add("--per-class", type=number(8), default=per_class, help="points per class and domain (default: %(default)s)")
    add("--out", type=Path, default=folder, help="folder (default: %(default)s)")
    add("--notebook", action="store_true", help="write OUT/tutorial.ipynb and stop")
    options = parser.parse_args()
    if options.notebook:
        write_notebook(Path(script), options.out / "tutorial.ipynb")
        parser.exit(0, f"written: {options.out / 'tutorial.ipynb'}\n")
    try:
        moons_task(options.task, options.seed, per_class=options.per_class)
    except ValueError as error:
        parser.error(str(error))
    return options.task, options.seed, options.per_class, options.out
