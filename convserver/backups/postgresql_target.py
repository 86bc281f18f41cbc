"""Restoring into a PostgreSQL database: into a schema beside the live one, and then in its place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db import Error, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import upgrades
from convserver import beginnings
from convserver.backups import postgresql_programs, postgresql_schemas, stores
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import Manifest

LEAVING_S = 2.0
"""A session that was closed is still shown for a moment."""
LOOK_S = 0.1
_LEFT_OUT = ("SCHEMA -", "EXTENSION -", "COMMENT - SCHEMA", "COMMENT - EXTENSION")
"""Entries of a dump that are there already, or that an ordinary owner may not make."""


class PostgresqlTarget:
    """The schema of the settings' database, as something that a backup may replace."""

    def __init__(self, stamp: str) -> None:
        stamp = stamp.lower()
        self._restored = f"{postgresql_schemas.RESTORED}{stamp}"
        self._kept = f"{postgresql_schemas.KEPT}{stamp}"
        self._aside = f"{postgresql_schemas.ASIDE}{stamp}"
        with stores.session() as session:
            postgresql_programs.require(session, "pg_restore", "psql")
            self._live = postgresql_schemas.current(session)
            self.is_new = postgresql_schemas.is_empty(session, self._live)
            self.name = beginnings.name_of(session)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep starting servers away. Raise BackupError if somebody uses it, or is restoring."""
        with stores.session() as self._session:
            with self._session.cursor() as cursor:
                # A server that starts takes this lock first, and waits for it.
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [upgrades.LOCK])
                if cursor.fetchone() != (True,):
                    raise BackupError(
                        f"Another process upgrades or restores {self.name}: wait until it has finished."
                    )
            self._require_unused()
            postgresql_schemas.drop_left(self._session)
            yield

    @contextmanager
    def loaded(self, manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
        """Load the dump into a schema of its own, in one transaction, and open that.

        A dump names its schema, so the live tables step aside for it. They are back when the transaction
        ends, also if a statement fails or the process is killed.
        """
        if manifest.schema != self._live:
            raise BackupError(
                f"The backup is of the schema {manifest.schema}, but DATABASE_URL leads to {self._live}: "
                f"add options=-c%20search_path%3D{manifest.schema} to DATABASE_URL."
            )
        self._make_extensions(manifest)
        entries = [
            line
            for line in postgresql_programs.entries_of(dumped)
            if line and not line.startswith(";") and not any(f" {each} " in line for each in _LEFT_OUT)
        ]
        with TemporaryDirectory() as workspace, postgresql_programs.loading(self._session) as statements:
            statements.write(self._before().encode())
            with postgresql_programs.script_of(dumped, entries, Path(workspace)) as script:
                for piece in script:
                    statements.write(piece)
            statements.write(self._after().encode())
        with stores.session(f"{self._restored},{self._live}") as connection:
            yield connection

    def swap(self) -> str | None:
        """Put what was loaded in place, and return where what it replaces is kept; one transaction."""
        self._require_unused()
        statements = [
            f"CREATE SCHEMA {postgresql_schemas.quoted(self._kept)}",
            postgresql_schemas.moving(self._live, self._kept),
            postgresql_schemas.moving(self._restored, self._live),
            f"DROP SCHEMA {postgresql_schemas.quoted(self._restored)}",
        ]
        if self.is_new:
            statements.append(f"DROP SCHEMA {postgresql_schemas.quoted(self._kept)}")
        try:
            with transaction.atomic(using=self._session.alias), self._session.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        except Error as error:
            raise BackupError(
                "The restored tables could not be put in place, and the present ones were left as they were: "
                f"{reason(error)}."
            ) from error
        return None if self.is_new else f"the schema {self._kept} of {self.name}"

    def discard(self) -> None:
        """Remove what was loaded."""
        with stores.session() as session:
            postgresql_schemas.drop(session, self._restored)

    def _before(self) -> str:
        aside = postgresql_schemas.quoted(self._aside)
        return f"BEGIN;\nCREATE SCHEMA {aside};\n{postgresql_schemas.moving(self._live, self._aside)}\n"

    def _after(self) -> str:
        aside, restored = map(postgresql_schemas.quoted, (self._aside, self._restored))
        return (
            "\nSET search_path = pg_catalog;\n"
            f"CREATE SCHEMA {restored};\n{postgresql_schemas.moving(self._live, self._restored)}\n"
            f"{postgresql_schemas.moving(self._aside, self._live)}\nDROP SCHEMA {aside};\nCOMMIT;\n"
        )

    def _make_extensions(self, manifest: Manifest) -> None:
        present = postgresql_schemas.extensions_in(self._session, self._live)
        for name in manifest.extensions:
            if name in present:
                continue
            try:
                with self._session.cursor() as cursor:
                    cursor.execute(f"CREATE EXTENSION {postgresql_schemas.quoted(name)}")
            except Error as error:
                raise BackupError(
                    f"The backup needs the extension {name}, which the database's user may not create: "
                    f"let an administrator run CREATE EXTENSION {name} in {self.name}, and try again."
                ) from error

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
