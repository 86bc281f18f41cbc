"""An agent outside the server: a program that plays turns, and repeats steps that were not answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4, uuid5

import httpx
from websockets.asyncio.client import ClientConnection, connect

from faults.checker.history import Did
from faults.suite.clients.stage import REQUEST_WAIT_S, Client, promise_of, promise_of_answer, words_of

REFUSED = {"fenced", "call_refused"}
"""Codes that promise that this try of a step stored nothing, beside those of every client."""
REST_S = (0.2, 0.6)
SILENT_S = 1.0


class RemoteAgent(Client):
    """Plays the turns of one conversation, and says things in it."""

    async def ask(self, talk: str, name: str) -> None:
        """Say one thing to the agent, under an id, until it is acknowledged."""
        word, message_id = self.stage.new_word(), str(uuid4())
        frame = {"type": "message", "id": message_id, "text": self.stage.text(word)}
        while not self.stage.is_over:
            number = self.stage.begin(talk, word)
            try:
                url = f"{self.stage.url()}/api/native/conversations/{talk}/events"
                answer = await self.stage.http.post(url, json=frame)
            except (httpx.HTTPError, OSError, asyncio.CancelledError):
                self.stage.add(Did.UNKNOWN, talk, word)
            else:
                if answer.is_success:
                    self.stage.acknowledge(talk, word, answer.json()["seq"], number)
                    break
                self.stage.refuse(talk, word, promise_of_answer(answer), words_of(answer))
            await self.pause()
        await self.pause(*REST_S)

    async def play(self, talk: str, name: str) -> None:
        """Play turns until the socket ends."""
        address = f"{self.stage.url('ws')}/ws/agents/{agent_of(talk)}"
        open_steps: dict[str, int] = {}
        try:
            async with connect(address, ping_interval=None, open_timeout=REQUEST_WAIT_S) as socket:
                while not self.stage.is_over:
                    try:
                        async with asyncio.timeout(SILENT_S):
                            frame = json.loads(await socket.recv())
                    except TimeoutError:
                        continue
                    if frame["type"] == "turn":
                        await self._play(socket, talk, frame, open_steps)
        finally:
            for key in open_steps:
                self.stage.add(Did.UNKNOWN, talk, key)

    async def _play(
        self, socket: ClientConnection, talk: str, turn: dict[str, Any], open_steps: dict[str, int]
    ) -> None:
        """Send the steps of a turn, each after the answer to the one before."""
        told = " ".join(message["text"] for message in turn["inputs"])
        steps: tuple[dict[str, Any], ...] = (
            {"type": "call", "id": "call", "name": "look", "arguments": {"at": f"what was said: {told}"}},
            {"type": "result", "id": "result", "call": "call", "content": "It was looked at."},
            {"type": "say", "id": "say", "text": f"Looked at {told}."},
            {"type": "done", "id": "done"},
        )
        for step in steps:
            key = str(uuid5(UUID(turn["turn"]), f"frame {step['id']}"))
            is_stored = step["type"] in ("call", "say")  # the others store nothing, or under another id
            if is_stored:
                open_steps[key] = self.stage.begin(talk, key)
            await socket.send(json.dumps({**step, "turn": turn["turn"], "epoch": turn["epoch"]}))
            answer = await self._answer(socket, turn["turn"], step["id"])
            if is_stored and answer["type"] in ("ack", "error"):
                self._answered(talk, key, answer, open_steps.pop(key))
            if answer["type"] != "ack":
                return

    async def _answer(self, socket: ClientConnection, turn: str, step: str) -> dict[str, Any]:
        """Return the answer to a step, or the frame that ends its turn here."""
        async with asyncio.timeout(REQUEST_WAIT_S):
            while True:
                frame: dict[str, Any] = json.loads(await socket.recv())
                is_of_step = frame.get("turn") == turn and frame.get("id") == step
                is_end = frame["type"] in ("stop", "fenced", "suspend") and frame["turn"] in (turn, None)
                if is_end or (is_of_step and frame["type"] in ("ack", "error")):
                    return frame

    def _answered(self, talk: str, key: str, answer: dict[str, Any], number: int) -> None:
        if answer["type"] == "ack":
            self.stage.acknowledge(talk, key, answer["seq"], number)
        else:
            code = "unavailable" if answer["code"] in REFUSED else answer["code"]
            self.stage.refuse(talk, key, promise_of(code, answer["detail"]), str(answer)[:200])


def agent_of(talk: str) -> str:
    """Return the name under which the agent of a conversation connects."""
    return f"agent-{talk[:20]}"
