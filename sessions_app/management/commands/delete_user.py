"""`delete_user`: delete a person with all their data, after a look at what will be deleted."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseProblem
from django.db import connection

from conversations.engines import failures as failures_of
from conversations.models import Conversation
from sessions_app.imports import options
from sessions_app.retention import rounds, user_deletions
from sessions_app.retention.failures import RetentionFailures
from sessions_app.retention.user_deletions import UserNotDeletable


class Command(BaseCommand):
    """Delete a person."""

    help = (
        "Delete a person: the account is closed and loses its names, and all its conversations, files, "
        "drafts, settings, secrets, tokens, imports and endpoints are removed for good. The number of the "
        "account, the ids of the conversations and sums of tokens and cost stay. Backups keep what they "
        "have until you delete them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="the user")
        parser.add_argument(
            "--export",
            type=Path,
            metavar="FILE",
            help="first write all conversations of the user, without deleted ones, into this zip file",
        )
        parser.add_argument("--dry-run", action="store_true", help="show what would go, and change nothing")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(
        self, *args: Any, username: str, export: Path | None, dry_run: bool, yes: bool, **others: Any
    ) -> None:
        try:
            options.prepare_database(dry_run=dry_run)
            user = User.objects.filter(username=username).first()
            if user is None:
                raise CommandError(f"There is no user {username!r}.")
            self._tell(user)
            if dry_run or not (yes or self._is_wanted(username)):
                return
            if export is not None:  # first: if it fails, nothing was deleted
                call_command("export_conversations", export, owner=username, stdout=self.stdout)
            self._delete(user)
        except DatabaseProblem as error:
            raise CommandError(failures_of.sentence(error, connection)) from error
        except UserNotDeletable as error:
            raise CommandError(f"Nothing was deleted. {error}") from error

    def _tell(self, user: User) -> None:
        """Print what would be deleted. Raise UserNotDeletable."""
        user_deletions.check(user)
        count = Conversation.objects.owned_by(user.pk).unpurged().count()
        self.stdout.write(
            f"To delete: user {user.username!r} and {count:,} conversation{'' if count == 1 else 's'}."
        )

    def _is_wanted(self, username: str) -> bool:
        if not sys.stdin.isatty():
            raise CommandError("Nothing was deleted. Add --yes, or answer the question in a terminal.")
        self.stdout.write("This cannot be undone. Type the name of the user to go on: ", ending="")
        self.stdout.flush()
        if sys.stdin.readline().strip() == username:
            return True
        self.stdout.write("Nothing was deleted.")
        return False

    def _delete(self, user: User) -> None:
        failures = RetentionFailures()
        deletion = user_deletions.begin(user, requested_by=options.requester())
        rest = rounds.rest if connection.vendor == "sqlite" else None  # where only one can write
        rounds.finish_all(failures, rest)
        while user_deletions.go_on(rounds.BEGUN_AT_ONCE, failures):  # it begins a bounded number of purges
            rounds.finish_all(failures, rest)
        deletion.refresh_from_db()  # a server may have finished it
        name = User.objects.values_list("username", flat=True).get(pk=user.pk)
        if deletion.finished_at is None:
            raise CommandError(
                "The account is closed, but something is left: an import still runs, or a step has failed. "
                f"The server goes on by itself; so does this command with the name {name}."
            )
        if not rounds.erase(rest=rest):
            self.stderr.write("The database is being read, so its files are cleaned by the server later.")
        self.stdout.write(f"Deleted: the account is {name} now, and can be used by no one.")
