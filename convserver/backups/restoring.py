"""`restore`: a backup is validated, loaded beside the live store, validated again, and put in its place."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from django.conf import settings
from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from convserver.backups import contents, directories, manifest, shared_hints
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import Manifest
from convserver.backups.postgresql_target import PostgresqlTarget
from convserver.backups.sqlite_target import SqliteTarget
from convserver.backups.taking import DATABASE
from convserver.backups.taking_over import void_leases

SHOWN = 3


class Target(Protocol):
    """A store that a backup may replace."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to replace."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep everybody else away. Raise BackupError if somebody uses it."""

    def loaded(self, manifest: Manifest, dumped: Path) -> AbstractContextManager[BaseDatabaseWrapper]:
        """Load the backup beside the live store, and open it."""

    def swap(self) -> str | None:
        """Put what was loaded in place, and return where what it replaces is kept."""

    def discard(self) -> None:
        """Remove what was loaded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """A restore that has succeeded."""

    kept: str | None
    """Where the replaced store is; None if there was none, or it was a trial."""
    hints: str | None
    """What is left to do about Redis; None if nothing is."""


def readable(directory: Path) -> Manifest:
    """Return the manifest of a backup that this program can restore, every file of it compared.

    Raise BackupError.
    """
    found = manifest.read(directory)
    if found.engine != connection.vendor:
        raise BackupError(
            f"The backup is of {found.engine}, but DATABASE_URL names {connection.vendor}: restore it into a "
            "database of the same kind. To change the kind, use `convserver export` and `convserver import`."
        )
    known = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations}
    ours = {each.partition(".")[0] for each in known}
    if newer := [each for each in found.migrations if each.partition(".")[0] in ours and each not in known]:
        raise BackupError(
            f"The backup is of version {found.version}, which is newer than this one (it has {newer[-1]}): "
            "restore it with that version."
        )
    if DATABASE[found.engine] not in found.files:
        raise BackupError(f"{directory} has no {DATABASE[found.engine]}: choose another backup.")
    return found


def target() -> Target:
    """Return the store of the settings. Raise BackupError if it cannot be replaced."""
    stamp = directories.stamp(timezone.now())
    if connection.vendor == "sqlite":
        return SqliteTarget(Path(connection.settings_dict["NAME"]), stamp)
    return PostgresqlTarget(stamp)


def restore(
    directory: Path,
    found: Manifest,
    into: Target,
    *,
    is_own: bool,
    is_trial: bool = False,
    accept_damage: bool = False,
) -> Restored:
    """Put a readable backup in the place of the live store, which is kept. A trial ends before that.

    `is_own` says that it is the store of this installation, whose servers share what is in Redis.
    Raise BackupError; then the live store is as it was.
    """
    with into.alone():
        is_done = False
        try:
            with into.loaded(found, directory / DATABASE[found.engine]) as store:
                _require_whole(store, found, accept_damage=accept_damage)
                void_leases(store)
            if is_trial:
                return Restored(kept=None, hints=None)
            kept = into.swap()
            is_done = True
        except (Error, OSError) as error:
            raise BackupError(
                f"The backup could not be loaded, and {into.name} was left as it was: {reason(error)}."
            ) from error
        finally:
            if not is_done:
                into.discard()
    return Restored(
        kept=kept, hints=shared_hints.forget(settings.CONFIGURATION.redis_url) if is_own else None
    )


def _require_whole(store: BaseDatabaseWrapper, found: Manifest, *, accept_damage: bool) -> None:
    """Raise BackupError if what was loaded is not what the manifest says, or is damaged."""
    here = contents.contents(store)
    if here.counts != found.counts:
        table = next(
            name
            for name in sorted({*here.counts, *found.counts})
            if here.counts.get(name) != found.counts.get(name)
        )
        raise BackupError(
            f"The backup has {here.counts.get(table, 0):,} rows in {table}, but its manifest says "
            f"{found.counts.get(table, 0):,}: choose another backup."
        )
    if (here.heads, here.migrations) != (found.heads, found.migrations):
        raise BackupError("The backup's conversations are not those of its manifest: choose another backup.")
    problems = contents.problems(store)
    if problems and not accept_damage:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise BackupError(
            f"The backup is damaged: {' '.join(problems[:SHOWN])}{more} Choose another backup, or "
            "restore this one as it is with --accept-damage."
        )
