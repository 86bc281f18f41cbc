"""Many V1 sockets on one conversation, and the native one that appends to it."""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.clients import frames
from benchmarks.clients.connections import WrongAnswer, new_id
from benchmarks.clients.sockets import Socket
from benchmarks.job import Job

_ID = b'"id":"'
_PAYLOAD = json.dumps(
    {
        "kind": "MessageEvent",
        "id": "{id}",
        "timestamp": "2026-01-01T00:00:00.000000",
        "source": "agent",
        "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "word " * 40}]},
    },
    separators=(",", ":"),
)
"""Some 350 bytes, a typical size."""


class Listener(Socket):
    """Takes the first frame, then one for each event."""

    def __init__(self, job: Job, path: str) -> None:
        super().__init__()
        self.job, self.path = job, path
        self.ready = asyncio.Event()
        self.complete = asyncio.Event()
        self.shown: list[str] = []
        self.shown_at: list[float] = []

    def take_frames(self, data: bytes) -> None:
        self.received += data
        now = time.perf_counter()
        for text in frames.texts(self.received):
            if self.ready.is_set():
                self.shown.append(_id(text))
                self.shown_at.append(now)
            else:
                self.ready.set()
        if len(self.shown) >= self.job.events:
            self.complete.set()

    def check_against(self, sent: list[str]) -> None:
        """Raise WrongAnswer unless all events came, in order, none twice."""
        if self.shown != sent:
            raise WrongAnswer(f"{len(self.shown)} events were shown, not the {len(sent)} in their order.")


class Mute(Socket):
    """Reads nothing once its socket is open."""

    def __init__(self, job: Job, path: str) -> None:
        super().__init__()
        self.job, self.path = job, path
        self.ready = asyncio.Event()

    def opened(self) -> None:
        self.transport.pause_reading()
        self.ready.set()

    def take_frames(self, data: bytes) -> None:
        """What came with the handshake is left."""


class Speaker(Socket):
    """Appends events: each once the one before is committed, or each so many seconds after the one before."""

    def __init__(self, job: Job, path: str) -> None:
        super().__init__()
        self.job, self.path = job, path
        self.ready = asyncio.Event()
        self.sent: list[str] = []
        self.sent_at: list[float] = []

    def take_frames(self, data: bytes) -> None:
        self.received += data
        for text in frames.texts(self.received):
            if not self.ready.is_set():
                self.ready.set()
            elif text.startswith(b'{"type":"ack"') and not self.job.every_s:
                self.say()

    def say(self) -> None:
        """Append the next, if there is one."""
        if len(self.sent) == self.job.events:
            return
        if self.job.every_s:
            asyncio.get_running_loop().call_later(self.job.every_s, self.say)
        name = new_id()
        self.sent.append(name)
        self.sent_at.append(time.perf_counter())
        payload = _PAYLOAD.replace("{id}", name)
        self.transport.write(
            frames.text_frame(f'{{"type":"event","id":"{name}","event":{payload}}}'.encode())
        )


def _id(text: bytes) -> str:
    start = text.index(_ID) + len(_ID)
    return text[start : text.index(b'"', start)].decode()
