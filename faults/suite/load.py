"""The clients of a round: they send by REST and by sockets, read, ask and create, and log all of it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
from websockets import WebSocketException
from websockets.asyncio.client import ClientConnection, connect

from faults.checker.history import Did, HistoryFile, Record

REQUEST_WAIT_S = 20.0
AGAIN_S = 0.05
LEAVE_WAIT_S = 30.0
REPEATED = 0.7
"""This part of what was refused is sent again; the rest is left, and must not be stored."""
REFUSALS = {"unavailable", "busy", "too_many_waiting", "too_many_requests"}
"""Codes of answers that promise that nothing was stored."""
UNKNOWN = "outcome_unknown"
SENDERS_BY_REST, SENDERS_BY_SOCKET, READERS = 3, 3, 2


@dataclass(slots=True)
class Service:
    """When somebody was served last."""

    acknowledged: int = 0
    served: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each acknowledgement."""
    begun: int = 0
    """How many tries have begun: an acknowledgement of an earlier one says nothing about service now."""
    waits_for: int = 0

    def note(self, number: int) -> None:
        """Take an acknowledgement of the try with this number."""
        self.acknowledged += 1
        if number >= self.waits_for:
            self.served.set()


class Load:
    """All clients of one round, which use several conversations through the given ports."""

    def __init__(self, ports: Sequence[int], history: HistoryFile, rng: random.Random, number: int) -> None:
        self.talks = [f"round{number}-{name}-{uuid4().hex[:8]}" for name in ("one", "two", "three")]
        self.creations = f"round{number}-{uuid4().hex[:8]}"
        self.service = Service()
        self._ports = ports
        self._history = history
        self._rng = rng
        self._turn = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self._client = httpx.AsyncClient(
            timeout=REQUEST_WAIT_S, trust_env=False, limits=httpx.Limits(max_connections=None)
        )

    def _url(self, scheme: str = "http") -> str:
        self._turn += 1
        return f"{scheme}://127.0.0.1:{self._ports[self._turn % len(self._ports)]}"

    async def begin(self) -> None:
        """Create the conversations, and let the clients begin."""
        for talk in self.talks:
            answer = await self._client.post(
                f"{self._url()}/api/native/conversations", json={"id": talk, "title": f"{talk} is chosen"}
            )
            answer.raise_for_status()
        works: list[Callable[[str, str], Awaitable[None]]] = [
            *[self._send_by_rest] * SENDERS_BY_REST,
            *[self._send_by_socket] * SENDERS_BY_SOCKET,
            *[self._read] * READERS,
            self._look,
        ]
        for number, work in enumerate(works):
            talk = self.talks[number % len(self.talks)]
            self._tasks.append(asyncio.create_task(self._until_over(work, talk, f"{work.__name__}{number}")))
        self._tasks.append(asyncio.create_task(self._until_over(self._create, "", "creator")))

    async def _until_over(self, work: Callable[[str, str], Awaitable[None]], talk: str, name: str) -> None:
        while not self._is_over:
            with suppress(httpx.TransportError, OSError, WebSocketException, TimeoutError):
                await work(talk, name)
            await asyncio.sleep(AGAIN_S)

    async def served_again(self, within_s: float) -> float | None:
        """Return after how many seconds an event is acknowledged that is sent from now on; None if never."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.service.waits_for = self.service.begun + 1
        self.service.served.clear()
        try:
            async with asyncio.timeout(within_s):
                await self.service.served.wait()
        except TimeoutError:
            return None
        return loop.time() - began

    async def end(self) -> None:
        """Let everybody finish what is under way, and leave."""
        self._is_over = True
        _, late = await asyncio.wait(self._tasks, timeout=LEAVE_WAIT_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error
        await self._client.aclose()

    def _add(self, did: Did, talk: str, key: str, seq: int = -1, text: str = "") -> None:
        self._history.add(Record(did, talk, key, seq, text))

    # By REST

    async def _send_by_rest(self, talk: str, name: str) -> None:
        """Send an event until it is acknowledged or left."""
        key = uuid4().hex
        while not self._is_over:
            answer, code = await self._try_by_rest(talk, key)
            if answer is not None or (code in REFUSALS and self._rng.random() > REPEATED):
                return
            await asyncio.sleep(AGAIN_S)

    async def _try_by_rest(self, talk: str, key: str) -> tuple[dict[str, Any] | None, str]:
        self._add(Did.INVOKE, talk, key)
        self.service.begun += 1
        number = self.service.begun
        try:
            url = f"{self._url()}/api/native/conversations/{talk}/events"
            answer = await self._client.post(url, json=_frame(key))
        except (httpx.HTTPError, OSError, asyncio.CancelledError):
            self._add(Did.UNKNOWN, talk, key)
            return None, ""
        body = _json(answer)
        if answer.is_success and body.get("type") == "ack":
            self._add(Did.ACK, talk, key, body["seq"])
            self.service.note(number)
            return body, ""
        code = str(body.get("code"))
        self._refused(talk, key, code, f"{answer.status_code} {answer.text[:200]}")
        return None, code

    def _refused(self, talk: str, key: str, code: str, text: str) -> None:
        if code in REFUSALS:
            self._add(Did.REFUSED, talk, key)
        elif code == UNKNOWN:
            self._add(Did.UNKNOWN, talk, key)
        else:
            self._add(Did.UNEXPECTED, talk, key, -1, text)

    async def _look(self, talk: str, name: str) -> None:
        """Ask for the end of the log by REST."""
        key = uuid4().hex
        self._add(Did.LOOK, talk, key)
        answer = await self._client.get(
            f"{self._url()}/api/native/conversations/{talk}/events", params={"limit": "1"}
        )
        if answer.is_success:
            self._add(Did.LOOKED, talk, key, answer.json()["last_seq"])
        await asyncio.sleep(AGAIN_S)

    async def _create(self, talk: str, name: str) -> None:
        """Create a conversation under a key, as often as needed until that is answered."""
        key = f"{self.creations}-{uuid4().hex[:12]}"
        while not self._is_over:
            self._add(Did.CREATE, "", key)
            with suppress(httpx.TransportError):
                answer = await self._client.post(
                    f"{self._url()}/api/native/conversations",
                    json={"title": key},
                    headers={"Idempotency-Key": f'"{key}"'},
                )
                if answer.is_success:
                    self._add(Did.CREATED, answer.json()["id"], key)
                    return
                if answer.status_code not in (409, 429, 503):
                    self._add(Did.UNEXPECTED, "", key, -1, f"{answer.status_code} {answer.text[:200]}")
            await asyncio.sleep(AGAIN_S)

    # By sockets

    async def _send_by_socket(self, talk: str, name: str) -> None:
        """Send events, a few at a time, until the socket ends; what has no answer is sent again later."""
        pending: dict[str, int] = {}
        address = f"{self._url('ws')}/ws/conversations/{talk}?payload=false"
        try:
            async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
                reader = f"{name}-{uuid4().hex[:6]}"
                self._add(Did.JOIN, talk, reader, -1)
                await self._converse(socket, talk, reader, pending)
        finally:
            for key in pending:
                self._add(Did.UNKNOWN, talk, key)

    async def _converse(
        self, socket: ClientConnection, talk: str, reader: str, pending: dict[str, int]
    ) -> None:
        is_live = False
        while not self._is_over or pending:
            if is_live and not pending and not self._is_over:
                for _ in range(self._rng.randint(1, 4)):
                    key = uuid4().hex
                    self._add(Did.INVOKE, talk, key)
                    self.service.begun += 1
                    pending[key] = self.service.begun
                    await socket.send(json.dumps(_frame(key)))
            async with asyncio.timeout(REQUEST_WAIT_S):
                frame = json.loads(await socket.recv())
            is_live = is_live or frame["type"] == "replay_complete"
            self._take(talk, reader, frame, pending)

    def _take(self, talk: str, reader: str, frame: dict[str, Any], pending: dict[str, int]) -> None:
        key = frame.get("id")
        match frame["type"]:
            case "event":
                self._add(Did.READ, talk, reader, frame["seq"], key or "")
            case "ack" if key in pending:
                self._add(Did.ACK, talk, str(key), frame["seq"])
                self.service.note(pending.pop(str(key)))
            case "error" if key in pending:
                del pending[str(key)]
                self._refused(talk, str(key), frame["code"], str(frame)[:200])

    async def _read(self, talk: str, name: str) -> None:
        """Follow the conversation from its first event on, until the socket ends."""
        address = f"{self._url('ws')}/ws/conversations/{talk}?payload=false"
        async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
            reader = f"{name}-{uuid4().hex[:6]}"
            self._add(Did.JOIN, talk, reader, -1)
            while not self._is_over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        self._take(talk, reader, json.loads(await socket.recv()), {})


def _frame(key: str) -> dict[str, Any]:
    return {
        "type": "event",
        "id": key,
        "event": {"id": key, "action": "note", "args": {"content": "A note."}},
    }


def _json(answer: httpx.Response) -> dict[str, Any]:
    with suppress(ValueError):
        body = answer.json()
        if isinstance(body, dict):
            return body
    return {}
