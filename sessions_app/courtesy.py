"""Calls go before histories: who reads a long log waits while somebody waits for an answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

GIVE_WAY_S = 0.02
"""A reader whose turn it is waits no longer than this: calls that never cease do not stop histories."""
QUEUE_S = 0.5
"""Nor does a crowd of other readers: whoever has waited so long for a turn goes on without."""
CALL_S = 0.05
"""A call that takes longer than this has reasons of its own, and nobody waits for it any more."""


class Courtesy:
    """The calls that one event loop has not answered yet, and the readers that let them pass."""

    def __init__(self) -> None:
        self._calls: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()
        self._turn = asyncio.Lock()

    def begin(self, call: object) -> None:
        """Count a call, for CALL_S at the most."""
        self._calls.add(call)
        self._none.clear()
        asyncio.get_running_loop().call_later(CALL_S, self.end, call)

    def end(self, call: object) -> None:
        """Count it no longer; a second time changes nothing."""
        self._calls.discard(call)
        if not self._calls:
            self._none.set()

    async def give_way(self) -> None:
        """Return once every call has its answer, or after GIVE_WAY_S; of several readers one at a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUEUE_S), self._turn:
                await asyncio.sleep(0)  # a call that has come in by now is counted
                async with asyncio.timeout(GIVE_WAY_S):
                    await self._none.wait()


async def counted(application: Any, scope: Any, receive: Any, send: Any) -> None:
    """Serve a request by the application; it is a call from the end of its body until it is answered.

    Neither an upload nor a download is one, which comes in pieces, nor a request that never comes to its end.
    """
    here, call = courtesy(), object()

    async def receive_counted() -> Any:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            here.begin(call)
        return message

    async def send_counted(message: Any) -> None:
        if message.get("more_body", False):
            here.end(call)
        await send(message)

    try:
        await application(scope, receive_counted, send_counted)
    finally:
        here.end(call)


_courtesies: WeakKeyDictionary[asyncio.AbstractEventLoop, Courtesy] = WeakKeyDictionary()


def courtesy() -> Courtesy:
    """Return the courtesy of the running event loop."""
    return _courtesies.setdefault(asyncio.get_running_loop(), Courtesy())
