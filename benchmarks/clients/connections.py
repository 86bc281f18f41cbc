"""What the clients of sockets and of REST share: one open connection, and one that sends in a row."""

from __future__ import annotations

import asyncio
import random
import time
from typing import cast


class WrongAnswer(Exception):
    """What came back is not what the protocol promises."""


class Connection(asyncio.Protocol):
    """One open connection; `failure` ends by an exception when it breaks."""

    def __init__(self) -> None:
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        try:
            self.take(data)
        except Exception as error:  # the protocol's callbacks have no caller to raise to
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("The server ended the connection."))

    def take(self, data: bytes) -> None:
        """Bytes came in."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise WrongAnswer unless all came that was promised."""
        raise NotImplementedError

    def _fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)


class Sender(Connection):
    """Sends, waits for the answer, sends the next, until it is told when to end."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()
        self.complete = asyncio.Event()
        self.sent: list[str] = []
        """The ids."""
        self.answers: list[bytes] = []
        self.answered_at: list[float] = []
        self._until = 0.0

    def begin(self, *, until: float) -> None:
        """Send the first, and others until that moment."""
        self._until = until
        self._send_next()

    def end(self) -> None:
        """Send nothing more."""
        self._until = 0.0

    def message(self, sent_id: str) -> bytes:
        """Return what is to be sent under this id."""
        raise NotImplementedError

    def is_complete(self) -> bool:
        """Say whether the last was sent, and everything that was asked for has come."""
        return 0 < len(self.answers) == len(self.sent)

    def answered(self, answer: bytes) -> None:
        """Keep an answer, and send the next."""
        now = time.perf_counter()
        self.answers.append(answer)
        self.answered_at.append(now)
        if now < self._until:
            self._send_next()

    def _send_next(self) -> None:
        sent_id = new_id()
        self.sent.append(sent_id)
        self.transport.write(self.message(sent_id))


def new_id() -> str:
    """Return an id that nothing else has."""
    return f"{random.getrandbits(128):032x}"


def require_same(name: str, found: list[int], expected: list[int]) -> None:
    """Raise WrongAnswer unless these are the seqs, in their order."""
    if found != expected:
        raise WrongAnswer(f"{name}: {len(found)} seqs, expected {len(expected)}; or not in order")
