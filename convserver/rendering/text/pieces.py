"""Markdown that is too long for one piece, rendered in several up to the page's bound."""

from __future__ import annotations

import re
from typing import NamedTuple

from django.utils.safestring import SafeString

from convserver.rendering.text.blocks import blocks
from convserver.rendering.text.markdown import HIGHEST, MAX_CHARS, MAX_MARKS, is_long, markdown, marks_in
from convserver.rendering.text.runnable import Origin, Runnable

PAGE_MAX_CHARS = 200_000
"""The Markdown of short messages, and that of long ones, rendered on one page; the rest is plain text."""
_HEADING = re.compile(r"(#{1,6})\s")


class Piece(NamedTuple):
    """A part of a message."""

    text: str
    html: SafeString | None  # None if it is too long or too dense to be rendered


class LongTexts:
    """The long messages of one page, which share a bound on their cost."""

    def __init__(self) -> None:
        self._chars = PAGE_MAX_CHARS
        # The marks in that of long ones
        long_max_marks = 20_000
        self._marks = long_max_marks

    def rendered(self, text: str, *, breaks: bool, origin: Origin | None = None) -> tuple[list[Piece], str]:
        """Return the pieces of a text up to the bound, and the rest of it."""
        read = text[: self._chars]
        self._chars -= len(read)
        found = blocks(read)
        if len(read) < len(text) and found:
            found.pop()  # its end was not read
        shown = self._with_room(found)
        headings = [len(heading[1]) for heading in map(_HEADING.match, shown) if heading]
        env = {HIGHEST: min(headings)} if headings else {}
        pieces = [
            Piece(each, markdown(each, breaks=breaks, env=env, origin=origin)) for each in _joined(shown)
        ]
        return pieces, text[sum(map(len, shown)) :]

    def _with_room(self, found: list[str]) -> list[str]:
        """Return the first blocks whose marks fit; a block that is not rendered counts no marks."""
        for at, block in enumerate(found):
            marks = 0 if is_long(block) else marks_in(block)
            if marks > self._marks:
                return found[:at]
            self._marks -= marks
        return found


def _joined(found: list[str]) -> list[str]:
    """Return blocks with neighbours joined while they can be rendered in one piece."""
    pieces: list[str] = []
    chars = marks = 0
    for block in found:
        block_marks = marks_in(block)
        if pieces and chars + len(block) <= MAX_CHARS and marks + block_marks <= MAX_MARKS:
            pieces[-1] += block
        else:
            pieces.append(block)
            chars = marks = 0
        chars, marks = chars + len(block), marks + block_marks
    return pieces


def runnable_in(text: str) -> dict[str, Runnable]:
    """Return the code in a text that can be run, by the digests in the links to it."""
    origin = Origin(0)
    if markdown(text, origin=origin) is None:
        LongTexts().rendered(text, breaks=False, origin=origin)
    return origin.found
