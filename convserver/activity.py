"""How long this process has been running, and when it was last used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

_NAMES = ("alive", "health", "ready", "server_info")
PROBES = frozenset(f"{prefix}/{name}" for prefix in ("", "/agent") for name in _NAMES) | {"/metrics"}


class Activity:
    """Two moments of the monotonic clock, which changes of the time of day do not affect."""

    def __init__(self) -> None:
        self._began_at = self.asked_at = time.monotonic()

    def note(self) -> None:
        self.asked_at = time.monotonic()

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._began_at

    @property
    def idle_s(self) -> float:
        """Seconds since the last use, or since the process began."""
        return time.monotonic() - self.asked_at


activity = Activity()


class NotedActivity:
    """An application that records each request except probes, each opened socket, and each received frame.

    The server's own work is not recorded: an agent at work and a socket's heartbeat are no uses.
    """

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            receive = _noted(receive)
        elif scope["type"] == "http" and scope["path"] not in PROBES:
            activity.note()
        await self.application(scope, receive, send)


def _noted(receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    async def receive_and_note() -> Any:
        message = await receive()
        if message["type"] != "websocket.disconnect":  # it may be a proxy that ends an idle socket
            activity.note()
        return message

    return receive_and_note
