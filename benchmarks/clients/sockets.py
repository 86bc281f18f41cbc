"""Clients of sockets, native and bare: those that append, and the one that reads a whole log."""

from __future__ import annotations

import asyncio
import json

from benchmarks import event
from benchmarks.clients import frames
from benchmarks.clients.connections import Connection, Sender, WrongAnswer, new_id, require_same
from benchmarks.job import Job

_PAYLOAD = event.PAYLOAD.encode()
_COMPLETE = b'"replay_complete"'


class Socket(Connection):
    """A connection that begins by the handshake of a socket."""

    job: Job
    path: str
    _is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(frames.upgrade(self.path, self.job.port))

    def take(self, data: bytes) -> None:
        if self._is_open:
            self.take_frames(data)
        else:
            self._open(data)

    def opened(self) -> None:
        """The handshake is done."""

    def take_frames(self, data: bytes) -> None:
        """Bytes came in after the handshake."""
        raise NotImplementedError

    def _open(self, data: bytes) -> None:
        self.received += data
        head, end, rest = self.received.partition(b"\r\n\r\n")
        if end:
            if b" 101 " not in head[:20]:
                raise WrongAnswer(head.decode("latin-1"))
            self._is_open, self.received = True, bytearray()
            self.opened()
            if rest:
                self.take_frames(bytes(rest))


class Appender(Socket, Sender):
    """Sends a frame, waits for its answer, sends the next one."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__()
        self.job, self.path = job, job.paths[place]
        self.events: list[bytes] = []
        self._after = job.after[place]
        self._answer = b"eve" if job.sort == "echo" else b"ack"
        self._ready = b"rep" if job.follows else b"hel"

    def opened(self) -> None:
        if self.job.sort == "echo":
            self.ready.set()

    def take_frames(self, data: bytes) -> None:
        self.received += data
        for text in frames.texts(self.received):
            kind = text[9:12]  # of {"type":"ack", …
            if kind == self._answer:
                self.answered(text)
            elif kind == b"eve":
                self.events.append(text[:48])
            elif kind == self._ready:
                self.ready.set()
            elif kind not in (b"hel", b"rep", b"hea"):
                raise WrongAnswer(text.decode())
        if self.is_complete():
            self.complete.set()

    def message(self, sent_id: str) -> bytes:
        name = sent_id.encode()
        if self.job.batch == 1:
            text = b'{"type":"event","id":"' + name + b'","event":' + _PAYLOAD + b"}"
        else:
            items = b",".join(
                b'{"id":"' + new_id().encode() + b'","event":' + _PAYLOAD + b"}"
                for _ in range(self.job.batch)
            )
            text = b'{"type":"events","id":"' + name + b'","events":[' + items + b"]}"
        return frames.text_frame(text)

    def is_complete(self) -> bool:
        follows = self.job.follows and self.job.sort == "append"
        return super().is_complete() and (
            not follows or len(self.events) == len(self.answers) * self.job.batch
        )

    def check(self) -> None:
        """Raise WrongAnswer unless all came, in order, none twice."""
        answers = [json.loads(text) for text in self.answers]
        if [answer["id"] for answer in answers] != self.sent:
            raise WrongAnswer("The answers are not those to the frames that were sent, in their order.")
        if self.job.sort == "append":
            seqs = [seq for answer in answers for seq in answer.get("seqs") or [answer["seq"]]]
            expected = list(range(self._after + 1, self._after + 1 + len(self.sent) * self.job.batch))
            require_same("acks", seqs, expected)
            require_same("events", [_seq(head) for head in self.events], expected if self.job.follows else [])


class Replay(Socket):
    """Takes everything up to `replay_complete`, and looks at it afterwards."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job, self.path = job, job.paths[0]
        self.complete = asyncio.Event()
        self._chunks: list[bytes] = []
        self._tail = b""

    def take_frames(self, data: bytes) -> None:
        self._chunks.append(data)
        self._tail = (self._tail + data[-200:])[-200:]
        if _COMPLETE in self._tail:
            self.complete.set()

    def check(self) -> None:
        """Raise WrongAnswer unless all events came, in order, none twice."""
        texts = list(frames.texts(bytearray(b"".join(self._chunks))))
        seqs = [_seq(text) for text in texts if text.startswith(b'{"type":"event"')]
        require_same("events", seqs, list(range(self.job.events)))


def _seq(event_text: bytes) -> int:
    return int(event_text.split(b",", 2)[1].removeprefix(b'"seq":'))
