"""Calls go before histories: readers of long logs pause while HTTP calls wait for an answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

GIVE_WAY_S = 0.02
"""A reader waits at most this long for calls, so an endless series of calls does not stop histories."""
QUEUE_S = 0.5
"""A reader waits at most this long for other readers."""
CALL_S = 0.05
"""A call that takes longer than this is not waited for any more."""


class Courtesy:
    """The unanswered calls of one event loop, and the readers that wait for them."""

    def __init__(self) -> None:
        self._calls: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()
        self._turn = asyncio.Lock()

    def begin(self, call: object) -> None:
        """Count a call, for at most CALL_S."""
        self._calls.add(call)
        self._none.clear()
        asyncio.get_running_loop().call_later(CALL_S, self.end, call)

    def end(self, call: object) -> None:
        """Stop counting it; a second time changes nothing."""
        self._calls.discard(call)
        if not self._calls:
            self._none.set()

    async def give_way(self) -> None:
        """Return once every call has its answer, or after GIVE_WAY_S; one reader at a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUEUE_S), self._turn:
                await asyncio.sleep(0)  # a call that has arrived by now is counted
                async with asyncio.timeout(GIVE_WAY_S):
                    await self._none.wait()


async def counted(application: Any, scope: Any, receive: Any, send: Any) -> None:
    """Serve a request; it is a call from the end of its body until its answer begins.

    Uploads and downloads, which come in pieces, are not calls, and neither is a request that never ends.
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
    """Return the replay throttle of the running event loop."""
    return _courtesies.setdefault(asyncio.get_running_loop(), Courtesy())
