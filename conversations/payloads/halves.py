"""Halves of surrogate pairs: an emoji that was cut in two where UTF-16 is counted.

JSON can carry a half as an escape, UTF-8 cannot, and most readers refuse a text with one. Here matching
halves become their character, and a lone half becomes U+FFFD.
"""

from __future__ import annotations

import json
import re
from typing import Any

_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]$")
_HAS_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(
    # An escape of a whole pair, of a lone half, or any other: each is taken once, from the left.
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
# The beginning of an escape, or of the second half of a pair, which the next piece may complete.
_UNFINISHED = re.compile(
    r"(?<!\\)(?:\\\\)*"
    r"(\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?)\Z"
)


def whole(text: str) -> str:
    """Return a text with matching halves joined, and U+FFFD for lone ones."""
    return text if text.isascii() else _HALVES.sub(_character, text)


def whole_value(value: Any) -> Any:
    """Return a JSON value whose texts and names are whole."""
    text = json.dumps(value, ensure_ascii=False)
    return value if text.isascii() or not _HALVES.search(text) else json.loads(whole(text))


def whole_json(text: str) -> str:
    """Return JSON text in which no escape is a lone half; leave the rest unchanged."""
    return _ESCAPES.sub(_escape, text) if _HAS_ESCAPED_HALF.search(text) else text


def _character(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[2] is None else "\\ufffd"


class WholeText:
    """Joins a text that arrives in pieces: a piece may end between two halves."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return the text that can be shown after this piece; hold a first half at its end."""
        text, self._held = self._held + piece, ""
        if _FIRST_HALF.search(text):
            text, self._held = text[:-1], text[-1]
        return whole(text)

    def rest(self) -> str:
        """Return the held text; nothing follows."""
        held, self._held = self._held, ""
        return whole(held)


class WholeJson:
    """Applies `whole_json` to JSON text that arrives in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return the text that is certain after this piece; hold an unfinished escape."""
        text = self._held + piece
        unfinished = _UNFINISHED.search(text)
        end = len(text) if unfinished is None else unfinished.start(1)
        self._held = text[end:]
        return whole_json(text[:end])

    def rest(self) -> str:
        """Return the held text; nothing follows."""
        held, self._held = self._held, ""
        return whole_json(held)
