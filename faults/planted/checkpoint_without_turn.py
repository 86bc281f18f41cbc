"""Checkpoint SQLite's log while another thread commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.sqlite3.base import SQLiteCursorWrapper

REPLACES = "conversations.engines.sqlite3.base.CheckedCursor.execute"


def bug(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes no turn for a checkpoint."""

    def executed(cursor: Any, query: str, params: Any = None) -> Any:
        if query.startswith("PRAGMA wal_checkpoint"):
            return SQLiteCursorWrapper.execute(cursor, query, params)
        return execute(cursor, query, params)

    return executed
