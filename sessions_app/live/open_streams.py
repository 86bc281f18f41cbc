"""The endless answers of a process; they end when the server stops."""

from __future__ import annotations

import asyncio
from weakref import WeakSet

from sessions_app.event_loops import PerEventLoop

_ends: PerEventLoop[WeakSet[asyncio.Event]] = PerEventLoop(WeakSet)


def begin() -> asyncio.Event:
    """Return the event that is set when the server stops; the stream must keep a reference to it."""
    end = asyncio.Event()
    _ends.get().add(end)
    return end


def end_all() -> None:
    """End every stream of the running event loop; clients reconnect by themselves."""
    for end in list(_ends.get()):
        end.set()
