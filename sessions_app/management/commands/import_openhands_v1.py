"""`import_openhands_v1`: import the conversations in a V1 agent server's directories; may be repeated."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from conversations.exceptions import ConversationError
from conversations.store.importing import Imported, ImportRefused
from conversations.transcripts import openhands_v1
from conversations.transcripts.openhands_v1 import Persisted
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports import options
from sessions_app.imports.follow import FollowedAlready, only_one, told_to_end
from sessions_app.openhands_v1 import imports
from sessions_app.openhands_v1.following import DirectoryFollower


class Command(BaseCommand):
    """Import conversations."""

    help = (
        "Import the conversations that an OpenHands V1 agent server or its SDK has stored in files. Events "
        "that were imported before are skipped. The files are never changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "path", type=Path, help="the directory of one conversation, or a directory of many"
        )
        options.add_owner(parser)
        options.add_zone(parser)
        parser.add_argument(
            "--force", action="store_true", help="import even conversations that another server still holds"
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="go on importing what the server writes, until Ctrl-C; conversations that it holds as well",
        )
        parser.add_argument(
            "--skip-empty", action="store_true", help="skip conversations without events (failed starts)"
        )

    def handle(
        self,
        *args: Any,
        path: Path,
        owner: str | None,
        zone: ZoneInfo,
        dry_run: bool,
        force: bool,
        skip_empty: bool,
        follow: bool,
        **others: Any,
    ) -> None:
        """Print the outcome of each conversation and skipped file; fail if a conversation was refused."""
        if follow and dry_run:
            raise CommandError("What is followed is stored: leave out --dry-run or --follow.")
        options.prepare_database(dry_run=dry_run)
        user = options.owner(owner, dry_run=dry_run)
        if follow:
            self._follow(user, path, zone)
            return
        directories = _directories(path)
        wanted = ImportOptions(user=user, zone=zone, dry_run=dry_run, force=force, skip_empty=skip_empty)
        totals = DirectoryTotals()
        for directory in directories:
            problems: list[str] = []
            self.stdout.write(f"{directory.resolve().name}: {_outcome(directory, wanted, totals, problems)}")
            for problem in problems:
                self.stdout.write(f"  skipped {problem}")
            totals.skipped += len(problems)
        counts = _counts(totals.added, totals.repeated, totals.skipped, dry_run=dry_run)
        self.stdout.write(f"Conversations: {len(directories)}, refused: {totals.refused}; {counts}")
        if totals.refused:
            raise CommandError(f"Refused: {totals.refused} of {len(directories)} conversations.")

    def _follow(self, user: User, path: Path, zone: ZoneInfo) -> None:
        """Import the present events and all later ones, until a signal ends the process."""
        stop = told_to_end()
        try:
            with only_one(settings.CONFIGURATION.data_dir, f"openhands-v1 {user.pk} {path.resolve()}"):
                self._say(f"Following {path}. Ctrl-C ends it.")
                DirectoryFollower(user=user, path=path, zone=zone, said=self._say).run(stop)
        except FollowedAlready as error:
            raise CommandError(str(error)) from error

    def _say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    user: User
    zone: ZoneInfo
    dry_run: bool
    force: bool
    skip_empty: bool


@dataclass(slots=True)
class DirectoryTotals:
    added: int = 0
    repeated: int = 0
    skipped: int = 0
    refused: int = 0


def _outcome(directory: Path, wanted: ImportOptions, totals: DirectoryTotals, problems: list[str]) -> str:
    """Import a conversation and return its outcome; add each skipped file to `problems`."""
    try:
        imported = _imported(directory, wanted, problems)
    except (Unreadable, ConversationError) as error:
        totals.refused += 1
        return f"refused. {error}"
    if imported is None:
        return "skipped, it has no events."
    totals.added += imported.added
    totals.repeated += imported.repeated
    return _counts(imported.added, imported.repeated, len(problems), dry_run=wanted.dry_run)


def _imported(directory: Path, wanted: ImportOptions, problems: list[str]) -> Imported | None:
    """Import a conversation; None if it is empty and skipped. Raise Unreadable or ImportRefused."""

    def skip(name: str, reason: str) -> None:
        problems.append(f"{name}: {reason}")

    persisted = openhands_v1.read(directory, zone=wanted.zone, skip=skip)
    if wanted.skip_empty and persisted.is_empty:
        return None
    if not wanted.force:  # its server may be writing, so what is read now may be half of a turn
        _require_idle(persisted)
    act = imports.preview if wanted.dry_run else imports.import_persisted
    imported = act(wanted.user, persisted, zone=wanted.zone, skip=skip)
    for event, reason in imported.refused:
        skip(f"event {event.event_id}", reason)
    return imported


def _counts(added: int, repeated: int, skipped: int, *, dry_run: bool) -> str:
    verb = "would import" if dry_run else "imported"
    return f"{verb} {added} events, {repeated} already there, {skipped} skipped."


def _directories(path: Path) -> list[Path]:
    """Return the conversations' directories. Raise CommandError if there are none."""
    try:
        found = openhands_v1.directories(path)
    except Unreadable as error:
        raise CommandError(f"{error}.") from error
    if not found:
        raise CommandError(f"There is no conversation in {path}.")
    return found


def _require_idle(persisted: Persisted) -> None:
    expires_at = persisted.lease_expires_at
    if expires_at is not None and expires_at > timezone.now():
        raise ImportRefused(
            f"Another server holds this conversation ({openhands_v1.LEASE}). Stop it, or use --force."
        )
