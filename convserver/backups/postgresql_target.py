"""Restoring into a PostgreSQL database: one transaction, from the move of the present tables to the end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.db import Error, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import upgrades
from convserver import beginnings
from convserver.backups import postgresql_programs, postgresql_schemas, stores
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import Manifest
from convserver.backups.postgresql_schemas import quoted

KEPT = "convserver_before_"
"""Begins the name of a schema with what a restore has replaced."""
SCRATCH = "_verify_"
"""In the name of a database in which a backup is verified, after the name of the store's own."""
NAME_MAX = 40
"""Of the latter: PostgreSQL cuts names of more than 63 bytes."""
LEAVING_S = 2.0
"""A session that was closed is still shown for a moment."""
LOOK_S = 0.1


class PostgresqlTarget:
    """The schema of the settings' database, as something that a backup may replace."""

    kept: str | None = None

    def __init__(self, stamp: str) -> None:
        self._aside = f"{KEPT}{stamp.lower()}"
        with stores.session() as session:
            postgresql_programs.require(session, "pg_restore")
            self._schema = postgresql_schemas.current(session)
            tables = postgresql_schemas.tables_in(session, self._schema)
            self.name = beginnings.name_of(session)
        self.is_new = not tables
        if tables and "conversations_conversation" not in tables:
            raise BackupError(
                f"{self.name} has tables, such as {tables[0]}, but not those of convserver: name an empty "
                "database. Nothing was changed."
            )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep starting servers away. Raise BackupError if the database is in use, or is being restored."""
        with stores.session() as self._session:
            with self._session.cursor() as cursor:
                # A server that starts takes the first lock, and in a cluster the second one before: it waits.
                for lock in (upgrades.LOCK, upgrades.TURN_LOCK):
                    cursor.execute("SELECT pg_try_advisory_lock(%s)", [lock])
                    if cursor.fetchone() != (True,):
                        raise BackupError(
                            f"Another process upgrades or restores {self.name}: wait until it has finished."
                        )
            self._require_unused()
            yield

    @contextmanager
    def loading(self, manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
        """Move the present tables aside, load the dump in their place, and commit at the end of the block.

        If the block fails or the process is killed, PostgreSQL rolls all of that back.
        """
        if manifest.schema != self._schema:
            raise BackupError(
                f"The backup is of the schema {manifest.schema}, but DATABASE_URL leads to "
                f"{self._schema or 'none'}: create that schema, and add "
                f"options=-c%20search_path%3D{manifest.schema} to DATABASE_URL."
            )
        with transaction.atomic(using=self._session.alias):
            if postgresql_schemas.move_all(self._session, self._schema, self._aside):
                self.kept = f"the schema {self._aside} of {self.name}"
            _load(self._session, manifest, dumped)
            yield self._session

    def _require_unused(self) -> None:
        """Raise BackupError if others of this role are connected, as servers and workers always are."""
        until = time.monotonic() + LEAVING_S
        while count := self._sessions():
            if time.monotonic() > until:
                raise BackupError(
                    f"{count} other sessions of this role are connected to {self.name}: stop every server, "
                    "worker and command that uses it, and try again. Nothing was changed."
                )
            time.sleep(LOOK_S)

    def _sessions(self) -> int:
        with self._session.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND usename = current_user AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return int(cursor.fetchone()[0])


@contextmanager
def scratch(manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
    """Load a dump into a new database on the settings' server, and drop it at the end of the block."""
    own = connection.settings_dict["NAME"]
    name = f"{own.encode()[:NAME_MAX].decode(errors='ignore')}{SCRATCH}{secrets.token_hex(6)}"
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
