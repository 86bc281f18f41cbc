"""How often something happened lately: sliding windows, counted in memory and shared between processes.

Each process counts by itself. If there is a Redis, processes exchange their counts through the cache `rates`
about once a second, in a thread of their own, so that nobody waits for it. Until then another process does
not know of what happened here, so a limit may be exceeded by about a second's worth in each process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from django.conf import settings
from django.core.cache import caches

from conversations.outages import Outage

CACHE = "rates"
EXCHANGE_S = 1.0
"""The counts of a key are exchanged at most this often."""
KEYS_KEPT = 10_000
"""Above this number, keys whose windows are over are forgotten."""

_failing = Outage(__name__, "Rates could not be shared between processes", "Rates are shared again")


class Taken(NamedTuple):
    """The outcome of a try: how many there were before, and how long to wait; 0 if it was admitted."""

    used: int
    wait_s: int


class _Window:
    """The counts of one key in the present window, and in the one before."""

    __slots__ = ("before", "exchanged_at", "number", "others", "own", "shared")

    def __init__(self, number: int) -> None:
        self.number = number
        self.before = 0
        self.own = 0
        self.others = 0
        """What other processes have counted."""
        self.shared = 0
        """The part of `own` that the others know of."""
        self.exchanged_at = -math.inf

    def roll(self, number: int) -> None:
        """Begin the window of this number, if it is another one."""
        if number != self.number:
            self.before = self.own + self.others if number == self.number + 1 else 0
            self.number, self.own, self.others, self.shared = number, 0, 0, 0


class Rates:
    """The sliding windows of one process; thread-safe.

    The estimate is the present window's count and the part of the one before that the sliding window
    still covers.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._windows: dict[tuple[Hashable, int], _Window] = {}
        self._exchanges = ThreadPoolExecutor(1, thread_name_prefix="rates")

    def take(self, key: Hashable, amount: int, *, limit: int, window_s: int) -> Taken:
        """Count `amount` more if the limit allows it.

        A single amount above the limit is admitted if nothing was counted before: it would never be.
        """
        now = self._now()
        number, elapsed = divmod(now, window_s)
        with self._lock:
            window = self._window((key, window_s), int(number))
            present = window.own + window.others
            used = present + math.ceil(window.before * (1 - elapsed / window_s))
            if used and used + amount > limit:
                wait_s = _wait_s(window.before, present, max(0, limit - amount), elapsed, window_s)
                taken = Taken(used, max(1, math.ceil(wait_s)))
            else:
                window.own += amount
                taken = Taken(used, 0)
            is_due = settings.CONFIGURATION.redis_url is not None and (
                time.monotonic() > window.exchanged_at + EXCHANGE_S
            )
            if is_due:
                window.exchanged_at = time.monotonic()
        if is_due:
            self._exchanges.submit(self.exchange, key, window_s)
        return taken

    def used(self, key: Hashable, *, window_s: int) -> int:
        """Return how many are counted at present, as far as this process knows."""
        number, elapsed = divmod(self._now(), window_s)
        with self._lock:
            window = self._window((key, window_s), int(number))
            return window.own + window.others + math.ceil(window.before * (1 - elapsed / window_s))

    def exchange(self, key: Hashable, window_s: int) -> None:
        """Tell other processes what was counted here, and learn what they have counted."""
        with self._lock:
            window = self._windows.get((key, window_s))
            if window is None:
                return
            number, news = window.number, window.own - window.shared
            window.shared += news
        try:
            total = _added(f"{key}:{window_s}:{number}", news, lasts_s=2 * window_s)
        except Exception as error:  # the count of this process goes on
            _failing.failed(error)
            return
        _failing.worked()
        with self._lock:
            if window.number == number:
                # Of two exchanges at once, the one that asked first may be the last to be done.
                window.others = max(window.others, total - window.shared)

    def __len__(self) -> int:
        """Return the number of keys that are remembered."""
        return len(self._windows)

    def _window(self, key: tuple[Hashable, int], number: int) -> _Window:
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= KEYS_KEPT:
                self._forget_old()
            window = self._windows[key] = _Window(number)
        window.roll(number)
        return window

    def _forget_old(self) -> None:
        now = self._now()
        old = [key for key, window in self._windows.items() if window.number < now // key[1] - 1]
        for key in old:
            del self._windows[key]


def _wait_s(before: int, present: int, room: int, elapsed: float, window_s: int) -> float:
    """Return how long until at most `room` are counted, if nothing is added."""
    if present <= room and before:
        return window_s * (1 - (room - present) / before) - elapsed
    rest = 1 - room / present if present else 0.0
    return window_s - elapsed + window_s * rest


def _added(name: str, amount: int, *, lasts_s: int) -> int:
    """Add to a number that all processes share, and return it."""
    cache = caches[CACHE]
    cache.add(name, 0, lasts_s)
    return int(cache.incr(name, amount))
