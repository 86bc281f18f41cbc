"""A queue that serves its users in turn, by bytes: deficit round robin.

In its turn a user may take a quantum of bytes, and what is too long for it saves up for a later turn. So
nobody starves, and between two users who both have something waiting the difference is bounded, however
many items either of them has. What one user has put in is served in that order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
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

    def next(self) -> T | None:
        """Return the item whose turn it is, and leave it in the queue; None if nothing waits."""
        return self._first().items[0][1] if self._lines else None

    def take(self) -> T:
        """Remove the item that `next` returns, and return it. Raise LookupError if nothing waits."""
        line = self._first()
        cost, item = line.items.popleft()
        line.deficit = max(0, line.deficit - cost)  # one who waits alone takes more than a turn's
        if not line.items:
            self._lines.popitem(last=False)
        return item

    def _first(self) -> _Line[T]:
        """Move the turn on to a user who may take their first item. Raise LookupError if nothing waits."""
        while True:
            user = next(iter(self._lines), None)
            if user is None:
                raise LookupError("The queue is empty.")
            line = self._lines[user]
            if len(self._lines) == 1 or line.items[0][0] <= line.deficit:
                return line
            line.deficit += self._quantum
            self._lines.move_to_end(user)
