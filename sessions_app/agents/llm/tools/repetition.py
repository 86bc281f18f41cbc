"""The detection of a stuck turn: the same call with the same result, repeatedly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

REPEATED_MAX = 4
"""A turn with this many equal calls and results is stuck."""
# An agent that waits at least this long between equal calls polls for something.
POLLED_S = 5.0
REPEATS = "The agent repeats itself: it has called `{name}` {count} times with the same result. {next}"
ASKS = "Resume it to let it go on, or stop it."
ENDS = "Send a message to let it go on."


class Repetition:
    """Counts the repeated calls of a turn."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._made: dict[str, tuple[int, float]] = {}
        """The number of quick repetitions and the time of the last one, by digests of call and result."""

    def is_endless(self, name: str, arguments: Mapping[str, Any], result: str) -> bool:
        """Count a call with its result, and return whether it was repeated too often."""
        key = sha256(json.dumps([name, arguments, result], sort_keys=True, default=str).encode()).hexdigest()
        now = self._now()
        count, at = self._made.get(key, (0, now))
        count = count + 1 if now - at < POLLED_S else 1
        self._made[key] = count, now
        return count >= REPEATED_MAX


def notice(name: str, *, asks: bool) -> str:
    """Return the sentence about a repeated call."""
    return REPEATS.format(name=name, count=REPEATED_MAX, next=ASKS if asks else ENDS)
