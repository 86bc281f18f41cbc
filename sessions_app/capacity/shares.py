"""Places in what all users share, such as threads: one user has at most a share of them at a time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from django.conf import settings


def share_of(places: int, *, of_one: int | None = None) -> int:
    """Return how many of these places one user may have: all if there is one user, else three of four."""
    if settings.CONFIGURATION.auth == "local":
        return places
    return of_one or max(1, places * 3 // 4)


class Shares:
    """The places of one event loop.

    Whoever finds no place waits behind the others of the same user. A free place goes to the waiting user who
    has the fewest; of several such users, to the one whose turn was the longest ago.
    """

    def __init__(self, places: int, *, of_one: int | None = None) -> None:
        """With `of_one`, that many are a user's share where there are accounts."""
        self._places = places
        self._of_one = of_one
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By user; the one whose turn was the longest ago is the first."""

    @asynccontextmanager
    async def place(self, user: Hashable) -> AsyncIterator[None]:
        """Hold a place of this user's share; the server itself, None, may have all places."""
        await self.take(user)
        try:
            yield
        finally:
            self.give_back(user)

    def is_used_up(self, user: Hashable) -> bool:
        """Say whether the user has all places of the share."""
        return user is not None and self._held[user] >= share_of(self._places, of_one=self._of_one)

    async def take(self, user: Hashable) -> None:
        """Return with a place, which has to be given back."""
        if user not in self._waiting and self._has_place(user):
            self._held[user] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._withdraw(user, turn)
            else:
                self.give_back(user)
            raise

    def give_back(self, user: Hashable) -> None:
        """Give back a place of this user, on the event loop."""
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        while waiting := [each for each in self._waiting if self._has_place(each)]:
            self._let_in(min(waiting, key=lambda each: self._held[each]))

    def _has_place(self, user: Hashable) -> bool:
        return not self.is_used_up(user) and self._held.total() < self._places

    def _let_in(self, user: Hashable) -> None:
        """Give a place to the first of this user's, whose next one is behind all other users."""
        line = self._waiting.pop(user)
        turn = line.popleft()
        if line:
            self._waiting[user] = line
        if not turn.done():  # else it was cancelled just now
            self._held[user] += 1
            turn.set_result(None)

    def _withdraw(self, user: Hashable, turn: asyncio.Future[None]) -> None:
        line = self._waiting.get(user)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[user]
