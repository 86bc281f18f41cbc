"""The output of one command in bounded memory: its beginning and end are shown, and much of it is kept."""

from __future__ import annotations

import codecs

from sessions_app.terminals.plain_text import plain


class CapturedOutput:
    """Output that is added as it comes."""

    SHOWN_MAX_BYTES = 64 * 1024
    """Longer output is shown by its beginning and its end."""
    KEPT_MAX_BYTES = 8 * 1024 * 1024
    """Of longer output, a file gets the beginning."""

    def __init__(self) -> None:
        self.size = 0
        self._beginning = bytearray()
        self._end = bytearray()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if (room := self.KEPT_MAX_BYTES - len(self._beginning)) > 0:
            self._beginning += data[:room]
        self._end += data
        # Cut seldom: each cut moves what is left to the front.
        if len(self._end) > 4 * self.SHOWN_MAX_BYTES:
            del self._end[: -self.SHOWN_MAX_BYTES]

    @property
    def is_cut(self) -> bool:
        """Return whether it is too long to be shown whole."""
        return self.size > self.SHOWN_MAX_BYTES

    @property
    def kept_size(self) -> int:
        """Return how many bytes of it are kept."""
        return len(self._beginning)

    @property
    def kept(self) -> bytes:
        """Return the beginning for a file."""
        # A pseudo-terminal ends lines in its own way, which no editor of the workspace should have to know.
        return bytes(self._beginning).replace(b"\r\n", b"\n")

    def shown(self, left_out: str) -> str:
        """Return the text; the line `left_out` stands for what is cut out of its middle."""
        if not self.is_cut:
            return plain(self._beginning.decode(errors="replace"))
        half = self.SHOWN_MAX_BYTES // 2 - 1024  # what is added to the text has room, too
        beginning, end = bytes(self._beginning[:half]), bytes(self._end[-half:])
        # Whole lines where they are short: a cut character or escape sequence would be unreadable.
        beginning = beginning[: beginning.rfind(b"\n", half // 2) + 1] or beginning
        end = end[end.find(b"\n", 0, half // 2) + 1 :]
        first, _ = codecs.utf_8_decode(beginning, "replace", False)  # without the half of a character
        last = end.lstrip(bytes(range(0x80, 0xC0))).decode(errors="replace")
        return f"{plain(first).rstrip()}\n{left_out}\n{plain(last)}"
