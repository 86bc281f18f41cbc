"""The store for async code, which reaches the database only through this module.

Appends of all callers are collected: those that arrive during a commit share the next transaction.
Everything else runs a whole store function in a thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from django.contrib.auth.models import User
from django.db import (
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    connection,
    connections,
)
from psycopg.errors import FeatureNotSupported, ReadOnlySqlTransaction

from conversations import live
from conversations.engines import failures
from conversations.engines.lost_commits import LostCommit
from conversations.events import Appended, EventEnvelope, NewEvent
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    MaskingDeferred,
    OutcomeUnknown,
    QuotaExceeded,
)
from conversations.log import append as log
from conversations.log import commits, reads, writes
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.log.commits import drop_broken_connections
from conversations.models import ConversationRef
from conversations.outages import Outage
from conversations.storage import quotas
from sessions_app.capacity import parsing
from sessions_app.capacity.append_queue import AppendQueue, FrameOrder, WaitingAppend, is_for_now
from sessions_app.capacity.shares import Shares
from sessions_app.event_loops import PerEventLoop

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4
POLLERS = 4
"""Short reads that clients wait for have threads of their own, so that no page of a long log delays them."""
CHANGERS = 12
"""Functions that may wait for a lock have threads of their own, so that nobody who reads waits with them."""
CHANGERS_OF_ONE = 3
"""At most this many of them are at the same conversation."""
WRITERS = 2
"""At most this many batches of different users are written at a time (PostgreSQL): nobody waits for the long
batch of another."""
CONTENDED = 4
"""At most this many appends wait for locked conversations at a time, in threads of their own."""
PREPARERS = 2
"""At most this many appends are prepared at a time, of different users, before their transaction."""
TRIES = 3
"""A commit of unknown outcome is repeated: the event ids were fixed before the first try."""

_reconnecting = Outage(
    __name__, "The database connection failed and is reopened", "The database connection works again"
)
_unshared = Outage(
    __name__, "Appends that failed together are tried one by one", "Appends are made together again"
)
_failing = Outage(__name__, "Appends failed", "Appends work again")

Outcome = AppendOutcome | ConversationError


class ConnectedThreads(ThreadPoolExecutor):
    """Threads of one kind, begun as they are needed; each has a connection of its own."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)

    async def close(self) -> None:
        """Close the connection of each thread that has begun, and end the threads."""
        closed = 0
        while closed < (begun := len(self._threads)):  # to ask may begin one more
            await self._close_connections(begun)
            closed = begun
        self.shutdown(wait=True)  # each has just closed its connection, so none is at a statement

    async def _close_connections(self, begun: int) -> None:
        """Close those of `begun` threads; a barrier ensures that none runs twice.

        It waits for statements that are under way.
        """
        meeting = threading.Barrier(begun)

        def close() -> None:
            meeting.wait()
            connections.close_all()

        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self, close) for _ in range(begun)))


class Database:
    """The database threads of one event loop, each with its own connection."""

    def __init__(self) -> None:
        self._readers = ConnectedThreads(READERS, "store")
        self._pollers = ConnectedThreads(POLLERS, "store-poller")
        self._changers = ConnectedThreads(CHANGERS, "store-changer")
        self._contended = ConnectedThreads(CONTENDED, "store-contended")
        self._preparers = ConnectedThreads(PREPARERS, "store-preparer")
        # SQLite has one lock for all: a second writer would only wait for it.
        self._writers = WRITERS if connection.vendor == "postgresql" else 1
        self._writer = ConnectedThreads(self._writers, "store-writer")
        self._notes = ConnectedThreads(1, "store-notes")
        self._all_threads = (
            self._readers,
            self._pollers,
            self._changers,
            self._contended,
            self._preparers,
            self._writer,
            self._notes,
        )
        self._reading, self._changing, self._catching_up = map(Shares, (READERS, CHANGERS, CONTENDED))
        self._polling = Shares(POLLERS)
        self._lines: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self.queue = AppendQueue()
        self._preparing, self._writing_alone = Shares(PREPARERS), Shares(1)
        self._lagging: dict[int, deque[WaitingAppend]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = 0
        """How many writers are at work."""
        self._being_served: set[int] = set()
        """The users in their batches: no two have the same."""
        self.has_written_long = asyncio.Event()
        """Set after an append that was longer than a commit with others holds."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous function of the store in a thread and return what it returns.

        It takes a place of the user that it is given, or of the owner of the conversation that it is given.
        """
        return await self.read(_user_of(args), lambda: function(*args, **kwargs))

    async def read(self, user: int | None, function: Callable[[], T]) -> T:
        """Run a function of the store in a thread of this user's share; None is the server itself."""
        return await _in_share(self._readers, self._reading, user, lambda: _connected(function))

    async def poll(self, user: int | None, function: Callable[[], T]) -> T:
        """Run a short function of the store that only reads, like `read`, but beside all longer ones."""
        return await _in_share(self._pollers, self._polling, user, lambda: _connected(function))

    async def change(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the store that may wait for a lock, so that no reader waits with it.

        Those that are given the same conversation have CHANGERS_OF_ONE threads. Raise ConversationBusy if
        those before it take longer than a lock is waited for.
        """
        conversation = next((each for each in args if isinstance(each, ConversationRef)), None)
        line = await self._turn_of(conversation)

        def changed() -> T:
            return _changed(lambda: function(*args, **kwargs))

        return await _in_share(self._changers, self._changing, _user_of(args), changed, then=line.release)

    async def _turn_of(self, conversation: ConversationRef | None) -> asyncio.Semaphore:
        if conversation is None:
            line = asyncio.Semaphore()
        else:
            line = self._lines.setdefault(conversation.pk, asyncio.Semaphore(CHANGERS_OF_ONE))
        try:
            async with asyncio.timeout(log.LOCK_TIMEOUT_S):
                await line.acquire()
        except TimeoutError:
            raise ConversationBusy("The conversation is busy with other changes. Try again.") from None
        return line

    async def note(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the store that may wait long for a lock, without delaying readers."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._notes, _connected, lambda: function(*args, **kwargs))

    def append(
        self, request: AppendRequest, order: FrameOrder | None = None
    ) -> asyncio.Future[list[Appended]]:
        """Queue one append at once, so that a caller's appends keep their order; await the future."""
        future: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()
        # Whichever queue it is in: a shortcut would overtake queued appends of the same conversation.
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
        for threads in self._all_threads:
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
                    # All others wait for a transaction there, so as much as possible is done before it.
                    batch[0].is_prepared_first = True
                    self._lag(batch[0])
                elif batch:
                    await self._write_batch(batch)
                elif self.queue and self._being_served:
                    return  # that writer goes on with it
        finally:
            self._writing -= 1

    async def _write_batch(self, batch: Sequence[WaitingAppend]) -> None:
        users = {waiting.user for waiting in batch}
        requests = [waiting.request for waiting in batch]
        loop = asyncio.get_running_loop()
        self._being_served |= users
        try:
            orders = [waiting.order for waiting in batch]
            outcomes = await loop.run_in_executor(self._writer, _append_many, requests, orders)
        finally:
            self._being_served -= users
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, ConversationBusy):
                waiting.is_prepared_first = isinstance(outcome, MaskingDeferred)
                self._lag(waiting)
            else:
                self._answer(waiting, outcome)

    def _is_lagging(self, waiting: WaitingAppend) -> bool:
        """Move an append to those of its conversation that lag behind, or refuse it with its order."""
        if (refusal := waiting.refusal) is not None:
            self._answer(waiting, refusal)
            return True
        lagging = self._lagging.get(waiting.request.conversation.pk)
        if lagging is None:
            return False
        lagging.append(waiting)
        return True

    def _lag(self, waiting: WaitingAppend) -> None:
        """Queue an append apart from all others: its log is locked, or its preparation takes long."""
        pk = waiting.request.conversation.pk
        lagging = self._lagging.get(pk)
        if lagging is not None:
            lagging.append(waiting)
        else:
            self._lagging[pk] = deque([waiting])
            self._own(self._catch_up(pk))

    async def _catch_up(self, pk: int) -> None:
        """Write what lags behind, in its order.

        Whoever came before a try that waited in vain has waited for as long, and does not wait once more.
        """
        lagging = self._lagging[pk]
        try:
            while lagging:
                tried_with = len(lagging)
                waiting = lagging.popleft()
                if (refusal := waiting.refusal) is not None:
                    self._answer(waiting, refusal)
                    continue
                # Those of other conversations may have kept all threads for so long that it is enough.
                is_late = time.monotonic() - waiting.since > log.LOCK_TIMEOUT_S
                outcome = await self._write_alone(waiting, is_late=is_late)
                self._answer(waiting, outcome)
                if waiting.is_long:
                    self.has_written_long.set()
                if isinstance(outcome, ConversationBusy) and not is_late:
                    for _ in range(tried_with - 1):
                        self._answer(lagging.popleft(), ConversationBusy(str(outcome)))
        finally:
            del self._lagging[pk]

    async def _write_alone(self, waiting: WaitingAppend, *, is_late: bool) -> Outcome | Exception:
        """Write one append in a transaction of its own, prepared before if that takes long."""
        write = _append_unless_locked if is_late else _append_alone
        for _ in range(commits.MASK_TRIES):
            if waiting.is_prepared_first:
                try:
                    waiting.request = await self._prepared(waiting.request)
                except Exception as error:  # passed to the caller
                    return error
            (outcome,) = await self._run_alone(waiting.user, partial(write, [waiting.request]))
            waiting.is_prepared_first = isinstance(outcome, MaskingDeferred)
            if not waiting.is_prepared_first:
                break
        return outcome

    async def _run_alone(self, user: int, write: Callable[[], T]) -> T:
        if connection.vendor == "postgresql":
            return await _in_share(self._contended, self._catching_up, user, write)
        # SQLite has one lock for all: a thread that waits for it beside the writer may wait in vain.
        # One of these waits for the writer at a time, so that a batch of others waits for no more than one.
        return await _in_share(self._writer, self._writing_alone, user, lambda: _held_back(write))

    async def _prepared(self, request: AppendRequest) -> AppendRequest:
        """Return the request, made ready for its transaction in a thread of its user's share."""
        user = request.conversation.owner_id
        return await _in_share(
            self._preparers, self._preparing, user, lambda: _repeated(lambda: _prepared(request))
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

    The caller may be cancelled; a thread that is at it goes on all the same, and its place is taken.
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
    """Return the key of the user whom a call is about, as far as its arguments say so."""
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
    _unshared.worked()
    if not future.done():
        future.set_result(outcome.appended)
    if outcome.envelopes:
        live.announce_appended(waiting.request.conversation, outcome.envelopes)


def _append_many(
    requests: list[AppendRequest], orders: Sequence[FrameOrder | None] = (None,)
) -> list[Outcome | Exception]:
    """Write a batch in one transaction; if it fails as a whole, write each append by itself."""
    try:
        return list(_repeated(lambda: writes.append_many(requests)))
    except OutcomeUnknown as error:  # of the commit that they shared
        return [error] * len(requests)
    except Exception as error:  # any failure of one must not be the failure of all
        if len(requests) == 1 or failures.is_locked(error) or failures.is_unconnected(error):
            return [error] * len(requests)
        _unshared.failed(error)
    return _append_one_by_one(requests, orders)


def _prepared(request: AppendRequest) -> AppendRequest:
    """Return the request with its events masked and, where all others wait for its transaction, numbered."""
    masked = log.masked(request)
    return log.numbered(masked) if connection.vendor == "sqlite" else masked


def _held_back(write: Callable[[], T]) -> T:
    """Call `write` while nothing long is read."""
    with parsing.held_back():
        return write()


def _append_one_by_one(
    requests: list[AppendRequest], orders: Sequence[FrameOrder | None]
) -> list[Outcome | Exception]:
    """Write each by itself; later appends to a locked conversation wait behind the first, in order.

    Those behind a frame that is refused for now are refused with it.
    """
    outcomes: list[Outcome | Exception] = []
    locked: dict[int, ConversationBusy] = {}
    refused: dict[FrameOrder | None, Exception] = {}
    for request, order in zip(requests, orders, strict=True):
        pk = request.conversation.pk
        outcome = locked.get(pk) or refused.get(order) or _append_many([request])[0]
        if isinstance(outcome, ConversationBusy):
            locked[pk] = outcome
        elif order is not None and isinstance(outcome, Exception) and is_for_now(outcome):
            refused[order] = outcome
        outcomes.append(outcome)
    return outcomes


def _append_alone(requests: list[AppendRequest], *, wait: bool = True) -> list[Outcome | Exception]:
    """Write one request, waiting for its conversation's lock."""
    try:
        return list(_repeated(lambda: writes.append_many(requests, wait=wait)))
    except Exception as error:  # passed to the caller
        return [error]


def _append_unless_locked(requests: list[AppendRequest]) -> list[Outcome | Exception]:
    """Write one request if its conversation's lock can be had at once."""
    return _append_alone(requests, wait=False)


def _repeated(write: Callable[[], T]) -> T:
    """Call `write`, and repeat it if the connection broke: its ids are fixed, so it stores once."""
    for left in reversed(range(TRIES)):
        try:
            done = _connected(write)
        except (OperationalError, InterfaceError) as error:
            if failures.is_locked(error):  # nothing broke, and it has waited for as long as it may
                raise
            _reconnecting.failed(error)
            if not left:
                raise
        else:
            _reconnecting.worked()
            return done
    raise AssertionError("unreachable")


def _settled(write: Callable[[], T]) -> T:
    """Call `write`, which stores once however often it is called, until its outcome is known.

    Raise OutcomeUnknown if the connection breaks each time for LOOK_UP_S.
    """
    try:
        done = commits.until_answered(lambda: _connected(write), is_passing=_leaves_it_open)
    except (OperationalError, InterfaceError) as error:
        if connection.vendor != "postgresql" and not isinstance(error, LostCommit):
            raise
        raise OutcomeUnknown(commits.UNKNOWN) from error
    _reconnecting.worked()
    return done


def _leaves_it_open(error: Exception) -> bool:
    """Say whether the write may be stored all the same; what SQLite calls failed is not."""
    is_open = connection.vendor == "postgresql" and isinstance(error, OperationalError | InterfaceError)
    if is_open:
        _reconnecting.failed(error)
    return is_open


def _connected(function: Callable[[], T]) -> T:
    """Call `function` on this thread's connection; close a connection that broke or cannot write."""
    for each in connections.all(initialized_only=True):
        if getattr(each, "is_read_only", False) and not each.in_atomic_block:
            each.close()
    try:
        return function()
    except (OperationalError, InterfaceError):
        drop_broken_connections()
        raise
    except InternalError as error:
        if not isinstance(error.__cause__, ReadOnlySqlTransaction):
            raise
        _close_refusing_connections()
        raise OperationalError("The database doesn't accept writes right now.") from error.__cause__
    except NotSupportedError as error:
        # A column got another type, and the statements that this connection has prepared return the old one.
        if not isinstance(error.__cause__, FeatureNotSupported):
            raise
        _close_refusing_connections()
        _replace_pooled_connections()
        raise OperationalError("The tables have changed.") from error.__cause__
    finally:
        _give_back_scarce_connections()


def _give_back_scarce_connections() -> None:
    """Give back this thread's connection if PostgreSQL refuses more: it would keep others from one."""
    for each in connections.all(initialized_only=True):
        if each.vendor == "postgresql" and not each.in_atomic_block:
            pool = each.pool  # type: ignore[attr-defined]
            if pool is not None and pool.refusal is not None:
                each.close()


def _changed(function: Callable[[], T]) -> T:
    """Call `function`, and give the connection back to the pool: these threads are many, and seldom busy."""
    try:
        return _connected(function)
    finally:
        if connection.vendor == "postgresql":
            connection.close()


def _close_refusing_connections() -> None:
    """Close this thread's connection: its session is read-only, or its statements are out of date."""
    for each in connections.all(initialized_only=True):
        if each.connection is not None:
            each.connection.close()
            each.close()


def _replace_pooled_connections() -> None:
    """Close what the pool has: a try more would only be given another session with such statements."""
    for each in connections.all(initialized_only=True):
        if each.vendor == "postgresql" and (pool := each.pool) is not None:  # type: ignore[attr-defined]
            pool.drain()


def _opened() -> Database:
    live.carry_by(asyncio.get_running_loop())
    return Database()


_databases = PerEventLoop(_opened)


def database() -> Database:
    """Return the database threads of the running event loop."""
    return _databases.get()


async def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous function of the store in a thread."""
    return await database().call(function, *args, **kwargs)


async def change(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous function of the store that may wait for a lock: Database.change."""
    return await database().change(function, *args, **kwargs)


async def call_settled(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Repeat a function with fixed ids until it is known to be stored.

    Raise OutcomeUnknown if the connection breaks each time, ConversationBusy as `change` does.
    """

    def settled(*args: P.args, **kwargs: P.kwargs) -> T:
        return _settled(lambda: function(*args, **kwargs))

    return await change(settled, *args, **kwargs)


async def note(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous function of the store in the thread for work that no client waits for."""
    return await database().note(function, *args, **kwargs)


async def room(conversation: ConversationRef) -> None:
    """Return once more can be appended for the conversation's owner: a socket reads no further until then.

    Nothing may be awaited between this and the append.
    """
    await database().queue.room(conversation.owner_id)


async def room_soon(conversation: ConversationRef) -> None:
    """Like `room`, for a request, which is answered in time: raise TooManyWaiting."""
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
    """Queue an append now and return its future: `writes.append`, in the order of the calls.

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
    except QuotaExceeded as error:  # told in the order of the calls, like any other outcome
        stored = asyncio.ensure_future(_repeated_only(request, error, order))
    else:
        stored = database().append(request, order)
    stored.add_done_callback(_look_at)
    return stored


async def _repeated_only(
    request: AppendRequest, refusal: QuotaExceeded, order: FrameOrder | None
) -> list[Appended]:
    """Append what is stored already, for a client that did not hear of it. Raise the refusal otherwise."""
    conversation, events = request.conversation, request.events
    if refusal.is_about_room and await call(reads.has_events, conversation, events):
        return await database().append(request, order)
    raise refusal


def _look_at(stored: asyncio.Future[list[Appended]]) -> None:
    """Retrieve a failure that no caller receives any more."""
    if not stored.cancelled():
        stored.exception()


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
        lambda: _repeated(lambda: reads.read_after(conversation, seq, limit=limit, max_bytes=max_bytes)),
    )


async def close() -> None:
    """Finish the appends of the running event loop and close its connections."""
    found = _databases.pop()
    if found is not None:
        await found.close()
