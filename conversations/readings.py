"""Decodings of text: JSON escapes resolved, with the way back to the original positions."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

READINGS = 3
"""A string is examined as it stands, as JSON text that it may be, and as JSON text inside that."""

_PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
ESCAPE = re.compile(rf'\\(?:{_PAIR}|u[0-9a-fA-F]{{4}}|["\\/bfnrt])')


class Reading:
    """A text, and for each character its position in the original text."""

    __slots__ = ("_back", "_places", "text")

    def __init__(self, text: str, back: Reading | None = None) -> None:
        """Take a text as it stands, or a text decoded from `back`."""
        self.text = text
        self._back = back
        self._places: tuple[list[int], list[int]] | None = None

    def place(self, at: int) -> int:
        """Return the position of a character in the original text."""
        if self._back is None:
            return at
        if self._places is None:
            self._places = _ends_of_escapes(self._back.text)
        reads_at, stands_at = self._places
        last = bisect_right(reads_at, at) - 1
        return self._back.place(stands_at[last] + at - reads_at[last])

    def again(self) -> Reading:
        """Return the text with its escapes decoded once more."""
        try:
            text = str(json.loads(f'"{self.text}"', strict=False))
        except ValueError:  # only parts of it look like JSON
            text = ESCAPE.sub(lambda escape: _character(escape[0]), self.text)
        return Reading(text, self)


def readings(first: Reading) -> Iterator[Reading]:
    """Yield a decoding and those of what it may quote; each is made on request."""
    reading = first
    yield reading
    for _ in range(READINGS - 1):
        if "\\" not in reading.text:
            return
        reading = reading.again()
        yield reading


def _ends_of_escapes(text: str) -> tuple[list[int], list[int]]:
    """Return where each escape ends, in the decoded text and in the original."""
    reads_at, stands_at = [0], [0]
    length = end = 0
    for escape in ESCAPE.finditer(text):
        length += escape.start() - end + 1
        end = escape.end()
        reads_at.append(length)
        stands_at.append(end)
    return reads_at, stands_at


@lru_cache(maxsize=1024)
def _character(escape: str) -> str:
    return str(json.loads(f'"{escape}"'))
