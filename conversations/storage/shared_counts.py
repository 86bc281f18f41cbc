"""Numbers that the processes of an installation count together in Redis.

Without Redis, and while it is away, each process counts by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from conversations.outages import Outage

T = TypeVar("T")

WAIT_S = 0.1  # the longest wait for Redis: the caller may be an event loop
RETRY_S = 5.0  # the time between two tries while Redis is away; other callers do not wait

_away = Outage(
    __name__,
    "Counts cannot be shared, so each process counts by itself",
    "Counts are shared between processes",
)


def added(name: str, amount: int, *, lasts_s: int) -> int | None:
    """Add to a shared number, and return it; None if it is not shared now.

    The number ends `lasts_s` after its first use.
    """

    def add(client: redis.Redis, key: str) -> int:
        with client.pipeline(transaction=True) as changes:
            changes.set(key, 0, ex=lasts_s, nx=True)
            changes.incrby(key, amount)
            return int(changes.execute()[1])

    return _asked(add, name)


def forget(name: str) -> None:
    """Restart a shared number at zero."""
    _asked(lambda client, key: client.delete(key), name)


def _asked(ask: Callable[[redis.Redis, str], T], name: str) -> T | None:
    url = settings.CONFIGURATION.redis_url
    return _server(url).asked(ask, f"{settings.HINTS_PREFIX}:{name}") if url else None


class _CountingServer:
    """The Redis of this process's counts; thread-safe."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url, socket_timeout=WAIT_S, socket_connect_timeout=WAIT_S, retry=Retry(NoBackoff(), 0)
        )
        self._lock = threading.Lock()
        self._again_at: float | None = None  # no caller asks until then; None while Redis answers

    def asked(self, ask: Callable[[redis.Redis, str], T], key: str) -> T | None:
        """Return the answer; None while Redis is away."""
        if not self._may_ask():
            return None
        try:
            answer = ask(self._client, key)
        except RedisError as error:
            self._again_at = time.monotonic() + RETRY_S
            _away.failed(error)
            return None
        self._again_at = None
        _away.worked()
        return answer

    def _may_ask(self) -> bool:
        with self._lock:
            if self._again_at is None:
                return True
            is_due = time.monotonic() >= self._again_at
            if is_due:  # this caller tries, and the next one RETRY_S later
                self._again_at = time.monotonic() + RETRY_S
            return is_due


# Django's cache in Redis would open connections of its own in each request's context.
_server = cache(_CountingServer)
