"""The slots of this process's threads to write to a SQLite file, first come, first served.

SQLite has one lock for all writers. Waiting writers poll it with growing pauses, so a late one often gets it
first, and one that has waited long waits on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple


class HeldSlot(NamedTuple):
    thread: str
    since: float  # by `time.monotonic`


class WriteSlots:
    """The slots for one file: one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        # Waiting threads in order: each gets the slot when its lock is released.
        self._waiting: deque[threading.Lock] = deque()
        self.ended = 0  # the number of slots that writers have left, without checkpoints
        self.held: HeldSlot | None = None  # the present slot, or for a moment the one before
        # Since when another program has the file's lock: no slot since then has got it in time.
        self.locked_out_since: float | None = None
        self.waited_s = 0.0  # the total wait of threads for slots

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, within_s: float) -> bool:
        """Wait for a slot; return False if there is none within this time."""
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
        return True  # even if the slot was given just after the timeout

    def _begin(self) -> None:
        self.held = HeldSlot(threading.current_thread().name, time.monotonic())

    def leave(self, *, is_checkpoint: bool = False, is_locked_out: bool = False) -> None:
        """Give the slot to the next thread; `is_locked_out` if another program's lock was not free."""
        with self._lock:
            if is_locked_out:
                self.locked_out_since = self.locked_out_since or (self.held.since if self.held else None)
            elif not is_checkpoint:  # a checkpoint needs no lock of another writer, so it proves nothing
                self.locked_out_since = None
            self.held = None
            self.ended += not is_checkpoint
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


_slots: dict[str, WriteSlots] = {}


def of_file(path: str) -> WriteSlots:
    """Return the slots for the file at a path."""
    return _slots.setdefault(path, WriteSlots())
