"""PostgreSQL: what is in a schema."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return sql.Identifier(name).as_string(None)


def current(connection: BaseDatabaseWrapper) -> str | None:
    """Return the schema in which new tables are made; None if there is none."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        found: str | None = cursor.fetchone()[0]
        return found


def extensions_in(connection: BaseDatabaseWrapper, schema: str) -> list[str]:
    """Return the extensions whose operators are in the schema."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extname FROM pg_extension WHERE extnamespace = %s::regnamespace ORDER BY extname",
            [quoted(schema)],
        )
        return [name for (name,) in cursor.fetchall()]


def tables_in(connection: BaseDatabaseWrapper, schema: str | None) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename", [schema])
        return [name for (name,) in cursor.fetchall()]
