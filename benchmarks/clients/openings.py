"""Clients of Socket.IO that open one long conversation together, again and again."""

from __future__ import annotations

import asyncio

from benchmarks.clients import frames
from benchmarks.clients.connections import WrongAnswer, require_same
from benchmarks.clients.sockets import Socket
from benchmarks.job import Job

_OPEN, _CONNECTED = b"0{", b"40"
_EVENT = b'42["oh_event",{"id":'


class Opening(Socket):
    """Joins as the web frontend does and takes everything up to the last event."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__()
        self.job, self.path = job, job.paths[place]
        self.complete = asyncio.Event()
        self._ids: list[int] = []
        self._is_connected = False

    def take_frames(self, data: bytes) -> None:
        self.received += data
        for text in frames.texts(self.received):
            if text.startswith(_OPEN):
                self.transport.write(frames.text_frame(_CONNECTED))
            elif text.startswith(_CONNECTED):
                self._is_connected = True
            elif text.startswith(_EVENT):
                self._ids.append(_id(text))
        if self._ids and self._ids[-1] >= self.job.events - 1:
            self.complete.set()

    def check(self) -> None:
        """Raise WrongAnswer unless all events came, in order, none twice."""
        if not self._is_connected:
            raise WrongAnswer("The server sent events without CONNECT.")
        require_same("events", self._ids[: self.job.events], list(range(self.job.events)))

    def leave(self) -> None:
        """Go, as a tab that is closed does."""
        self.failure.cancel()
        self.transport.abort()


def _id(text: bytes) -> int:
    digits = text[len(_EVENT) : text.find(b",", len(_EVENT))]
    return int(digits) if digits.isdigit() else -1
