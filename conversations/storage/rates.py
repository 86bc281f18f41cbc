"""Rates of recent actions: sliding windows, counted in memory and in Redis.

Each process counts by itself. With Redis, it adds its counts of a key to a number that all processes share,
about once a second, and so learns what the others have added. A limit may be exceeded by about a second's
worth in each process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from conversations.storage import shared_counts

KEYS_KEPT = 10_000  # above this number, keys whose windows are over are forgotten


class Taken(NamedTuple):
    """The outcome of a try: the number before it, and the seconds to wait; 0 if it was admitted."""

    used: int
    wait_s: int


class _Window:
    """The counts of one key in the present window, and in the one before."""

    __slots__ = ("before", "known", "news", "number", "share_at")

    def __init__(self, number: int) -> None:
        self.number = number
        self.before = 0
        self.known = 0  # what was counted here and shared, and what others have shared
        self.news = 0  # what was counted here since
        self.share_at = -math.inf

    def roll(self, number: int) -> None:
        """Begin the window of this number, if it is another one."""
        if number != self.number:
            self.before = self.known + self.news if number == self.number + 1 else 0
            self.number, self.known, self.news = number, 0, 0


class Rates:
    """The sliding windows of one process; thread-safe.

    The estimate is the present window's count and the part of the one before that the sliding window
    still covers.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._windows: dict[tuple[Hashable, int], _Window] = {}

    def take(self, key: Hashable, amount: int, *, limit: int, window_s: int) -> Taken:
        """Count `amount` more if the limit allows it.

        Admit one amount above the limit in an empty window; otherwise it could never pass.
        """
        now = self._now()
        number, elapsed = divmod(now, window_s)
        with self._lock:
            window = self._window((key, window_s), int(number))
            present = window.known + window.news
            used = present + math.ceil(window.before * (1 - elapsed / window_s))
            if used and used + amount > limit:
                wait_s = _wait_s(window.before, present, max(0, limit - amount), elapsed, window_s)
                taken = Taken(used, max(1, math.ceil(wait_s)))
            else:
                window.news += amount
                taken = Taken(used, 0)
            is_due = time.monotonic() > window.share_at
        if is_due:
            self.share(key, window_s)
        return taken

    def used(self, key: Hashable, *, window_s: int) -> int:
        """Return the present count, as far as this process knows."""
        number, elapsed = divmod(self._now(), window_s)
        with self._lock:
            window = self._window((key, window_s), int(number))
            return window.known + window.news + math.ceil(window.before * (1 - elapsed / window_s))

    def share(self, key: Hashable, window_s: int) -> None:
        """Add what was counted here to the number of all processes, and learn what the others have added."""
        # The count of a key is shared at most this often: an event loop waits for the answer
        share_s = 1.0
        with self._lock:
            if (window := self._windows.get((key, window_s))) is None:
                return
            number, news = window.number, window.news
            window.known, window.news = window.known + news, 0
            window.share_at = time.monotonic() + share_s
        total = shared_counts.added(f"{key}:{window_s}:{number}", news, lasts_s=2 * window_s)
        with self._lock:
            if total is not None and window.number == number:
                # Of two at once, the one that asked first may be the last to be answered.
                window.known = max(window.known, total)

    def __len__(self) -> int:
        return len(self._windows)

    def _window(self, key: tuple[Hashable, int], number: int) -> _Window:
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= KEYS_KEPT:
                now = self._now()
                for old in [each for each, its in self._windows.items() if its.number < now // each[1] - 1]:
                    del self._windows[old]
            window = self._windows[key] = _Window(number)
        window.roll(number)
        return window


def _wait_s(before: int, present: int, room: int, elapsed: float, window_s: int) -> float:
    """Return how long until at most `room` are counted, if nothing is added."""
    if present <= room and before:
        return window_s * (1 - (room - present) / before) - elapsed
    rest = 1 - room / present if present else 0.0
    return window_s - elapsed + window_s * rest
