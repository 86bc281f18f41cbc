"""Counters of this process since its start, for monitoring systems.

This is no library of metrics: counting must cost less than a microsecond, and import nothing.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum

# One counter keeps at most this many combinations of labels; in others the first label is OTHER.
KINDS_MAX = 400
OTHER = "other"
# The upper ends of the intervals of a request's duration.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Labels = tuple[str, ...]


class Counted(StrEnum):
    """What is counted, by the labels in brackets."""

    REQUESTS = "requests"  # (route, method, status)
    APPENDED = "appended_events"
    SENT = "socket_events"  # (door)
    QUOTA_REFUSALS = "quota_refusals"  # (quota)
    HINTS = "hints"  # (what became of it: sent, received, dropped)
    MODEL_CALLS = "model_calls"  # (model)
    MODEL_TOKENS = "model_tokens"  # (model, direction: prompt or completion)
    MODEL_NANODOLLARS = "model_nanodollars"  # (model)
    # Waits for the lock of a conversation, or of SQLite's file, that were given up.
    LOCK_TIMEOUTS = "lock_timeouts"


_lock = threading.Lock()
_numbers: defaultdict[Counted, Counter[Labels]] = defaultdict(Counter)
# By route: how many fell into each interval, and last the sum of all in seconds.
_durations: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * (len(BOUNDS_S) + 2))


def add(counted: Counted, *labels: str, number: int = 1) -> None:
    """Count, from any thread."""
    with _lock:
        numbers = _numbers[counted]
        if labels not in numbers and len(numbers) >= KINDS_MAX:
            labels = (OTHER, *labels[1:])  # the other labels have few values, and alerts need the status
        numbers[labels] += number


def add_request(route: str, method: str, status: int, seconds: float) -> None:
    """Count a request and how long it took."""
    add(Counted.REQUESTS, route, method, str(status))
    with _lock:
        row = _durations[route if route in _durations or len(_durations) < KINDS_MAX else OTHER]
        row[bisect_left(BOUNDS_S, seconds)] += 1
        row[-1] += seconds


def numbers(counted: Counted) -> Mapping[Labels, int]:
    with _lock:
        return dict(_numbers[counted])


def durations() -> Mapping[str, list[float]]:
    """Return the intervals of each route, and last the sum in seconds."""
    with _lock:
        return {route: list(row) for route, row in _durations.items()}
