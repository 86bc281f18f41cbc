"""A queue whose users alternate, by bytes: deficit round robin.

In each round a user may take a quantum of bytes, and what is too long for it saves up for a later round. So
no user starves, and between two users who both have something waiting the difference is bounded, however
many items either of them has. What one user has put in is served in that order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Backlog(Generic[T]):
    """What one user has waiting, each with its cost, and what the user may still take in this round."""

    __slots__ = ("deficit", "items")

    def __init__(self, deficit: int) -> None:
        self.items: deque[tuple[int, T]] = deque()
        self.deficit = deficit


class FairQueue(Generic[T]):
    """Items of several users, who alternate."""

    def __init__(self, quantum: int) -> None:
        self._quantum = quantum
        self._backlogs: OrderedDict[Hashable, _Backlog[T]] = OrderedDict()
        """Of users who have something waiting; the first one is served next."""

    def __bool__(self) -> bool:
        return bool(self._backlogs)

    def put(self, user: Hashable, item: T, *, cost: int) -> None:
        """Add an item at the end of the user's own."""
        backlog = self._backlogs.get(user)
        if backlog is None:
            backlog = self._backlogs[user] = _Backlog(self._quantum)
        backlog.items.append((cost, item))

    def next(self, busy: Collection[Hashable] = ()) -> T | None:
        """Return the item that is served next, and leave it in the queue; None if nothing waits.

        Users who are `busy` are passed over, and keep what they have saved up.
        """
        backlog = self._first(busy)
        return backlog.items[0][1] if backlog else None

    def take(self, busy: Collection[Hashable] = ()) -> T:
        """Remove the item that `next` returns, and return it. Raise LookupError if there is none."""
        backlog = self._first(busy)
        if backlog is None:
            raise LookupError("No user who is not busy has anything in the queue.")
        cost, item = backlog.items.popleft()
        backlog.deficit = max(0, backlog.deficit - cost)  # a user who waits alone takes more than a round's
        if not backlog.items:
            self._backlogs.popitem(last=False)
        return item

    def _first(self, busy: Collection[Hashable]) -> _Backlog[T] | None:
        """Move on to a user who may take their first item; None if there is none."""
        waiting = len(self._backlogs) - sum(user in self._backlogs for user in busy)
        while waiting:
            user = next(iter(self._backlogs))
            backlog = self._backlogs[user]
            if user not in busy:
                if waiting == 1 or backlog.items[0][0] <= backlog.deficit:
                    return backlog
                backlog.deficit += self._quantum
            self._backlogs.move_to_end(user)
        return None
