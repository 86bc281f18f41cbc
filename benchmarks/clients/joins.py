"""Clients of V1 sockets, each of which opens a conversation and takes a replay of its events."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from benchmarks.clients import frames
from benchmarks.clients.connections import WrongAnswer
from benchmarks.clients.sockets import Socket
from benchmarks.job import Job, Question

_STATE = "full_state"


class Joining(Socket):
    """Takes everything up to the frame that holds what the question expects, which is the last event."""

    def __init__(self, job: Job, question: Question) -> None:
        super().__init__()
        self.job, self.path = replace(job, port=question.port), question.path
        self.complete = asyncio.Event()
        self._last = question.expected.encode()
        self._texts: list[bytes] = []

    def take_frames(self, data: bytes) -> None:
        self.received += data
        for text in frames.texts(self.received):
            self._texts.append(text)
            if self._last in text:
                self.complete.set()

    def check(self) -> None:
        """Raise WrongAnswer unless all events came, none twice, beside one state of the conversation."""
        shown = [json.loads(text) for text in self._texts]
        ids = {each["id"] for each in shown if each.get("key") != _STATE}
        if len(ids) != self.job.events or len(self._texts) != self.job.events + 1:
            raise WrongAnswer(f"{len(self._texts)} frames have {len(ids)} events, not {self.job.events}.")

    def leave(self) -> None:
        """Go, as a tab that is closed does."""
        self.failure.cancel()
        self.transport.abort()
