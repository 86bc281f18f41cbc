"""Read the ends of logs without locking them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

REPLACES = "conversations.log.sql.locked_heads"


def bug(locked_heads: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reads and does not lock (PostgreSQL)."""
    from conversations.log import sql

    def unlocked(columns: Sequence[str], pks: Sequence[int], *, wait: bool) -> Any:
        text = f"SELECT {', '.join(columns)} FROM conversations_conversation WHERE id{sql._among(pks)}"
        return sql.Result(sql._prepared(text, [sql._sent(pks)]))

    return unlocked
