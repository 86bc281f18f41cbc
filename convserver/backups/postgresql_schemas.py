"""PostgreSQL: what is in a schema, and how all of it moves to another one.

A schema that is renamed takes its extensions along, and an ordinary owner of a database may not move those
back; before PostgreSQL 15 they may not rename `public` either. They may move what they own. It keeps its
identity, so whatever refers to it goes on doing so, and no text is written anew.
"""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

_MOVABLE = """
SELECT classid, objid FROM pg_depend AS place
WHERE refclassid = 'pg_namespace'::regclass AND refobjid = %s::regnamespace
    AND classid IN (
        'pg_class'::regclass, 'pg_type'::regclass, 'pg_proc'::regclass, 'pg_statistic_ext'::regclass)
    AND NOT EXISTS (
        SELECT 1 FROM pg_depend AS other LEFT JOIN pg_class ON pg_class.oid = other.objid AND relkind = 'S'
        WHERE other.classid = place.classid AND other.objid = place.objid
            AND (other.deptype = 'e' OR (other.deptype IN ('a', 'i') AND relkind IS NOT NULL)))
ORDER BY classid, objid
"""
"""All but what belongs to an extension, and the sequences that a table takes with it."""


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
    """Return the tables in the schema."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename", [schema])
        return [name for (name,) in cursor.fetchall()]


def move_all(connection: BaseDatabaseWrapper, source: str, target: str) -> bool:
    """Move all tables, types, routines and statistics to a new schema; return False if there are none."""
    with connection.cursor() as cursor:
        cursor.execute(_MOVABLE, [quoted(source)])
        found = cursor.fetchall()
        if found:
            cursor.execute(f"CREATE SCHEMA {quoted(target)}")
        for each in found:
            # Only now: a routine is named with the types of its arguments, which may just have moved.
            cursor.execute("SELECT type, identity FROM pg_identify_object(%s, %s, 0)", each)
            kind, identity = cursor.fetchone()
            cursor.execute(f"ALTER {kind.removesuffix(' object')} {identity} SET SCHEMA {quoted(target)}")
    return bool(found)
