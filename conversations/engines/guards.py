"""Triggers that make the database itself refuse to lose history, on both engines.

They refuse every UPDATE of an event, every DELETE outside a running purge, TRUNCATE (PostgreSQL),
REPLACE (SQLite) and a `next_seq` or `loop_epoch` that falls. Other triggers keep derived rows right: they
remove purged events from the search index, note changed titles for the index of titles, number changes of
lists in the order of commits (`change_order`), and write labels with the tags (`label_rows`). SQLite drops
triggers whenever Django remakes a table, so `install` ends every `migrate`, in the same transaction. The
checks and the server's start fail without them, and a running server checks them (`readiness`).

Nothing lifts them, not even in tests: a test run empties its tables as an operator would, under an
unfinished Purge of each conversation (`tests/conftest.py`, `empty_database`), never by `flush`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.change_order import COUNT_ON, COUNTED, TRANSACTION
from conversations.engines import label_rows
from conversations.engines.tables import (
    CHANGE_NUMBER,
    CONVERSATION,
    EVENT,
    LABEL,
    PURGE,
    REPAIR,
    SEARCH_PROGRESS,
    SEARCH_TEXT,
    TITLE_CHANGE,
    TITLE_TEXT,
)

__all__ = ["CONVERSATION", "EVENT", "PURGE", "REPAIR", "SEARCH_TEXT", "TITLE_CHANGE", "TITLE_TEXT"]

_TABLES = (
    EVENT,
    CONVERSATION,
    PURGE,
    SEARCH_TEXT,
    SEARCH_PROGRESS,
    TITLE_TEXT,
    TITLE_CHANGE,
    CHANGE_NUMBER,
    LABEL,
)

NO_UPDATE = "An event is never changed: append a new one instead."
NO_DELETE = "An event is never deleted outside a purge: hide the conversation instead."
NO_REPLACE = "What is stored is never replaced: append a new event instead."
NO_ORPHANS = "A conversation that has events is never deleted: hide it instead."
NO_FALL = "next_seq and loop_epoch never fall: events are numbered by the one, fenced by the other."

# The name and table of every guard; only PostgreSQL has a TRUNCATE to refuse, only SQLite a REPLACE.
TABLE_OF = {
    "event_refuse_update": EVENT,
    "event_refuse_delete": EVENT,
    "event_refuse_truncate": EVENT,
    "event_refuse_replace": EVENT,
    "conversation_refuse_replace": CONVERSATION,
    "conversation_refuse_delete": CONVERSATION,
    "conversation_refuse_fall": CONVERSATION,
    "event_forget_words": EVENT,
    "title_note": CONVERSATION,
    "title_note_first": CONVERSATION,
    "title_forget": CONVERSATION,
    "change_number": CONVERSATION,
    "change_number_first": CONVERSATION,
    "label_write": CONVERSATION,
    "label_write_first": CONVERSATION,
    "label_forget": CONVERSATION,
}


class GuardsMissing(RuntimeError):
    """The database has lost its guards; the server must not serve it until they are restored."""


_RUNNING_PURGE = (
    f"SELECT 1 FROM {PURGE} "
    f"WHERE {PURGE}.conversation_id = OLD.conversation_id AND {PURGE}.finished_at IS NULL"
)


_FALLS = "NEW.next_seq < OLD.next_seq OR NEW.loop_epoch < OLD.loop_epoch"


def _taken(table: str, *columns: str) -> str:
    same = " AND ".join(f"{column} = NEW.{column}" for column in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {same})"


# An append always writes this column, but a new time only with a message. Every other statement that writes
# it is a change, whatever the clock says.
_IS_CHANGE = "NEW.next_seq = OLD.next_seq OR NEW.listed_at {differs} OLD.listed_at"
_NUMBER_ROW = f"{COUNT_ON}; UPDATE {CONVERSATION} SET listed_in = {COUNTED} WHERE id = NEW.id"
_NUMBER_NEW_ROW = f"NEW.listed_in = {TRANSACTION}; RETURN NEW;"

_LABELLED = "tags, owner_id, created_at, deleted_at"
_FORGET_LABELS = f"DELETE FROM {LABEL} WHERE conversation_id = OLD.id"

_NOTE_TITLE = f"INSERT OR IGNORE INTO {TITLE_CHANGE} (conversation_id) VALUES (NEW.id)"

_SQLITE = {
    "event_refuse_update": f"BEFORE UPDATE ON {EVENT} BEGIN SELECT RAISE(ABORT, '{NO_UPDATE}'); END",
    "event_refuse_delete": f"BEFORE DELETE ON {EVENT} WHEN NOT EXISTS ({_RUNNING_PURGE}) "
    f"BEGIN SELECT RAISE(ABORT, '{NO_DELETE}'); END",
    # REPLACE deletes conflicting rows without running the triggers that refuse DELETE.
    "event_refuse_replace": f"BEFORE INSERT ON {EVENT} WHEN {_taken(EVENT, 'id')} "
    f"OR {_taken(EVENT, 'conversation_id', 'seq')} OR {_taken(EVENT, 'conversation_id', 'event_id')} "
    f"BEGIN SELECT RAISE(ABORT, '{NO_REPLACE}'); END",
    "conversation_refuse_replace": f"BEFORE INSERT ON {CONVERSATION} "
    f"WHEN {_taken(CONVERSATION, 'id')} OR {_taken(CONVERSATION, 'public_id')} "
    f"BEGIN SELECT RAISE(ABORT, '{NO_REPLACE}'); END",
    # PostgreSQL has its foreign key; the sqlite3 shell has foreign keys switched off.
    "conversation_refuse_delete": f"BEFORE DELETE ON {CONVERSATION} "
    f"WHEN EXISTS (SELECT 1 FROM {EVENT} WHERE {EVENT}.conversation_id = OLD.id) "
    f"BEGIN SELECT RAISE(ABORT, '{NO_ORPHANS}'); END",
    "conversation_refuse_fall": f"BEFORE UPDATE ON {CONVERSATION} WHEN {_FALLS} "
    f"BEGIN SELECT RAISE(ABORT, '{NO_FALL}'); END",
    "event_forget_words": f"AFTER DELETE ON {EVENT} "
    f"BEGIN DELETE FROM {SEARCH_TEXT} WHERE rowid = OLD.id; END",
    "title_note": f"AFTER UPDATE OF title ON {CONVERSATION} WHEN NEW.title IS NOT OLD.title "
    f"BEGIN {_NOTE_TITLE}; END",
    "title_note_first": f"AFTER INSERT ON {CONVERSATION} WHEN NEW.title IS NOT NULL BEGIN {_NOTE_TITLE}; END",
    "title_forget": f"AFTER DELETE ON {CONVERSATION} "
    f"BEGIN DELETE FROM {TITLE_TEXT} WHERE rowid = OLD.id; END",
    "change_number": f"AFTER UPDATE OF listed_at ON {CONVERSATION} "
    f"WHEN {_IS_CHANGE.format(differs='IS NOT')} BEGIN {_NUMBER_ROW}; END",
    "change_number_first": f"AFTER INSERT ON {CONVERSATION} BEGIN {_NUMBER_ROW}; END",
    "label_write": f"AFTER UPDATE OF {_LABELLED} ON {CONVERSATION} "
    f"WHEN {label_rows.changes('IS NOT')} BEGIN {label_rows.rewriting('sqlite', 'NEW.id')}; END",
    "label_write_first": f"AFTER INSERT ON {CONVERSATION} WHEN NEW.tags <> '{{}}' "
    f"BEGIN {label_rows.writing('sqlite', f'{CONVERSATION}.id = NEW.id')}; END",
    "label_forget": f"AFTER DELETE ON {CONVERSATION} BEGIN {_FORGET_LABELS}; END",
}

_NOTE_TITLE_LOCKED = (
    f"INSERT INTO {TITLE_CHANGE} (conversation_id) VALUES (NEW.id) ON CONFLICT (conversation_id) "
    "DO UPDATE SET conversation_id = EXCLUDED.conversation_id; RETURN NULL;"
)

_POSTGRESQL = {
    "event_refuse_update": (
        f"BEFORE UPDATE ON {EVENT} FOR EACH STATEMENT",
        f"RAISE EXCEPTION '{NO_UPDATE}';",
    ),
    "event_refuse_delete": (
        f"BEFORE DELETE ON {EVENT} FOR EACH ROW",
        f"IF NOT EXISTS ({_RUNNING_PURGE}) THEN RAISE EXCEPTION '{NO_DELETE}'; END IF; RETURN OLD;",
    ),
    "event_refuse_truncate": (
        f"BEFORE TRUNCATE ON {EVENT} FOR EACH STATEMENT",
        f"RAISE EXCEPTION '{NO_DELETE}';",
    ),
    # A transaction that is adding words is waited for; a later one sees that the event is gone.
    "event_forget_words": (
        f"AFTER DELETE ON {EVENT} FOR EACH ROW",
        f"PERFORM 1 FROM {SEARCH_PROGRESS} FOR SHARE; "
        f"DELETE FROM {SEARCH_TEXT} WHERE event_id = OLD.id; RETURN NULL;",
    ),
    # A row that exists is locked: the indexer may have read the title before this change.
    "title_note": (
        f"AFTER UPDATE OF title ON {CONVERSATION} FOR EACH ROW WHEN (NEW.title IS DISTINCT FROM OLD.title)",
        _NOTE_TITLE_LOCKED,
    ),
    "title_note_first": (
        f"AFTER INSERT ON {CONVERSATION} FOR EACH ROW WHEN (NEW.title IS NOT NULL)",
        _NOTE_TITLE_LOCKED,
    ),
    "title_forget": (
        f"AFTER DELETE ON {CONVERSATION} FOR EACH ROW",
        f"DELETE FROM {TITLE_TEXT} WHERE conversation_id = OLD.id; RETURN NULL;",
    ),
    "conversation_refuse_fall": (
        f"BEFORE UPDATE ON {CONVERSATION} FOR EACH ROW WHEN ({_FALLS})",
        f"RAISE EXCEPTION '{NO_FALL}';",
    ),
    "change_number": (
        f"BEFORE UPDATE OF listed_at ON {CONVERSATION} FOR EACH ROW "
        f"WHEN ({_IS_CHANGE.format(differs='IS DISTINCT FROM')})",
        _NUMBER_NEW_ROW,
    ),
    "change_number_first": (f"BEFORE INSERT ON {CONVERSATION} FOR EACH ROW", _NUMBER_NEW_ROW),
    "label_write": (
        f"AFTER UPDATE OF {_LABELLED} ON {CONVERSATION} FOR EACH ROW "
        f"WHEN ({label_rows.changes('IS DISTINCT FROM')})",
        f"{label_rows.rewriting('postgresql', 'NEW.id')}; RETURN NULL;",
    ),
    "label_write_first": (
        f"AFTER INSERT ON {CONVERSATION} FOR EACH ROW WHEN (NEW.tags <> '{{}}'::jsonb)",
        f"{label_rows.writing('postgresql', f'{CONVERSATION}.id = NEW.id')}; RETURN NULL;",
    ),
    "label_forget": (f"AFTER DELETE ON {CONVERSATION} FOR EACH ROW", f"{_FORGET_LABELS}; RETURN NULL;"),
}


def install(connection: BaseDatabaseWrapper) -> set[str]:
    """Install every guard that is missing or differs; return the names of those that were missing.

    The guards of a table change in one transaction that keeps writers out, so none is missing at any
    moment. If all are in place, nothing is changed or locked. If guards of the labels were missing, all
    labels are written again.
    """
    absent = missing(connection)
    for table in sorted({TABLE_OF[name] for name in _different(connection)}):
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
            for name in sorted(_different(connection)):
                if TABLE_OF[name] == table:
                    for statement in _placing(connection, name):
                        cursor.execute(statement)
    if absent & {"label_write", "label_write_first"}:
        label_rows.fill(connection)
    return absent


def make_way(connection: BaseDatabaseWrapper) -> None:
    """Remove the guards that refer to another table, because SQLite will not rename that table otherwise."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            for name, body in _SQLITE.items():
                if any(table in body for table in _TABLES if table != TABLE_OF[name]):
                    cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def missing(connection: BaseDatabaseWrapper) -> set[str]:
    """Return the names of the guards that are absent or disabled."""
    return set(_expected(connection)) - set(_standing(connection))


def require(connection: BaseDatabaseWrapper) -> None:
    """Raise GuardsMissing unless every guard is in place."""
    if names := missing(connection):
        raise GuardsMissing(lost(names))


def lost(names: Iterable[str]) -> str:
    """Return the sentence for missing guards."""
    return f"The database has lost its guards ({', '.join(sorted(names))}): run `convserver manage migrate`."


def check_guards(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Report lost guards to Django's checks (`manage.py check --database default`, and `migrate`)."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        if EVENT in connection.introspection.table_names() and (names := missing(connection)):
            found.append(
                Error(
                    f"The database {alias!r} has lost its guards: {', '.join(sorted(names))}.",
                    hint="Run `convserver manage migrate`: it puts them back.",
                    id="conversations.E001",
                )
            )
    return found


def _expected(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return every guard of this engine with the text that identifies its newest form."""
    if connection.vendor == "sqlite":
        return {name: f"CREATE TRIGGER {name} {body}" for name, body in _SQLITE.items()}
    return {name: f"{_mark(event)} BEGIN {body} END " for name, (event, body) in _POSTGRESQL.items()}


def _standing(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return the same for the installed guards."""
    with connection.cursor() as cursor:
        cursor.execute(_STANDING[connection.vendor])
        return {name: form for name, table, form in cursor.fetchall() if TABLE_OF.get(name) == table}


_STANDING = {
    "sqlite": "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": """
        SELECT tgname, relname, concat(obj_description(pg_trigger.oid, 'pg_trigger'), prosrc)
        FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
        WHERE tgenabled IN ('O', 'A') AND NOT tgisinternal AND pg_table_is_visible(tgrelid)
    """,
}


def _different(connection: BaseDatabaseWrapper) -> set[str]:
    standing = _standing(connection)
    return {name for name, form in _expected(connection).items() if standing.get(name) != form}


def _mark(event: str) -> str:
    """Return the comment of a trigger: PostgreSQL rewrites the condition itself in its own form."""
    return sha256(event.encode()).hexdigest()


def _placing(connection: BaseDatabaseWrapper, name: str) -> list[str]:
    if connection.vendor == "sqlite":
        return [f"DROP TRIGGER IF EXISTS {name}", f"CREATE TRIGGER {name} {_SQLITE[name]}"]
    event, body = _POSTGRESQL[name]
    return [
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
        f"CREATE OR REPLACE TRIGGER {name} {event} EXECUTE FUNCTION {name}()",
        f"COMMENT ON TRIGGER {name} ON {TABLE_OF[name]} IS '{_mark(event)}'",
    ]
