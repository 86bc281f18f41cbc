"""Bringing a database up to date: whole or not at all, and by one process at a time.

Everything happens in one transaction: the tables, the record of each migration, the guards. A process that
is killed in the middle of it leaves the database as it was, and one that comes meanwhile waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines.failures import is_locked

WAIT_S = 300
"""How long one process waits for another that brings the database up to date."""
WAITS = "Another process is upgrading the database. Waiting for it, at most 5 minutes."
BUSY = (
    "Another process has been upgrading the database for 5 minutes, or keeps it locked. "
    "Wait until it has finished, or end it, and then try again."
)

LOCK = 7_266_328_811
"""The key of PostgreSQL's advisory lock: a number that nobody else has."""


class UpgradeBusy(Exception):
    """Another process did not come to an end with the database."""


@contextmanager
def alone(connection: BaseDatabaseWrapper, say: Callable[[str], object]) -> Iterator[None]:
    """Run the block in one transaction, after all who do the same; `say` is told once if that takes time.

    Raise UpgradeBusy if they take longer than WAIT_S.
    """
    if connection.in_atomic_block:
        yield
        return
    enter = _enter_sqlite if connection.vendor == "sqlite" else _enter_postgresql
    with ExitStack() as until_the_end:
        try:
            enter(connection, say, until_the_end)
        except OperationalError as error:
            if is_locked(error):
                raise UpgradeBusy(BUSY) from error
            raise
        yield


def _enter_sqlite(
    connection: BaseDatabaseWrapper, say: Callable[[str], object], until_the_end: ExitStack
) -> None:
    """Begin a transaction, of which SQLite has one at a time."""
    # Tables are remade without foreign keys, which cannot be switched off inside of a transaction.
    connection.disable_constraint_checking()
    until_the_end.callback(connection.enable_constraint_checking)
    before_ms = _asked(connection, "PRAGMA busy_timeout")
    until_the_end.callback(_asked, connection, f"PRAGMA busy_timeout = {before_ms}")
    if not _is_free(connection):
        say(WAITS)
    _asked(connection, f"PRAGMA busy_timeout = {WAIT_S * 1000}")
    until_the_end.enter_context(transaction.atomic(using=connection.alias))


def _is_free(connection: BaseDatabaseWrapper) -> bool:
    _asked(connection, "PRAGMA busy_timeout = 0")
    with connection.cursor() as cursor:
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except OperationalError as error:
            if is_locked(error):
                return False
            raise
        cursor.execute("ROLLBACK")
    return True


def _enter_postgresql(
    connection: BaseDatabaseWrapper, say: Callable[[str], object], until_the_end: ExitStack
) -> None:
    """Begin a transaction and take the lock that all take who change tables."""
    until_the_end.enter_context(transaction.atomic(using=connection.alias))
    with connection.cursor() as cursor:
        # To copy a table or to build an index may take longer than any request.
        cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        if cursor.fetchone() == (True,):
            return
        say(WAITS)
        cursor.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        cursor.execute("SET LOCAL lock_timeout TO DEFAULT")


def _asked(connection: BaseDatabaseWrapper, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
        return row[0] if row else None
