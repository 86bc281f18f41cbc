"""Clients that create conversations: under keys, as forks, and with a first message at every door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from faults.checker.history import Did
from faults.suite.clients.native import NativeClient
from faults.suite.clients.openhands_v1 import WORKSPACE, said
from faults.suite.clients.stage import Client, json_of, promise_of_answer, words_of

AGAIN = 0.5
"""This part of what was answered is asked once more under the same key."""
THROUGH_MAX = 3
"""Forks copy no more than the events up to this one."""
LATER = (404, 409, 429, 503)
"""Not there yet, under way, too many, or unavailable: it is asked again."""
STARTS_S, FORKS_S = (0.4, 0.9), (0.1, 0.3)


class Creator(Client):
    """Creates one conversation under each key, and asks for it as often as needed until that is answered."""

    async def create(self, talk: str, name: str) -> None:
        """Create an empty conversation."""
        key = self.stage.new_key()
        await self._once(key, "conversations", {"title": key})

    async def fork(self, talk: str, name: str) -> None:
        """Fork the conversation at one of its first events."""
        key, through = self.stage.new_key(), self.stage.rng.randint(-1, THROUGH_MAX)
        await self._once(key, f"conversations/{talk}/fork", {"title": key, "through": through})
        await self.pause(*FORKS_S)

    async def _once(self, key: str, path: str, body: dict[str, Any]) -> None:
        while not self.stage.is_over:
            self.stage.add(Did.CREATE, "", key)
            try:
                answer = await self.stage.http.post(
                    f"{self.stage.url()}/api/native/{path}",
                    json=body,
                    headers={"Idempotency-Key": f'"{key}"'},
                )
            except httpx.TransportError:
                pass
            else:
                if answer.is_success:
                    self.stage.add(Did.CREATED, answer.json()["id"], key)
                    if self.stage.rng.random() > AGAIN:
                        return
                elif answer.status_code not in LATER:
                    self.stage.add(Did.UNEXPECTED, "", key, -1, words_of(answer))
            await self.pause()


class Starter(Client):
    """Starts conversations with a first message, whose acknowledgement covers the message."""

    async def start(self, talk: str, name: str) -> None:
        """Start one, as often as needed until that is answered, and look at it at once."""
        talk, word, key = self.stage.new_id(), self.stage.new_word(), self.stage.new_key()
        doors = (self._on_agent_face, self._on_app_face, self._on_v0)
        door = self.stage.rng.choice(doors)
        self.stage.add(Did.SHARED, talk, "")
        while not self.stage.is_over:
            if await self._try(door, talk, word, key):
                await NativeClient(self.stage).look(talk)
                break
            await self.pause()
        await self.pause(*STARTS_S)

    async def _try(
        self, door: Callable[[str, str, str], Awaitable[httpx.Response]], talk: str, word: str, key: str
    ) -> bool:
        """Start it once; return whether that was acknowledged."""
        number = self.stage.begin(talk, word)
        try:
            answer = await door(talk, self.stage.text(word), key)
        except (httpx.HTTPError, OSError, asyncio.CancelledError):
            self.stage.add(Did.UNKNOWN, talk, word)
            return False
        if answer.is_success and _is_started(answer):
            self.stage.acknowledge(talk, word, -1, number)
            return True
        self.stage.refuse(talk, word, promise_of_answer(answer), words_of(answer))
        return False

    async def _on_agent_face(self, talk: str, text: str, key: str) -> httpx.Response:
        body = {"workspace": WORKSPACE, "conversation_id": talk, "initial_message": said(text)}
        return await self.stage.http.post(f"{self.stage.url()}/agent/api/conversations", json=body)

    async def _on_app_face(self, talk: str, text: str, key: str) -> httpx.Response:
        body = {"conversation_id": talk, "initial_message": said(text), "title": "It is chosen"}
        url = f"{self.stage.url()}/api/v1/app-conversations/stream-start"
        return await self.stage.http.post(url, json=body, headers={"Idempotency-Key": f'"{key}"'})

    async def _on_v0(self, talk: str, text: str, key: str) -> httpx.Response:
        body = {"conversation_id": talk, "initial_user_msg": text}
        url = f"{self.stage.url()}/api/conversations"
        return await self.stage.http.post(url, json=body, headers={"Idempotency-Key": f'"{key}"'})


def _is_started(answer: httpx.Response) -> bool:
    """Return whether the answer means success: V1's last step is READY, and V0's answer says ok."""
    body = json_of(answer)
    if not body:
        return bool(answer.json()[-1]["status"] == "READY")
    return bool(body.get("status", "ok") == "ok")
