"""The turns of this process's threads to write to a SQLite file, in the order in which they came.

SQLite has one lock for all writers. Those that wait look at it again and again, with growing pauses: who has
come late often gets it first, and who has waited long waits on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple


class HeldTurn(NamedTuple):
    """A turn that a thread has."""

    thread: str
    since: float
    """By `time.monotonic`."""


class WriteTurns:
    """The turns for one file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()
        """Those who wait, the first one first: each gets the turn when its lock is released."""
        self.ended = 0
        """How many turns of writers have ended so far; those of checkpoints do not count."""
        self.held: HeldTurn | None = None
        """The present turn; between two turns the last one may be seen for a moment."""
        self.locked_out_since: float | None = None
        """Since when another program has the file's lock: each turn since then has waited for it in vain."""
        self.waited_s = 0.0
        """How long threads have waited for turns so far."""

    @property
    def waiting(self) -> int:
        """How many threads wait for a turn."""
        return len(self._waiting)

    def take(self, within_s: float) -> bool:
        """Wait for a turn; False if there is none within this time."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                self._begin()
                return True
            if within_s <= 0:
                return False
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        began = time.monotonic()
        is_in_time = mine.acquire(timeout=within_s)
        with self._lock:
            self.waited_s += time.monotonic() - began
            if not is_in_time and mine in self._waiting:
                self._waiting.remove(mine)
                return False
            self._begin()
        return True  # perhaps it came at the last moment

    def _begin(self) -> None:
        self.held = HeldTurn(threading.current_thread().name, time.monotonic())

    def leave(self, *, is_checkpoint: bool = False, is_locked_out: bool = False) -> None:
        """Give the turn to the next; `is_locked_out` if it has waited for another program's lock in vain."""
        with self._lock:
            if is_locked_out:
                self.locked_out_since = self.locked_out_since or (self.held.since if self.held else None)
            elif not is_checkpoint:  # that needs no lock which another writer has
                self.locked_out_since = None
            self.held = None
            self.ended += not is_checkpoint
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


_turns: dict[str, WriteTurns] = {}


def of_file(path: str) -> WriteTurns:
    """Return the turns for the file at a path."""
    return _turns.setdefault(path, WriteTurns())
