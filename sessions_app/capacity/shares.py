"""Places in what all users share, such as threads: one user has at most a share of them at a time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import NamedTuple

from django.conf import settings


def share_of(places: int, *, of_one: int | None = None) -> int:
    """Return how many of these places one user may have: all if there is one user, else three of four."""
    if settings.CONFIGURATION.auth == "local":
        return places
    return of_one or max(1, places * 3 // 4)


class _Waiter(NamedTuple):
    admitted: asyncio.Future[None]
    places: int


class Shares:
    """The places of one event loop.

    A caller without a place waits behind the others of the same user. A free place goes to the waiting user
    who has the fewest; on a tie, to the least recently served user. A caller that takes several places at
    once waits until there are as many.
    """

    def __init__(self, places: int, *, of_one: int | None = None) -> None:
        """With `of_one`, that many are a user's share where there are accounts."""
        self._places = places
        self._of_one = of_one
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[_Waiter]] = {}  # the least recently served user is the first

    @asynccontextmanager
    async def place(self, user: Hashable) -> AsyncIterator[None]:
        """Hold a place of this user's share; the server itself, None, may have all places."""
        await self.take(user)
        try:
            yield
        finally:
            self.give_back(user)

    def is_used_up(self, user: Hashable, count: int = 1) -> bool:
        """Return whether fewer than `count` places of the user's share are left."""
        return user is not None and self._held[user] + count > share_of(self._places, of_one=self._of_one)

    async def take(self, user: Hashable, count: int = 1) -> None:
        """Return with `count` places, which have to be given back; they are no more than a share."""
        if user not in self._waiting and self._has_place(user, count):
            self._held[user] += count
            return
        waiter = _Waiter(asyncio.get_running_loop().create_future(), count)
        self._waiting.setdefault(user, deque()).append(waiter)
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter.admitted.cancelled():
                self._withdraw(user, waiter)
            else:
                self.give_back(user, count)
            raise

    def give_back(self, user: Hashable, count: int = 1) -> None:
        """Give back places of this user, on the event loop."""
        self._held[user] -= count
        if not self._held[user]:
            del self._held[user]
        self._admit_waiters()

    def _admit_waiters(self) -> None:
        while able := [
            user for user, queue in self._waiting.items() if self._has_place(user, queue[0].places)
        ]:
            self._admit_first_of(min(able, key=lambda each: self._held[each]))

    def _has_place(self, user: Hashable, count: int) -> bool:
        return not self.is_used_up(user, count) and self._held.total() + count <= self._places

    def _admit_first_of(self, user: Hashable) -> None:
        """Give places to the user's first waiter; the next one is behind all other users."""
        queue = self._waiting.pop(user)
        waiter = queue.popleft()
        if queue:
            self._waiting[user] = queue
        if not waiter.admitted.done():  # else it was cancelled just now
            self._held[user] += waiter.places
            waiter.admitted.set_result(None)

    def _withdraw(self, user: Hashable, waiter: _Waiter) -> None:
        queue = self._waiting.get(user)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[user]
            self._admit_waiters()  # a smaller one may have waited behind it
