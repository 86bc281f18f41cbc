"""Which requests have a thread: a share for each user, a few changes of each conversation, never all at once.

And which large bodies are read, before they have a thread: a number of bytes for each user, and for all.

A thread that waits for a lock, for a slow host or for a long search is kept meanwhile. So whoever has to
wait for a thread waits here, on the event loop, where waiting costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from sessions_app.capacity.shares import Shares
from sessions_app.event_loops import PerEventLoop

T = TypeVar("T")

THREADS = 32
"""At most this many requests are in views at a time; the others wait for a thread."""
WRITERS = 24
"""At most this many of them may change something; the other threads are left to those that read."""
WRITERS_OF_ONE = 4
"""At most this many of them change the same conversation, which takes one change after the other anyway."""
ABROAD_THREADS = 16
"""At most this many requests ask foreign hosts, in threads of their own, which those may keep for long."""
SEARCHES = 8
"""At most this many requests search; they need the processor more than the others."""
SEARCHES_OF_ONE = 2
"""With accounts, at most this many of them are of the same user."""
BATCHES, BATCHES_OF_ONE = 4, 1
"""At most this many requests change many conversations, which keeps other writers waiting; with accounts, so
many of them of the same user."""
BODIES_MAX_BYTES = 256 * 1024 * 1024
"""Large bodies that are read, or worked on, have at most this many bytes together."""
BODIES_OF_ONE_BYTES = 32 * 1024 * 1024
"""With accounts, those of one user have at most this many of them."""
BODY_WAIT_S = 10.0
"""A large body waits at most this long to be read."""
WAIT_S = 30.0
"""With accounts, a request waits at most this long for a thread, one that changes something less long."""


class Lane(StrEnum):
    """What a request waits for beside those of its own sort."""

    ORDINARY = "ordinary"
    ABROAD = "abroad"
    """It may ask a host that is not ours, such as a git provider or a model."""
    SEARCH = "search"
    BATCH = "batch"
    """It changes many conversations."""


def in_lane(lane: Lane) -> Callable[[T], T]:
    """Let requests to a view, or to one method of a viewset, wait in this lane."""

    def marked(view: T) -> T:
        view.lane = lane  # type: ignore[attr-defined]
        return view

    return marked


class ShareUsedUp(TimeoutError):
    """The client's own requests have all places that one user may have."""


class Place:
    """Leave to be in a thread that somebody may have to wait for."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = list(lines)
        self.is_used = False
        """A thread is at it, and gives it up at its end, also if nobody waits for the answer any more."""

    def use(self) -> None:
        """Note that this thread is at it."""
        self.is_used = True

    def keep(self, lines: list[Line]) -> None:
        """Take what was acquired of other lines, too: it is given up with the place."""
        self._lines += lines
        lines.clear()

    def leave(self) -> None:
        """Give it up, on the event loop; a second time changes nothing."""
        lines, self._lines = self._lines, []
        for line in lines:
            line.release()

    def leave_from_thread(self) -> None:
        """Give it up, in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.leave)


class Line(Protocol):
    """Something of which there are few: a semaphore, or a user's share."""

    async def acquire(self) -> object:
        """Wait for one."""

    def release(self) -> None:
        """Give one back."""


class _Share:
    """The share of one client."""

    def __init__(self, shares: Shares, client: Hashable, count: int = 1) -> None:
        self._shares = shares
        self._client = client
        self._count = count

    @property
    def is_used_up(self) -> bool:
        return self._shares.is_used_up(self._client, self._count)

    async def acquire(self) -> None:
        await self._shares.take(self._client, self._count)

    def release(self) -> None:
        self._shares.give_back(self._client, self._count)


class Admission:
    """The places of one event loop."""

    def __init__(self) -> None:
        self._threads = Shares(THREADS)
        self._writers = Shares(WRITERS)
        self._abroad = Shares(ABROAD_THREADS)
        self._searches = Shares(SEARCHES, of_one=SEARCHES_OF_ONE)
        self._batches = Shares(BATCHES, of_one=BATCHES_OF_ONE)
        self._bodies = Shares(BODIES_MAX_BYTES, of_one=BODIES_OF_ONE_BYTES)
        self._by_conversation: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def place(self, conversation_id: str | None, *, within_s: float, client: Hashable = None) -> Place:
        """Wait for a place to change this conversation, or whatever else. Raise TimeoutError after so long.

        Who waits for one of the conversation's keeps nobody from one of all.
        """
        shares = [_Share(self._writers, client), _Share(self._threads, client)]
        first: list[Line] = []
        if conversation_id is not None:
            permits = asyncio.Semaphore(WRITERS_OF_ONE)
            first.append(self._by_conversation.setdefault(conversation_id, permits))
        return await _admitted(first, shares, within_s=within_s)

    async def reading_place(self, *, within_s: float | None, client: Hashable = None) -> Place:
        """Wait for a place to read. Raise TimeoutError after so long."""
        return await _admitted([], [_Share(self._threads, client)], within_s=within_s)

    async def searching_place(self, *, within_s: float | None, client: Hashable = None) -> Place:
        """Wait for a place to search. Raise TimeoutError after so long."""
        shares = [_Share(self._searches, client), _Share(self._threads, client)]
        return await _admitted([], shares, within_s=within_s)

    async def batch_place(self, *, within_s: float, client: Hashable = None) -> Place:
        """Wait for a place to change many conversations. Raise TimeoutError after `within_s`."""
        shares = [_Share(lane, client) for lane in (self._batches, self._writers, self._threads)]
        return await _admitted([], shares, within_s=within_s)

    async def place_abroad(self, *, within_s: float | None, client: Hashable = None) -> Place:
        """Wait for a place in a thread that asks foreign hosts. Raise TimeoutError after so long."""
        return await _admitted([], [_Share(self._abroad, client)], within_s=within_s)

    async def body_place(self, size: int, *, client: Hashable) -> Place:
        """Wait for room for a body of `size` bytes. Raise TimeoutError after BODY_WAIT_S."""
        return await _admitted([], [_Share(self._bodies, client, size)], within_s=BODY_WAIT_S)


async def _admitted(first: list[Line], shares: list[_Share], *, within_s: float | None) -> Place:
    """Wait in one line after the other. Raise TimeoutError, ShareUsedUp if it is the client's own doing."""
    held: list[Line] = []
    try:
        async with asyncio.timeout(within_s):
            for line in [*first, *shares]:
                await line.acquire()
                held.append(line)
    except BaseException as error:
        is_own = any(share.is_used_up for share in shares)
        for line in held:
            line.release()
        if isinstance(error, TimeoutError) and is_own:
            raise ShareUsedUp from None
        raise
    return Place(held)


_admissions = PerEventLoop(Admission)


def admission() -> Admission:
    """Return the admission of the running event loop."""
    return _admissions.get()
