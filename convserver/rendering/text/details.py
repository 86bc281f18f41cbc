"""A block rule for `<details>`: what a summary folds away is Markdown, and no other HTML comes with it."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock

from convserver.rendering.text.blocks import DETAILS_CLOSED, DETAILS_OPENED, FENCE

_SUMMARY = re.compile(r"<summary>(.*?)</summary>\s*", re.IGNORECASE)
_COUNTED = "details"  # the key of an `env` for their number so far


def add_to(parser: MarkdownIt) -> None:
    """Add the rule to a parser."""
    parser.block.ruler.before(
        "fence", "details", _details, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )


def _details(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    # Each one that opens reads all lines after it.
    details_max = 50
    opened = None if state.is_code_block(start) else DETAILS_OPENED.fullmatch(_line(state, start))
    if opened is None or state.env.get(_COUNTED, 0) >= details_max:
        return False
    if silent:
        return True
    state.env[_COUNTED] = state.env.get(_COUNTED, 0) + 1
    last, is_closed = _last(state, start, end)
    at, summary = start + 1, opened[1]
    if summary is None and at < last and (found := _SUMMARY.fullmatch(_line(state, at))):
        at, summary = at + 1, found[1]
    state.push("details_open", "details", 1).map = [start, last]
    state.push("summary_open", "summary", 1)
    token = state.push("inline", "", 0)
    token.content, token.map, token.children = (summary or "").strip() or "Details", [start, at], []
    state.push("summary_close", "summary", -1)
    parent, line_max = state.parentType, state.lineMax
    state.parentType, state.lineMax = "container", last
    state.md.block.tokenize(state, at, last)
    state.parentType, state.lineMax = parent, line_max
    state.push("details_close", "details", -1)
    # One that is not closed ends with the text around it.
    state.line = last + is_closed
    return True


def _last(state: StateBlock, start: int, end: int) -> tuple[int, bool]:
    """Return the line that closes what opens at a line; else the first one after the text around it."""
    depth, fence = 1, ""
    for at in range(start + 1, end):
        if not state.isEmpty(at) and state.sCount[at] < state.blkIndent:
            return at, False
        line = _line(state, at)
        if found := FENCE.match(line):
            fence = "" if fence and found[2].startswith(fence) else fence or found[2]
        elif not fence:
            depth += 1 if DETAILS_OPENED.fullmatch(line) else -1 if DETAILS_CLOSED.fullmatch(line) else 0
        if depth == 0:
            return at, True
    return end, False


def _line(state: StateBlock, at: int) -> str:
    return state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]]
