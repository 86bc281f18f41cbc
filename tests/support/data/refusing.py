"""A database that refuses one statement, as a damaged one may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_SQLITE = (
    "CREATE TRIGGER refused BEFORE {operation} ON {table} WHEN OLD.{condition} "
    "BEGIN SELECT RAISE(ABORT, 'refused'); END"
)
_FUNCTION = (
    "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE EXCEPTION ''refused'' USING ERRCODE = ''23000''; END'"
)
_POSTGRESQL = (
    "CREATE TRIGGER refused BEFORE {operation} ON {table} FOR EACH ROW WHEN (OLD.{condition}) "
    "EXECUTE FUNCTION refused()"
)


@contextmanager
def refusing(operation: str, table: str, condition: str) -> Iterator[None]:
    """Let an operation on rows of a table fail, if they meet a condition such as `id = 5`."""
    is_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        if not is_sqlite:
            cursor.execute(_FUNCTION)
        statement = _SQLITE if is_sqlite else _POSTGRESQL
        cursor.execute(statement.format(operation=operation, table=table, condition=condition))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refused" if is_sqlite else f"DROP TRIGGER refused ON {table}")
            if not is_sqlite:
                cursor.execute("DROP FUNCTION refused()")
