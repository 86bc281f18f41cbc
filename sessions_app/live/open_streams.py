"""The answers of a process that go on until something ends them, so that its end need not wait for them."""

from __future__ import annotations

import asyncio
from weakref import WeakSet

from sessions_app.event_loops import PerEventLoop

_ends: PerEventLoop[WeakSet[asyncio.Event]] = PerEventLoop(WeakSet)


def begin() -> asyncio.Event:
    """Return what is set when the server ends; the stream keeps it for as long as it is open."""
    end = asyncio.Event()
    _ends.get().add(end)
    return end


def end_all() -> None:
    """End every stream of the running event loop: its clients come back by themselves."""
    for end in list(_ends.get()):
        end.set()
