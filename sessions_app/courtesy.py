"""Calls go first: readers of long logs, and clients that send much at once, pause while HTTP calls wait."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from enum import Enum, auto
from typing import Any
from weakref import WeakKeyDictionary

GIVE_WAY_S = 0.02
"""Whoever gives way waits at most this long for calls: an endless series of calls stops nobody."""
QUEUE_S = 0.5
"""Whoever gives way waits at most this long for others who do."""
CALL_S = 0.05
"""A call that takes longer than this is not waited for any more."""

BURST, BURST_S = 8, 0.5
"""Frames of one socket, and handshakes of all clients: beyond so many in this time they give way.

Of the frames, one of so many does; of the handshakes, which cost more, each.
"""


class Work(Enum):
    """What gives way to calls; one of each sort at a time."""

    HISTORY = auto()
    FRAMES = auto()
    HANDSHAKE = auto()


class Courtesy:
    """The unanswered calls of one event loop, and the work that waits for them."""

    def __init__(self) -> None:
        self._calls: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()
        self._turns = {work: asyncio.Lock() for work in Work}
        self._handshakes = Burst()

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

    async def give_way(self, work: Work = Work.HISTORY) -> None:
        """Return once every call has its answer, or after GIVE_WAY_S; one of each sort of work at a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUEUE_S), self._turns[work]:
                await asyncio.sleep(0)  # a call that has arrived by now is counted
                async with asyncio.timeout(GIVE_WAY_S):
                    await self._none.wait()

    async def handshake(self) -> None:
        """Return when the next socket may be opened."""
        if self._handshakes.one_more() > BURST:
            await self.give_way(Work.HANDSHAKE)

    async def frame(self, burst: Burst) -> None:
        """Return when the next frame of a socket may be taken."""
        if burst.one_more() > BURST:
            burst.end()
            await self.give_way(Work.FRAMES)


class Burst:
    """What came within BURST_S."""

    __slots__ = ("_began_at", "_count")

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._count = 0

    def one_more(self) -> int:
        """Count one more and return how many they are."""
        now = time.monotonic()
        if now - self._began_at > BURST_S:
            self._began_at, self._count = now, 0
        self._count += 1
        return self._count

    def end(self) -> None:
        """Count anew."""
        self._began_at, self._count = time.monotonic(), 0


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
