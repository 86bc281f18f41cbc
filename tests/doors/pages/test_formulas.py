"""LaTeX in messages: MathML where it can be made, else its source, and never anything that acts."""

from __future__ import annotations

import re
import time

import pytest

from conversations.transcripts.plain import words
from convserver.rendering.text.markdown import markdown
from convserver.rendering.text.unfinished import closed

pytestmark = pytest.mark.one_engine


def shown(text: str) -> str:
    html = markdown(text)
    assert html is not None
    return html


def test_formulas_in_each_kind_of_marks_are_mathml() -> None:
    for text in (r"\(\alpha_1\)", r"$\alpha_1$", r"so $$\alpha_1$$ here", r"so \[\alpha_1\] here"):
        assert "<msub><mi>\N{GREEK SMALL LETTER ALPHA}</mi><mn>1</mn></msub>" in shown(text)
    for text in ("\\[\n\\alpha\n- c\n+ \\frac{a}{b}\n\\]", "$$\n\\alpha - c\n+ \\frac{a}{b}\n$$"):
        html = shown(f"So:\n{text}\nDone.")
        assert (
            '<math display="block"><mrow><mi>\N{GREEK SMALL LETTER ALPHA}</mi><mo>\N{MINUS SIGN}</mo>' in html
        )
        assert "<mo>+</mo><mfrac>" in html
        assert "<li>" not in html


def test_prices_variables_links_and_code_are_no_formulas() -> None:
    for text in ("$5 and $6", "$5-$6", "US$5 and CA$ 6", "$5 apples and 3$!", "$HOME/$USER", "a \\$x$ b"):
        assert "<math" not in shown(text)
        assert "$" in shown(text)
    assert shown("`$x$` `\\(y\\)`") == "<p><code>$x$</code> <code>\\(y\\)</code></p>\n"
    assert "<math" not in shown("```\n\\(x\\)\n$y$\n```") + shown("    $$x$$")
    assert "<math" not in shown(r"\[no formula\](http://x.example)")


def test_what_cannot_be_shown_as_a_formula_is_shown_as_its_source() -> None:
    for text in (
        r"$\href{javascript:alert(1)}{x}$",
        r"$\def\x{\x\x}\x$",
        r"$\newcommand{\x}{yy}\x$",
        r"$\style{position:fixed}{x}$",
        r"$\class{copy}{x}$",
        r"$\frac{a}$",
        "$" + "{" * 600 + "x" + "}" * 600 + "$",
        "$" + r"\sqrt" * 300 + "x$",
        "$" + "x+" * 1_500 + "x$",
    ):
        html = shown(text)
        assert html.startswith("<p><code>$"), html[:80]
        assert "<math" not in html


def test_a_message_has_a_bounded_number_of_formulas() -> None:
    assert shown(r"$x$ " * 400).count("<math") == 300


@pytest.mark.parametrize(
    "source",
    [
        r"\text{<img src=x onerror=alert(1)>}",
        r"<script>alert(1)</script>",
        r"\mathrm{</math><script>alert(1)</script>}",
        r"\text{&lt;script&gt;alert(1)&lt;/script&gt;}",
        r"\textcolor{red;position:fixed}{x}",
        r"\fcolorbox{red}{url(http://x.example)}{x}",
        r"\operatorname{<b>}",
        r"\kern-500em x",
        r"\raise 1000pt{x}",
        r"\rule{9999em}{9999em}",
        r"\Huge\Huge\Huge x",
    ],
)
def test_a_formula_holds_nothing_that_acts_or_leaves_its_place(source: str) -> None:
    html = shown(f"${source}$")
    assert "<math" in html
    tags = re.findall(r"</?([a-z0-9]+)", html)
    assert all(tag == "p" or tag == "math" or tag.startswith("m") for tag in tags), html
    inside = re.findall(r"<[^>]*>", html)
    assert not any(
        re.search(r"href|style=|on\w+=|class|color|background|size=|\d{3}", each) for each in inside
    )


def test_beginnings_of_formulas_without_an_end_cost_little() -> None:
    prices = f"${'1' * 3_990}$ " * 7
    for text in (
        *("\\(" * 14_000, "$x " * 9_000, "$$" + "\\$" * 14_000, "\\(\\\\)" * 4_000),
        *("\\[\n" * 1_330, prices),
    ):
        began = time.process_time()
        assert "<math" not in shown(text)
        assert time.process_time() - began < 3


def test_no_formula_stands_far_from_its_place() -> None:
    html = shown("$" + "\\lower{2em}{" * 9 + "x" + "}" * 9 + "$")
    assert "voffset" not in html
    assert 'width="-' not in shown(r"$a\!b$")


def test_a_line_of_words_keeps_the_source() -> None:
    assert words(r"Let \(x_1 * y_1 * z\) be $\alpha_1$") == r"Let x_1 * y_1 * z be \alpha_1"


def test_a_formula_that_is_still_coming_is_shown_as_its_source() -> None:
    for text in (r"Let \(a_1 * \frac{b", "So $$x_1 * y_1", "\\[\nx_1 * \\alpha"):
        html = shown(closed(text))
        assert "<em>" not in html
        assert re.sub(r"<[^>]+>", "", html).strip() == text.strip()
    assert "<math" in shown(closed(r"**Let \(a_1 *b\) be"))
