"""The HTML reference: every public name is on it, every link leads somewhere, and it needs no network."""

import importlib
import re
from html.parser import HTMLParser

import pytest

from experiments import reference
from experiments.run.equations import to_latex, typeset


class Page(HTMLParser):
    """Where a page can be entered, where it leads, and which tags it has."""

    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.tags = set(), [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.add(tag)
        self.places.add(values.get("id"))
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    out = tmp_path_factory.mktemp("reference")
    reference.main(["--out", str(out)])
    return {path.resolve(): Page(path.read_text()) for path in out.rglob("*.html")}, out.resolve()


def test_every_link_leads_somewhere(pages):
    found, _ = pages
    for path, page in found.items():
        inside = [link for link in page.links if "//" not in link and not link.startswith("data:")]
        assert inside
        for link in inside:
            address, _, place = link.partition("#")
            goal = (path.parent / address).resolve() if address else path
            assert goal.exists(), (path, link)
            assert not place or place in found[goal].places, (path, link)


def test_every_public_name_is_there(pages):
    found, out = pages
    for name in reference.MODULES:
        page = found[out / f"{name.replace('.', '/')}.html"]
        assert set(getattr(importlib.import_module(name), "__all__", ())) - {"datasets"} <= page.places
    assert "PVTransportClassifier.fit_domains" in found[out / "pvmincq_jax" / "estimators.html"].places


def test_equations_are_drawn(pages):
    found, out = pages
    assert {"math", "mfrac", "msub"} <= found[out / "glossary.html"].tags
    assert not re.search(r"\$[^$\n]*\\[a-z]+", (out / "glossary.html").read_text())
    text = (out / "pvmincq_jax.html").read_text()
    assert text.count("<math") > 40
    assert "R(B_Q) &lt;= 1 -" not in text
    assert "mu_max = " not in text


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("M = E_x h(x) h(x)'", "M = E_{x} h(x) h(x)'"),
        ("r* = r + sqrt((KL + log(4 sqrt(m))) / (2m))", r"r^{*} = r + \sqrt{(\mathrm{KL} + \log(4 \sqrt{m})) / (2m)}"),
        ("max {p in [q, 1] : p <= eps_H}", r"\max \{p \in [q, 1] : p \le  \epsilon_{H}\}"),
        ("|x - c|^2 != (2 gamma)^(-1/2)", r"\vert x - c\vert ^{2} \ne  (2 \gamma)^{-1/2}"),
    ],
)
def test_plain_mathematics_as_latex(plain, latex):
    assert to_latex(plain) == latex


def test_what_is_an_equation_and_what_is_not():
    text = typeset("With t = 1/2 a bound; a vote is of a class. At mu = 0 it is `a = b`.\n\nExample:\n  >>> x = 1")
    assert text.count("<math") == 2
    assert re.sub("<math.*?</math>", "#", text) == (
        "With # a bound; a vote is of a class. At # it is `a = b`.\n\nExample:\n  >>> x = 1"
    )


def test_nothing_is_said_of_fields_that_says_nothing(pages):
    assert not [path for path in pages[0] if "Alias for field number" in path.read_text()]


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as stopped:
        reference.main(["--out", str(tmp_path / "file" / "new")])
    assert stopped.value.code == 2
    assert "could not be written" in capsys.readouterr().err
