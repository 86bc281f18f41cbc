"""Limits on requests at work.

With accounts, no user takes all threads or all memory for large bodies. One conversation takes at most four
changes at a time.

A thread that waits for a lock, for a slow host or for a long search is kept meanwhile. So requests wait for
a thread here, on the event loop, where waiting costs nothing.
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

THREADS = 32  # at most this many requests are in views at a time; the others wait for a thread
# At most this many of them may change something: while all wait for locks, the other threads still read.
WRITERS = 24
# Of the same conversation, which takes one change after the other anyway: more of them would only wait.
WRITERS_OF_ONE = 4
# At most this many requests ask foreign hosts, in threads of their own, which those may keep for long.
ABROAD_THREADS = 16
# At most this many requests search; they need the processor more than the others.
SEARCHES = 8
SEARCHES_OF_ONE = 2  # with accounts, at most this many of them are of the same user
# Requests that change many conversations. SQLite's writers come in the order in which they arrive: several
# batches of one user would keep another user's append waiting for all of them.
BATCHES, BATCHES_OF_ONE = 4, 1
# Large bodies that are read, or worked on, have at most this many bytes together.
BODIES_MAX_BYTES = 256 * 1024 * 1024
BODIES_OF_ONE_BYTES = 32 * 1024 * 1024  # with accounts, those of one user have at most this many of them
BODY_WAIT_S = 10.0  # a large body waits at most this long to be read
# With accounts, a read, a search or a request to a foreign host waits at most this long for a thread. Any
# other change waits `LOCK_TIMEOUT_S`, in both modes.
WAIT_S = 30.0


class Lane(StrEnum):
    """What a request waits for beside those of its own sort."""

    ORDINARY = "ordinary"
    ABROAD = "abroad"  # it may ask a host that is not ours, such as a git provider or a model
    SEARCH = "search"
    BATCH = "batch"  # it changes many conversations


def in_lane(lane: Lane) -> Callable[[T], T]:
    """Let requests to a view, or to one method of a viewset, wait in this lane."""

    def marked(view: T) -> T:
        view.lane = lane  # type: ignore[attr-defined]
        return view

    return marked


class ShareUsedUp(TimeoutError):
    """The client's own requests hold all permits that one user may have."""


class Permit:
    """A permit to occupy one worker thread, or the memory of a large body."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = list(limits)
        self.is_used = False
        """True while a thread holds the permit; it releases it even if the client has left."""

    def keep(self, limits: list[Limit]) -> None:
        """Take what was acquired of other limits, too: it is released with the permit."""
        self._limits += limits
        limits.clear()

    def leave(self) -> None:
        """Release it, on the event loop; a second time changes nothing."""
        limits, self._limits = self._limits, []
        for limit in limits:
            limit.release()

    def leave_from_thread(self) -> None:
        """Release it, in any thread."""
        if not self._loop.is_closed():  # a thread may outlive the server's loop
            self._loop.call_soon_threadsafe(self.leave)


class Limit(Protocol):
    """What bounds work at a time: a semaphore, or a user's share."""

    async def acquire(self) -> object: ...

    def release(self) -> None: ...


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
    """The permits of one event loop."""

    def __init__(self) -> None:
        self._threads = Shares(THREADS)
        self._writers = Shares(WRITERS)
        self._abroad = Shares(ABROAD_THREADS)
        self._searches = Shares(SEARCHES, of_one=SEARCHES_OF_ONE)
        self._batches = Shares(BATCHES, of_one=BATCHES_OF_ONE)
        self._bodies = Shares(BODIES_MAX_BYTES, of_one=BODIES_OF_ONE_BYTES)
        self._by_conversation: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def place(self, conversation_id: str | None, *, within_s: float, client: Hashable = None) -> Permit:
        """Wait for a permit to change this conversation, or anything if None. Raise TimeoutError.

        A request that waits for its conversation does not hold a shared permit.
        """
        shares = [_Share(self._writers, client), _Share(self._threads, client)]
        first: list[Limit] = []
        # The permits live as long as a request holds or waits for one: the table needs no cleaning.
        if conversation_id is not None:
            permits = asyncio.Semaphore(WRITERS_OF_ONE)
            first.append(self._by_conversation.setdefault(conversation_id, permits))
        return await _admitted(first, shares, within_s=within_s)

    async def reading_place(self, *, within_s: float | None, client: Hashable = None) -> Permit:
        """Wait for a permit to read. Raise TimeoutError."""
        return await _admitted([], [_Share(self._threads, client)], within_s=within_s)

    async def searching_place(self, *, within_s: float | None, client: Hashable = None) -> Permit:
        """Wait for a permit to search. Raise TimeoutError."""
        shares = [_Share(self._searches, client), _Share(self._threads, client)]
        return await _admitted([], shares, within_s=within_s)

    async def batch_place(self, *, within_s: float, client: Hashable = None) -> Permit:
        """Wait for a permit to change many conversations. Raise TimeoutError."""
        shares = [_Share(lane, client) for lane in (self._batches, self._writers, self._threads)]
        return await _admitted([], shares, within_s=within_s)

    async def place_abroad(self, *, within_s: float | None, client: Hashable = None) -> Permit:
        """Wait for a permit to ask foreign hosts. Raise TimeoutError."""
        return await _admitted([], [_Share(self._abroad, client)], within_s=within_s)

    async def body_place(self, size: int, *, client: Hashable) -> Permit:
        """Wait for room for a body of `size` bytes. Raise TimeoutError after BODY_WAIT_S."""
        return await _admitted([], [_Share(self._bodies, client, size)], within_s=BODY_WAIT_S)


async def _admitted(first: list[Limit], shares: list[_Share], *, within_s: float | None) -> Permit:
    """Acquire one limit after the other. Raise TimeoutError, ShareUsedUp if the client's share is used."""
    held: list[Limit] = []
    try:
        async with asyncio.timeout(within_s):
            for limit in [*first, *shares]:
                await limit.acquire()
                held.append(limit)
    except BaseException as error:
        # Before the release, after which the share is not used up any more.
        is_own = any(share.is_used_up for share in shares)
        for limit in held:
            limit.release()
        if isinstance(error, TimeoutError) and is_own:
            raise ShareUsedUp from None
        raise
    return Permit(held)


_admissions = PerEventLoop(Admission)


def admission() -> Admission:
    """Return the admission of the running event loop."""
    return _admissions.get()
