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


class _Turn(NamedTuple):
    """What a caller waits for."""

    come: asyncio.Future[None]
    places: int
    """How many of them at once."""


class Shares:
    """The places of one event loop.

    Whoever finds no place waits behind the others of the same user. A free place goes to the waiting user who
    has the fewest; of several such users, to the one whose turn was the longest ago. What is large takes
    several places at once, and waits until there are as many.
    """

    def __init__(self, places: int, *, of_one: int | None = None) -> None:
        """With `of_one`, that many are a user's share where there are accounts."""
        self._places = places
        self._of_one = of_one
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[_Turn]] = {}
        """By user; the one whose turn was the longest ago is the first."""

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
        turn = _Turn(asyncio.get_running_loop().create_future(), count)
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn.come.cancelled():
                self._withdraw(user, turn)
            else:
                self.give_back(user, count)
            raise

    def give_back(self, user: Hashable, count: int = 1) -> None:
        """Give back places of this user, on the event loop."""
        self._held[user] -= count
        if not self._held[user]:
            del self._held[user]
        self._let_in_all()

    def _let_in_all(self) -> None:
        """Give the free places to those whose turn it is."""
        while waiting := [
            user for user, line in self._waiting.items() if self._has_place(user, line[0].places)
        ]:
            self._let_in(min(waiting, key=lambda each: self._held[each]))

    def _has_place(self, user: Hashable, count: int) -> bool:
        return not self.is_used_up(user, count) and self._held.total() + count <= self._places

    def _let_in(self, user: Hashable) -> None:
        """Give places to the first of this user's, whose next one is behind all other users."""
        line = self._waiting.pop(user)
        turn = line.popleft()
        if line:
            self._waiting[user] = line
        if not turn.come.done():  # else it was cancelled just now
            self._held[user] += turn.places
            turn.come.set_result(None)

    def _withdraw(self, user: Hashable, turn: _Turn) -> None:
        line = self._waiting.get(user)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[user]
            self._let_in_all()  # a smaller one may have waited behind it
