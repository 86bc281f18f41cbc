"""The cache that all processes share, in Redis; while that is away, a cache of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from conversations.outages import Outage

WAIT_S = 0.2
"""How long a request waits for a connection to Redis, and for an answer."""
RETRY_S = 1.0
"""While Redis is away, one request tries it this often; all others use the process's own cache at once."""


def _either(name: str) -> Callable[..., Any]:
    """Return a method that uses Redis, or the process's own cache while Redis is away."""

    def ask(self: SharedCache, *args: Any, **kwargs: Any) -> Any:
        if _redis.may_be_asked():
            try:
                answer = getattr(RedisCache, name)(self, *args, **kwargs)
            except RedisError as error:
                _redis.note_away(error)
            else:
                _redis.note_there()
                return answer
        return getattr(self.own, name)(*args, **kwargs)

    return ask


class SharedCache(RedisCache):
    """Django's cache in Redis for which nobody waits long; LOCATION is the address, NAME the own cache's."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        options = dict(params.get("OPTIONS", {}))
        entries, name = options.pop("MAX_ENTRIES"), options.pop("NAME")
        super().__init__(server, {**params, "OPTIONS": options})
        self._address = server
        self.own = LocMemCache(name, {**params, "OPTIONS": {"MAX_ENTRIES": entries}})

    @property
    def _cache(self) -> RedisCacheClient:
        """The connections to this address, which all of a process share.

        Django creates a cache for each context that asks for one; each would open its own connections and
        leave them to the garbage collector.
        """
        with _making:
            if self._address not in _clients:
                _clients[self._address] = RedisCacheClient(
                    [self._address],
                    socket_timeout=WAIT_S,
                    socket_connect_timeout=WAIT_S,
                    retry=Retry(NoBackoff(), 0),
                )
            return _clients[self._address]

    get = _either("get")
    set = _either("set")
    add = _either("add")
    touch = _either("touch")
    delete = _either("delete")
    incr = _either("incr")
    has_key = _either("has_key")
    get_many = _either("get_many")
    set_many = _either("set_many")
    delete_many = _either("delete_many")
    clear = _either("clear")


_clients: dict[str, RedisCacheClient] = {}
_making = threading.Lock()


class _Redis:
    """Whether this process's requests may use Redis; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_away = False
        self._tried_at = 0.0
        self._outage = Outage(
            __name__,
            "The shared cache cannot be reached, so each process uses its own",
            "The shared cache works again",
        )

    def may_be_asked(self) -> bool:
        """Say whether the caller may use it; while Redis is away, one caller each RETRY_S."""
        if not self._is_away:
            return True
        with self._lock:
            if time.monotonic() < self._tried_at + RETRY_S:
                return False
            self._tried_at = time.monotonic()
            return True

    def note_away(self, error: RedisError) -> None:
        """Stop using it for RETRY_S."""
        self._is_away, self._tried_at = True, time.monotonic()
        self._outage.failed(error)

    def note_there(self) -> None:
        """Use it as usual."""
        self._is_away = False
        self._outage.worked()


_redis = _Redis()
