"""Threads with a database connection each, and calls that replace a connection that broke."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import (
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    connection,
    connections,
)
from psycopg.errors import FeatureNotSupported, ReadOnlySqlTransaction

from conversations.engines import failures
from conversations.engines.lost_commits import LostCommit
from conversations.exceptions import OutcomeUnknown
from conversations.log import commits
from conversations.log.commits import drop_broken_connections
from conversations.outages import Outage

T = TypeVar("T")

TRIES = 3
"""`repeated` makes at most this many calls. A repeat stores nothing twice: the event ids were fixed before
the first call."""

_reconnecting = Outage(
    __name__, "The database connection failed and is reopened", "The database connection works again"
)


class ConnectedThreads(ThreadPoolExecutor):
    """Threads of one kind, begun as they are needed; each has a connection of its own."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)

    async def close(self) -> None:
        """Close the connection of each thread that has begun, and end the threads."""
        closed = 0
        while closed < (begun := len(self._threads)):  # submitting may start another thread
            await self._close_connections(begun)
            closed = begun
        self.shutdown(wait=True)  # each has just closed its connection, so no statement is running

    async def _close_connections(self, begun: int) -> None:
        """Wait for running statements, and close the connections of `begun` threads."""
        # The barrier holds each thread until all are here, so that none closes twice and another never.
        meeting = threading.Barrier(begun)

        def close() -> None:
            meeting.wait()
            connections.close_all()

        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self, close) for _ in range(begun)))


def repeated(write: Callable[[], T]) -> T:
    """Call `write`, and repeat it if the connection broke: its ids are fixed, so it stores once."""
    for left in reversed(range(TRIES)):
        try:
            done = connected(write)
        except (OperationalError, InterfaceError) as error:
            # Nothing broke: it has waited for a lock or the pool as long as it may, or would fail again.
            if failures.is_locked(error) or failures.is_unconnected(error):
                raise
            if failures.is_lasting(error, connection):
                raise
            _reconnecting.failed(error)
            if not left:
                raise
        else:
            _reconnecting.worked()
            return done
    raise AssertionError("unreachable")


def settled(write: Callable[[], T]) -> T:
    """Call `write`, which stores once however often it is called, until its outcome is known.

    Raise OutcomeUnknown if the connection breaks each time for LOOK_UP_S.
    """
    try:
        done = commits.until_answered(lambda: connected(write), is_passing=_leaves_it_open)
    except (OperationalError, InterfaceError) as error:
        if connection.vendor != "postgresql" and not isinstance(error, LostCommit):
            raise
        raise OutcomeUnknown(commits.UNKNOWN) from error
    _reconnecting.worked()
    return done


def _leaves_it_open(error: Exception) -> bool:
    """Return whether to repeat the write: PostgreSQL failed and may have stored it.

    A lost commit of SQLite is not repeated.
    """
    is_open = connection.vendor == "postgresql" and isinstance(error, OperationalError | InterfaceError)
    if is_open:
        _reconnecting.failed(error)
    return is_open


def connected(function: Callable[[], T]) -> T:
    """Call `function` on this thread's connection; close a connection that broke or cannot write."""
    for each in connections.all(initialized_only=True):
        if getattr(each, "is_read_only", False) and not each.in_atomic_block:
            each.close()
    try:
        return function()
    except (OperationalError, InterfaceError):
        drop_broken_connections()
        raise
    except InternalError as error:
        if not isinstance(error.__cause__, ReadOnlySqlTransaction):
            raise
        _close_refusing_connections()
        raise OperationalError("The database doesn't accept writes right now.") from error.__cause__
    except NotSupportedError as error:
        # A column got another type, and the statements that this connection has prepared return the old one.
        if not isinstance(error.__cause__, FeatureNotSupported):
            raise
        _close_refusing_connections()
        # The sessions of the pool have prepared the same outdated statements.
        for each in connections.all(initialized_only=True):
            if each.vendor == "postgresql" and (pool := each.pool) is not None:  # type: ignore[attr-defined]
                pool.drain()
        raise OperationalError("The tables have changed.") from error.__cause__
    finally:
        _give_back_scarce_connections()


def _give_back_scarce_connections() -> None:
    """Give back this thread's connection while PostgreSQL refuses more, so that other threads get one."""
    for each in connections.all(initialized_only=True):
        if each.vendor == "postgresql" and not each.in_atomic_block:
            pool = each.pool  # type: ignore[attr-defined]
            if pool is not None and pool.refusal is not None:
                each.close()


def changed(function: Callable[[], T]) -> T:
    """Call `function`, and give the connection back to the pool."""
    # The changers are many and mostly idle: each would hold a connection that other threads need.
    try:
        return connected(function)
    finally:
        if connection.vendor == "postgresql":
            connection.close()


def _close_refusing_connections() -> None:
    """Close this thread's connection: its session is read-only, or its statements are out of date."""
    for each in connections.all(initialized_only=True):
        if each.connection is not None:
            each.connection.close()
            each.close()
