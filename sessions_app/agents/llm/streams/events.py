"""Server-sent events, parsed from bytes in pieces of any size."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

EVENT_MAX_BYTES = 16 * 1024 * 1024
"""The longest event or unstreamed answer."""
_LINE_END = re.compile(rb"\r\n|\r|\n")


class UnreadableAnswer(ValueError):
    """A server's answer does not fit its wire."""


class EventParser:
    """Yields the data of each event, without comments and empty events."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """Of the unfinished line."""
        self._lines: list[bytes] = []
        """The data of the unfinished event."""
        self._size = 0
        self._is_after_return = False
        """Whether a next line feed belongs to the end of the last line."""
        self._has_begun = False

    def feed(self, part: bytes) -> Iterator[str]:
        """Yield the data of the events that end in a piece. Raise UnreadableAnswer for too long ones."""
        # A line end of two bytes may be parted between two pieces.
        if self._is_after_return and part:
            part, self._is_after_return = part.removeprefix(b"\n"), False
        start = 0
        for end in _LINE_END.finditer(part):
            self._keep(part[start : end.start()])
            start = end.end()
            yield from self._end_line()
        self._is_after_return = part.endswith(b"\r")
        self._keep(part[start:])

    def close(self) -> Iterator[str]:
        """Yield the data of an unfinished event: some servers omit the last empty line."""
        if self._pieces:
            yield from self._end_line()
        yield from self._end_event()

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > EVENT_MAX_BYTES:
            raise UnreadableAnswer("An event of the answer is too long.")
        if piece:
            self._pieces.append(piece)

    def _end_line(self) -> Iterator[str]:
        line, self._pieces = b"".join(self._pieces), []
        if not self._has_begun:
            self._has_begun, line = True, line.removeprefix(codecs.BOM_UTF8)
        if not line:
            yield from self._end_event()
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._lines.append(value.removeprefix(b" "))
        else:  # a comment, or a field without a meaning here
            self._size -= len(line)

    def _end_event(self) -> Iterator[str]:
        data, self._lines, self._size = b"\n".join(self._lines), [], 0
        if data.strip():
            yield data.decode("utf-8", "replace")
