"""Formulas of LaTeX as MathML that is to be cleaned."""

from __future__ import annotations

import html
import re
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import tostring

from django.utils.html import escape
from latex2mathml.converter import convert_to_element

from conversations.transcripts.formulas import ENDS, FORMULA_MAX_CHARS
from convserver.rendering.text import visible

COUNTED = "formulas"  # the key of an `env` for the number of formulas so far

TAGS = {
    *("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle", "mpadded"),
    *("mphantom", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd"),
}
_LENGTHS = {"width", "height", "depth", "lspace", "rspace", "minsize", "maxsize", "linethickness"}
_WORDS = {
    *("display", "displaystyle", "scriptlevel", "mathvariant", "form", "fence", "stretchy", "largeop"),
    *("movablelimits", "accent", "columnalign"),
}
_OPERANDS = {
    **dict.fromkeys(("mfrac", "mroot", "msub", "msup", "munder", "mover"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
ATTRIBUTES = dict.fromkeys(TAGS, _WORDS | _LENGTHS)
_WORD = re.compile(
    r"true|false|[0-2]|block|inline|normal|prefix|infix|postfix|left|center|right|[a-z]+(?:-[a-z]+)*"
)
# Others would put a formula over the text around it.
_LENGTH = re.compile(r"\+?(?:[0-2]?\.\d{1,4}|[0-2])(?:\.\d{1,4})?(?:em|ex|pt|px|mu)?")

# Commands that define others, name an address or a style, or are copied by the library each time.
_REFUSED = re.compile(
    r"\\(?:def|edef|gdef|let|(?:re|provide)?newcommand|renewcommand|providecommand|(?:re)?newenvironment"
    r"|DeclareMathOperator|href|url|class|cssId|style|html\w*|require|unicode|sideset|includegraphics)(?![a-zA-Z])"
)


def shown(source: str, *, is_block: bool, mark: str, env: MutableMapping[str, Any]) -> str:
    """Return a formula as MathML that is to be cleaned; its source as code if there is none."""
    # A message with more formulas is no prose, and would cost too much.
    formulas_max = 300
    env[COUNTED] = env.get(COUNTED, 0) + 1
    made = _mathml(source, is_block) if env[COUNTED] <= formulas_max else None
    if made is not None:
        return made
    code = escape(visible.name(f"{mark}{source}{ENDS[mark]}"))
    return f"<pre><code>{code}</code></pre>" if is_block else f"<code>{code}</code>"


@lru_cache(maxsize=250)  # a growing answer is rendered again and again; of the longest, 20 MB
def _mathml(source: str, is_block: bool) -> str | None:
    if len(source) > FORMULA_MAX_CHARS or _REFUSED.search(source) or source.count("{") > 400:
        return None
    try:
        made = convert_to_element(source.strip(), display="block" if is_block else "inline")
    except Exception:
        return None
    # Few elements, none of them deep within others.
    depth_max, elements_max = 50, 4_000
    level, count = [made], 0
    for _ in range(depth_max):
        count += len(level)
        # Browsers show half a fraction as an error; its source says more.
        if any(len(each) != _OPERANDS.get(each.tag, len(each)) for each in level):
            return None
        level = [child for each in level for child in each]
        if not level or count > elements_max:
            break
    if level or count > elements_max:
        return None
    for each in made.iter():
        # The library writes characters as entities, and would unescape its whole result, words as well.
        each.text = html.unescape(each.text) if each.text else each.text
    return tostring(made, encoding="unicode")


def filtered(attribute: str, value: str) -> str | None:
    """Return the value of an attribute of MathML; None for one that is not allowed."""
    allowed = _LENGTH if attribute in _LENGTHS else _WORD
    return value if allowed.fullmatch(value) else None
