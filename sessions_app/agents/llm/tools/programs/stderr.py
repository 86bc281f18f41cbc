"""The standard error of a program, whose last lines tell why it has ended."""

from __future__ import annotations

import asyncio
import re
from asyncio import StreamReader
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from conversations.dialects import columns
from sessions_app.settings import setup_keys

KEPT_BYTES = 16 * 1024
LINES_MAX = 12
LINE_MAX_CHARS = 300
END_S = 0.5
REST_S = 0.02
PIECE_BYTES = 64 * 1024
# A shorter value of a variable is no secret, and would match in many words.
SECRET_MIN_CHARS = 4
MASK = "***"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
"""Control sequences of a terminal."""
_SECRET_OPTION = re.compile(r"--?[\w-]*(?:key|token|secret|password|auth)[\w-]*(?:=(.+))?", re.IGNORECASE)


class LastLines:
    """Keeps the end of a program's output."""

    def __init__(self, secrets: Collection[str]) -> None:
        # The longest first: one that another contains would leave the rest of that.
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._kept = b""
        self._is_over = asyncio.Event()

    async def listen(self, stream: StreamReader) -> None:
        """Read to the end: a program with unread output would block."""
        try:
            while piece := await stream.read(PIECE_BYTES):
                self._kept = (self._kept + piece)[-KEPT_BYTES:]
                if len(piece) == PIECE_BYTES:  # an endless writer must not occupy the event loop
                    await asyncio.sleep(REST_S)
        finally:
            self._is_over.set()

    async def end(self) -> None:
        """Wait until all is read, but not long: a child of the program may hold it open."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), END_S)

    @property
    def text(self) -> str:
        """Return the last lines, without secrets and control sequences."""
        text = self._kept.decode(errors="replace").replace("\r\n", "\n")
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        lines = [_plain(line) for line in _ESCAPES.sub("", text).split("\n")]
        return "\n".join([line for line in lines if line.strip()][-LINES_MAX:])


def secrets_of(environment: Iterable[tuple[str, str]], command: Sequence[str]) -> set[str]:
    """Return the secrets in a program's environment and command, which other readers must not see."""
    found = [value for _, value in environment]
    found += setup_keys.hidden_in({"command": list(command)})  # also those in addresses and headers
    is_secret_next = False
    for argument in command:
        option = _SECRET_OPTION.fullmatch(argument)
        if is_secret_next and option is None:
            found.append(argument)
        if option is not None and option[1]:
            found.append(option[1])
        is_secret_next = option is not None and not option[1]
    return {value for value in found if len(value) >= SECRET_MIN_CHARS}


def _plain(line: str) -> str:
    shown = "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in columns.clean(line))
    return shown if len(shown) <= LINE_MAX_CHARS else f"{shown[:LINE_MAX_CHARS]}…"
