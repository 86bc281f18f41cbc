"""Clients of the V1 wire: they say things by REST and by the sequenced socket, each once."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx
from websockets.asyncio.client import ClientConnection, connect

from faults.checker.history import Did
from faults.suite.clients.stage import (
    REQUEST_WAIT_S,
    Client,
    promise_of,
    promise_of_answer,
    word_in,
    words_of,
)

REST_S = (0.05, 0.2)
WORKSPACE = {"working_dir": "/tmp"}


class V1Client(Client):
    """Says one thing after the other; this wire's answers tell no place, and its socket answers nothing."""

    async def say_by_rest(self, talk: str, name: str) -> None:
        """Say one thing, for which nothing is asked of the agent."""
        word = self.stage.new_word()
        number = self.stage.begin(talk, word)
        try:
            url = f"{self.stage.url()}/agent/api/conversations/{talk}/events"
            answer = await self.stage.http.post(url, json={**said(self.stage.text(word)), "run": False})
        except (httpx.HTTPError, OSError, asyncio.CancelledError):
            self.stage.add(Did.UNKNOWN, talk, word)
            return
        if answer.is_success:
            self.stage.acknowledge(talk, word, -1, number)
        else:
            self.stage.refuse(talk, word, promise_of_answer(answer), words_of(answer))
        await self.pause(*REST_S)

    async def converse(self, talk: str, name: str) -> None:
        """Read all from the first event on, and say one thing after the other until the socket ends."""
        pending: dict[str, int] = {}
        address = f"{self.stage.url('ws')}/sockets/session/{talk}?after_seq=-1"
        try:
            async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
                reader = f"{name}-{uuid4().hex[:6]}"
                self.stage.add(Did.JOIN, talk, reader, -1)
                while not self.stage.is_over:
                    word = self.stage.new_word()
                    pending[word] = self.stage.begin(talk, word)
                    await socket.send(json.dumps(said(self.stage.text(word))))
                    while pending:
                        await self._take(socket, talk, reader, pending)
                    await self.pause(*REST_S)
        finally:
            for word in pending:
                self.stage.add(Did.UNKNOWN, talk, word)

    async def _take(self, socket: ClientConnection, talk: str, reader: str, pending: dict[str, int]) -> None:
        """Take a frame; that a message is shown is all that its sender hears of it."""
        async with asyncio.timeout(REQUEST_WAIT_S):
            text = str(await socket.recv())
        frame = json.loads(text)
        if frame["kind"] == "Durable":
            self.stage.look_through(talk, text)
            word = said_in(frame["event"])
            self.stage.add(Did.READ, talk, reader, frame["seq"], word or frame["event"]["id"])
            if word in pending:
                self.stage.acknowledge(talk, word, frame["seq"], pending.pop(word))
        elif "code" in frame:
            for word in list(pending):
                del pending[word]
                self.stage.refuse(talk, word, promise_of("unavailable", text), text)


def said(text: str) -> dict[str, Any]:
    """Return a user's message of this wire."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def said_in(event: dict[str, Any]) -> str:
    """Return the word of a user's message; an empty one for any other event."""
    parts = (event.get("llm_message") or {}).get("content") or [{}]
    return word_in(parts[0].get("text"))
