"""The reference as HTML: all public names, and the pages of this project.

  python -m experiments.reference --out FOLDER

Then open FOLDER/index.html; nothing is loaded from the network. It needs ``pip install -e ".[docs]"``. Equations of
pages and docstrings become MathML, which browsers draw themselves.
"""

import argparse
import importlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pvmincq_jax
from experiments.run.command import end, needs, note
from experiments.run.equations import typeset

__all__ = ["MODULES", "PAGES", "build", "main"]

ROOT = Path(__file__).parent.parent
ROOMS = ("voting", "matching", "adaptation", "bounds", "baselines")
METHODS = ("dasf", "dasvm", "mincq", "nn_mincq", "pbda", "pv_svm", "svm", "tsvm")
MODULES = (
    "pvmincq_jax",
    *(f"pvmincq_jax.{name}" for name in ("estimators", "scorers", "plots", "datasets", *ROOMS)),
    *(f"pvmincq_jax.baselines.{name}" for name in METHODS),
)
# The name of each page in the reference, and its file.
PAGES = {
    "start": "README.md",
    "glossary": "experiments/GLOSSARY.md",
    "write_your_own": "experiments/WRITE_YOUR_OWN.md",
    "experiments": "experiments/README.md",
    "contributing": ".github/CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
}
# A dot in a signature, as pdoc colours it.
_DOT = '</span><span class="o">.</span><span class="n">'


def _page(name: str, out: Path) -> ModuleType:
    """A page as a module whose docstring it is, with links to other pages, and to files that are copied to OUT."""
    from latex2mathml.converter import convert

    folder = (ROOT / PAGES[name]).parent
    names = {(ROOT / path).resolve(): page for page, path in PAGES.items()}

    def link(match: re.Match[str]) -> str:
        address, place = match[1], match[2] or ""
        if not address or "//" in address:
            return match[0]
        path = (folder / address).resolve()
        if path in names:
            return f"]({names[path]}.html{place})"
        copy = out / "files" / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
        return f"](files/{path.name})"

    page = ModuleType(name)
    text = (ROOT / PAGES[name]).read_text(encoding="utf-8")
    text = re.sub(r"\]\(([^#)]*)(#[^)]*)?\)", link, text)
    if name == "glossary":
        public = "|".join(pvmincq_jax.__all__)
        text = re.sub(rf"`({public})`", r"[`\1`](pvmincq_jax.html#\1)", text)
    page.__doc__ = re.sub(r"\$([^$\n]+)\$", lambda match: convert(match[1]), text)
    page.__all__ = []  # type: ignore[attr-defined]
    return page


def _tidy(members: Sequence[Any]) -> None:
    """Shows of each class what is public: no private bases, but what it has from them, and fields without boilerplate.

    The docstring of a NamedTuple says what its fields hold; Python's own says that each is a field.
    """
    for member in members:
        if (member.docstring or "").startswith("Alias for field number"):
            member.docstring = ""
        member.docstring = typeset(member.docstring or "")
        if member.kind == "class":
            member.bases = [base for base in member.bases if "_" not in {base[0].split(".")[-1][:1], base[1][:1]}]
            ours = [one for one in member.members.values() if one.taken_from[0].startswith("pvmincq_jax")]
            member.own_members, member.inherited_members = ours, {}
            _tidy(ours)


def build(out: Path) -> None:
    """Writes the reference to a folder.

    Args:
      out: the folder, which is made if need be.
    """
    import pdoc.doc
    import pdoc.render

    out.mkdir(parents=True, exist_ok=True)
    version = f"pvmincq_jax {pvmincq_jax.__version__}"
    pdoc.render.configure(docformat="google", show_source=False, footer_text=version)
    # Rooms are shown by their maps alone: what they hold is on the page of the package, where users import it from.
    modules = {name: pdoc.doc.Module(_page(name, out)) for name in PAGES}
    modules |= {name: pdoc.doc.Module(importlib.import_module(name)) for name in MODULES}
    for module in modules.values():
        module.submodules = [modules[one.modulename] for one in module.submodules if one.modulename in modules]
        _tidy(module.own_members)
        if module.modulename in MODULES:
            module.docstring = typeset(module.docstring)
    fit = "<style>img { max-width: 100%; } </style></head>"
    for name, module in modules.items():
        path = out / f"{name.replace('.', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = pdoc.render.html_module(module, modules).replace("</head>", fit, 1)
        # JAX's array by the name that users know.
        text = text.replace(f"jaxlib{_DOT}_jax{_DOT}Array", "Array").replace("jaxlib._jax.Array", "Array")
        path.write_text(text, encoding="utf-8")
    (out / "index.html").write_text(pdoc.render.html_index(modules), encoding="utf-8")
    (out / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the folder and writes the reference."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments.reference", description=__doc__, formatter_class=shape)
    parser.add_argument("--out", type=Path, required=True, help="folder, best outside of the checkout")
    options = parser.parse_args(arguments)
    try:
        with needs("docs"):
            build(options.out)
    except OSError as error:
        end(f"--out: {options.out} could not be written: {error.strerror or error}")
    note(f"written to {options.out / 'index.html'}")


if __name__ == "__main__":
    main()
