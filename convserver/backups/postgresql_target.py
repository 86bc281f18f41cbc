"""Restoring into an empty PostgreSQL database, in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.db import Error, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import upgrades
from convserver import last_database
from convserver.backups import postgresql_programs, postgresql_schemas, stores
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import Manifest
from convserver.backups.postgresql_schemas import quoted

# In the name of a database in which a backup is verified, after the name of the store's own.
SCRATCH = "_verify_"


class PostgresqlTarget:
    """The schema of the settings' database, which is empty. Raise BackupError otherwise."""

    def __init__(self) -> None:
        with stores.session() as session:
            postgresql_programs.require(session, "pg_restore")
            self._schema = postgresql_schemas.current(session)
            self.name = last_database.name_of(session)
            self._require_empty(session)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep starting servers away. Raise BackupError if one starts, or another restore runs."""
        with stores.session() as self._session:
            with self._session.cursor() as cursor:
                # A server that starts takes the first lock, and in a cluster the second one before: it waits.
                for lock in (upgrades.LOCK, upgrades.TURN_LOCK):
                    cursor.execute("SELECT pg_try_advisory_lock(%s)", [lock])
                    if cursor.fetchone() != (True,):
                        raise BackupError(
                            f"Another process upgrades or restores {self.name}: wait until it has finished."
                        )
            self._require_empty(self._session)  # again: a server may have filled it before the locks
            yield

    @contextmanager
    def loading(self, manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
        """Load the dump, and commit at the end of the block.

        If the block fails or the process is killed, PostgreSQL rolls all of that back.
        """
        if manifest.schema != self._schema:
            raise BackupError(
                f"The backup is of the schema {manifest.schema}, but DATABASE_URL leads to "
                f"{self._schema or 'none'}: create that schema, and add "
                f"options=-c%20search_path%3D{manifest.schema} to DATABASE_URL."
            )
        with transaction.atomic(using=self._session.alias):
            _load(self._session, manifest, dumped)
            yield self._session

    def _require_empty(self, session: BaseDatabaseWrapper) -> None:
        if tables := postgresql_schemas.tables_in(session, self._schema):
            raise BackupError(
                f"{self.name} has tables, such as {tables[0]}: stop the servers, create an empty database, "
                "and name it with --into. Nothing was changed."
            )


@contextmanager
def scratch(manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
    """Load a dump into a new database on the settings' server, and drop it at the end of the block."""
    own = connection.settings_dict["NAME"]
    # Of the store's own name: PostgreSQL cuts names of more than 63 bytes, and the end must stay unique.
    name_max = 40
    name = f"{own.encode()[:name_max].decode(errors='ignore')}{SCRATCH}{secrets.token_hex(6)}"
    try:
        with stores.session() as session:
            postgresql_programs.require(session, "pg_restore")
            _create(session, name)
        with stores.session(name, search_path=quoted(manifest.schema)) as copied:
            with transaction.atomic(using=copied.alias):
                with copied.cursor() as cursor:
                    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(manifest.schema)}")
                _load(copied, manifest, dumped)
            yield copied
    finally:
        with stores.session() as session, session.cursor() as cursor:
            # Also where another session, such as a monitor's, is in it; PostgreSQL would refuse otherwise.
            cursor.execute(f"DROP DATABASE IF EXISTS {quoted(name)} WITH (FORCE)")


def _create(session: BaseDatabaseWrapper, name: str) -> None:
    try:
        with session.cursor() as cursor:
            # Without what the server's own template has. This locale goes with UTF-8 everywhere.
            cursor.execute(
                f"CREATE DATABASE {quoted(name)} TEMPLATE template0 "
                "ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
            )
    except Error as error:
        if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise
        role = session.settings_dict["USER"]
        raise BackupError(
            f"The backup cannot be verified: the role {role} may not create a database to restore it into. "
            f"Let an administrator run ALTER ROLE {quoted(role)} CREATEDB, or restore the backup into an "
            "empty database with `convserver restore DIR --into URL`."
        ) from error


def _load(session: BaseDatabaseWrapper, manifest: Manifest, dumped: Path) -> None:
    """Create the extensions that are missing, and load the dump."""
    present = postgresql_schemas.extensions_in(session, manifest.schema)
    for name in set(manifest.extensions).difference(present):
        try:
            with session.cursor() as cursor:
                cursor.execute(f"CREATE EXTENSION {quoted(name)} SCHEMA {quoted(manifest.schema)}")
        except Error as error:
            raise BackupError(
                f"The backup needs the extension {name}, which cannot be created: {reason(error)}. Let an "
                f"administrator run CREATE EXTENSION {name} SCHEMA {manifest.schema} in the database, and "
                "try again. Nothing was changed."
            ) from error
    postgresql_programs.load(session, dumped, schema=manifest.schema)
