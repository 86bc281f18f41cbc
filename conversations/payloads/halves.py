"""Halves of surrogate pairs: an emoji that was cut in two where UTF-16 is counted.

JSON can carry one as an escape, UTF-8 cannot, and most readers refuse a text that holds one. Here halves that
belong together become their character, and a half that stays alone becomes U+FFFD.
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
_UNFINISHED = re.compile(
    r"(?<!\\)(?:\\\\)*"
    r"(\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?)\Z"
)
"""What may go on as an escape, or as the second half of one."""


def whole(text: str) -> str:
    """Return a text with its halves joined, and U+FFFD for those that stay alone."""
    return text if text.isascii() else _HALVES.sub(_character, text)


def whole_value(value: Any) -> Any:
    """Return a JSON value whose texts and names are whole."""
    text = json.dumps(value, ensure_ascii=False)
    return value if text.isascii() or not _HALVES.search(text) else json.loads(whole(text))


def whole_json(text: str) -> str:
    """Return JSON text in which no escape is a lone half; all else stays as it is."""
    return _ESCAPES.sub(_escape, text) if _HAS_ESCAPED_HALF.search(text) else text


def _character(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[2] is None else "\\ufffd"


class WholeText:
    """Joins a text that comes in pieces: a piece may end between two halves."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return what can be shown with this piece; a first half at its end waits for the next one."""
        text, self._held = self._held + piece, ""
        if _FIRST_HALF.search(text):
            text, self._held = text[:-1], text[-1]
        return whole(text)

    def rest(self) -> str:
        """Return what waited: nothing follows."""
        held, self._held = self._held, ""
        return whole(held)


class WholeJson:
    """Does the same as `whole_json` for JSON text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return what is certain with this piece; an escape that may go on waits for the next one."""
        text = self._held + piece
        unfinished = _UNFINISHED.search(text)
        end = len(text) if unfinished is None else unfinished.start(1)
        self._held = text[end:]
        return whole_json(text[:end])

    def rest(self) -> str:
        """Return what waited: nothing follows."""
        held, self._held = self._held, ""
        return whole_json(held)
