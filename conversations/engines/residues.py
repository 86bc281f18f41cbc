"""Cleaning out what removed rows leave in the database's files, while others write.

Neither engine erases a row when it is deleted. SQLite's full text keeps words in its segments until those
are merged, and the write-ahead log keeps pages. PostgreSQL keeps dead rows until they are vacuumed, words of
removed rows as keys of the index until that is rebuilt, and frequent values in its statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper

from conversations.engines import guards
from conversations.engines.failures import is_locked
from conversations.exceptions import StoreUnavailable

MERGE_PAGES = 200  # at most about this many pages of a full text index are rewritten in one transaction
# An index of fewer pages (of 4 KB) is rebuilt quickly; one step of the indexer adds less.
SMALL_PAGES = 256
FULL_TEXTS = (guards.SEARCH_TEXT, guards.TITLE_TEXT)
INDEXES = ("conversations_searchtext_words", "conversations_titletext_pieces")
INCREMENTAL = 2  # the value of `PRAGMA auto_vacuum` with which pages can be given back while others write

ALL_IN_MEMORY = "TEMP_STORE=3"  # with this option a library of SQLite makes no temporary files


T = TypeVar("T")
# Pauses for other work, given the seconds that the last step took. If it raises, the work ends.
Rest = Callable[[float], None]


def clean(tables: Sequence[str], rest: Rest | None = None) -> bool:
    """Clean out what removed rows have left in these tables, the full text and the write-ahead log.

    Return False if readers or writers kept a part from being done; call it again later then. It must not be
    called in a transaction.
    """
    if connection.vendor == "sqlite":
        for table in FULL_TEXTS:
            _merge(table, rest)
        _give_back()
        return _checkpoint()
    with _without_limits():
        for table in tables:
            rested(rest, partial(_execute, f"VACUUM (ANALYZE) {table}"))
        for index in INDEXES:
            rested(rest, partial(_rebuild, index))
    return True


def rested(rest: Rest | None, step: Callable[[], T]) -> T:
    """Run a step, and rest after it."""
    began = time.monotonic()
    result = step()
    if rest is not None:
        rest(time.monotonic() - began)
    return result


def rewrite(tables: Sequence[str]) -> bool:
    """Write the tables anew, so that removed rows are not even in the free space of pages.

    It blocks all writers, on PostgreSQL also readers, and needs as much space as the tables. Return False if
    readers kept SQLite's write-ahead log from being emptied. Raise StoreUnavailable if memory is short.
    """
    if connection.vendor == "sqlite":
        _require_memory()
        _execute("VACUUM")
        return _checkpoint()
    with _without_limits():
        for table in tables:
            _execute(f"VACUUM (FULL, ANALYZE) {table}")
    return True


def _require_memory() -> None:
    """Raise StoreUnavailable if VACUUM would need more memory than is free."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA compile_options")
        if ALL_IN_MEMORY not in {option for (option,) in cursor.fetchall()}:
            return
    needed = Path(connection.settings_dict["NAME"]).stat().st_size
    free = psutil.virtual_memory().available
    if needed > free:
        raise StoreUnavailable(
            "The tables were not written anew: this library of SQLite needs as much memory for it as the "
            f"file is large ({needed:,} bytes), and {free:,} bytes are free."
        )


def _merge(table: str, rest: Rest | None) -> None:
    """Remove all traces of removed rows from a full text index.

    A merge of all segments into one drops the marks of removed rows, which have their words, if the new one
    is in the highest level, and newer libraries of SQLite keep empty levels above. A second merge, of that
    one and a smaller one, adds a level for both. A small index is rebuilt: its segment would go down.
    """
    _merge_all(table, rest)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {table}_data LIMIT {SMALL_PAGES}")  # noqa: S608
        is_small = len(cursor.fetchall()) < SMALL_PAGES
    if is_small:
        rested(rest, partial(_execute, f"INSERT INTO {table} ({table}) VALUES ('rebuild')"))  # noqa: S608
    else:
        rested(rest, partial(_add_segment, table))
        _merge_all(table, rest)


def _merge_all(table: str, rest: Rest | None) -> None:
    """Merge all segments of a full text index into one.

    A negative number begins the merge of all segments, a positive one continues; it changes nothing once the
    merge is done.
    """
    has_more = rested(rest, partial(_merge_some, table, -MERGE_PAGES))
    while has_more:
        has_more = rested(rest, partial(_merge_some, table, MERGE_PAGES))


def _add_segment(table: str) -> None:
    """Add a segment with only the mark of a removed row."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES ('removed')")  # noqa: S608
        cursor.execute(f"DELETE FROM {table} WHERE rowid = last_insert_rowid()")  # noqa: S608


def _merge_some(table: str, pages: int) -> bool:
    """Take one step of a merge, and return whether it did anything."""
    with transaction.atomic(), connection.cursor() as cursor:
        before = _changes(cursor)
        # The table's own name as a column makes this a command to the full text.
        cursor.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', %s)", [pages])  # noqa: S608
        return _changes(cursor) - before >= 2


def _changes(cursor: CursorWrapper) -> int:
    """Return how many rows this connection has changed so far: SQLite's sign that a merge did something."""
    cursor.execute("SELECT total_changes()")
    (changes,) = cursor.fetchone()
    return int(changes)


def _give_back() -> None:
    """Give free pages back to the file system, if the database was created for it."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA auto_vacuum")
        if cursor.fetchone()[0] == INCREMENTAL:
            with transaction.atomic():  # with this thread's slot among the writers
                cursor.execute("PRAGMA incremental_vacuum")
                cursor.fetchall()


def _checkpoint() -> bool:
    """Write the write-ahead log into the file and empty it; return False if a reader still needs it."""
    wrapper: Any = connection
    # It keeps others from writing while it waits for readers, so it waits 100 ms.
    with wrapper.waiting(100), connection.cursor() as cursor:
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except OperationalError as error:
            if not is_locked(error):
                raise
            return False
        is_busy, _, _ = cursor.fetchone()
    return not is_busy


@contextmanager
def _without_limits() -> Iterator[None]:
    """Lift the time limits of requests for this session, and let a VACUUM leave the disk to others."""
    names = ("statement_timeout", "lock_timeout", "vacuum_cost_delay")
    with connection.cursor() as cursor:
        # The pause, in ms, is that of PostgreSQL's own vacuum.
        for name, value in zip(names, (0, 0, 2), strict=True):
            cursor.execute(f"SET {name} = {value}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for name in names:
                cursor.execute(f"RESET {name}")


def _rebuild(index: str) -> None:
    """Build an index anew beside the old one, and drop what an interrupted build has left."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [index])
        if not cursor.fetchone()[0]:  # without the extension, titles have no index
            return
        cursor.execute(
            "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid"
            " WHERE NOT indisvalid AND relname ~ %s AND pg_table_is_visible(pg_class.oid)",
            [f"^{index}_ccnew[0-9]*$|^{index}_ccold[0-9]*$"],
        )
        left = [name for (name,) in cursor.fetchall()]
    for name in left:
        _execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')
    _execute(f"REINDEX INDEX CONCURRENTLY {index}")


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
