"""Appends that wait for a commit: which of them share the next one, and how much of each user's may wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from conversations.events import Appended
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    OutcomeUnknown,
    StoreUnavailable,
    TooManyWaiting,
)
from conversations.log.append import AppendRequest
from sessions_app.capacity.fair_queue import FairQueue

# Later appends wait for the end of a commit, and longer commits store hardly more in a second.
BATCH_MAX_EVENTS = 128
BATCH_MAX_BYTES = 1024 * 1024
"""At most this much is in a commit, or one append that is larger."""
QUANTUM_BYTES = 16 * 1024
"""While several users have appends waiting, each may store this much in a round."""
# Many small events take as long as a few large ones.
EVENT_BYTES = 512
"""The cost of an event beside its payload."""
USER_MAX_BYTES = 32 * 1024 * 1024
"""While this much of a user's appends waits, over all sockets and requests, no further one is taken."""
ROOM_WAIT_S = 10.0
"""A request waits at most this long until less is waiting."""


class FrameOrder:
    """The frames of one connection: behind one that is refused for now, none is stored.

    A client sends several before it hears of the first; what it sends again would come behind them.
    """

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        """Why frames are refused, until the connection has told its client."""
        self._told: Exception | None = None
        """The refusal that the client was told while the present frame was taken: it is behind that one."""

    @property
    def refusal_of_present(self) -> Exception | None:
        """The refusal of an earlier frame, which also refuses the present frame.

        The client may have been told of it since the present frame was taken.
        """
        return self.refusal or self._told

    def take(self) -> None:
        """Note that the connection takes its next frame."""
        self._told = None

    def note(self, outcome: object) -> None:
        """Note the outcome of one frame."""
        if self.refusal is None and isinstance(outcome, Exception) and is_for_now(outcome):
            self.refusal = outcome

    def told(self) -> None:
        """Take frames again: the client can know of the refusal by now."""
        self._told, self.refusal = self.refusal or self._told, None


def is_for_now(error: Exception) -> bool:
    """Return whether the same append may be stored later: nothing is wrong with what was sent."""
    passing = (ConversationBusy, OutcomeUnknown, StoreUnavailable)
    return isinstance(error, passing) or not isinstance(error, ConversationError)


class WaitingAppend:
    """One append and the caller that awaits it."""

    __slots__ = ("_own_refusal", "cost", "future", "is_masked_first", "order", "request", "since", "size")

    def __init__(
        self,
        request: AppendRequest,
        future: asyncio.Future[list[Appended]],
        order: FrameOrder | None = None,
    ) -> None:
        self.request = request
        self.future = future
        self.order = order
        self._own_refusal = None if order is None else order.refusal_of_present
        self.size = sum(len(event.payload) for event in request.events)
        self.cost = self.size + EVENT_BYTES * len(request.events)
        self.since = time.monotonic()
        self.is_masked_first = False
        """Whether its secrets are masked before its transaction, because that takes long."""

    @property
    def refusal(self) -> Exception | None:
        """Why it is not even tried; None if no frame before it was refused."""
        return self._own_refusal or (None if self.order is None else self.order.refusal)

    @property
    def user(self) -> int:
        """The key of the user whose share it takes: the owner of the log, whoever writes to it."""
        return self.request.conversation.owner_id

    @property
    def is_long(self) -> bool:
        """Whether it is more than a commit with others holds, so that it has one of its own."""
        return len(self.request.events) > BATCH_MAX_EVENTS or self.size > BATCH_MAX_BYTES


class AppendQueue:
    """The appends of one event loop; users alternate, and what one user has waiting is bounded."""

    def __init__(self) -> None:
        self._queue: FairQueue[WaitingAppend] = FairQueue(QUANTUM_BYTES)
        self._loads: dict[int, _Load] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, waiting: WaitingAppend) -> None:
        """Add an append behind the others of its user, whether or not there is room."""
        self._loads.setdefault(waiting.user, _Load()).add(waiting.cost)
        self._queue.put(waiting.user, waiting, cost=waiting.cost)

    def next_batch(
        self, divert: Callable[[WaitingAppend], bool], busy: Collection[int] = ()
    ) -> list[WaitingAppend]:
        """Take the appends for one commit, without those that `divert` takes, and of no user who is `busy`.

        While several users have something waiting, each has one slot in it: so a user who stores little waits
        for a short commit, not for as much of the others' as fits. An append that is too long for a commit
        with others has one of its own.
        """
        batch: list[WaitingAppend] = []
        served: list[int] = []
        events = size = taken = 0
        while (waiting := self._queue.next(busy)) is not None:
            if divert(waiting):
                self._queue.take(busy)
                continue
            events += len(waiting.request.events)
            size += waiting.size
            if batch and (events > BATCH_MAX_EVENTS or size > BATCH_MAX_BYTES):
                break
            if waiting.user not in served:
                served.append(waiting.user)
                taken = 0
            elif waiting.user != served[-1] or (len(served) > 1 and taken >= QUANTUM_BYTES):
                break  # each has had a slot; the queue itself does not end that of a user who is left alone
            taken += waiting.cost
            batch.append(self._queue.take(busy))
        return batch

    def settle(self, waiting: WaitingAppend) -> None:
        """Note that an append has its outcome: it no longer counts for its user."""
        load = self._loads[waiting.user]
        load.remove(waiting.cost)
        self._forget_idle(waiting.user)

    async def room(self, user: int) -> None:
        """Return once the user has room for one more append, which has to be put in at once."""
        if (load := self._loads.get(user)) is not None:
            try:
                await load.room()
            finally:
                self._forget_idle(user)

    async def room_soon(self, user: int) -> None:
        """Like `room`. Raise TooManyWaiting if there is none within ROOM_WAIT_S."""
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                await self.room(user)
        except TimeoutError:
            raise TooManyWaiting(
                "Too much of what you sent waits to be stored. Wait for answers before you send more."
            ) from None

    @property
    def users(self) -> int:
        """How many users have something waiting, or wait for room."""
        return len(self._loads)

    def _forget_idle(self, user: int) -> None:
        if (load := self._loads.get(user)) is not None and load.is_idle:
            del self._loads[user]


class _Load:
    """What one user has waiting, and the callers that wait until it is less, in their order."""

    def __init__(self) -> None:
        self._bytes = 0
        self._appends = 0
        self._waiters = 0
        self._first = asyncio.Lock()
        self._is_less = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        return self._appends == 0 and self._waiters == 0

    def add(self, cost: int) -> None:
        self._bytes += cost
        self._appends += 1  # one without events costs nothing, and waits like any other

    def remove(self, cost: int) -> None:
        self._bytes -= cost
        self._appends -= 1
        if self._bytes < USER_MAX_BYTES:
            self._is_less.set()

    async def room(self) -> None:
        """Return once there is room; the caller uses it before any other can."""
        self._waiters += 1
        try:
            async with self._first:
                while self._bytes >= USER_MAX_BYTES:
                    self._is_less.clear()
                    await self._is_less.wait()
        finally:
            self._waiters -= 1
