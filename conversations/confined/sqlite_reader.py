"""Runs in a confined process: prints the rows of plain tables of a SQLite file, each as a line of JSON.

It uses only the interpreter's own `sqlite3`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sqlite3
from collections.abc import Iterator

VALUE_MAX_BYTES = 40 * 1024 * 1024
# A file with a longer value, or with a row that is longer as JSON, is refused.
LINE_MAX_CHARACTERS = 60 * 1024 * 1024
OBJECTS_MAX = 10_000  # a schema with more tables, indexes and triggers is refused
STEPS = 100_000  # steps of a statement between two checks of the parent process

# Default values of a column take no space in the file, so this much more can be read.
SPARE_BYTES = 64 * 1024 * 1024
NEEDED = (3, 37)  # older versions cannot say of what type a table is
PLAIN = re.compile(r"create\s+table\b", re.IGNORECASE)

Value = str | int | float | bytes | None


def read(path: str, is_copy: bool, keys: dict[str, str | None]) -> None:
    """Print each row as a line: its table, the value of the table's key column, and the row, between tabs.

    `keys` has the tables, and the name of each one's key column, if any. Value and row are JSON, the row an
    object; bytes are a list with one text, in base64. `is_copy` says that the file and its write-ahead log
    are copies that no other program uses. Raise ValueError and sqlite3.Error.
    """
    if sqlite3.sqlite_version_info < NEEDED:
        raise ValueError(f"this needs SQLite 3.37 or newer, and Python has {sqlite3.sqlite_version}")
    bounds = Bounds(sum(os.stat(each).st_size for each in ([path, f"{path}-wal"] if is_copy else [path])))  # noqa: PTH116
    connection = _opened(path, is_copy)
    for table, key in keys.items():
        _require_plain(connection, table)
        for row in rows(connection, table):
            bounds.take(row)
            text = _json(row)
            if len(text) > LINE_MAX_CHARACTERS:
                raise ValueError(f"a row of {table} is longer than can be read")
            print(table, _json(None if key is None else row.get(key)), text, sep="\t")


def _opened(path: str, is_copy: bool) -> sqlite3.Connection:
    """Open the file so that its schema can run nothing, and a copy with the log beside it."""
    # A file that is no copy is neither locked nor changed, and no journal is looked for beside it.
    mode = "mode=rw" if is_copy else "mode=ro&immutable=1"
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(f"file:{escaped}?{mode}", uri=True, isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_MAX_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    # The index of the log is kept in memory, and so is whatever would go to a temporary file.
    for pragma in (
        "locking_mode = EXCLUSIVE",
        "temp_store = MEMORY",
        "trusted_schema = OFF",
        "mmap_size = 0",
    ):
        connection.execute(f"PRAGMA {pragma}").close()
    connection.text_factory = lambda stored: stored.decode(errors="replace")
    connection.row_factory = sqlite3.Row
    parent = os.getppid()
    connection.set_progress_handler(lambda: os.getppid() != parent, STEPS)
    connection.set_authorizer(_authorized)
    return connection


def _authorized(action: int, first: str | None, second: str | None, _: str | None, by: str | None) -> int:
    """Allow reading tables, but nothing that a view, a trigger or an expression requests."""
    is_allowed = by is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_PRAGMA and first in ("table_list", "table_xinfo"))
    )
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _require_plain(connection: sqlite3.Connection, table: str) -> None:
    """Raise ValueError unless the table is a plain one, all of whose columns are stored."""
    objects = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(OBJECTS_MAX + 1)
    if len(objects) > OBJECTS_MAX:
        raise ValueError("there are too many tables in it")
    said = [each for each in objects if str(each["name"]).lower() == table]
    # The list and the text of an object need not agree, so SQLite's own list is compared, too.
    known = [each["type"] for each in connection.execute(f"PRAGMA table_list({table})")]
    if not said and not known:
        raise ValueError(f"there is no table {table} in it")
    is_said = [each["type"] for each in said if PLAIN.match(str(each["sql"]))] == ["table"]
    if not is_said or known != ["table"]:
        raise ValueError(f"{table} is not a plain table in it")
    if any(column["hidden"] for column in connection.execute(f"PRAGMA table_xinfo({table})")):
        raise ValueError(f"{table} has columns in it that are computed")


def rows(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Value]]:
    """Yield the rows of a table in the order of their row ids, which needs no index; NULL is left out."""
    found = connection.execute(f"SELECT * FROM {table} NOT INDEXED")  # noqa: S608 - names of this program
    for row in found:
        yield {name: value for name, value in zip(row.keys(), row, strict=True) if value is not None}


class Bounds:
    """The most that a file of this size can hold: pages that are referenced repeatedly yield more."""

    def __init__(self, size: int) -> None:
        # A row takes at least four bytes of a file: the pointer to it, its length and its header.
        self._rows = size // 4 + 1_000
        self._values = size + 1_000_000
        self._bytes = size + SPARE_BYTES

    def take(self, row: dict[str, Value]) -> None:
        """Count a row. Raise ValueError if the file cannot hold as many rows or bytes."""
        self._rows -= 1
        self._values -= len(row)
        self._bytes -= sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        if min(self._rows, self._values, self._bytes) < 0:
            raise ValueError("there is more in it than a file of its size can hold")


def _json(value: object) -> str:
    # Only bytes have no form in JSON.
    return json.dumps(value, ensure_ascii=False, default=lambda stored: [base64.b64encode(stored).decode()])
