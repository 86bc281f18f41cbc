"""Upgrading a database: completely or not at all, and by one process at a time.

Everything is one transaction: the tables, the record of each migration, the guards. If the process is
killed in the middle, the database stays as it was; other processes wait meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from conversations.engines.failures import is_locked

WAIT_S = 300  # how long one process waits for another that is upgrading the database
WAITS = "Another process is upgrading the database. Waiting for it, at most 5 minutes."
BUSY = (
    "Another process has been upgrading the database for 5 minutes, or keeps it locked. "
    "Wait until it has finished, or end it, and then try again."
)

# The last commit whose migrations continue from every state of a database before the first release.
LAST_WITH_ALL = "0f00f580"
STOPPED = (
    "The database stopped at the migration {migration}, from which this version cannot go on: "
    f"run `convserver manage migrate` with commit {LAST_WITH_ALL} first."
)

LOCK = 7_266_328_811  # the key of PostgreSQL's advisory lock: a number that nothing else uses
TURN_LOCK = LOCK + 1  # for upgrades that take several transactions


class UpgradeBusy(Exception):
    """Another process did not finish with the database in time."""


class UpgradeImpossible(Exception):
    """No migration continues from the state of the database; the text says what to do."""


def check_goes_on(applied: Collection[tuple[str, str]]) -> None:
    """Raise UpgradeImpossible if only a part of the migrations that one migration replaces is applied.

    Django would skip that migration, and apply those that need it.
    """
    present = MigrationLoader(None).disk_migrations
    for migration in present.values():
        gone = [each for each in migration.replaces if each not in present]
        found = [each for each in gone if each in applied]
        if 0 < len(found) < len(gone):
            raise UpgradeImpossible(STOPPED.format(migration=".".join(found[-1])))


@contextmanager
def alone(connection: BaseDatabaseWrapper, say: Callable[[str], object]) -> Iterator[None]:
    """Run the block in one transaction, after all others that do the same.

    `say` is called once with a sentence if that takes time. Raise UpgradeBusy if they take longer than
    WAIT_S.
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


@contextmanager
def in_turn(connection: BaseDatabaseWrapper, say: Callable[[str], object]) -> Iterator[None]:
    """Run the block, whose transactions are its own, after all others that do the same (PostgreSQL).

    `say` is called once with a sentence if that takes time. Raise UpgradeBusy if they take longer than
    WAIT_S.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0; SET lock_timeout = 0")
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [TURN_LOCK])
            if cursor.fetchone() != (True,):
                say(WAITS)
                cursor.execute(f"SET lock_timeout = '{WAIT_S}s'")
                cursor.execute("SELECT pg_advisory_lock(%s)", [TURN_LOCK])
                cursor.execute("SET lock_timeout = 0")
    except OperationalError as error:
        if is_locked(error):
            raise UpgradeBusy(BUSY) from error
        raise
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [TURN_LOCK])
            cursor.execute("RESET statement_timeout; RESET lock_timeout")


def _enter_sqlite(
    connection: BaseDatabaseWrapper, say: Callable[[str], object], until_the_end: ExitStack
) -> None:
    """Begin a transaction, of which SQLite has only one at a time."""
    # Tables are rebuilt without foreign keys, which cannot be switched off inside a transaction.
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
    """Begin a transaction, and take the lock of all processes that change tables."""
    until_the_end.enter_context(transaction.atomic(using=connection.alias))
    with connection.cursor() as cursor:
        # Copying a table or building an index may take longer than any request.
        cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SET LOCAL lock_timeout = 0")
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        if cursor.fetchone() == (True,):
            return
        say(WAITS)
        cursor.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        cursor.execute("SET LOCAL lock_timeout = 0")


def _asked(connection: BaseDatabaseWrapper, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
        return row[0] if row else None
