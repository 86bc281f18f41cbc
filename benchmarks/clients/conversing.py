"""Clients that talk to an agent: say something, wait for the end of the turn, say the next."""

from __future__ import annotations

import time

from benchmarks.clients import frames
from benchmarks.clients.connections import Sender, WrongAnswer
from benchmarks.clients.sockets import Socket
from benchmarks.job import Job

_SAID = "Count to three."
_HEAD_BYTES = 700
"""The envelope of an event stands before its text and payload."""
_ANSWER, _TURN = b'"kind":"message","source":"agent"', b'"kind":"turn"'


class Talker(Socket, Sender):
    """Talks to the agent of one conversation; a turn that ended without an answer is a wrong answer."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__()
        self.job, self.path = job, job.paths[place]
        self.latencies_ms: list[float] = []
        """By message, how long the first piece of its answer took."""
        self._said_at = 0.0
        self._is_waiting = False

    def message(self, sent_id: str) -> bytes:
        self._said_at, self._is_waiting = time.perf_counter(), True
        return frames.text_frame(f'{{"type":"message","id":"{sent_id}","text":"{_SAID}"}}'.encode())

    def take_frames(self, data: bytes) -> None:
        self.received += data
        for text in frames.texts(self.received):
            kind = text[9:12]  # of {"type":"ack", …
            if kind == b"rep":
                self.ready.set()
            elif not self.ready.is_set():
                continue  # what was said before
            elif kind in (b"del", b"ans"):
                self._first_piece()
            elif kind == b"eve":
                self._take_event(text[:_HEAD_BYTES].replace(b", ", b",").replace(b": ", b":"))
            elif kind == b"err":
                raise WrongAnswer(text.decode())
        if self.is_complete():
            self.complete.set()

    def check(self) -> None:
        """Raise WrongAnswer unless each message was answered."""
        if not len(self.sent) == len(self.answers) == len(self.latencies_ms):
            raise WrongAnswer(f"{len(self.sent)} messages, {len(self.latencies_ms)} answers")

    def _take_event(self, head: bytes) -> None:
        if _ANSWER in head:  # all pieces may have been lost, the answer is not
            self._first_piece()
        elif _TURN in head:
            self.answered(head)

    def _first_piece(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self.latencies_ms.append((time.perf_counter() - self._said_at) * 1000)
