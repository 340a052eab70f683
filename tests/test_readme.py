"""What the READMEs print is what runs, from the package as it is installed and without the checkout."""

import os
import re
import subprocess
import sys
import zipfile

import pytest

from tests.wheels import ROOT, build_wheel

READMES = ("README.md", "experiments/README.md", "experiments/WRITE_YOUR_OWN.md")
PAGES = (*READMES, "experiments/GLOSSARY.md", ".github/CONTRIBUTING.md")
TEXT = {name: (ROOT / name).read_text() for name in PAGES}


END = "-- end of an example --"


def blocks(language, name="README.md"):
    return re.findall(rf"```{language}\n(.*?)```", TEXT[name], flags=re.DOTALL)


# The example of this page takes the default grids on a large sample.
LARGE = "experiments/README.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the contents of the wheel and nothing else, which is all that installing it comes to."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))).extractall(folder)
    return folder


def said(code, installed, gammas=3):
    """What a fresh Python prints that has the installed package, and JAX as it comes but for what compiles fast.

    Of the default grid's three gammas, one is a third of the programs to compile.
    """
    where = "import pvmincq_jax, sys; print(pvmincq_jax.__file__, file=sys.stderr)\n"
    where += "import pvmincq_jax.voting.programs as p; p._OPTIONS = {}\n"
    if gammas == 1:
        where += "import pvmincq_jax.voting.voters as v; v.GAMMA_MULTIPLES = (2.0,)\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", where + code],
        cwd=installed,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(str(installed))
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "gammas"),
    [
        *((name, 1) for name in READMES if name != LARGE),
        *(pytest.param(name, 3, marks=pytest.mark.long) for name in READMES),
    ],
)
def test_every_example_runs_as_printed(installed, name, gammas):
    """Those of a page one after the other, each with no name and no setting of those before it."""
    examples = blocks("python", name)
    code = f"""
import jax
for number, example in enumerate({examples!r}):
    jax.config.update("jax_enable_x64", False)
    exec(compile(example, f"{name}, example {{number}}", "exec"), {{"__name__": "__main__"}})
    print("{END}")
"""
    *outs, rest = said(code, installed, gammas).split(END)
    assert len(outs) == len(examples)
    assert rest == ""
    for out in outs:
        assert out.strip()
        assert "nan" not in out
        assert "False" not in out
    if name == READMES[0]:
        assert outs[0].strip() == blocks("text")[0].strip()


def test_the_large_example_runs_on_fewer_points(installed):
    (example,) = blocks("python", LARGE)
    code = example.replace("seed=7)", "seed=7, per_class=30)")
    assert "per_class=30" in code
    assert 0.5 < float(said(code, installed, gammas=1)) <= 1


def test_the_readme_is_short():
    assert len(TEXT["README.md"].splitlines()) <= 170
    assert len([line for line in blocks("python")[0].splitlines() if line.strip()]) <= 12


def test_ci_runs_the_test_command_of_the_readme():
    commands = [line.strip() for block in blocks("sh") for line in block.splitlines()]
    tests = [line for line in commands if line.endswith("-m pytest")]
    assert len(tests) == 1
    assert tests[0] in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_map_has_every_room():
    named = re.findall(r"^\| `([\w/]+)` \|", TEXT["README.md"].split("## The map")[1], flags=re.MULTILINE)
    rooms = [f"pvmincq_jax/{path.parent.name}" for path in (ROOT / "pvmincq_jax").glob("*/__init__.py")]
    assert sorted(named) == sorted([*rooms, "experiments"])


def test_every_command_is_listed_and_every_listed_one_exists():
    table = re.findall(r"^\| (`.*?`) \|", TEXT["experiments/README.md"].split("## Table 1")[0], flags=re.MULTILINE)
    listed = {name for cell in table for name in re.findall(r"`([\w.]+)`", cell)}
    files = [*(ROOT / "experiments").glob("*.py"), *(ROOT / "experiments" / "studies").glob("*.py")]
    commands = {".".join(path.relative_to(ROOT / "experiments").with_suffix("").parts) for path in files}
    assert listed == {name for name in commands if "__init__" not in name}
    assert len(list((ROOT / "experiments").glob("*.py"))) <= 20
    for text in TEXT.values():
        assert set(re.findall(r"python -m experiments\.([\w.]*\w)", text)) <= listed


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_and_file_exists(name):
    linked = re.findall(r"\]\(([^#)]+)", TEXT[name])
    assert linked or name == "experiments/GLOSSARY.md"
    for path in linked:
        assert ((ROOT / name).parent / path).exists(), path


@pytest.mark.parametrize("name", PAGES)
def test_every_place_on_a_page_exists(name):
    for address, place in re.findall(r"\]\(([^#)]*)#(.*?)\)", TEXT[name]):
        text = ((ROOT / name).parent / address).read_text() if address else TEXT[name]
        headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        assert place in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_glossary_names_what_the_package_has():
    import pvmincq_jax

    text = TEXT["experiments/GLOSSARY.md"]
    computed = {name for group in re.findall(r"\((`\w+`(?:, `\w+`)*)\)", text) for name in re.findall(r"\w+", group)}
    assert computed
    assert computed <= set(pvmincq_jax.__all__)
    for word in ("Voter", "Margin", "Gibbs", "C-bound", "Draw", "Self-label", "R_S", "epsilon_H", "mu_{max}", "PV"):
        assert word in text
    assert "experiments/GLOSSARY.md" in TEXT["README.md"].split("##")[0]


def test_own_pieces_are_short():
    for block in blocks("python", "experiments/WRITE_YOUR_OWN.md"):
        assert 10 <= len([line for line in block.splitlines() if line.strip()]) <= 30


@pytest.mark.parametrize("name", PAGES)
def test_every_name_of_the_package_exists(name):
    import pvmincq_jax

    for found in re.findall(r"\bpvm\.(\w+)", TEXT[name]):
        assert hasattr(pvmincq_jax, found), found
