"""A script in ``# %%`` cells as a Jupyter notebook, which needs nothing but Jupyter to open it."""

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["write_notebook"]


def _cell(number: int, kind: str, body: str) -> dict[str, Any]:
    cell = {"id": f"cell-{number}", "metadata": {}}
    if "[markdown]" in kind:
        text = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE).strip('"')
        return cell | {"cell_type": "markdown", "source": text.splitlines(keepends=True)}
    source = body.strip().splitlines(keepends=True)
    return cell | {"cell_type": "code", "source": source, "outputs": [], "execution_count": None}


def write_notebook(script: Path, path: Path) -> None:
    """Writes the cells of a script as a notebook.

    Args:
      script: with a line ``# %%`` before each cell of code, ``# %% [markdown]`` before each cell of text.
      path: of the notebook, whose folder is made.
    """
    parts = re.split(r"^# %%(.*)\n", script.read_text(), flags=re.MULTILINE)[1:]
    cells = [_cell(number, *part) for number, part in enumerate(zip(parts[::2], parts[1::2]))]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook, indent=1) + "\n")
