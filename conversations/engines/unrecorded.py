"""Migrations that an earlier release applied but was killed before recording.

Each was a transaction of its own. So if one of its tables, columns or indexes exists, all of them should;
this is checked piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.apps.registry import Apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import AddConstraint, AddField, AddIndex, CreateModel, Migration, RenameModel
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Model


class HalfMigrated(Exception):
    """The database has a part of a migration, and no record of it; the text says what to do."""


def record(connection: BaseDatabaseWrapper) -> str | None:
    """Record the migration that is applied but not recorded; return its name, None if there is none.

    Raise HalfMigrated if only a part of it exists, or if there are several: then a killed server is not the
    cause.
    """
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    candidates = [migration for migration, _ in plan if _is_next(migration, executor)]
    found = {migration: list(_pieces(migration, executor, connection)) for migration in candidates}
    begun = [migration for migration, pieces in found.items() if any(there for _, there in pieces)]
    for migration in begun:
        missing = [piece for piece, there in found[migration] if not there]
        if missing or len(begun) > 1:
            raise HalfMigrated(_explained(migration, found[migration], missing))
    for migration in begun:
        executor.recorder.ensure_schema()
        executor.recorder.record_applied(migration.app_label, migration.name)
        return str(migration)
    return None


def _is_next(migration: Migration, executor: MigrationExecutor) -> bool:
    """Say whether all migrations before it are recorded, so that it could have been applied."""
    key = (migration.app_label, migration.name)
    applied = executor.loader.applied_migrations
    return migration.atomic and all(
        parent.key in applied for parent in executor.loader.graph.node_map[key].parents
    )


def _pieces(
    migration: Migration, executor: MigrationExecutor, connection: BaseDatabaseWrapper
) -> Iterator[tuple[str, bool]]:
    """Yield the name of each table, column and index of the migration, and whether it exists."""
    key = (migration.app_label, migration.name)
    apps = executor.loader.project_state(key).apps
    tables = set(connection.introspection.table_names())
    renamed = {
        operation.new_name_lower: operation
        for operation in migration.operations
        if isinstance(operation, RenameModel)
    }
    for operation in migration.operations:
        match operation:
            case CreateModel() if operation.name_lower not in renamed:
                yield from _of_model(_model(apps, migration, operation.name), tables, connection)
            case RenameModel():
                table = _model(apps, migration, operation.new_name)._meta.db_table
                yield f"table {table}", table in tables
            case AddField():
                model = _model(apps, migration, operation.model_name)
                column = next(
                    each.column
                    for each in model._meta.local_concrete_fields
                    if each.name.lower() == operation.name_lower
                )
                columns = _columns(model._meta.db_table, tables, connection)
                yield f"column {model._meta.db_table}.{column}", column in columns
            case AddIndex():
                yield _of_index(apps, migration, operation.model_name, operation.index.name, connection)
            case AddConstraint():
                yield _of_index(apps, migration, operation.model_name, operation.constraint.name, connection)


def _of_model(
    model: type[Model], tables: set[str], connection: BaseDatabaseWrapper
) -> Iterator[tuple[str, bool]]:
    if not model._meta.managed or model._meta.proxy:
        return
    columns = _columns(model._meta.db_table, tables, connection)
    expected = {field.column for field in model._meta.local_concrete_fields}
    yield f"table {model._meta.db_table}", expected <= columns
    for many in model._meta.local_many_to_many:
        yield f"table {many.m2m_db_table()}", many.m2m_db_table() in tables


def _of_index(
    apps: Apps, migration: Migration, model_name: str, name: str, connection: BaseDatabaseWrapper
) -> tuple[str, bool]:
    table = _model(apps, migration, model_name)._meta.db_table
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            return f"index {name}", False
        return f"index {name}", name in connection.introspection.get_constraints(cursor, table)


def _columns(table: str, tables: set[str], connection: BaseDatabaseWrapper) -> set[str]:
    if table not in tables:
        return set()
    with connection.cursor() as cursor:
        return {each.name for each in connection.introspection.get_table_description(cursor, table)}


def _model(apps: Apps, migration: Migration, name: str) -> type[Model]:
    return apps.get_model(migration.app_label, name)


def _explained(migration: Migration, pieces: list[tuple[str, bool]], missing: list[str]) -> str:
    there = ", ".join(piece for piece, is_there in pieces if is_there)
    lacking = f", but not {', '.join(missing)}" if missing else ""
    return (
        f"The database has {there}{lacking}, and no record of the migration {migration} that makes them. "
        "It may belong to another program, or its table django_migrations was changed by hand: "
        "restore a backup, or use an empty database"
    )
