"""The output of programs as text: without escape sequences, and with lines as a terminal leaves them."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable

# Cursor and color sequences, titles and other strings that BEL or ESC \ ends, and short sequences.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?|\x1b[ -/]*[0-~]?"
)
# What may be the beginning of an escape sequence, or of the end of a line.
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]{0,1000}|[ -/]*)|\r)\Z")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?=[^\n])", re.MULTILINE)
_ERASED = re.compile(r"[^\n\x08]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNREADABLE = re.compile("\ufffd{3,}")


def plain(text: str) -> str:
    """Return what is left to read: of a line that a program has overwritten, its last state."""
    text = re.sub(r"\r+\n", "\n", _ESCAPES.sub("", text))
    text = _OVERWRITTEN.sub("", text)
    for _ in range(10):  # some programs print bold and underlined letters by going back
        text, erased = _ERASED.subn("", text)
        if not erased:
            break
    return _UNREADABLE.sub("\ufffd\ufffd", _CONTROLS.sub("", text))


class LivePieces:
    """Gives the output of a command to a reader while it comes, in some ten pieces a second."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self._on_output = on_output
        self._pending = bytearray()
        self._text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._timer: asyncio.Handle | None = None
        self._shown_at = float("-inf")

    def add(self, data: bytes) -> None:
        self._pending += data
        most = 16 * 1024
        if len(self._pending) > 2 * most:  # a reader cannot follow a flood, and sees its end
            del self._pending[:-most]
            self._decoder.reset()
            self._text = ""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._shown_at + 0.1, loop.time()), self._show)

    def flush(self) -> None:
        """Give what is left, also unfinished characters."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._give(self._text + self._decoder.decode(self._pending, final=True))
        self._pending.clear()
        self._text = ""

    def _show(self) -> None:
        self._timer = None
        self._shown_at = asyncio.get_running_loop().time()
        text = self._text + self._decoder.decode(self._pending)
        self._pending.clear()
        unfinished = _UNFINISHED.search(text)
        end = len(text) if unfinished is None else unfinished.start()
        self._text = text[end:]
        self._give(text[:end])

    def _give(self, text: str) -> None:
        if text := plain(text):
            self._on_output(text)
