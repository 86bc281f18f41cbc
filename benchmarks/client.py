"""The clients of one measurement, in a process of their own: job by stdin, result by stdout.

What was received is checked when the clock has stopped: each ack in its place, each event once and in order.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

import uvloop

from benchmarks import event, frames

READY_WAIT_S = 30.0
REST_WAIT_S = 15.0
REPLAY_WAIT_S = 120.0
WARM_UP_S = 0.3

_PAYLOAD = event.PAYLOAD.encode()
_COMPLETE = b'"replay_complete"'


class WrongAnswer(Exception):
    """What came back is not what the protocol promises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to measure."""

    sort: str
    """`append` (to the native socket), `echo` (to a bare one), or `replay` (of either)."""
    port: int
    paths: Sequence[str]
    """One address per client."""
    after: Sequence[int]
    """By client, the seq of the last event that it has."""
    batch: int = 1
    """Events in one frame."""
    follows: bool = True
    seconds: float = 0.0
    """Length of the measurement; a replay ends by itself."""
    events: int = 0
    """How many a replay brings."""

    def text(self) -> str:
        """Return it for the way to the process of the clients."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote."""
        return cls(**json.loads(text))


class _Connection(asyncio.Protocol):
    """One open socket."""

    def __init__(self, job: Job, place: int) -> None:
        self.job = job
        self.after = job.after[place]
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._path = job.paths[place]
        self._received = bytearray()
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class
        self.transport.write(frames.upgrade(self._path, self.job.port))

    def data_received(self, data: bytes) -> None:
        try:
            if self._is_open:
                self.take(data)
            else:
                self._open(data)
        except Exception as error:  # the protocol's callbacks have no caller to raise to
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("The server ended the connection."))

    def opened(self) -> None:
        """The handshake is done."""

    def take(self, data: bytes) -> None:
        """Bytes came in after the handshake."""
        raise NotImplementedError

    def _open(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if end:
            if b" 101 " not in head[:20]:
                raise WrongAnswer(head.decode("latin-1"))
            self._is_open, self._received = True, bytearray()
            self.opened()
            if rest:
                self.take(bytes(rest))

    def _fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)


class _Appender(_Connection):
    """Sends a frame, waits for its answer, sends the next one."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__(job, place)
        self.ready = asyncio.Event()
        self.complete = asyncio.Event()
        self.sent: list[str] = []
        self.answers: list[bytes] = []
        self.answered_at: list[float] = []
        self.events: list[bytes] = []
        self._answer = b"eve" if job.sort == "echo" else b"ack"
        self._ready = b"rep" if job.follows else b"hel"
        self._until = 0.0

    def opened(self) -> None:
        if self.job.sort == "echo":
            self.ready.set()

    def begin(self, until: float) -> None:
        """Send the first frame, and others until that moment."""
        self._until = until
        self._send_next()

    def take(self, data: bytes) -> None:
        self._received += data
        for text in frames.texts(self._received):
            kind = text[9:12]  # of {"type":"ack", …
            if kind == self._answer:
                now = time.perf_counter()
                self.answers.append(text)
                self.answered_at.append(now)
                if now < self._until:
                    self._send_next()
            elif kind == b"eve":
                self.events.append(text[:48])
            elif kind == self._ready:
                self.ready.set()
            elif kind not in (b"hel", b"rep", b"hea"):
                raise WrongAnswer(text.decode())
        if self._is_complete():
            self.complete.set()

    def check(self) -> None:
        """Raise WrongAnswer unless all came, in order, none twice."""
        answers = [json.loads(text) for text in self.answers]
        if [answer["id"] for answer in answers] != self.sent:
            raise WrongAnswer("The answers are not those to the frames that were sent, in their order.")
        if self.job.sort == "append":
            seqs = [seq for answer in answers for seq in answer.get("seqs") or [answer["seq"]]]
            expected = list(range(self.after + 1, self.after + 1 + len(self.sent) * self.job.batch))
            _require_same("acks", seqs, expected)
            _require_same(
                "events", [_seq(head) for head in self.events], expected if self.job.follows else []
            )

    def _is_complete(self) -> bool:
        """Say whether the last frame was sent, and everything that was asked for has come."""
        follows = self.job.follows and self.job.sort == "append"
        return 0 < len(self.answers) == len(self.sent) and (
            not follows or len(self.events) == len(self.answers) * self.job.batch
        )

    def _send_next(self) -> None:
        frame_id = _new_id()
        self.sent.append(frame_id)
        name = frame_id.encode()
        if self.job.batch == 1:
            text = b'{"type":"event","id":"' + name + b'","event":' + _PAYLOAD + b"}"
        else:
            items = b",".join(
                b'{"id":"' + _new_id().encode() + b'","event":' + _PAYLOAD + b"}"
                for _ in range(self.job.batch)
            )
            text = b'{"type":"events","id":"' + name + b'","events":[' + items + b"]}"
        self.transport.write(frames.text_frame(text))


class _Replay(_Connection):
    """Takes everything up to `replay_complete`, and looks at it afterwards."""

    def __init__(self, job: Job, place: int) -> None:
        super().__init__(job, place)
        self.complete = asyncio.Event()
        self._chunks: list[bytes] = []
        self._tail = b""

    def take(self, data: bytes) -> None:
        self._chunks.append(data)
        self._tail = (self._tail + data[-200:])[-200:]
        if _COMPLETE in self._tail:
            self.complete.set()

    def check(self) -> None:
        """Raise WrongAnswer unless all events came, in order, none twice."""
        texts = list(frames.texts(bytearray(b"".join(self._chunks))))
        seqs = [_seq(text) for text in texts if text.startswith(b'{"type":"event"')]
        _require_same("events", seqs, list(range(self.job.events)))


def _new_id() -> str:
    return f"{random.getrandbits(128):032x}"


def _seq(event_text: bytes) -> int:
    return int(event_text.split(b",", 2)[1].removeprefix(b'"seq":'))


def _require_same(name: str, found: list[int], expected: list[int]) -> None:
    if found != expected:
        raise WrongAnswer(f"{name}: {len(found)} seqs, expected {len(expected)}; or not in order")


async def _appends(job: Job) -> dict[str, Any]:
    """Return {rate (events/s), events}."""
    loop = asyncio.get_running_loop()
    clients = [_Appender(job, place) for place in range(len(job.paths))]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", job.port)  # type: ignore[misc]
    failed = asyncio.gather(*(client.failure for client in clients))
    await _unless(failed, _all(client.ready for client in clients), READY_WAIT_S)
    start = time.perf_counter() + WARM_UP_S
    end = start + job.seconds
    for client in clients:
        client.begin(until=end)
    await _unless(failed, _all(client.complete for client in clients), WARM_UP_S + job.seconds + REST_WAIT_S)
    for client in clients:
        client.check()
    times = [moment for client in clients for moment in client.answered_at]
    counted = sum(start <= moment < end for moment in times) * job.batch
    failed.cancel()
    return {"rate": counted / job.seconds, "events": len(times) * job.batch}


async def _all(facts: Iterable[asyncio.Event]) -> None:
    for fact in facts:
        await fact.wait()


async def _replay(job: Job) -> dict[str, Any]:
    """Return {rate (events/s, from the handshake to `replay_complete`), events}."""
    client = _Replay(job, 0)
    start = time.perf_counter()
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", job.port)
    await _unless(client.failure, client.complete.wait(), REPLAY_WAIT_S)
    rate = job.events / (time.perf_counter() - start)
    client.check()
    client.failure.cancel()
    return {"rate": rate, "events": job.events}


async def _unless(failed: asyncio.Future[Any], work: Any, wait_s: float) -> None:
    """Wait for `work`. Raise what failed first, or TimeoutError."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({failed, task}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        failed.result()
    if not task.done():
        task.cancel()
        raise TimeoutError(f"The server did not answer everything within {wait_s:.0f} s.")
    task.result()


def main() -> None:
    """Do the job of stdin."""
    job = Job.read(sys.stdin.read())
    result = uvloop.run(_replay(job) if job.sort == "replay" else _appends(job))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
