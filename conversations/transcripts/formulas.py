"""How Markdown finds formulas of LaTeX, which keep their backslashes."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

# The rules of the well-known plugin for dollars know no brackets, and take words between prices for formulas.
FORMULA_MAX_CHARS = 2_000
ENDS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
# A price with words after it, up to the next price.
_PRICE = re.compile(r"\d[\d.,]*+(?:[kKmMbB]\b)?[^\\]*(?<![\\a-zA-Z])[a-zA-Z]{2,}")


def add_to(parser: MarkdownIt) -> None:
    """Add rules for formulas to a Markdown parser: tokens `math_inline` and `math_block` with the source."""
    interrupted = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.inline.ruler.before("escape", "math_inline", _inline)
    parser.block.ruler.before("fence", "math_block", _block, interrupted)  # type: ignore[arg-type]


def _inline(state: StateInline, silent: bool) -> bool:
    """Take a formula within a paragraph."""
    text, at = state.src, state.pos
    two = text[at : at + 2]
    mark = two if two in ENDS else two[:1]
    if mark not in ENDS:
        return False
    begin = at + len(mark)
    end = end_of(text, begin, mark, state.posMax)
    if end < 0 or not (source := text[begin:end]).strip() or "\n\n" in source:
        return False
    after = text[end + len(mark) : end + len(mark) + 1]
    if mark == "$":  # it must be a formula, and not the words between two prices
        around = (text[at - 1 : at] if at else "") + after
        is_tight = not source[0].isspace() and not source[-1].isspace()
        if not is_tight or any(each.isalnum() or each == "_" for each in around):
            return False
        if "`" in source or _PRICE.match(source, 0, FORMULA_MAX_CHARS):
            return False
    if mark == "\\[" and after in ("(", "[", ":"):  # brackets of a link that are no link
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content, token.markup = source, mark
        token.meta = {"is_block": mark in ("$$", "\\[")}
    state.pos = end + len(mark)
    return True


def end_of(text: str, begin: int, mark: str, until: int) -> int:
    """Return where the end of a formula begins; -1 if it has none in reach."""
    # By few searches: a text can begin ten thousand formulas, and end none.
    limit, at, tries = min(until, begin + 2 * FORMULA_MAX_CHARS), begin, 8
    for _ in range(tries):
        at = text.find(ENDS[mark], at, limit)
        backslashes = at - begin - len(text[begin:at].rstrip("\\"))
        if at < 0 or backslashes % 2 == 0:
            return at
        at += 1
    return -1


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a formula that begins a line and ends another one, or the same."""
    if state.is_code_block(start):
        return False
    begin = state.bMarks[start] + state.tShift[start]
    mark = state.src[begin : begin + 2]
    if mark not in ("$$", "\\["):
        return False
    lines = [state.src[begin + 2 : state.eMarks[start]]]
    at, chars, lines_max = start, 0, 50  # thousands of lines could each begin one
    while end_of(lines[-1], 0, mark, len(lines[-1])) < 0:
        at, chars = at + 1, chars + len(lines[-1])
        if (
            at >= min(end, start + lines_max)
            or state.isEmpty(at)
            or chars > 2 * FORMULA_MAX_CHARS
            or state.sCount[at] < state.blkIndent
        ):
            return False
        lines.append(state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]])
    last = lines.pop()
    closing = end_of(last, 0, mark, len(last))
    source = "\n".join([*lines, last[:closing]])
    if last[closing + 2 :].strip(" \t.,;") or not source.strip():  # the paragraph goes on
        return False
    if silent:
        return True
    state.line = at + 1
    token = state.push("math_block", "math", 0)
    token.block = True
    token.content, token.markup, token.map = source, mark, [start, state.line]
    token.meta = {"is_block": True}
    return True
