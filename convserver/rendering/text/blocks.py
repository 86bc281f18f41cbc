"""Markdown cut into blocks, each of which means the same alone as in the whole text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)")
DETAILS_OPENED = re.compile(r"<details(?: open)?>\s*(?:<summary>(.*?)</summary>\s*)?", re.IGNORECASE)
DETAILS_CLOSED = re.compile(r"</details>\s*", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_ITEM = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])(?:\s|$)")


@dataclass(frozen=True, slots=True)
class _Fence:
    """A block of code that is open."""

    sign: str
    is_inner: bool  # whether it is in a list item, whose end closes it

    def is_closed_by(self, line: str) -> bool:
        found = FENCE.match(line)
        return found is not None and found[2].startswith(self.sign) and not found[3].strip()

    def is_left_by(self, line: str) -> bool:
        return self.is_inner and bool(line.strip()) and not line.startswith((" ", "\t"))


def blocks(text: str, *, is_all: bool = True) -> list[str]:
    """Return Markdown in pieces that can be rendered one by one; joined, they are the text.

    A piece is a paragraph, a list with all its items, a block of code and the like, with the blank lines
    after it. If more text follows (not `is_all`), it can change only the last piece. The time is in
    proportion to the length of the text.
    """
    starts = [0, *_boundaries(text, is_all=is_all), len(text)]
    return [text[start:end] for start, end in pairwise(starts) if end > start]


def fenced(text: str) -> tuple[str, str] | None:
    """Return the code and the language of a text that is one block of code; None for any other one."""
    lines = list(_lines(text.strip("\n")))
    opened = FENCE.fullmatch(lines[0].rstrip("\r\n")) if lines else None
    if opened is None or opened[1] or len(lines) < 2:
        return None
    fence = _Fence(opened[2], is_inner=False)
    closed = [at for at, line in enumerate(lines[1:], 1) if fence.is_closed_by(line.rstrip("\r\n"))]
    return ("".join(lines[1:-1]), opened[3]) if closed == [len(lines) - 1] else None


def _boundaries(text: str, *, is_all: bool) -> Iterator[int]:
    """Yield the beginnings of all pieces after the first."""
    fence: _Fence | None = None
    has_items = is_after_blank = is_complete = False
    at = start = folded = 0
    # A shorter last line can still become an item of the list before it.
    undecided_chars = 12
    for full in _lines(text):
        line, here = full.rstrip("\r\n"), at
        at += len(full)
        if fence is not None and not fence.is_left_by(line):
            if fence.is_closed_by(line):
                is_complete, fence = not fence.is_inner, None
            continue
        fence = None
        # What is folded away stays in one piece.
        if line[:1] == "<":
            folded += DETAILS_OPENED.fullmatch(line) is not None
            folded -= folded > 0 and DETAILS_CLOSED.fullmatch(line) is not None
        if not line.strip():
            is_after_blank = True
            continue
        may_become_item = len(line) < undecided_chars and line[0] in "-+*0123456789"
        if may_become_item and not (is_all or full.endswith("\n")):
            return
        opened, is_item = FENCE.match(line), _ITEM.match(line) is not None
        is_flush, is_heading = line[0] not in " \t", _HEADING.match(line) is not None
        if (here > start and not folded) and (
            is_complete
            or is_heading
            or (opened is not None and is_flush)
            or (is_after_blank and is_flush and not (is_item and has_items))
        ):
            yield here
            start, has_items = here, False
        is_after_blank, is_complete = False, is_heading
        has_items = has_items or is_item
        if opened is not None:
            fence = _Fence(opened[2], is_inner=has_items and not is_flush)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their ends; only `\\n` ends one."""
    # Not `splitlines`, which knows ten more ends of lines that Markdown does not.
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        yield text[at:end]
        at = end
