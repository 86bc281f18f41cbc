"""Since when this process runs, and when somebody last asked it for something."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

_NAMES = ("alive", "health", "ready", "server_info")
PROBES = frozenset(f"{prefix}/{name}" for prefix in ("", "/agent") for name in _NAMES)


class Activity:
    """Two moments by the monotonic clock: no change of the time of day moves them."""

    def __init__(self) -> None:
        self._began_at = self.asked_at = time.monotonic()

    def note(self) -> None:
        """Note that somebody asks for something now."""
        self.asked_at = time.monotonic()

    @property
    def uptime_s(self) -> float:
        """Seconds since this process began."""
        return time.monotonic() - self._began_at

    @property
    def idle_s(self) -> float:
        """Seconds since somebody last asked for something, or since the process began."""
        return time.monotonic() - self.asked_at


activity = Activity()


class NotedActivity:
    """An application that notes each request but probes, each socket that opens, and each frame that comes.

    What the server sends by itself is not noted: an agent at work and a socket's heartbeat ask for nothing.
    """

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Note what comes, and pass it on."""
        if scope["type"] == "websocket":
            receive = _noted(receive)
        elif scope["type"] == "http" and scope["path"] not in PROBES:
            activity.note()
        await self.application(scope, receive, send)


def _noted(receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    async def receive_and_note() -> Any:
        message = await receive()
        if message["type"] != "websocket.disconnect":
            activity.note()
        return message

    return receive_and_note
