"""The frames that have arrived on one connection; after a temporary refusal, none of them is tried."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from sessions_app.capacity.append_queue import FrameOrder

Receive = Callable[[], Awaitable[Any]]

UNANSWERED_MAX = 512
UNANSWERED_MAX_CHARACTERS = 32 * 1024 * 1024
"""At most this many frames of one socket, and this much text, are read before the first has its answer."""


class Arrivals:
    """What a connection receives, for a door that stores one frame before it reads the next.

    While a frame is stored, later ones wait unread. Before it sends a temporary refusal, the server reads the
    frames that have arrived, within bounds, and then refuses these, too. A later frame may be a resend, so it
    is tried.
    """

    _receive_next: Receive

    def __init__(self) -> None:
        self._order = FrameOrder()
        self._arrived: deque[Any] = deque()
        self._posts = 0

    def by(self, receive: Receive) -> Receive:
        """Return a `receive` that brings the same messages, first those that arrived before a refusal."""
        self._receive_next = receive
        return self._receive

    @contextmanager
    def posted(self) -> Iterator[None]:
        """Take the frames of one request, which have all arrived."""
        self._take_again()
        self._posts += 1
        try:
            yield
        finally:
            self._posts -= 1

    @asynccontextmanager
    async def in_order(self) -> AsyncIterator[None]:
        """Take one frame; a temporary refusal of it also refuses the frames that have arrived by now."""
        try:
            yield
        except Exception as error:
            self._order.note(error)
            if self._order.refusal is not None:  # also behind one that was refused for its content
                await self._read_arrived()
            raise

    def require_order(self) -> None:
        """Raise the refusal of an earlier frame, if the client may have sent this one before it knew."""
        if (refusal := self._order.refusal) is not None:
            raise refusal.with_traceback(None)  # raised for each frame, it would collect all their calls

    async def _receive(self) -> Any:
        if self._arrived:
            return self._arrived.popleft()
        self._take_again()
        return await self._receive_next()

    def _take_again(self) -> None:
        if not self._posts and not self._arrived:
            self._order.told()

    async def _read_arrived(self) -> None:
        """Read what has arrived, including what the transport held back meanwhile."""
        if self._posts:  # nothing else has arrived; a WebSocket upgrade has its own reader
            return
        characters = sum(len(message.get("text") or "") for message in self._arrived)
        # Before a refusal is sent, the server waits this long for frames that the client has sent already.
        arrival_s = 0.01
        with suppress(TimeoutError):
            while len(self._arrived) < UNANSWERED_MAX and characters < UNANSWERED_MAX_CHARACTERS:
                if self._arrived and self._arrived[-1]["type"] != "websocket.receive":
                    break  # the end of the connection
                async with asyncio.timeout(arrival_s):
                    self._arrived.append(await self._receive_next())
                characters += len(self._arrived[-1].get("text") or "")
