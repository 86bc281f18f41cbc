"""`restore`: load a backup into an empty store."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from conversations.exceptions import StoreUnavailable
from convserver.backups import restoring, sealed_key, secret_keys
from convserver.backups.failures import BackupError
from convserver.backups.manifest import Manifest
from convserver.backups.restoring import Target
from convserver.backups.sealed_key import PASSPHRASE, Keys
from sessions_app.workspaces import records


class Command(BaseCommand):
    requires_system_checks = ()
    help = (
        "Load a backup into an empty database. The backup is validated before and after it is loaded; if "
        "anything is wrong, the database stays empty."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "directory", metavar="DIR", type=Path, help="what `convserver backup` has written"
        )
        parser.add_argument(
            "--into",
            metavar="URL",
            help="the database to restore into, like DATABASE_URL; default: DATABASE_URL",
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="verify the backup: load it into a scratch database, and remove that; servers may run",
        )
        parser.add_argument(
            "--with-secret-key",
            action="store_true",
            help=f"bring the secret key back, too; its passphrase is in {PASSPHRASE}, or asked for",
        )
        parser.add_argument(
            "--without-workspaces",
            action="store_true",
            help="leave out the files of conversations that the backup has",
        )
        parser.add_argument(
            "--accept-damage",
            action="store_true",
            help="restore a backup of a damaged database as it is",
        )

    def handle(
        self,
        *args: Any,
        directory: Path,
        yes: bool,
        dry_run: bool,
        with_secret_key: bool,
        without_workspaces: bool,
        accept_damage: bool,
        **others: Any,
    ) -> None:
        """Validate, ask, restore, and say what is left to do. `--into` is in the settings by then."""
        try:
            found = restoring.readable(directory)
            keys = sealed_key.unseal(directory, sealed_key.known_passphrase()) if with_secret_key else None
            if keys is not None:  # before anything is loaded: afterwards it would be too late to refuse
                secret_keys.require_place(settings.CONFIGURATION, keys)
            self._show(found)
            if dry_run:
                restoring.verify(directory, found).require_whole(accept_damage=accept_damage)
                self.stdout.write("The backup is whole: it was loaded into a scratch database, and removed.")
                return
            target = restoring.target()
            files = restoring.files_target(found, is_wanted=not without_workspaces)
            if not yes:
                _ask(target)
            restoring.restore(directory, found, target, files, accept_damage=accept_damage)
        except BackupError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{target.name} is restored.")
        self._tell_of_files(found, has_files=files is not None)
        self._finish_keys(found, keys)  # last: a restore that fails leaves the key as it was

    def _show(self, found: Manifest) -> None:
        self.stdout.write(
            f"The backup is of {found.made_at[:19].replace('T', ' ')} UTC: "
            f"{found.counts['conversations_conversation']:,} conversations, "
            f"{found.counts['conversations_event']:,} events."
        )

    def _tell_of_files(self, found: Manifest, *, has_files: bool) -> None:
        if has_files and found.workspaces is not None:
            self.stdout.write(
                f"The files of {found.workspaces.workspaces:,} conversations are in "
                f"{settings.CONFIGURATION.workspaces}."
            )
            return
        try:
            missing = records.place_missing() if found.counts.get("sessions_app_workspace") else None
        except StoreUnavailable as error:
            missing = str(error)
        if missing:
            self.stderr.write(f"The files of conversations were not restored. {missing}")

    def _finish_keys(self, found: Manifest, keys: Keys | None) -> None:
        if keys is not None:
            try:
                self.stdout.write(secret_keys.put_back(settings.CONFIGURATION, keys))
            except OSError as error:
                raise CommandError(
                    f"The database is restored, but the secret key cannot be written: {error}. "
                    "Correct that, and run the same command again."
                ) from error
        elif not secret_keys.is_known(settings.CONFIGURATION, found.installation):
            self.stderr.write(
                "The secret key here is not the one of the backup, so its secrets cannot be read: put "
                "the former key into SECRET_KEY_FALLBACKS, or restore with --with-secret-key."
            )


def _ask(into: Target) -> None:
    """Return if the user agrees. Raise CommandError otherwise."""
    # Without a terminal `input` would read a program's pipe, or fail: silence is no agreement.
    if not sys.stdin.isatty():
        raise CommandError("Nothing was changed: add --yes where there is no terminal to ask.")
    if input(f"Do you want to fill {into.name}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was changed.")
