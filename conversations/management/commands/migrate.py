"""Django's `migrate`, whole or not at all, and by one process at a time."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import Error, connections
from django.db.migrations import Migration

from conversations.engines import failures, unrecorded, upgrades
from conversations.engines.unrecorded import HalfMigrated
from conversations.engines.upgrades import UpgradeBusy


class Command(migrate.Command):
    """Brings the tables, the record of what was applied and the guards up to date in one transaction."""

    _applying: Migration | None = None
    _checks: dict[str, Any] | None = None

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Put the checks off: some ask the database, and have to wait for their turn like all else."""
        self._checks = kwargs

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate when nobody else does. Raise CommandError with one sentence for what is wrong."""
        self._connection = connections[options["database"]]
        try:
            if options["plan"] or options["check_unapplied"]:
                self._handle(*args, **options)
            else:
                self._migrate_alone(*args, **options)
        except (UpgradeBusy, HalfMigrated) as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(self._explained(error)) from error

    def _migrate_alone(self, *args: Any, **options: Any) -> None:
        with upgrades.alone(self._connection, self._say):
            if recorded := unrecorded.record(self._connection):
                self._say(f"The migration {recorded} had been applied without a record: it has one now.")
            self._handle(*args, **options)

    def _handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        # Not before: it is this command that puts lost guards back. What a check refuses is rolled back.
        if self._checks is not None:
            super().check(**self._checks)

    def migration_progress_callback(
        self, action: str, migration: Migration | None = None, fake: bool = False
    ) -> None:
        """Refuse what cannot be part of a transaction; let no check of a migration wait for the next one."""
        if action == "apply_start" and migration is not None:
            self._applying = migration
            if not (migration.atomic or fake):
                raise CommandError(f"The migration {migration} is not atomic: a kill could leave half of it.")
        if action == "apply_success":
            self._applying = None
            if self._connection.vendor == "postgresql":
                self._connection.check_constraints()
        super().migration_progress_callback(action, migration, fake)

    def _explained(self, error: Error) -> str:
        """Say what is wrong: the database itself, or what a migration found in it."""
        if isinstance(error, failures.FAILURES) and (known := failures.known(error, self._connection)):
            return known
        what = f"the migration {self._applying} failed: " if self._applying else ""
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        return f"The database cannot be brought up to date: {what}{reason}."

    def _say(self, sentence: str) -> None:
        self.stderr.write(sentence)
