"""`restore`: a backup is loaded into an empty place, and compared with its manifest.

The same is done to verify a backup, in a scratch database.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from django.conf import settings
from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from conversations.engines import upgrades
from conversations.engines.upgrades import UpgradeImpossible
from convserver.backups import contents, manifest, postgresql_target, sqlite_target, workspaces
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import DATABASE, Manifest
from convserver.backups.postgresql_target import PostgresqlTarget
from convserver.backups.sqlite_target import SqliteTarget
from convserver.backups.taking_over import void_leases
from convserver.backups.workspaces import EmptyPlace

SHOWN = 3


class Target(Protocol):
    """An empty place for the store of a backup."""

    name: str  # what people call it

    def alone(self) -> AbstractContextManager[None]:
        """Keep other programs away. Raise BackupError if it is in use, or not empty."""

    def loading(self, manifest: Manifest, dumped: Path) -> AbstractContextManager[BaseDatabaseWrapper]:
        """Load the backup, and keep it at the end of the block, unless that fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What came of loading a backup."""

    differences: list[str]  # what is not as the manifest says, a sentence each
    problems: list[str]
    """What is damaged in it, a sentence each: it is so in the store that the backup is of."""

    def require_whole(self, *, accept_damage: bool = False) -> None:
        """Raise BackupError if the backup cannot be relied on."""
        if self.differences:
            raise BackupError(f"{_some(self.differences)} Choose another backup.")
        if self.problems and not accept_damage:
            raise BackupError(
                f"The backup is damaged: {_some(self.problems)} Choose another backup, or restore this one "
                "as it is with --accept-damage."
            )


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
    _check_goes_on(found)
    if DATABASE[found.engine] not in found.files:
        raise BackupError(f"{directory} has no {DATABASE[found.engine]}: choose another backup.")
    return found


def _check_goes_on(found: Manifest) -> None:
    """Raise BackupError if a server of this version could not upgrade what the backup holds."""
    present = MigrationLoader(None).disk_migrations
    # A backup of before a squash names the migrations that the squashed one replaces.
    known = {*present, *(replaced for each in present.values() for replaced in each.replaces)}
    ours = {app for app, _ in known}  # an app that is not installed here says nothing of a version
    applied = [(app, name) for app, _, name in (each.partition(".") for each in found.migrations)]
    if newer := [each for each in applied if each[0] in ours and each not in known]:
        raise BackupError(
            f"The backup is of version {found.version}, which is newer than this one "
            f"(it has {'.'.join(newer[-1])}): restore it with that version."
        )
    try:
        upgrades.check_goes_on(applied)
    except UpgradeImpossible as error:
        raise BackupError(f"The backup cannot be restored by this version. {error}") from error


def target() -> Target:
    """Return the place of the settings. Raise BackupError if it is not empty."""
    if connection.vendor == "sqlite":
        return SqliteTarget(Path(connection.settings_dict["NAME"]))
    return PostgresqlTarget()


def files_target(found: Manifest, *, is_wanted: bool) -> EmptyPlace | None:
    """Return the place for the files of conversations; None for none. Raise BackupError if it has some."""
    has_files = found.workspaces is not None and is_wanted
    return EmptyPlace(settings.CONFIGURATION.workspaces) if has_files else None


def restore(
    directory: Path,
    found: Manifest,
    into: Target,
    files: EmptyPlace | None = None,
    *,
    accept_damage: bool = False,
) -> None:
    """Load a readable backup into an empty place, and its files of conversations into another one.

    Raise BackupError; then the places are still empty.
    """
    dumped = directory / DATABASE[found.engine]
    try:
        with into.alone(), files or nullcontext(), into.loading(found, dumped) as store:
            # Before the leases are void: that changes rows, which the manifest would not know.
            _compared(store, found).require_whole(accept_damage=accept_damage)
            void_leases(store)
            if files is not None:
                files.put(directory, found, store)
    except (Error, OSError) as error:
        raise BackupError(
            f"The backup could not be loaded, and {into.name} was left empty: {reason(error)}."
        ) from error


def verify(directory: Path, found: Manifest) -> Verification:
    """Load a readable backup into a scratch database, which is removed again, and look at what is there.

    Raise BackupError if that is not possible.
    """
    scratch = sqlite_target.scratch if connection.vendor == "sqlite" else postgresql_target.scratch
    try:
        with scratch(found, directory / DATABASE[found.engine]) as store:
            workspaces.compare(directory, found, store)
            return _compared(store, found)
    except (Error, OSError) as error:
        raise BackupError(f"The backup could not be loaded to be verified: {reason(error)}.") from error


def _compared(store: BaseDatabaseWrapper, found: Manifest) -> Verification:
    here = contents.contents(store)
    differences = [
        f"The backup has {here.counts.get(table, 0):,} rows in {table}, but its manifest says "
        f"{found.counts.get(table, 0):,}."
        for table in sorted({*here.counts, *found.counts})
        if here.counts.get(table) != found.counts.get(table)
    ]
    if here.migrations != found.migrations:
        differences.append("The migrations of the backup are not those of its manifest.")
    if here.heads != found.heads:
        differences.append("The conversations of the backup are not those of its manifest.")
    if found.triggers and here.triggers != found.triggers:
        names = ", ".join(sorted(set(here.triggers) ^ set(found.triggers)))
        differences.append(f"The guards of the backup are not those of its manifest: {names}.")
    problems = contents.problems(store)
    # Damage of the store that was backed up is no difference, but its copy must have no other.
    if found.is_checked and problems != found.problems:
        differences.append(
            f"Its manifest says that {len(found.problems)} places are damaged, but {len(problems)} are, or "
            f"others. {' '.join(problems[:SHOWN])}".rstrip()
        )
    return Verification(differences=differences, problems=problems)


def _some(sentences: list[str]) -> str:
    more = f" And {len(sentences) - SHOWN} more." if len(sentences) > SHOWN else ""
    return f"{' '.join(sentences[:SHOWN])}{more}"
