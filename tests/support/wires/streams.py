"""A client of server-sent events, straight into the ASGI application or over the network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from convserver.asgi import application
from tests.support.people.clients import WAIT_S


class ServerSentEvents:
    """What the text of a stream says, as browsers read it."""

    def __init__(self) -> None:
        self._id = ""
        self._rest = ""

    def read(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the frames that are whole by now, each with the last id."""
        *whole, self._rest = (self._rest + text).split("\n\n")
        return [found for each in whole if (found := self._frame(each)) is not None]

    def _frame(self, event: str) -> tuple[str, dict[str, Any]] | None:
        fields = [line.partition(": ") for line in event.split("\n")]
        data = [value for name, _, value in fields if name == "data"]
        for name, _, value in fields:
            if name == "id":
                self._id = value
        return (self._id, json.loads("\n".join(data))) if data else None


class Stream:
    """One stream, straight into the ASGI application."""

    def __init__(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> None:
        given = {"host": "localhost", "accept": "text/event-stream", **(headers or {})}
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query).encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self._events = ServerSentEvents()
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1)
        self._left = asyncio.Event()
        self._requests = 0
        self._task: asyncio.Task[None] | None = None
        self._read: list[tuple[str, dict[str, Any]]] = []
        self.last_id = ""
        """The cursor to resume from."""
        self.frames: list[dict[str, Any]] = []
        """All that were received."""
        self.status = 0
        self.headers: dict[str, str] = {}

    async def open(self) -> Stream:
        """Ask, and return once the answer has begun."""
        self._task = asyncio.create_task(application(self._scope, self._receive, self._sent.put))
        start = await self._next_message()
        self.status = start["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return self

    async def receive(self) -> dict[str, Any]:
        """Return the next frame. Raise EOFError at the end."""
        while not self._read:
            message = await self._next_message()
            self._read += self._events.read(message.get("body", b"").decode())
            if not self._read and not message.get("more_body", False):
                raise EOFError
        self.last_id, frame = self._read.pop(0)
        self.frames.append(frame)
        return frame

    async def until(self, type: str, **members: Any) -> dict[str, Any]:
        """Return the next frame of this type with these members."""
        while True:
            frame = await self.receive()
            if frame["type"] == type and members.items() <= frame.items():
                return frame

    async def ended(self) -> dict[str, Any]:
        """Return the frame `end`, after which nothing comes."""
        end = await self.until("end")
        with suppress(EOFError):
            raise AssertionError(await self.receive())
        return end

    async def text(self) -> str:
        """Return the rest of an answer that is no stream."""
        text = ""
        while True:
            message = await self._next_message()
            text += str(message.get("body", b""), "utf-8")
            if not message.get("more_body", False):
                return text

    async def leave(self) -> None:
        """Leave, and wait for the server to notice."""
        self._left.set()
        if self._task is not None:
            while not self._task.done():
                with suppress(asyncio.QueueEmpty):
                    self._sent.get_nowait()
                await asyncio.wait([self._task], timeout=0.01)

    async def _receive(self) -> dict[str, Any]:
        self._requests += 1
        if self._requests == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _next_message(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            return await self._sent.get()
