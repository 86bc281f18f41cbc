"""Django's `migrate` in one transaction, and in one process at a time."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import Error, connections
from django.db.migrations import Migration
from django.db.migrations.recorder import MigrationRecorder

from conversations.engines import failures, upgrades
from conversations.engines.upgrades import UpgradeBusy, UpgradeImpossible

# If installed, its tables are upgraded first; the next upgrade completes an interrupted one.
JOBS = "procrastinate.contrib.django"
FOREIGN = (
    " It may belong to another program, or its table django_migrations was changed by hand: "
    "restore a backup, or use an empty database."
)


class Command(migrate.Command):
    """Upgrades the tables, the record of applied migrations and the guards in one transaction."""

    _applying: Migration | None = None
    _checks: dict[str, Any] | None = None

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Defer the checks: some query the database, so they too must wait for the lock."""
        self._checks = kwargs

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate while no other process does. Raise CommandError with one sentence for a failure."""
        self._connection = connections[options["database"]]
        try:
            upgrades.check_goes_on(MigrationRecorder(self._connection).applied_migrations())
            if options["plan"] or options["check_unapplied"]:
                self._handle(*args, **options)
            else:
                self._migrate_alone(*args, **options)
        except (UpgradeBusy, UpgradeImpossible) as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(self._explained(error)) from error

    def _migrate_alone(self, *args: Any, **options: Any) -> None:
        if apps.is_installed(JOBS) and options["app_label"] is None:
            # Each of its migrations is a transaction: some use values of types that earlier ones add.
            with upgrades.in_turn(self._connection, self._say):
                super().handle(*args, **{**options, "app_label": "procrastinate"})
        with upgrades.alone(self._connection, self._say):
            self._handle(*args, **options)

    def _handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        # Only now: this command restores missing guards. If a check fails, everything is rolled back.
        if self._checks is not None:
            super().check(**self._checks)

    def migration_progress_callback(
        self, action: str, migration: Migration | None = None, fake: bool = False
    ) -> None:
        """Refuse a migration that is not atomic; run deferred constraint checks before the next migration."""
        if action == "apply_start" and migration is not None:
            self._applying = migration
            if not (migration.atomic or fake):
                raise CommandError(
                    f"The migration {migration} is not atomic, so a killed process could leave half of it."
                )
        if action == "apply_success":
            self._applying = None
            if self._connection.vendor == "postgresql":
                self._connection.check_constraints()
        super().migration_progress_callback(action, migration, fake)

    def _explained(self, error: Error) -> str:
        """Return a sentence: what is wrong with the database itself, or which migration failed."""
        if isinstance(error, failures.FAILURES) and (known := failures.known(error, self._connection)):
            return known
        what = f"the migration {self._applying} failed: " if self._applying else ""
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        # An upgrade is one transaction, so no earlier one has left a part of itself.
        advice = FOREIGN if "already exists" in reason else ""
        return f"The database cannot be upgraded: {what}{reason}.{advice}"

    def _say(self, sentence: str) -> None:
        self.stderr.write(sentence)
