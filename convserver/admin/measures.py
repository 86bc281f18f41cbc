"""How quickly the database and Redis answer, and how much space there is, each measured in a short time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError

from convserver.web.probes import disk_usage

# A page waits no longer than this for a Redis that hangs.
HINTS_WAIT_S = 0.5


def database_ms() -> float:
    """Return the time of the simplest query, in milliseconds."""
    with connection.cursor() as cursor:
        began = time.perf_counter()
        cursor.execute("SELECT 1")
        cursor.fetchone()
        return (time.perf_counter() - began) * 1000


def hints_ms() -> float | None:
    """Return how long a hint takes to Redis and back, in milliseconds; None if longer than HINTS_WAIT_S.

    Raise LookupError where hints stay in the process.
    """
    url = settings.CONFIGURATION.redis_url
    if url is None:
        raise LookupError("There is no Redis: hints stay in this process.")
    try:
        # In a thread: the look-up of a host's name has no timeout of its own.
        return _waiters().submit(_there_and_back_ms, url).result(timeout=HINTS_WAIT_S)
    except (TimeoutError, RedisError, OSError):
        return None


@cache
def _waiters() -> ThreadPoolExecutor:
    # Two: a Redis that hangs keeps one thread until its own timeout, while another visitor may ask.
    return ThreadPoolExecutor(2, thread_name_prefix="measure")


def _there_and_back_ms(url: str) -> float | None:
    bounds: Any = {"socket_timeout": HINTS_WAIT_S, "socket_connect_timeout": HINTS_WAIT_S, "retry": None}
    channel = f"{settings.HINTS_PREFIX}-measure-{uuid4().hex}"
    with redis.Redis.from_url(url, **bounds) as client, client.pubsub() as hints:
        hints.subscribe(channel)
        hints.get_message(timeout=HINTS_WAIT_S)  # the confirmation of the subscription
        began = time.perf_counter()  # only now: a connection is made once, hints come all the time
        client.publish(channel, b"")
        message = hints.get_message(timeout=HINTS_WAIT_S, ignore_subscribe_messages=True)
        return (time.perf_counter() - began) * 1000 if message else None


def database_bytes() -> int:
    """Return the size of the database in bytes; on SQLite with its write-ahead log."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    path = str(connection.settings_dict["NAME"])
    return sum(_size(Path(f"{path}{suffix}")) for suffix in ("", "-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # there is no log beside the file while nothing was written
        return 0


def disk_of_workspaces() -> tuple[int, int]:
    """Return the same of the disk that holds the files of conversations."""
    usage = disk_usage(settings.CONFIGURATION.workspaces)
    return usage.free, usage.total


def disk() -> tuple[int, int]:
    """Return the free and the total bytes of the disk that holds the data directory."""
    usage = disk_usage()
    return usage.free, usage.total
