"""Clients that delete conversations for good: from the answer on they are gone for every reader."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from uuid import uuid4

import httpx

from faults.checker.history import Did
from faults.suite.clients.stage import Client, words_of

REST_S = (0.3, 0.8)
TOKEN = re.compile(r"csrftoken=([^;]+)")


class Purger(Client):
    """Deletes one conversation after the other for good."""

    async def purge(self, talk: str, name: str) -> None:
        """Create a conversation, write into it, delete it, and remove it for good."""
        talk = f"{self.stage.prefix}-{uuid4().hex}"
        self.stage.add(Did.SHARED, talk, "")  # what is told of its events is not logged: they are to go
        native = f"{self.stage.url()}/api/native/conversations"
        http = self.stage.http
        note = {"type": "event", "id": "1", "event": {"action": "note", "args": {"content": "A note."}}}
        steps: tuple[Callable[[], Awaitable[httpx.Response]], ...] = (
            lambda: http.post(native, json={"id": talk, "title": "It goes"}),
            lambda: http.post(f"{native}/{talk}/events", json=note),
            lambda: http.delete(f"{native}/{talk}"),
        )
        for step in steps:
            if not (await step()).is_success:
                return
        if await self._is_purged(talk):
            self.stage.add(Did.PURGED, talk, "")
            await self._look(talk)
        await self.pause(*REST_S)

    async def _is_purged(self, talk: str) -> bool:
        """Answer "Delete for good?" as a person does; return whether that was acknowledged."""
        url = f"{self.stage.url()}/c/{talk}/purge"
        page = await self.stage.http.get(url)
        token = TOKEN.search(page.headers.get("set-cookie", ""))
        if not page.is_success or token is None:
            return False
        headers = {"X-CSRFToken": token[1], "Cookie": f"csrftoken={token[1]}"}
        answer = await self.stage.http.post(url, headers=headers)
        if answer.status_code >= 400 and answer.status_code not in (404, 429, 503):
            self.stage.add(Did.UNEXPECTED, talk, "", -1, words_of(answer))
        return answer.status_code == httpx.codes.FOUND

    async def _look(self, talk: str) -> None:
        answer = await self.stage.http.get(f"{self.stage.url()}/api/native/conversations/{talk}/events")
        if answer.is_success:
            self.stage.add(Did.UNEXPECTED, talk, "", -1, "it can be read after it was removed for good")
