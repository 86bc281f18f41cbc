"""Clients of the native wire: they send by REST and by sockets, read, and ask how long logs are."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx
from websockets.asyncio.client import ClientConnection, connect

from faults.checker.history import Did
from faults.suite.clients.stage import (
    REFUSALS,
    REPEATED,
    REQUEST_WAIT_S,
    Client,
    json_of,
    promise_of,
    promise_of_answer,
    word_in,
    words_of,
)


class NativeClient(Client):
    """Sends events under ids of its own, and repeats what has no answer."""

    async def send_by_rest(self, talk: str, name: str) -> None:
        """Send an event until it is acknowledged or left."""
        key = uuid4().hex
        while not self.stage.is_over:
            body = await self._try_by_rest(talk, key)
            is_refused = body.get("code") in REFUSALS
            if body.get("type") == "ack" or (is_refused and self.stage.rng.random() > REPEATED):
                return
            await self.pause()

    async def _try_by_rest(self, talk: str, key: str) -> dict[str, Any]:
        number = self.stage.begin(talk, key)
        try:
            url = f"{self.stage.url()}/api/native/conversations/{talk}/events"
            answer = await self.stage.http.post(url, json=self._frame(key))
        except (httpx.HTTPError, OSError, asyncio.CancelledError):
            self.stage.add(Did.UNKNOWN, talk, key)
            return {}
        body = json_of(answer)
        if answer.is_success and body.get("type") == "ack":
            self.stage.acknowledge(talk, key, body["seq"], number)
        else:
            self.stage.refuse(talk, key, promise_of_answer(answer), words_of(answer))
        return body

    def _frame(self, key: str) -> dict[str, Any]:
        note = {"id": key, "action": "note", "args": {"content": self.stage.text(key)}}
        return {"type": "event", "id": key, "event": note}

    async def look_again(self, talk: str, name: str) -> None:
        """Ask for the end of the log, and rest."""
        await self.look(talk)
        await self.pause()

    async def look(self, talk: str) -> None:
        """Ask for the end of the log by REST."""
        key = uuid4().hex
        self.stage.add(Did.LOOK, talk, key)
        answer = await self.stage.http.get(
            f"{self.stage.url()}/api/native/conversations/{talk}/events", params={"limit": "1"}
        )
        if answer.is_success:
            self.stage.add(Did.LOOKED, talk, key, answer.json()["last_seq"])

    async def send_by_socket(self, talk: str, name: str) -> None:
        """Send events, a few at a time, until the socket ends; what has no answer is sent again later."""
        pending: dict[str, int] = {}
        address = f"{self.stage.url('ws')}/ws/conversations/{talk}?payload=false"
        try:
            async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
                reader = f"{name}-{uuid4().hex[:6]}"
                self.stage.add(Did.JOIN, talk, reader, -1)
                await self._converse(socket, talk, reader, pending)
        finally:
            for key in pending:
                self.stage.add(Did.UNKNOWN, talk, key)

    async def _converse(
        self, socket: ClientConnection, talk: str, reader: str, pending: dict[str, int]
    ) -> None:
        is_live = False
        while not self.stage.is_over or pending:
            if is_live and not pending and not self.stage.is_over:
                for _ in range(self.stage.rng.randint(1, 4)):
                    key = uuid4().hex
                    pending[key] = self.stage.begin(talk, key)
                    await socket.send(json.dumps(self._frame(key)))
            async with asyncio.timeout(REQUEST_WAIT_S):
                text = await socket.recv()
            frame = json.loads(text)
            is_live = is_live or frame["type"] == "replay_complete"
            self._take(talk, reader, frame, pending)

    def _take(self, talk: str, reader: str, frame: dict[str, Any], pending: dict[str, int]) -> None:
        key = frame.get("id")
        match frame["type"]:
            case "event":
                self.stage.look_through(talk, frame["text"])
                name = word_in(frame["text"]) or key or ""
                self.stage.add(Did.READ, talk, reader, frame["seq"], name)
            case "ack" if key in pending:
                self.stage.acknowledge(talk, str(key), frame["seq"], pending.pop(str(key)))
            case "error" if key in pending:
                del pending[str(key)]
                promise = promise_of(frame["code"], frame["detail"])
                self.stage.refuse(talk, str(key), promise, str(frame)[:200])

    async def read(self, talk: str, name: str) -> None:
        """Follow the conversation from its first event on, until the socket ends."""
        address = f"{self.stage.url('ws')}/ws/conversations/{talk}?payload=false"
        async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
            reader = f"{name}-{uuid4().hex[:6]}"
            self.stage.add(Did.JOIN, talk, reader, -1)
            while not self.stage.is_over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        self._take(talk, reader, json.loads(await socket.recv()), {})
