"""HTTP calls go first: replays and busy sockets pause while calls wait for their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from typing import Any

from django.conf import settings

from sessions_app.capacity.calls import Calls, get_recent_calls
from sessions_app.event_loops import PerEventLoop

YIELD_MAX_S = 0.02
"""Yielding work waits at most this long for calls, so that an endless series of calls stops nothing."""
QUEUE_S = 0.5
"""Yielding work waits at most this long for other work of its kind."""
CALL_S = 0.05
"""A call that takes longer than this no longer delays other work."""

OPENING_CALL_S = 0.5
"""The same for the sockets of one user's crowd, since many sockets make calls slow."""
OPENING_YIELD_MAX_S = 0.1
"""Each of them waits at most this long for calls."""
OPENING_RESTS, OPENING_S = 4, 0.05
"""After each socket, wait OPENING_RESTS times its opening time, at most OPENING_S each."""

BURST, BURST_S = 8, 0.5
"""More than BURST frames of one socket, or handshakes of all clients, in BURST_S yield to calls. Of the
frames, every BURST-th yields; of the handshakes, which cost more, each one."""


class YieldingWork(Enum):
    """The kinds of work that yield to calls; one of each kind runs at a time."""

    HISTORY = auto()
    FRAMES = auto()
    HANDSHAKE = auto()


class ReplayThrottle:
    """The unanswered calls of one event loop, and the work that waits for them."""

    def __init__(self) -> None:
        # All work waits for the first, crowds of sockets for the second, longer.
        self._recent, self._pending = get_recent_calls(), Calls()
        self._slots = {work: asyncio.Lock() for work in YieldingWork}
        self._handshakes = Burst()
        self._openings: dict[int, Openings] = {}

    def begin(self, call: object) -> None:
        """Count a call for at most CALL_S, for crowds of sockets at most OPENING_CALL_S."""
        self._recent.begin(call, for_s=CALL_S)
        self._pending.begin(call, for_s=OPENING_CALL_S)

    def end(self, call: object) -> None:
        """Stop counting a call; a repeat changes nothing."""
        self._recent.end(call)
        self._pending.end(call)

    async def yield_to_requests(self, work: YieldingWork = YieldingWork.HISTORY) -> None:
        """Return once every call has its answer, or after YIELD_MAX_S; one of each kind of work at a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUEUE_S), self._slots[work]:
                await self._recent.pass_by(within_s=YIELD_MAX_S)

    async def handshake(self) -> None:
        """Return when the next socket may be opened."""
        if self._handshakes.one_more() > BURST:
            await self.yield_to_requests(YieldingWork.HANDSHAKE)

    @asynccontextmanager
    async def opening(self, user_pk: int) -> AsyncIterator[Opening]:
        """Open a socket of a known user; the sockets of a crowd open one after the other, and after calls.

        The next socket opens after this one, or at the end of the block. Without accounts, no user waits
        for another.
        """
        openings = self._openings.setdefault(user_pk, Openings())
        openings.count += 1
        opening = Opening(openings.lock)
        try:
            is_crowd = openings.burst.one_more() > BURST or openings.lock.locked()
            if is_crowd and settings.CONFIGURATION.auth != "local":
                await opening.begin(self._pending)
            yield opening
        finally:
            opening.end()
            openings.count -= 1
            if not openings.count:
                # Kept for a while: a client that opens and closes alternately must count as a crowd, too.
                asyncio.get_running_loop().call_later(BURST_S, self._forget, user_pk)

    def _forget(self, user_pk: int) -> None:
        openings = self._openings.get(user_pk)
        if openings is not None and not openings.count:
            del self._openings[user_pk]

    async def frame(self, burst: Burst) -> None:
        """Return when the next frame of a socket may be taken."""
        if burst.one_more() > BURST:
            burst.end()
            await self.yield_to_requests(YieldingWork.FRAMES)


class Burst:
    """The number of events within BURST_S."""

    __slots__ = ("_began_at", "_count")

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._count = 0

    def one_more(self) -> int:
        now = time.monotonic()
        if now - self._began_at > BURST_S:
            self._began_at, self._count = now, 0
        self._count += 1
        return self._count

    def end(self) -> None:
        """Start counting again."""
        self._began_at, self._count = time.monotonic(), 0


class Openings:
    def __init__(self) -> None:
        self.burst, self.lock = Burst(), asyncio.Lock()
        self.count = 0


class Opening:
    """One socket that is being opened; in a crowd it holds the user's lock."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._began_at: float | None = None

    async def begin(self, calls: Calls) -> None:
        """Take the lock, and wait for calls."""
        await self._lock.acquire()
        try:
            await calls.pass_by(within_s=OPENING_YIELD_MAX_S)
        except BaseException:
            self._lock.release()
            raise
        self._began_at = time.monotonic()

    def end(self) -> None:
        """Release the lock after a rest; a repeat changes nothing."""
        if self._began_at is not None:
            rest = OPENING_RESTS * min(time.monotonic() - self._began_at, OPENING_S)
            self._began_at = None
            asyncio.get_running_loop().call_later(rest, self._lock.release)


async def counted(application: Any, scope: Any, receive: Any, send: Any) -> None:
    """Serve a request, and count it as a call from the end of its body to the start of its answer.

    Uploads, downloads and endless requests do not count.
    """
    here, call = get_replay_throttle(), object()

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


_throttles = PerEventLoop(ReplayThrottle)


def get_replay_throttle() -> ReplayThrottle:
    return _throttles.get()
