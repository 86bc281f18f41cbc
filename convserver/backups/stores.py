"""Connections beside the one of the settings: to a copy, or to a server's database for a long time."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

# Reading or loading everything may take long; waiting for a lock of another session may not.
_NO_LIMITS = "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c lock_timeout=10s"


@contextmanager
def copy_at(path: Path) -> Iterator[BaseDatabaseWrapper]:
    """Open a SQLite file that no other process has open; afterwards it has no companions.

    Damaged texts can be read: what is no UTF-8 in them is replaced.
    """
    with _opened({"NAME": str(path)}) as connection:
        connection.ensure_connection()
        cast(sqlite3.Connection, connection.connection).text_factory = _text
        yield connection


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace")


@contextmanager
def session(database: str = "", *, search_path: str = "") -> Iterator[BaseDatabaseWrapper]:
    """Open a session of its own, outside the pool, to the PostgreSQL database of the settings or another."""
    found = connections.settings["default"]
    # A pool would keep the connection open after `close`.
    options = {name: value for name, value in found["OPTIONS"].items() if name != "pool"}
    path = f" -c search_path={search_path}" if search_path else ""
    options["options"] = f"{options.get('options', '')} {_NO_LIMITS}{path}".strip()
    with _opened({"NAME": database or found["NAME"], "OPTIONS": options}) as connection:
        yield connection


@contextmanager
def _opened(differences: dict[str, Any]) -> Iterator[BaseDatabaseWrapper]:
    alias = f"beside-{secrets.token_hex(4)}"
    connections.settings[alias] = {**connections.settings["default"], **differences}
    connection = connections[alias]
    try:
        yield connection
    finally:
        connection.close()
        del connections[alias]
        del connections.settings[alias]
