"""The store for async code, which reaches the database only through this module.

Appends of all callers are collected: those that arrive during a commit share the next transaction.
Everything else runs a whole store function in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from django.contrib.auth.models import User
from django.db import connection

from conversations import live
from conversations.events import Appended, ConversationRef, EventEnvelope, NewEvent
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    MaskingDeferred,
    QuotaExceeded,
)
from conversations.log import append as log
from conversations.log import commits, reads
from conversations.log.append import AppendRequest
from conversations.outages import Outage
from conversations.storage import quotas
from sessions_app import append_batches
from sessions_app.append_batches import Outcome
from sessions_app.capacity.append_queue import AppendQueue, FrameOrder, WaitingAppend
from sessions_app.capacity.shares import Shares
from sessions_app.connected_threads import ConnectedThreads, changed, connected, repeated, settled
from sessions_app.event_loops import PerEventLoop

P = ParamSpec("P")
T = TypeVar("T")

READERS = 8
# Functions that may wait for a lock have threads of their own, so that no reader waits with them.
CHANGERS = 12
CHANGERS_OF_ONE = 3
"""At most this many of them change the same conversation."""
# More than one, so that no user waits for another's long batch.
WRITERS = 2
"""At most this many batches of different users are written at a time (PostgreSQL)."""
CONTENDED = 4
"""At most this many appends wait for locked conversations at a time (PostgreSQL)."""
MASKERS = 2
"""At most this many appends are masked at a time, of different users, before their transaction."""

_failing = Outage(__name__, "Appends failed", "Appends work again")


class Database:
    """The database threads of one event loop, each with its own connection."""

    def __init__(self) -> None:
        # A thread for each permit: no timeout bounds the wait of a permit for a thread.
        self._readers = ConnectedThreads(READERS + MASKERS, "store")
        self._changers = ConnectedThreads(CHANGERS + CONTENDED, "store-changer")
        # SQLite has one lock for all: a second writer would only wait for it.
        self._writers = WRITERS if connection.vendor == "postgresql" else 1
        self._writer = ConnectedThreads(self._writers, "store-writer")
        # Threads that compute wait for each other: with 6 of one user, appends of others took 50 % longer.
        self._reading = Shares(READERS, of_one=READERS // 2)
        self._changing, self._catching_up = Shares(CHANGERS), Shares(CONTENDED)
        self._permits: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self.queue = AppendQueue()
        self._masking, self._writing_alone = Shares(MASKERS), Shares(1)
        self._lagging: dict[int, deque[WaitingAppend]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = 0
        """The number of running writers."""
        self._being_served: set[int] = set()
        """The users in their batches; no user is in two."""
        self.has_written_long = asyncio.Event()
        """Set after an append that was too long for a commit with others."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous function of the store in a thread and return its result.

        It counts in the share of the first user, or of the first conversation's owner, among its arguments.
        """
        return await self.read(_user_of(args), lambda: function(*args, **kwargs))

    async def read(self, user: int | None, function: Callable[[], T]) -> T:
        """Run a function of the store in a thread of this user's share; None is the server itself."""
        return await _in_share(self._readers, self._reading, user, lambda: connected(function))

    async def change(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the store that may wait for a lock, so that no reader waits with it.

        Changes of one conversation share CHANGERS_OF_ONE threads. Raise ConversationBusy if earlier ones
        take longer than LOCK_TIMEOUT_S.
        """
        conversation = next((each for each in args if isinstance(each, ConversationRef)), None)
        permits = await self._permits_of(conversation)

        def change() -> T:
            return changed(lambda: function(*args, **kwargs))

        return await _in_share(self._changers, self._changing, _user_of(args), change, then=permits.release)

    async def _permits_of(self, conversation: ConversationRef | None) -> asyncio.Semaphore:
        """Return the permits of this conversation's changes, one of them taken."""
        if conversation is None:
            permits = asyncio.Semaphore()
        else:
            permits = self._permits.setdefault(conversation.pk, asyncio.Semaphore(CHANGERS_OF_ONE))
        try:
            async with asyncio.timeout(log.LOCK_TIMEOUT_S):
                await permits.acquire()
        except TimeoutError:
            raise ConversationBusy("The conversation is busy with other changes. Try again.") from None
        return permits

    def append(
        self, request: AppendRequest, order: FrameOrder | None = None
    ) -> asyncio.Future[list[Appended]]:
        """Queue one append at once, so that a caller's appends keep their order; await the future."""
        future: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()
        # Always through the queue: a shortcut would overtake queued appends of the same conversation.
        waiting = WaitingAppend(request, future, order)
        self.queue.put(waiting)
        if self._writing < self._writers and waiting.user not in self._being_served:
            self._writing += 1
            self._own(self._write())
        return future

    async def close(self) -> None:
        """Finish all queued appends and close the connections."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for threads in (self._readers, self._changers, self._writer):
            await threads.close()

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self) -> None:
        """Write batch after batch until what is left in the queue is of users whom another writer serves."""
        try:
            while self.queue:
                batch = self.queue.next_batch(self._is_lagging, self._being_served)
                if batch and batch[0].is_long and connection.vendor == "sqlite":
                    # Every other write waits for a transaction of SQLite, so mask before it.
                    batch[0].is_masked_first = True
                    self._lag(batch[0])
                elif batch:
                    await self._write_batch(batch)
                elif self.queue and self._being_served:
                    return  # the other writer continues with these users
        finally:
            self._writing -= 1

    async def _write_batch(self, batch: Sequence[WaitingAppend]) -> None:
        users = {waiting.user for waiting in batch}
        requests = [waiting.request for waiting in batch]
        loop = asyncio.get_running_loop()
        self._being_served |= users
        try:
            orders = [waiting.order for waiting in batch]
            outcomes = await loop.run_in_executor(self._writer, append_batches.append_many, requests, orders)
        finally:
            self._being_served -= users
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, ConversationBusy):
                waiting.is_masked_first = isinstance(outcome, MaskingDeferred)
                self._lag(waiting)
            else:
                self._answer(waiting, outcome)

    def _is_lagging(self, waiting: WaitingAppend) -> bool:
        """Move an append behind the lagging ones of its conversation, or refuse it with its order."""
        if (refusal := waiting.refusal) is not None:
            self._answer(waiting, refusal)
            return True
        lagging = self._lagging.get(waiting.request.conversation.pk)
        if lagging is None:
            return False
        lagging.append(waiting)
        return True

    def _lag(self, waiting: WaitingAppend) -> None:
        """Queue an append apart from the others: its log is locked, or its masking takes long."""
        pk = waiting.request.conversation.pk
        lagging = self._lagging.get(pk)
        if lagging is not None:
            lagging.append(waiting)
        else:
            self._lagging[pk] = deque([waiting])
            self._own(self._catch_up(pk))

    async def _catch_up(self, pk: int) -> None:
        """Write the lagging appends of a conversation in their order."""
        lagging = self._lagging[pk]
        try:
            while lagging:
                tried_with = len(lagging)
                waiting = lagging.popleft()
                if (refusal := waiting.refusal) is not None:
                    self._answer(waiting, refusal)
                    continue
                # Appends of other conversations may have held all threads: it has waited long enough.
                is_late = time.monotonic() - waiting.since > log.LOCK_TIMEOUT_S
                outcome = await self._write_alone(waiting, is_late=is_late)
                self._answer(waiting, outcome)
                if waiting.is_long:
                    self.has_written_long.set()
                # Appends queued before a failed attempt have already waited; fail them too.
                if isinstance(outcome, ConversationBusy) and not is_late:
                    for _ in range(tried_with - 1):
                        self._answer(lagging.popleft(), ConversationBusy(str(outcome)))
        finally:
            del self._lagging[pk]

    async def _write_alone(self, waiting: WaitingAppend, *, is_late: bool) -> Outcome | Exception:
        """Write one append in a transaction of its own, masked before if that takes long."""
        write = append_batches.append_unless_locked if is_late else append_batches.append_alone
        for _ in range(commits.MASK_TRIES):
            if waiting.is_masked_first:
                try:
                    waiting.request = await self._masked(waiting.request)
                except Exception as error:  # passed to the caller
                    return error
            (outcome,) = await self._run_alone(waiting.user, partial(write, [waiting.request]))
            waiting.is_masked_first = isinstance(outcome, MaskingDeferred)
            if not waiting.is_masked_first:
                break
        return outcome

    async def _run_alone(self, user: int, write: Callable[[], T]) -> T:
        if connection.vendor == "postgresql":
            return await _in_share(self._changers, self._catching_up, user, lambda: changed(write))
        # SQLite has one lock for all writes, so this append runs in the writer's thread. At most one such
        # append waits for that thread, so a batch waits for at most one of them.
        return await _in_share(self._writer, self._writing_alone, user, write)

    async def _masked(self, request: AppendRequest) -> AppendRequest:
        """Return the request with its events masked, before its transaction."""
        user = request.conversation.owner_id
        return await _in_share(
            self._readers, self._masking, user, lambda: repeated(lambda: log.masked(request))
        )

    def _answer(self, waiting: WaitingAppend, outcome: Outcome | Exception) -> None:
        self.queue.settle(waiting)
        if waiting.order is not None:
            waiting.order.note(outcome)
        _answer(waiting, outcome)


async def _in_share(
    executor: ThreadPoolExecutor,
    shares: Shares,
    user: int | None,
    function: Callable[[], T],
    *,
    then: Callable[[], None] = lambda: None,
) -> T:
    """Run a function in a thread of the user's share; call `then` on the event loop once it has ended.

    A cancelled caller does not stop a running thread, which keeps its part of the share until it ends.
    """
    loop = asyncio.get_running_loop()

    def end() -> None:
        shares.give_back(user)
        then()

    try:
        await shares.take(user)
    except BaseException:
        then()
        raise
    work = executor.submit(function)
    work.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(end))
    return await asyncio.wrap_future(work)


def _user_of(args: Sequence[object]) -> int | None:
    """Return the key of the first user or conversation's owner among the arguments."""
    for each in args:
        if isinstance(each, ConversationRef):
            return each.owner_id
        if isinstance(each, User):
            return each.pk
    return None


def _answer(waiting: WaitingAppend, outcome: Outcome | Exception) -> None:
    """Give the outcome to the caller first; announce afterwards, even if the caller has left."""
    future = waiting.future
    if isinstance(outcome, Exception):
        if not isinstance(outcome, ConversationError):
            _failing.failed(outcome, conversation=waiting.request.conversation.public_id)
        if not future.done():
            future.set_exception(outcome)
        return
    _failing.worked()
    append_batches.unshared.worked()
    if not future.done():
        future.set_result(outcome.appended)
    if outcome.envelopes:
        live.announce_appended(waiting.request.conversation, outcome.envelopes)


def _opened() -> Database:
    live.carry_by(asyncio.get_running_loop())
    return Database()


_databases = PerEventLoop(_opened)


def database() -> Database:
    """Return the database threads of the running event loop."""
    return _databases.get()


async def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await database().call(function, *args, **kwargs)


async def change(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await database().change(function, *args, **kwargs)


async def call_settled(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Repeat a function with fixed ids until it is known to be stored.

    Raise OutcomeUnknown if the connection breaks each time, ConversationBusy as `change` does.
    """

    def write(*args: P.args, **kwargs: P.kwargs) -> T:
        return settled(lambda: function(*args, **kwargs))

    return await change(write, *args, **kwargs)


async def room(conversation: ConversationRef) -> None:
    """Return once the owner may append more; a socket reads no further until then.

    The caller must not await anything between this and the append.
    """
    await database().queue.room(conversation.owner_id)


async def room_soon(conversation: ConversationRef) -> None:
    """Do what `room` does for a request, which cannot wait long: raise TooManyWaiting."""
    await database().queue.room_soon(conversation.owner_id)


def append_soon(
    conversation: ConversationRef,
    events: Sequence[NewEvent],
    *,
    epoch: int | None = None,
    also: Callable[[Sequence[Appended]], None] | None = None,
    refusal: Callable[[], ConversationError | None] | None = None,
    order: FrameOrder | None = None,
) -> asyncio.Future[list[Appended]]:
    """Queue an append now and return its future; appends keep the order of the calls.

    `order` is that of the connection whose frame it is.
    """
    request = AppendRequest(
        conversation=conversation,
        events=events,
        epoch=epoch,
        also=also,
        refusal=refusal,
        defers_masking=True,
    )
    stored: asyncio.Future[list[Appended]]
    try:
        quotas.admit_events(conversation.owner_id, events)
    except QuotaExceeded as error:  # raised in the order of the calls, like any other outcome
        stored = asyncio.ensure_future(_repeated_only(request, error, order))
    else:
        stored = database().append(request, order)
    # Retrieve the failure even if the caller has left: asyncio would log it as never retrieved.
    stored.add_done_callback(lambda done: done.cancelled() or done.exception())
    return stored


async def _repeated_only(
    request: AppendRequest, refusal: QuotaExceeded, order: FrameOrder | None
) -> list[Appended]:
    """Append a repeat of stored events despite the quota; raise the refusal for new ones."""
    # The client's first append may be stored although its answer was lost.
    conversation, events = request.conversation, request.events
    if refusal.is_about_room and await call(reads.has_events, conversation, events):
        return await database().append(request, order)
    raise refusal


async def append(
    conversation: ConversationRef,
    events: Sequence[NewEvent],
    *,
    epoch: int | None = None,
    also: Callable[[Sequence[Appended]], None] | None = None,
) -> list[Appended]:
    """Append and return once it is committed: `writes.append`.

    Cancelling the caller does not undo its append.
    """
    return await asyncio.shield(append_soon(conversation, events, epoch=epoch, also=also))


async def read_after(
    conversation: ConversationRef,
    seq: int,
    *,
    limit: int = reads.PAGE_MAX_EVENTS,
    max_bytes: int | None = None,
) -> list[EventEnvelope]:
    """Return the next page of the log: `reads.read_after`, repeated if the connection broke."""
    return await database().read(
        conversation.owner_id,
        lambda: repeated(lambda: reads.read_after(conversation, seq, limit=limit, max_bytes=max_bytes)),
    )


async def close() -> None:
    """Finish the appends of the running event loop and close its connections."""
    found = _databases.pop()
    if found is not None:
        await found.close()
