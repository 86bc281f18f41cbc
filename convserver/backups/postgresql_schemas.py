"""PostgreSQL: everything that is in a schema moves to another one, which takes no right but to own it.

An ordinary owner of a database may not create or rename databases, nor, before PostgreSQL 15, the schema
`public`. They may move their own tables, and all of that is one transaction.
"""

from __future__ import annotations

from typing import LiteralString

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

KEPT = "convserver_before_"
"""Begins the name of a schema with what a restore has replaced."""
RESTORED = "convserver_restored_"
"""Begins the name of a schema with what is being restored."""
ASIDE = "convserver_aside_"
"""Begins the name of a schema that exists only inside a transaction."""

_MOVE: LiteralString = """
DO $move$
DECLARE each record;
BEGIN
    FOR each IN
        SELECT format('ALTER %s %s SET SCHEMA %I', what, identity, {target}) AS statement FROM (
            SELECT 1 AS turn, pg_class.oid,
                CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
                    WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END AS what,
                format('%I.%I', {source}, relname) AS identity
            FROM pg_class WHERE relnamespace = {source}::regnamespace
                AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
                AND NOT (relkind = 'S' AND EXISTS (  -- a table takes its own sequences with it
                    SELECT 1 FROM pg_depend WHERE pg_depend.classid = 'pg_class'::regclass
                        AND pg_depend.objid = pg_class.oid AND deptype IN ('a', 'i')))
            UNION ALL
            SELECT 2, oid, CASE typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END,
                format('%I.%I', {source}, typname)
            FROM pg_type WHERE typnamespace = {source}::regnamespace AND typtype IN ('e', 'd', 'c')
                AND (typrelid = 0 OR EXISTS (
                    SELECT 1 FROM pg_class WHERE pg_class.oid = typrelid AND relkind = 'c'))
            UNION ALL
            SELECT 3, oid, 'ROUTINE', format(
                '%I.%I(%s)', {source}, proname, pg_get_function_identity_arguments(oid))
            FROM pg_proc WHERE pronamespace = {source}::regnamespace
        ) AS objects
        WHERE NOT EXISTS (
            SELECT 1 FROM pg_depend WHERE pg_depend.objid = objects.oid AND pg_depend.deptype = 'e')
        ORDER BY turn, oid
    LOOP
        EXECUTE each.statement;
    END LOOP;
END $move$;
"""
"""All but what belongs to an extension, which stays where its operators are looked for."""


def moving(source: str, target: str) -> str:
    """Return the statement that moves everything from one schema to another."""
    statement = sql.SQL(_MOVE).format(source=sql.Literal(source), target=sql.Literal(target))
    return statement.as_string(None)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return sql.Identifier(name).as_string(None)


def current(connection: BaseDatabaseWrapper) -> str:
    """Return the schema in which new tables are made."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])


def extensions_in(connection: BaseDatabaseWrapper, schema: str) -> list[str]:
    """Return the extensions whose operators are in the schema."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extname FROM pg_extension WHERE extnamespace = %s::regnamespace ORDER BY extname",
            [schema],
        )
        return [name for (name,) in cursor.fetchall()]


def drop_left(connection: BaseDatabaseWrapper) -> None:
    """Remove what restores have left that were killed before the swap."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", [RESTORED])
        for (name,) in cursor.fetchall():
            drop(connection, name)


def drop(connection: BaseDatabaseWrapper, schema: str) -> None:
    """Remove a schema with everything in it."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")


def is_empty(connection: BaseDatabaseWrapper, schema: str) -> bool:
    """Say whether there is no table in the schema."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s LIMIT 1", [schema])
        return cursor.fetchone() is None
