"""What processes share in Redis about a store that was replaced."""

from __future__ import annotations

from contextlib import closing

import redis
from django.conf import settings
from redis.exceptions import RedisError

WAIT_S = 3.0
AT_ONCE = 500


def forget(url: str | None) -> str | None:
    """Remove what this installation has stored in Redis; say what is left to do if that fails.

    Hints themselves are not stored: they reach those who listen, and nobody does.
    """
    if not url:
        return None
    try:
        with closing(
            redis.Redis.from_url(url, socket_timeout=WAIT_S, socket_connect_timeout=WAIT_S)
        ) as client:
            keys = list(client.scan_iter(match=f"{settings.HINTS_PREFIX}*", count=AT_ONCE))
            for at in range(0, len(keys), AT_ONCE):
                client.unlink(*keys[at : at + AT_ONCE])
    except RedisError as error:
        return (
            f"Redis could not be reached ({error}). It may hold counts of the time before: when it is back, "
            f"remove the keys that begin with {settings.HINTS_PREFIX}."
        )
    return None
