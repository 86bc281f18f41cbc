"""Looking for bytes in everything that a database keeps on the disk, and in every row of every table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.db import connection


def files_with(word: str) -> list[str]:
    """Return the names of the database's files, or PostgreSQL's relations, that hold a word in any case."""
    if connection.vendor == "sqlite":
        path = Path(str(connection.settings_dict["NAME"]))
        files = [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-journal"))]
        return [file.name for file in files if file.exists() and _holds(file.read_bytes(), word)]
    run_statement("CHECKPOINT")
    found = run_statement(
        "SELECT relname, pg_read_binary_file(pg_relation_filepath(oid), 0, 1000000000, true) FROM pg_class"
        " WHERE relkind IN ('r', 'i', 't', 'm', 'S') AND pg_relation_filepath(oid) IS NOT NULL"
        " AND NOT relisshared"
    )
    return [name for name, content in found if content is not None and _holds(bytes(content), word)]


def columns_with(word: str) -> list[str]:
    """Return the columns of all tables, those of the catalogue too, in which a row holds a word."""
    if connection.vendor == "sqlite":
        tables = run_statement("SELECT name FROM sqlite_master WHERE type = 'table'")
        columns = [(table, name) for (table,) in tables for name in _columns_of(table)]
        return [f"{table}.{name}" for table, name in columns if _has(table, name, word)]
    columns = run_statement(
        "SELECT nspname || '.' || quote_ident(relname), attname FROM pg_attribute"
        " JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE relkind IN ('r', 'm') AND attnum > 0 AND NOT attisdropped AND NOT relisshared"
    )
    return [f"{table}.{name}" for table, name in columns if _has(table, name, word)]


def _columns_of(table: str) -> list[str]:
    return [row[1] for row in run_statement(f'PRAGMA table_info("{table}")')]


def _has(table: str, name: str, word: str) -> bool:
    if connection.vendor == "sqlite":
        rows = run_statement(f'SELECT "{name}" FROM "{table}"')
        return any(
            _holds(value.encode() if isinstance(value, str) else value, word)
            for (value,) in rows
            if isinstance(value, str | bytes)
        )
    query = (
        f'SELECT 1 FROM {table} WHERE position(lower(%s) IN lower("{name}"::text)) > 0'
        f' OR position(%s IN "{name}"::text) > 0 LIMIT 1'
    )
    return bool(run_statement(query, [word, word.encode().hex()]))


def _holds(content: bytes, word: str) -> bool:
    return word.lower().encode() in content.lower()


def run_statement(statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows, none if it has no result."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []
