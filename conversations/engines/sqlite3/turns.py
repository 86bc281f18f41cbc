"""The turns of this process's threads to write to a SQLite file, in the order in which they came.

SQLite has one lock for all writers. Those that wait look at it again and again, with growing pauses: who has
come late often gets it first, and who has waited long waits on.
"""

from __future__ import annotations

import threading
from collections import deque


class WriteTurns:
    """The turns for one file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()
        """Those who wait, the first one first: each gets the turn when its lock is released."""
        self.ended = 0
        """How many turns of writers have ended so far; those of checkpoints do not count."""

    def take(self, within_s: float) -> bool:
        """Wait for a turn; False if there is none within this time."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return True
            if within_s <= 0:
                return False
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=within_s):
            return True
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
        return True  # it came at the last moment

    def leave(self, *, is_checkpoint: bool = False) -> None:
        """Give the turn to the next."""
        with self._lock:
            self.ended += not is_checkpoint
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


_turns: dict[str, WriteTurns] = {}


def of_file(path: str) -> WriteTurns:
    """Return the turns for the file at a path."""
    return _turns.setdefault(path, WriteTurns())
