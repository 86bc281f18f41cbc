"""Socket.IO clients as people use them, against a server in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
import socketio
from django.contrib.auth.models import User

from tests.clients import WAIT_S, Server


class PythonClient:
    """python-socketio's own client, and what it has received."""

    def __init__(self, server: Server) -> None:
        self.frames: list[dict[str, Any]] = []
        self.ended: asyncio.Event = asyncio.Event()
        self._something = asyncio.Event()
        self._url = server.url
        self._client = socketio.AsyncClient(reconnection=False)
        self._client.on("oh_event", self._receive)
        self._client.on("disconnect", self._end)
        self._client.on("connect_error", self._refused)
        self.refusals: list[Any] = []

    async def connect(self, conversation_id: str, *, after: int = -1) -> None:
        """Join. Raise socketio.exceptions.ConnectionError when that is refused."""
        query = f"conversation_id={conversation_id}&latest_event_id={after}&session_api_key=null"
        await self._client.connect(f"{self._url}?{query}", transports=["websocket"], wait_timeout=WAIT_S)

    async def _receive(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        self._something.set()

    async def _refused(self, data: Any) -> None:
        self.refusals.append(data)

    async def _end(self, *reason: object) -> None:
        self.ended.set()

    async def say(self, text: str) -> Any:
        """Send a message and return its acknowledgement."""
        event = {"action": "message", "args": {"content": text, "image_urls": [], "file_urls": []}}
        return await self._client.call("oh_user_action", event, timeout=WAIT_S)

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first frame that meets the condition, waiting for it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for frame in self.frames:
                    if condition(frame):
                        return frame
                self._something.clear()
                await self._something.wait()

    @property
    def numbers(self) -> list[int]:
        """The ids of the events received, in order."""
        return [frame["id"] for frame in self.frames if isinstance(frame.get("id"), int)]

    async def leave(self) -> None:
        """Disconnect."""
        with suppress(Exception):
            await self._client.disconnect()


@pytest.fixture
async def joined(server: Server, alice: User) -> AsyncIterator[Callable[..., Any]]:
    """Join a conversation of a server that runs."""
    server.start()
    clients: list[PythonClient] = []

    async def join(conversation_id: str, **options: Any) -> PythonClient:
        client = PythonClient(server)
        clients.append(client)
        await client.connect(conversation_id, **options)
        return client

    yield join
    for client in clients:
        await client.leave()


def answers(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda frame: (
        (frame.get("source"), frame.get("action")) == ("agent", "message")
        and frame["message"].startswith(f"You said: {text}")
    )


def waits(frame: dict[str, Any]) -> bool:
    return bool(frame.get("extras", {}).get("agent_state") == "awaiting_user_input")


async def test_a_client_joins_talks_drops_and_resumes(joined: Callable[..., Any]) -> None:
    first = await joined("my-talk")
    acknowledged = await first.say("hello")
    await first.until(answers("hello"))
    assert (acknowledged["success"], acknowledged["id"] in first.numbers) == (True, True)
    await first.leave()
    second = await joined("my-talk", after=max(first.numbers))
    await second.say("again")
    await second.until(answers("again"))
    assert second.numbers == sorted(set(second.numbers))
    assert min(second.numbers) > max(first.numbers)


async def test_four_clients_that_join_a_busy_conversation_miss_nothing_and_get_nothing_twice(
    joined: Callable[..., Any],
) -> None:
    busy = await joined("busy")
    await busy.until(waits)

    async def talk() -> None:
        for number in range(30):
            event = {"action": "run", "args": {"command": f"echo {number}"}}
            await busy._client.call("oh_user_action", event, timeout=WAIT_S)

    talking = asyncio.create_task(talk())
    others = [await joined("busy") for _ in range(4)]
    await talking
    for each in [busy, *others]:
        await each.until(lambda frame: frame.get("args", {}).get("command") == "echo 29")
        commands = [frame["args"]["command"] for frame in each.frames if frame.get("action") == "run"]
        assert commands == [f"echo {number}" for number in range(30)]


async def test_a_stop_disconnects_and_a_server_that_ends_does_too(
    joined: Callable[..., Any], server: Server
) -> None:
    first = await joined("my-talk")
    await first.until(waits)
    async with httpx.AsyncClient(base_url=server.url) as rest:
        await rest.post("/api/conversations/my-talk/stop")
    async with asyncio.timeout(WAIT_S):
        await first.ended.wait()
    second = await joined("my-talk")
    await second.until(lambda frame: frame.get("id") == "STATUS$READY")
    server.stop()
    async with asyncio.timeout(WAIT_S):
        await second.ended.wait()


async def test_a_refusal_reaches_the_client_in_words(joined: Callable[..., Any], server: Server) -> None:
    client = PythonClient(server)
    with pytest.raises(socketio.exceptions.ConnectionError):
        await client.connect("..%2Fx")
    assert client.refusals == [{"message": "Conversation ID contains invalid path characters"}]
