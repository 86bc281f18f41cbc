"""`back_up`: a snapshot of the store, written into a new directory while the server runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from convserver import __version__
from convserver.backups import (
    contents,
    directories,
    manifest,
    postgresql_programs,
    postgresql_schemas,
    sealed_key,
    sqlite_file,
    stores,
    workspaces,
)
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import DATABASE, Manifest
from convserver.backups.sealed_key import Keys

"""The file of a backup with everything that the database holds, by the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """A backup that was made."""

    path: Path
    size: int  # bytes of all files
    manifest: Manifest


def back_up(
    directory: Path, *, passphrase: str | None = None, check: bool = True, with_workspaces: bool = False
) -> Backup:
    """Write a backup of the store of the settings into a new directory below this one.

    With a passphrase the secret key is in it, sealed; `with_workspaces` adds the files of conversations.
    `check` reads everything, and notes in the manifest what is damaged. Raise BackupError; then nothing is
    left.
    """
    now = timezone.now()
    rows: list[Any] | None = [] if with_workspaces else None
    with _said(), directories.new_in(directory, f"convserver-{directories.stamp(now)}") as draft:
        target = draft.path / DATABASE[connection.vendor]
        if connection.vendor == "sqlite":
            sqlite_file.copy(Path(connection.settings_dict["NAME"]), target)
            with stores.copy_at(target) as copied:
                taken = _manifest_of(copied, rows, made_at=now.isoformat(), check=check)
        else:
            taken = _dumped(target, rows, made_at=now.isoformat(), check=check)
        if rows is not None:  # after the snapshot, which has all that acknowledged events say of them
            taken = replace(taken, workspaces=workspaces.write(rows, draft.path / workspaces.NAME))
        if passphrase is not None:
            keys = Keys(settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS))
            sealed_key.seal(keys, passphrase, draft.path)
        files = {path.name: manifest.described(path) for path in sorted(draft.path.iterdir())}
        taken = replace(taken, files=files)
        manifest.write(taken, draft.path)
    size = sum(path.stat().st_size for path in draft.path.iterdir())  # with the manifest, unlike its list
    return Backup(path=draft.path, size=size, manifest=taken)


@contextmanager
def _said() -> Iterator[None]:
    """Raise BackupError for every failure of a database."""
    try:
        yield
    except (Error, sqlite3.Error) as error:
        raise BackupError(
            f"The database cannot be read, or its copy cannot be written: {reason(error)}."
        ) from error


def _manifest_of(
    store: BaseDatabaseWrapper, rows: list[Any] | None, *, made_at: str, check: bool
) -> Manifest:
    """Describe a store, and add its workspaces to the rows."""
    if rows is not None:
        rows += workspaces.rows_of(store)
    return Manifest(
        version=__version__,
        engine=connection.vendor,
        made_at=made_at,
        installation=settings.CONFIGURATION.installation,
        **contents.contents(store)._asdict(),
        problems=contents.problems(store) if check else [],
        is_checked=check,
    )


def _dumped(target: Path, rows: list[Any] | None, *, made_at: str, check: bool) -> Manifest:
    """Dump the server's schema with pg_dump; return a description of the same snapshot."""
    with stores.session() as session:
        postgresql_programs.require(session, "pg_dump", "pg_restore")
        schema = postgresql_schemas.current(session) or ""
        with transaction.atomic(using=session.alias):
            with session.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SELECT pg_export_snapshot()")
                snapshot = cursor.fetchone()[0]
            postgresql_programs.dump(session, schema=schema, snapshot=snapshot, target=target)
            extensions = postgresql_schemas.extensions_in(session, schema)
            taken = _manifest_of(session, rows, made_at=made_at, check=check)
    entries = postgresql_programs.entries_of(target)
    in_dump = {line.split()[5] for line in entries if " TABLE " in line and " TABLE DATA " not in line}
    if missing := sorted(taken.counts.keys() - in_dump):
        raise BackupError(
            f"pg_dump has left out {', '.join(missing[:3])}: let the role of the server own all of its "
            "tables."
        )
    return replace(taken, schema=schema, extensions=extensions)
