"""The elements of a JSON array that is too large for memory, one at a time.

An element is found by its brackets and quotes, and not decoded here: so one that is damaged inside is found
as well, and does not keep those after it from being read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from conversations.transcripts.sources.nodes import Unreadable

ITEM_MAX_BYTES = 512 * 1024 * 1024
_BLANK = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NESTED = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
"""What says nothing of where an element ends, inside of one."""
_BETWEEN = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+", re.DOTALL)
"""And around the elements."""
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The rest of a string, up to its quote or as far as it is there."""


def items(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the text of each element; that of the whole if it is an object.

    Raise Unreadable, with the name of the file, after the last element before a break.
    """
    scan = _Scan(name)
    for chunk in chunks:
        yield from scan.take(chunk)
    scan.end()


class _Scan:
    """Goes over a text once, and keeps no more of it than the element that has begun."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = bytearray()
        self._at = 0
        """The next byte to look at."""
        self._start = 0
        """Where the element begins that is looked at."""
        self._depth = 0
        self._outermost = 1
        """The depth of the elements: 0 if there is but one, which is the whole."""
        self._is_begun = self._is_over = self._is_in_string = False
        self._count = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the elements that end in the next bytes. Raise Unreadable."""
        self._text += chunk
        if self._is_begun or self._begins():
            while not self._is_over and (mark := self._next()):
                yield from self._pass(mark)
        if self._is_over and self._text[self._at :].strip(_BLANK):
            raise Unreadable(f"{self._name} goes on after its end, after {self._told()}")
        self._forget()
        if len(self._text) > ITEM_MAX_BYTES:
            raise Unreadable(f"{self._name} has no end to what follows {self._told()}")

    def end(self) -> None:
        """Raise Unreadable if the text cannot end here."""
        if not self._is_over:
            raise Unreadable(f"{self._name} breaks off after {self._told()}")

    def _told(self) -> str:
        return f"{self._count} conversation{'' if self._count == 1 else 's'}"

    def _begins(self) -> bool:
        """Go to the first byte that says something, and say whether it is there yet. Raise Unreadable."""
        if _BYTE_ORDER_MARK.startswith(self._text[:3]) and len(self._text) < 3:
            return False
        text = self._text.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANK)
        if not text:
            return False
        if not text.startswith((b"[", b"{")):
            raise Unreadable(f"{self._name} is not an array of conversations in JSON")
        self._text, self._is_begun = text, True
        if text[:1] == b"[":
            self._at = self._start = self._depth = 1
        else:
            self._outermost = 0
        return True

    def _next(self) -> bytes:
        """Return the next bracket, or comma between elements; nothing if it is not there yet."""
        while self._at < len(self._text):
            if self._is_in_string and not self._leaves_string():
                return b""
            skipped = (_BETWEEN if self._depth == self._outermost else _NESTED).match(self._text, self._at)
            self._at = skipped.end() if skipped else self._at
            mark = bytes(self._text[self._at : self._at + 1])
            self._at += len(mark)
            if mark != b'"':
                return mark
            self._is_in_string = True
        return b""

    def _leaves_string(self) -> bool:
        found = _IN_STRING.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._text[self._at : self._at + 1] != b'"':
            return False
        self._at += 1
        self._is_in_string = False
        return True

    def _pass(self, mark: bytes) -> Iterator[bytes]:
        """Yield the element that ends with a bracket or comma, if one does. Raise Unreadable."""
        if mark in b"[{":
            self._depth += 1
        elif mark == b",":
            yield from self._ended(self._at - 1)
        else:
            self._depth -= 1
            if self._depth == 0:
                yield from self._close(mark)

    def _close(self, mark: bytes) -> Iterator[bytes]:
        if self._outermost == 1 and mark != b"]":
            raise Unreadable(f"{self._name} is damaged after {self._told()}")
        self._is_over = True
        yield from self._ended(self._at - self._outermost)

    def _ended(self, end: int) -> Iterator[bytes]:
        text = bytes(self._text[self._start : end]).strip(_BLANK)
        self._start = self._at
        if text:
            self._count += 1
            yield text

    def _forget(self) -> None:
        if self._start:
            del self._text[: self._start]
            self._at -= self._start
            self._start = 0
