"""`back_up`: a snapshot of the store, written into a new directory while the server runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

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
)
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import Manifest
from convserver.backups.sealed_key import Keys

DATABASE = {"sqlite": "database.sqlite3", "postgresql": "database.dump"}
"""The file of a backup with everything that the database holds, by the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """A backup that was made."""

    path: Path
    size: int
    """Bytes of all files."""
    manifest: Manifest


def back_up(directory: Path, *, passphrase: str | None = None, check: bool = True) -> Backup:
    """Write a backup of the store of the settings into a new directory below this one.

    With a passphrase the secret key is in it, sealed. `check` reads everything, and notes in the manifest
    what is damaged. Raise BackupError; nothing is left then.
    """
    now = timezone.now()
    with _said(), directories.new_in(directory, f"convserver-{directories.stamp(now)}") as draft:
        take: Callable[[Path, Manifest, bool], Manifest] = (
            _take_sqlite if connection.vendor == "sqlite" else _take_postgresql
        )
        taken = take(draft.path / DATABASE[connection.vendor], _begun(now.isoformat()), check)
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


def _begun(made_at: str) -> Manifest:
    return Manifest(
        version=__version__,
        engine=connection.vendor,
        made_at=made_at,
        installation=settings.CONFIGURATION.installation,
        migrations=[],
        counts={},
        heads="",
    )


def _filled(begun: Manifest, store: BaseDatabaseWrapper, *, check: bool) -> Manifest:
    found = contents.contents(store)
    problems = contents.problems(store) if check else []
    return replace(begun, **found._asdict(), problems=problems, is_checked=check)


def _take_sqlite(target: Path, begun: Manifest, check: bool) -> Manifest:
    """Copy the file, and look at the copy."""
    sqlite_file.copy(Path(connection.settings_dict["NAME"]), target)
    with stores.copy_at(target) as copied:
        return _filled(begun, copied, check=check)


def _take_postgresql(target: Path, begun: Manifest, check: bool) -> Manifest:
    """Look at a snapshot, and have pg_dump write the same one."""
    with stores.session() as session:
        postgresql_programs.require(session, "pg_dump", "pg_restore")
        schema = postgresql_schemas.current(session) or ""
        with transaction.atomic(using=session.alias):
            with session.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SELECT pg_export_snapshot()")
                snapshot = cursor.fetchone()[0]
            postgresql_programs.dump(session, schema=schema, snapshot=snapshot, target=target)
            begun = replace(
                begun, schema=schema, extensions=postgresql_schemas.extensions_in(session, schema)
            )
            taken = _filled(begun, session, check=check)
    _require_tables(postgresql_programs.entries_of(target), taken)
    return taken


def _require_tables(entries: list[str], taken: Manifest) -> None:
    """Raise BackupError unless the dump has every table."""
    in_dump = {line.split()[5] for line in entries if " TABLE " in line and " TABLE DATA " not in line}
    if missing := sorted(taken.counts.keys() - in_dump):
        raise BackupError(
            f"pg_dump has left out {', '.join(missing[:3])}: let the role of the server own all of its "
            "tables."
        )
