"""The index of titles: trigrams, so that any part of a title is found quickly.

It is written after the change. A trigger records whose title has changed in any way
(`conversations.engines.guards`), and a search reads those as well. An append changes no title and pays
nothing for this.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

from django.core.exceptions import EmptyResultSet, FullResultSet
from django.db import Error, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Func, Q

from conversations.engines import case_insensitive, guards

TABLE = guards.TITLE_TEXT
CHANGED = guards.TITLE_CHANGE
PIECE = 3  # characters; shorter texts are searched in the conversations themselves
CANDIDATES_MAX = 1_000  # if more titles contain a text, reading the newest conversations soon finds it
STEP_TITLES = 500

_CREATION = {
    "sqlite": f"CREATE VIRTUAL TABLE {TABLE} USING fts5(title, tokenize = 'trigram case_sensitive 1')",
    "postgresql": f"CREATE TABLE {TABLE} (conversation_id bigint PRIMARY KEY, title text NOT NULL)",
}
_INDEX = [
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    f"CREATE INDEX IF NOT EXISTS conversations_titletext_pieces ON {TABLE} USING gin (title gin_trgm_ops)",
]
_KEY = {"sqlite": "rowid", "postgresql": "conversation_id"}
_ADDING = {engine: f"INSERT INTO {TABLE} ({key}, title) VALUES (%s, %s)" for engine, key in _KEY.items()}
_TAKING = f"""
    DELETE FROM {CHANGED} WHERE conversation_id IN
    (SELECT conversation_id FROM {CHANGED} ORDER BY conversation_id LIMIT {STEP_TITLES})
    RETURNING conversation_id
"""
# A transaction that is deleting one of them is waited for; a later one sees the new rows.
_READING = {
    "sqlite": f"SELECT id, {case_insensitive.IN_CAPITALS['sqlite']} FROM {guards.CONVERSATION} "
    "WHERE title IS NOT NULL AND expires_at IS NULL AND id IN ({keys})",
    "postgresql": f"SELECT id, {case_insensitive.IN_CAPITALS['postgresql']} FROM {guards.CONVERSATION} "
    "WHERE title IS NOT NULL AND expires_at IS NULL AND id IN ({keys}) FOR KEY SHARE",
}
_IN_INDEX = {
    "sqlite": f"SELECT rowid FROM {TABLE} WHERE {TABLE} MATCH %s",
    "postgresql": f"SELECT conversation_id FROM {TABLE} WHERE title LIKE %s",
}
_FINDING = {
    engine: f"{in_index} UNION ALL SELECT conversation_id FROM {CHANGED} LIMIT {CANDIDATES_MAX + 1}"
    for engine, in_index in _IN_INDEX.items()
}

logger = logging.getLogger(__name__)


def create(connection: BaseDatabaseWrapper) -> None:
    """Create the empty table, and mark every title for indexing."""
    with connection.cursor() as cursor:
        cursor.execute(_CREATION[connection.vendor])
    _begin(connection)


def drop(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")


def begin_anew() -> None:
    """Empty the index, whatever its state, and mark every title for indexing."""
    with transaction.atomic():
        if connection.vendor == "sqlite":
            drop(connection)
            create(connection)
        else:
            with connection.cursor() as cursor:
                # A step takes marks first and then writes the index. So this waits for it while holding
                # nothing that it needs. A title that changes from here on waits, and is marked afterwards.
                cursor.execute(f"LOCK TABLE {CHANGED} IN SHARE ROW EXCLUSIVE MODE")
                cursor.execute(f"TRUNCATE {TABLE}")
            _begin(connection)


def step() -> int:
    """Index the titles that have changed, a limited number at a time; return that number."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_TAKING)
        keys = sorted(key for (key,) in cursor.fetchall())
        if keys:
            _renew(connection, keys)
    return len(keys)


def holding(*texts: str) -> Q:
    """Return the condition that a conversation's title contains each text, in any case.

    The index is queried when a query with the condition is first executed, once for each different text.
    """
    wanted = tuple(dict.fromkeys(text.upper() for text in texts))
    holds = reduce(and_, (Q(case_insensitive.holds("title", text)) for text in wanted))
    return Q(_InIndex("pk", texts=_Texts(wanted))) & holds


class _Texts:
    """Texts in capitals, and the keys that the index has for them once it was queried."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._found: list[set[int]] | None = None

    def keys(self) -> set[int] | None:
        """Return the keys of the titles that may contain all texts; None if they are too many to list."""
        if self._found is None:
            candidates = map(_candidates, self._texts)
            self._found = [keys for keys in candidates if keys is not None]
        return set[int].intersection(*self._found) if self._found else None


class _InIndex(Func):
    """The condition that a key is among those that the index has for some texts."""

    arity = 1
    output_field = BooleanField()

    def __init__(self, key: Any, *, texts: _Texts) -> None:
        super().__init__(key)
        self._texts = texts  # copies of the condition share it, so that the index is queried once

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **context: Any) -> Any:
        # Django calls this when the query is executed, so a condition that is never used costs nothing.
        keys = self._texts.keys()
        if keys is None:
            raise FullResultSet
        if not keys:
            raise EmptyResultSet
        (key,) = self.get_source_expressions()
        column, params = compiler.compile(key)
        return f"{column} IN ({', '.join(['%s'] * len(keys))})", [*params, *sorted(keys)]


def _candidates(wanted: str) -> set[int] | None:
    """Return the keys of titles that contained a text when indexed, and of titles changed since.

    Return None if these are many.
    """
    if len(wanted) < PIECE or "\0" in wanted:  # where FTS5 would end a query
        return None
    # Characters: a longer text is looked up by its beginning, which few other titles contain
    asked_max = 100
    text = wanted[:asked_max]
    if connection.vendor == "sqlite":
        pattern = '"' + text.replace('"', '""') + '"'
    else:
        pattern = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    with connection.cursor() as cursor:
        cursor.execute(_FINDING[connection.vendor], [pattern])
        keys = [key for (key,) in cursor.fetchall()]
    return set(keys) if len(keys) <= CANDIDATES_MAX else None


def _begin(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {CHANGED} (conversation_id) SELECT id FROM {guards.CONVERSATION} "
            "WHERE title IS NOT NULL ON CONFLICT DO NOTHING"
        )
    if connection.vendor == "postgresql":
        _index(connection)


def _index(connection: BaseDatabaseWrapper) -> None:
    """Create the index, if the server has the extension and its user may create it."""
    try:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for statement in _INDEX:
                cursor.execute(statement)
    except Error as error:
        logger.warning(
            "Titles are searched without an index: PostgreSQL's pg_trgm cannot be used (%s). Once an "
            "operator has run CREATE EXTENSION pg_trgm, run `convserver manage rebuild_search`.",
            str(error).strip().partition("\n")[0],
        )


def _renew(connection: BaseDatabaseWrapper, keys: Sequence[int]) -> None:
    places = ", ".join(["%s"] * len(keys))
    with connection.cursor() as cursor:
        cursor.execute(_READING[connection.vendor].format(keys=places), keys)
        titles = cursor.fetchall()
        cursor.execute(f"DELETE FROM {TABLE} WHERE {_KEY[connection.vendor]} IN ({places})", keys)
        cursor.executemany(_ADDING[connection.vendor], titles)
