"""Long text: its beginning is shown, more is folded, all of it can be downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SHOWN_MAX_CHARS = 2_000
FOLDED_MAX_CHARS = 20_000  # the text in the page; the rest is a download
# The text that is read for the page, since escapes for terminals are removed from it.
CLEANED_MAX_CHARS = 50_000


class Output(NamedTuple):
    """Text for a page. When `folded` is empty, `shown` is all of it."""

    shown: str
    folded: str  # all of the text, or its beginning if `is_cut`
    size: str
    is_cut: bool


def output(text: str, clean: Callable[[str], str], *, whole: bool = False) -> Output:
    """Return the shown parts of a text, cleaned; `whole` cuts nothing off."""
    text = text.rstrip("\n")
    cleaned = clean(text if whole else text[:CLEANED_MAX_CHARS])
    shown_max_lines = 20
    if len(text) <= SHOWN_MAX_CHARS and cleaned.count("\n") < shown_max_lines:
        return Output(cleaned, "", "", is_cut=False)
    beginning_lines = 8
    beginning_chars = 800
    beginning = "\n".join(cleaned[:beginning_chars].split("\n")[:beginning_lines])
    is_cut = not whole and (len(text) > CLEANED_MAX_CHARS or len(cleaned) > FOLDED_MAX_CHARS)
    folded = cleaned[:FOLDED_MAX_CHARS] if is_cut else cleaned
    # Not empty, which would mean that the beginning is all: a text of controls is cleaned away.
    return Output(beginning, folded or " ", size(text), is_cut)


def size(text: str) -> str:
    """Return the length of a text in words: `1,204 lines, 88 kB`."""
    lines = text.count("\n") + 1
    return f"{lines:,} {'line' if lines == 1 else 'lines'}, {_bytes(len(text.encode(errors='replace')))}"


def _bytes(count: int) -> str:
    for unit, power in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= power:
            return f"{count / power:,.0f} {unit}" if count >= 10 * power else f"{count / power:.1f} {unit}"
    return f"{count} bytes"
