"""Equations of docstrings, which are plain text there, as MathML for the reference."""

import re

__all__ = ["to_latex", "typeset"]

_GREEK = "alpha beta gamma delta eps zeta lambda mu nu xi pi tau phi Phi"
_OPERATORS = "exp log max min sup"
_WORDS = "sign sqrt sum mean erf kl KL sigmoid softmax std dis tr grad PV pairs budget radius trace cut scale dp dx"
_KNOWN = "|".join(sorted(f"{_GREEK} {_OPERATORS} {_WORDS}".split(), key=len, reverse=True))
# A name is a known word, a few letters that have an index, or one or two letters; what follows it needs no space.
_NAME = rf"(?:(?:{_KNOWN})(?![a-z])|[A-Za-z]{{1,4}}(?=_)|\d*[A-Za-z]{{1,2}}(?![a-z])|bound(?=\())"
_INDEX = r"(?:[_^](?:\{[^{}]*(?:\{[^{}]*\})?[^{}]*\}|\([^()]*\)|-?[\w*]+(?:,\w(?!\w))?)|\^(?=$)|'|\*)*"
_SIGNS = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "||": r"\Vert ", "|": r"\vert ", "~": r"\sim "}
_SIGN = "|".join(re.escape(sign) for sign in _SIGNS)
_TOKEN = re.compile(rf"(?:{_NAME}{_INDEX}|\d*\.?\d+(?:e-?\d+)?|{_SIGN}|[-+*/=<>^(){{}}\[\],;:'])+")
_RELATION = re.compile("[<>!]?=|~")
_PROSE = "an as at be by do if in is it no of on or so to up we"
_ARTICLES = ("a", "A", "I")
_STOPS = ".,;:"


def to_latex(equation: str) -> str:
    r"""A line of plain mathematics as LaTeX.

    Example:
      >>> print(to_latex("mu_max = 1/n sum_j |E_{(x,y)} y h_j(x)|"))
      \mu_{max} = 1/n \sum_{j} \vert E_{(x,y)} y h_{j}(x)\vert
    """
    text = re.sub(r"(?<![_^])\{([^{}]*)\}", r"\\{\1\\}", equation)
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"([_^])(-?\w+(?:,\w(?!\w))?)", r"\1{\2}", text)
    text = re.sub(r"(\w)\^(?= )", r"\\hat{\1}", text)
    text = re.sub(r"([_^])\*", r"\1{*}", re.sub(r"(?<=[A-Za-z])\*(?=\W|$)", "^{*}", text))
    while (root := text.find("sqrt(")) >= 0:
        depth, end = 1, root + 5
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        # Without the word, which the search would find again.
        text = f"{text[:root]}\0{{{text[root + 5 : end - 1]}}}{text[end:]}"
    text = re.sub(_SIGN, lambda sign: _SIGNS[sign[0]], text.replace("\0", r"\sqrt").replace(" in ", r" \in "))
    return re.sub(r"(?<![\\\w{])[A-Za-z]{2,}(?![A-Za-z])", _word, text).strip()


def _word(match: re.Match[str]) -> str:
    word = match[0]
    if word in (*_GREEK.split(), *_OPERATORS.split(), "sum"):
        return r"\epsilon" if word == "eps" else f"\\{word}"
    return f"\\mathrm{{{word}}}" if word in _WORDS.split() else word


def _run(words: list[str], first: int) -> int:
    """Where a run of mathematics that begins at a word ends: after the last of its words."""
    depth = 0
    for place in range(first, len(words)):
        word = words[place].rstrip(_STOPS) or words[place]
        depth += word.count("{") - word.count("}")
        if not (word == "in" and depth) and (word.lower() in _PROSE.split() or not _TOKEN.fullmatch(word)):
            return place
        if words[place].endswith("."):
            return place + 1
    return len(words)


def _is_equation(words: list[str]) -> bool:
    text = " ".join(words)
    balanced = all(text.count(one) == text.count(other) for one, other in ("()", "[]", "{}"))
    relations = [place for place, word in enumerate(words) if _RELATION.fullmatch(word)]
    return bool(balanced and relations and relations[0] > 0 and relations[-1] < len(words) - 1)


def typeset(docstring: str) -> str:
    """A docstring whose equations, outside of examples and code, are MathML.

    An equation is a longest run of words that are mathematics, with a relation in it: names of one letter, names with
    an index, numbers, signs and known functions.
    """
    from latex2mathml.converter import convert

    text, example, rest = docstring.partition("Example:")
    parts = re.split(r"(``.*?``|`.*?`|\n\s*\n|\n(?=\s+\S+: ))", text, flags=re.DOTALL)
    for number in range(0, len(parts), 2):
        joined = re.sub(r"_\{[^{}]*\}", lambda index: index[0].replace(" ", ""), parts[number])
        pieces = re.split(r"(\s+)", joined)
        words, gaps, out, first = pieces[::2], [*pieces[1::2], ""], "", 0
        while first < len(words):
            last = _run(words, first)
            # An article is not a factor.
            if words[first] in _ARTICLES and not _RELATION.fullmatch((*words, "")[first + 1]):
                last = first
            elif last - first > 3 and words[last - 1] in _ARTICLES and words[last - 2][-1].isalnum():
                last -= 1
            run = " ".join(words[first:last])
            equation = run.rstrip(_STOPS)
            if _is_equation(equation.split(" ")):
                out += convert(to_latex(equation)) + run[len(equation) :] + gaps[last - 1]
                first = last
            else:
                out += words[first] + gaps[first]
                first += 1
        parts[number] = out
    return "".join(parts) + example + rest
