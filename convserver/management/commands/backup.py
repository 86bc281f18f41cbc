"""`backup`: write the whole store into a new directory, while the server runs."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from convserver.backups import directories, records, restoring, sealed_key, taking
from convserver.backups.failures import BackupError
from convserver.backups.records import NotRecorded
from convserver.backups.sealed_key import PASSPHRASE
from convserver.backups.taking import Backup
from sessions_app.models import BackupOutcome, BackupRecord

SHOWN = 5


class Command(BaseCommand):
    requires_system_checks = ()  # they would import every page and every route
    help = (
        "Write everything that the database holds into a new directory below DIR, named after the time: "
        "conversations, attachments, accounts, settings; other files of conversations only with "
        "--workspaces. The server may run meanwhile. `convserver restore` brings it back."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "directory", metavar="DIR", type=Path, help="where backups are kept; it is made if need be"
        )
        parser.add_argument(
            "--with-secret-key",
            action="store_true",
            help=f"add the secret key, sealed with the passphrase in {PASSPHRASE}, or one that is asked for",
        )
        parser.add_argument(
            "--workspaces",
            action="store_true",
            help="add the files of conversations (CONVSERVER_WORKSPACES) as a compressed tar file",
        )
        parser.add_argument(
            "--keep",
            metavar="COUNT",
            type=_positive,
            help="afterwards, remove all backups in DIR but this many of the newest",
        )
        parser.add_argument(
            "--no-check",
            action="store_true",
            help="do not read every event to see whether the store is whole; `convserver restore` does so",
        )
        parser.add_argument(
            "--verify",
            action="store_true",
            help="afterwards, restore the backup into a scratch database, compare it with the manifest, and "
            "remove that; on PostgreSQL the role must be allowed to create databases",
        )

    def handle(
        self,
        *args: Any,
        directory: Path,
        with_secret_key: bool,
        workspaces: bool,
        keep: int | None,
        no_check: bool,
        verify: bool,
        **others: Any,
    ) -> None:
        """Make the backup, say where it is, and fail if the store is damaged or the backup is not whole."""
        try:
            passphrase = sealed_key.new_passphrase() if with_secret_key else None
            with records.recorded(directory) as record:
                made = taking.back_up(
                    directory, passphrase=passphrase, check=not no_check, with_workspaces=workspaces
                )
                self._note(record, made)
                if verify:
                    self._verify(record, made)
        except BackupError as error:
            raise CommandError(str(error)) from error
        except NotRecorded as warning:  # a standby takes no record, and its backup is as good
            self.stderr.write(str(warning))
        # The status is that of a failure: a timer that looks at nothing else must not miss the damage.
        if made.manifest.problems:
            shown = "\n".join(made.manifest.problems[:SHOWN])
            raise CommandError(
                f"The backup is complete, but the database that it is of is damaged:\n{shown}\n"
                "Older backups were kept. Keep those of before the damage."
            )
        if keep is not None:  # last, when the new one is known to be good
            try:
                for removed in directories.keep_newest(directory, keep):
                    self.stdout.write(f"{removed}: removed")
            except OSError as error:
                raise CommandError(f"An older backup cannot be removed: {error}.") from error

    def _note(self, record: BackupRecord, made: Backup) -> None:
        """Fill in the record, and say what was made."""
        problems = made.manifest.problems
        record.outcome = BackupOutcome.DAMAGED if problems else BackupOutcome.MADE
        record.place, record.size = str(made.path.absolute()), made.size
        record.detail = " ".join(problems[:SHOWN])
        counts = made.manifest.counts
        self.stdout.write(
            f"{made.path}: {counts['conversations_conversation']:,} conversations, "
            f"{counts['conversations_event']:,} events, {made.size:,} bytes"
        )
        if (files := made.manifest.workspaces) is not None:
            self.stdout.write(
                f"{made.path}: with {files.entries:,} files, directories and links of {files.workspaces:,} "
                f"conversations, {files.bytes:,} bytes"
            )
            if files.changed or files.unread:
                self.stderr.write(
                    f"Files of conversations were in use: {files.changed:,} changed while they were read, "
                    f"and may be neither as before nor as after; {files.unread:,} were gone or could not be "
                    "read."
                )
        elif counts.get("sessions_app_workspace"):
            self.stdout.write(
                f"{made.path}: without the files of conversations, which --workspaces would add"
            )

    def _verify(self, record: BackupRecord, made: Backup) -> None:
        try:
            verification = restoring.verify(made.path, restoring.readable(made.path))
            record.verified_at, record.is_verified = timezone.now(), not verification.differences
            verification.require_whole(accept_damage=bool(made.manifest.problems))  # the caller reports it
        except BackupError as error:
            record.detail = str(error)
            raise BackupError(f"{error} No older backup was removed.") from error
        self.stdout.write(
            f"{made.path}: verified: restored into a scratch database, it is what its manifest says"
        )


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)
