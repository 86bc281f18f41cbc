"""Acknowledge on Socket.IO what is not stored yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

REPLACES = "sessions_app.sockets.v0.connection.V0Connection._pass_on"
LATE_S = 0.3

_tasks: set[asyncio.Task[None]] = set()


def bug(pass_on: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that passes the event on later."""

    async def late(connection: Any, event: Any, sender_id: int) -> None:
        await asyncio.sleep(LATE_S)
        await pass_on(connection, event, sender_id)

    async def passed_on(connection: Any, event: Any, sender_id: int) -> None:
        task = asyncio.get_running_loop().create_task(late(connection, event, sender_id))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    return passed_on
