"""What the README prints is what runs."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_runs_as_printed() -> None:
    example, printed = blocks("python")[0], blocks("text")[0]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example, "README.md", "exec"), {})
    assert out.getvalue().strip() == printed.strip()
    assert len([line for line in example.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize("number", range(1, len(blocks("python"))))
def test_the_other_examples_run(number: int) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(blocks("python")[number], "README.md", "exec"), {})
    assert out.getvalue().strip()
    assert "nan" not in out.getvalue()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = [line.strip() for block in blocks("sh") for line in block.splitlines()]
    tests = [line for line in commands if line.endswith("-m pytest")]
    assert len(tests) == 1
    assert tests[0] in (ROOT / ".ci" / "run").read_text().splitlines()


def test_every_module_named_in_the_map_exists() -> None:
    named = re.findall(r"^\| `([\w/]+\.py)`", README, flags=re.MULTILINE)
    assert len(named) >= 12
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "pvmincq_jax" / name).exists(), name


def test_every_picture_exists() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).exists(), picture
