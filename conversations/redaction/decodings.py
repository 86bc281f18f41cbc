"""Decodings of text: escapes of JSON and of URLs resolved, with the way back to the original positions."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

READINGS = 3  # a string is searched as it is, as JSON text, and as JSON text inside that

_PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
ESCAPE = re.compile(rf'\\(?:{_PAIR}|u[0-9a-fA-F]{{4}}|["\\/bfnrt])')
_HEX, _MORE = "[0-9a-fA-F]", "%[89abAB][0-9a-fA-F]"
# One character of a URL, as the bytes of its UTF-8.
PERCENT = re.compile(
    rf"%[0-7]{_HEX}|%[cdCD]{_HEX}{_MORE}|%[eE]{_HEX}{_MORE}{_MORE}|%[fF][0-7]{_MORE}{_MORE}{_MORE}"
)


class DecodedText:
    """A text, and for each character its position in the original text."""

    __slots__ = ("_back", "_escape", "_places", "text")

    def __init__(
        self, text: str, back: DecodedText | None = None, *, escape: re.Pattern[str] = ESCAPE
    ) -> None:
        """`text` is the original, or was decoded from `back`, where each `escape` is one character."""
        self.text = text
        self._back = back
        self._escape = escape
        self._places: tuple[list[int], list[int]] | None = None

    def place(self, at: int) -> int:
        """Return the position of a character in the original text."""
        if self._back is None:
            return at
        if self._places is None:
            self._places = _ends_of_escapes(self._back.text, self._escape)
        reads_at, stands_at = self._places
        last = bisect_right(reads_at, at) - 1
        return self._back.place(stands_at[last] + at - reads_at[last])

    def again(self) -> DecodedText:
        """Return the text with its escapes decoded once more."""
        try:
            text = str(json.loads(f'"{self.text}"', strict=False))
        except ValueError:  # only parts of it look like JSON
            text = ESCAPE.sub(lambda escape: _character(escape[0]), self.text)
        return DecodedText(text, self)

    def unquoted(self) -> DecodedText:
        """Return the text with the escapes of URLs decoded."""
        text = PERCENT.sub(lambda escape: _percent_character(escape[0]), self.text)
        return DecodedText(text, self, escape=PERCENT)


def readings(first: DecodedText) -> Iterator[DecodedText]:
    """Yield a decoding and those of what it may quote, each also as a URL; each is made on request."""
    reading = first
    for number in range(READINGS):
        yield reading
        if "%" in reading.text and PERCENT.search(reading.text):
            yield reading.unquoted()
        if number == READINGS - 1 or "\\" not in reading.text:
            return
        reading = reading.again()


def _ends_of_escapes(text: str, escapes: re.Pattern[str]) -> tuple[list[int], list[int]]:
    """Return where each escape ends, in the decoded text and in the original."""
    reads_at, stands_at = [0], [0]
    length = end = 0
    for escape in escapes.finditer(text):
        length += escape.start() - end + 1
        end = escape.end()
        reads_at.append(length)
        stands_at.append(end)
    return reads_at, stands_at


@lru_cache(maxsize=1024)
def _character(escape: str) -> str:
    return str(json.loads(f'"{escape}"'))


@lru_cache(maxsize=1024)
def _percent_character(escape: str) -> str:
    # Not every such sequence is UTF-8. A replacement for each would change the number of characters.
    try:
        return bytes.fromhex(escape.replace("%", "")).decode()
    except UnicodeDecodeError:
        return "\ufffd"
