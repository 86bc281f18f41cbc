"""A queue that serves its users in turn, by bytes: deficit round robin.

In its turn a user may take a quantum of bytes, and what is too long for it saves up for a later turn. So
nobody starves, and between two users who both have something waiting the difference is bounded, however
many items either of them has. What one user has put in is served in that order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Line(Generic[T]):
    """What one user has waiting, each with its cost, and what the user may still take in this turn."""

    __slots__ = ("deficit", "items")

    def __init__(self, deficit: int) -> None:
        self.items: deque[tuple[int, T]] = deque()
        self.deficit = deficit


class FairQueue(Generic[T]):
    """Items of several users; the users take turns."""

    def __init__(self, quantum: int) -> None:
        self._quantum = quantum
        self._lines: OrderedDict[Hashable, _Line[T]] = OrderedDict()
        """Users who have something waiting; the turn is the first one's."""

    def __bool__(self) -> bool:
        """Say whether anything waits."""
        return bool(self._lines)

    def put(self, user: Hashable, item: T, *, cost: int) -> None:
        """Add an item at the end of the user's own."""
        line = self._lines.get(user)
        if line is None:
            line = self._lines[user] = _Line(self._quantum)
        line.items.append((cost, item))

    def next(self, busy: Collection[Hashable] = ()) -> T | None:
        """Return the item whose turn it is, and leave it in the queue; None if nothing waits.

        Users who are `busy` are passed over, and keep what they have saved up.
        """
        line = self._first(busy)
        return line.items[0][1] if line else None

    def take(self, busy: Collection[Hashable] = ()) -> T:
        """Remove the item that `next` returns, and return it. Raise LookupError if there is none."""
        line = self._first(busy)
        if line is None:
            raise LookupError("Nobody who is not busy has anything in the queue.")
        cost, item = line.items.popleft()
        line.deficit = max(0, line.deficit - cost)  # one who waits alone takes more than a turn's
        if not line.items:
            self._lines.popitem(last=False)
        return item

    def _first(self, busy: Collection[Hashable]) -> _Line[T] | None:
        """Move the turn on to a user who may take their first item; None if there is none."""
        waiting = len(self._lines) - sum(user in self._lines for user in busy)
        while waiting:
            user = next(iter(self._lines))
            line = self._lines[user]
            if user not in busy:
                if waiting == 1 or line.items[0][0] <= line.deficit:
                    return line
                line.deficit += self._quantum
            self._lines.move_to_end(user)
        return None
