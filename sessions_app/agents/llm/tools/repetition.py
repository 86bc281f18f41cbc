"""Whether a turn gets nowhere: the same call with the same result, again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

REPEATED_MAX = 4
"""The same call with the same result so many times in a turn is one that gets nowhere."""
POLLED_S = 5.0
"""Calls with this much time between them wait for something."""
REPEATS = "The agent repeats itself: it has called `{name}` {count} times with the same result. {next}"
ASKS = "Resume it to let it go on, or stop it."
ENDS = "Send a message to let it go on."


class Repetition:
    """The calls of a turn, as far as they repeat each other."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._made: dict[str, tuple[int, float]] = {}
        """How often each was made in quick succession, and when last, by the digests of call and result."""

    def is_endless(self, name: str, arguments: Mapping[str, Any], result: str) -> bool:
        """Say whether a call with this result is one of too many."""
        key = sha256(json.dumps([name, arguments, result], sort_keys=True, default=str).encode()).hexdigest()
        now = self._now()
        count, at = self._made.get(key, (0, now))
        count = count + 1 if now - at < POLLED_S else 1
        self._made[key] = count, now
        return count >= REPEATED_MAX


def notice(name: str, *, asks: bool) -> str:
    """Return the sentence about a call that was repeated."""
    return REPEATS.format(name=name, count=REPEATED_MAX, next=ASKS if asks else ENDS)
