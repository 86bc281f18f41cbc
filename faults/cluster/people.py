"""Those who use the cluster during the drill: each conversation has one who writes and one who reads."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import websockets
from websockets.asyncio.client import connect

AGAIN_S = 0.2
REQUEST_WAIT_S = 60.0
SILENT_S = 45.0
"""There is a heartbeat every 20 seconds."""
ANSWER_WAIT_S = 90.0
"""Whoever waits longer for an answer writes the next message."""
IMPATIENT = 0.3
"""This part of the messages is written without waiting for the answer to the one before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An event that a reader has received."""

    seq: int
    event_id: str
    kind: str
    text: str


@dataclass(slots=True)
class Talk:
    """A conversation, and what its two users know of it."""

    public_id: str = field(default_factory=lambda: uuid4().hex)
    acknowledged: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The seq and the text of each message, by its id."""
    seen: list[Seen] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Sentences about what a reader received that it must not receive."""
    cursor: str = "-1"
    joins: int = 0
    repeats: int = 0
    """How often a message was sent again because no answer came."""

    @property
    def is_answered(self) -> bool:
        """Whether a turn has ended after the last message."""
        newest = max((seq for seq, _ in self.acknowledged.values()), default=-1)
        return any(each.kind == "turn" and each.seq > newest for each in self.seen[-8:])


class People:
    """All users of one drill; requests go to one server after the other."""

    def __init__(self, ports: Sequence[int], rng: random.Random) -> None:
        self._ports = ports
        self._rng = rng
        self._turn = 0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(timeout=REQUEST_WAIT_S, limits=limits)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()

    def _next_port(self) -> int:
        self._turn += 1
        return self._ports[self._turn % len(self._ports)]

    async def write(self, talk: Talk, count: int, seconds: float) -> None:
        """Create the conversation, and write so many messages, spread over the time."""
        await self._ask("POST", "", {"id": talk.public_id})
        await self._ask("PATCH", f"/{talk.public_id}/options", {"unknown_outcome": "tell"})
        began = time.monotonic()
        for number in range(1, count + 1):
            at = began + seconds * (number - self._rng.random()) / count
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            text = f"{talk.public_id[:8]}-{number}"
            message_id = str(uuid4())
            frame = {"type": "message", "id": message_id, "text": text}
            ack, tries = await self._ask("POST", f"/{talk.public_id}/events", frame)
            talk.acknowledged[message_id] = int(ack["seq"]), text
            talk.repeats += tries - 1
            if self._rng.random() > IMPATIENT:
                await _until_answered(talk)

    async def _ask(self, method: str, path: str, body: Any) -> tuple[Any, int]:
        """Send a request until a server answers it with success; return the answer and the tries."""
        tries = 0
        while True:
            tries += 1
            url = f"http://127.0.0.1:{self._next_port()}/api/native/conversations{path}"
            try:
                answer = await self._client.request(method, url, json=body)
            except httpx.TransportError:
                await asyncio.sleep(AGAIN_S)
                continue
            if answer.is_success or (method == "POST" and not path and answer.status_code == 409):
                return answer.json(), tries
            if answer.status_code < 500 and answer.status_code not in (409, 429):
                raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
            await asyncio.sleep(AGAIN_S)

    async def read(self, talk: Talk) -> None:
        """Read the conversation until cancelled, over one socket after the other."""
        while True:
            port = self._next_port()
            url = f"ws://127.0.0.1:{port}/ws/conversations/{talk.public_id}"
            try:
                async with connect(f"{url}?payload=false&after={talk.cursor}", ping_interval=None) as socket:
                    talk.joins += 1
                    while True:
                        async with asyncio.timeout(SILENT_S):
                            _take(talk, json.loads(await socket.recv()))
            except (OSError, TimeoutError, websockets.WebSocketException):
                await asyncio.sleep(self._rng.uniform(0.5, 1.5) * AGAIN_S)


def _take(talk: Talk, frame: dict[str, Any]) -> None:
    if frame["type"] == "replaced":
        talk.faults.append("a reader was told that its history was replaced")
    if frame["type"] != "event":
        return
    expected = len(talk.seen)
    if frame["seq"] != expected:
        talk.faults.append(f"a reader received event {frame['seq']} instead of {expected}")
        return
    talk.seen.append(Seen(frame["seq"], frame["id"], frame["kind"], frame["text"]))
    talk.cursor = frame["cursor"]


async def _until_answered(talk: Talk) -> None:
    try:
        async with asyncio.timeout(ANSWER_WAIT_S):
            while not talk.is_answered:  # noqa: ASYNC110 - a reader is a client like any other
                await asyncio.sleep(AGAIN_S / 4)
    except TimeoutError:
        pass  # what was not answered is counted at the end
