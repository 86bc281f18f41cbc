"""`purge_conversations`: remove conversations for good, after a look at what will be removed."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseProblem
from django.db import connection

from conversations.engines import failures as failures_of
from conversations.engines.residues import Rest
from conversations.exceptions import ConversationError
from conversations.models import Conversation
from conversations.store import purging
from sessions_app.imports import options
from sessions_app.models import DAYS_MAX, RetentionPolicy
from sessions_app.retention import limit, policies, rounds, selection
from sessions_app.retention.failures import RetentionFailures
from sessions_app.retention.selection import Selection, Size

SELECTORS = ("older_than_days", "label", "owner", "deleted_for_days", "conversation_id")
SHOWN = 20
"""At most this many conversations are named before the question."""


@dataclass
class PurgeOutcome:
    # Their purge has begun at least.
    purged: list[Conversation] = field(default_factory=list)
    # Ids of conversations that no longer met the conditions when their purge was to begin.
    skipped: list[str] = field(default_factory=list)
    failures: RetentionFailures = field(default_factory=RetentionFailures)


class Command(BaseCommand):
    """Purge conversations."""

    help = (
        "Remove conversations for good: their events, files, drafts, words in the search index and all else; "
        "only the id stays, which cannot be used again. Only deleted ones go, unless --older-than or "
        "--conversation is given. Without a selection, do now what the server does by itself: apply the "
        "retention policies, and purge what was deleted long enough ago."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="show what would go, and change nothing")
        parser.add_argument(
            "--older-than",
            type=_days,
            dest="older_than_days",
            metavar="DAYS",
            help="conversations to which nothing was added for this many days; without --deleted-for also "
            "ones that are not deleted, unless a retention policy would spare them",
        )
        parser.add_argument(
            "--label", metavar="NAME", help="deleted ones with this label: NAME or NAME=VALUE"
        )
        parser.add_argument("--owner", metavar="USERNAME", help="deleted ones of this user")
        parser.add_argument(
            "--deleted-for",
            type=_days,
            dest="deleted_for_days",
            metavar="DAYS",
            help="those that were deleted at least this many days ago; 0 for all deleted ones",
        )
        parser.add_argument(
            "--conversation", dest="conversation_id", metavar="ID", help="this one, even if it is in use"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        parser.add_argument(
            "--rewrite",
            action="store_true",
            help="also write the tables anew, so that no free space in the database's files has anything of "
            "what was purged; writes wait meanwhile",
        )

    def handle(
        self, *args: Any, dry_run: bool, yes: bool, as_json: bool, rewrite: bool, **wanted: Any
    ) -> None:
        try:
            options.prepare_database(dry_run=dry_run)
            outcome = self._handle(wanted, dry_run=dry_run, yes=yes, as_json=as_json, rewrite=rewrite)
        except DatabaseProblem as error:
            raise CommandError(failures_of.sentence(error, connection)) from error
        if outcome.failures.found:
            problems = " ".join(f"{name}: {_problem(error)}" for name, error in outcome.failures.found)
            raise CommandError(f"Not everything could be done. {problems}")

    def _handle(
        self, wanted: dict[str, Any], *, dry_run: bool, yes: bool, as_json: bool, rewrite: bool
    ) -> PurgeOutcome:
        is_chosen = any(wanted[name] is not None for name in SELECTORS)
        conditions = _conditions(wanted) if is_chosen else None
        # Read once: what is shown before the question is what is purged after it.
        rows = list(_chosen(conditions) if conditions else limit.overdue().select_related("owner"))
        by_policy = [] if is_chosen else [row for policy in _in_force() for row in _matched(policy)]
        sizes = {row.pk: selection.size_of(row.ref) for row in rows}
        if not as_json or not (dry_run or yes):
            self._tell(rows, by_policy, sizes)
        is_wanted = not dry_run and (yes or self._is_wanted(rows, by_policy))
        outcome = self._purge(rows, conditions, rewrite=rewrite) if is_wanted else PurgeOutcome()
        if is_wanted and rows and not as_json:
            self.stdout.write(f"Purged: {_conversations(len(outcome.purged))}.")
        if outcome.skipped and not as_json:
            self.stdout.write(f"Skipped, since they changed meanwhile: {len(outcome.skipped):,}.")
        if as_json:
            shown = outcome.purged if is_wanted else rows
            report = _report(shown, by_policy, sizes, purged=is_wanted)
            failed = [{"of": name, "problem": _problem(error)} for name, error in outcome.failures.found]
            self.stdout.write(json.dumps({**report, "skipped": outcome.skipped, "failed": failed}))
        return outcome

    def _tell(self, rows: list[Conversation], by_policy: list[Conversation], sizes: dict[int, Size]) -> None:
        for row in rows[:SHOWN]:
            named = f"{row.public_id}  {row.owner}  {row.shown_title[:60]}"
            self.stdout.write(f"{named}  {_in_words(sizes[row.pk])}")
        if len(rows) > SHOWN:
            self.stdout.write(f"… and {len(rows) - SHOWN:,} more")
        total = _in_words(selection.total(sizes.values()))
        self.stdout.write(f"To purge: {_conversations(len(rows))}, {total}.")
        if by_policy:
            self.stdout.write(
                f"To delete by retention policies: {_conversations(len(by_policy))}, which can be restored "
                "until they are purged."
            )

    def _is_wanted(self, rows: list[Conversation], by_policy: list[Conversation]) -> bool:
        if not rows and not by_policy:
            return True  # nothing to ask about; an interrupted purge continues, and the files are cleaned
        if not sys.stdin.isatty():
            raise CommandError("Nothing was purged. Add --yes, or answer the question in a terminal.")
        self.stdout.write("A purge cannot be undone. Type `purge` to go on: ", ending="")
        self.stdout.flush()
        if sys.stdin.readline().strip() == "purge":
            return True
        self.stdout.write("Nothing was purged.")
        return False

    def _purge(
        self, rows: list[Conversation], conditions: Selection | None, *, rewrite: bool
    ) -> PurgeOutcome:
        """Begin all purges, so that a server finishes them after an interruption, and carry them out."""
        outcome = PurgeOutcome()
        failures = outcome.failures
        if conditions is None:
            limit.note()  # as the server does, so that a shorter limit purges nothing at once
        for row in rows:
            # Asked again under the lock: it may have been restored, or used, while the question was open.
            among = limit.overdue() if conditions is None else conditions.like(row)
            with failures.noted("conversation", row.public_id):
                begun = purging.begin(
                    row.ref, among=among, requested_by=options.requester(), reason="by command"
                )
                outcome.purged.extend([row] if begun else [])
                outcome.skipped.extend([] if begun else [row.public_id])
        if conditions is None:
            for policy in _in_force():
                with failures.noted("policy", policy.name):
                    # Without the bound of a server's round, for the operator waits for the end.
                    policies.apply(policy, limit=sys.maxsize, failures=failures)
        rest = rounds.rest if connection.vendor == "sqlite" else None  # where only one can write
        rounds.finish_all(failures, rest)
        with failures.noted("work", "cleaning the files"):
            self._erase(rest, rewrite=rewrite)
        return outcome

    def _erase(self, rest: Rest | None, *, rewrite: bool) -> None:
        if not rounds.erase(rest=rest, rewrites=rewrite):
            self.stderr.write(
                "Another process is reading, so the write-ahead log was not emptied. Run this again to empty "
                "it."
            )


def _conditions(wanted: dict[str, Any]) -> Selection:
    name = wanted["owner"]
    user = User.objects.filter(username=name).first() if name is not None else None
    if name is not None and user is None:
        raise CommandError(f"There is no user {name!r}.")
    return Selection(
        older_than_days=wanted["older_than_days"],
        label=wanted["label"],
        owner_pk=user.pk if user else None,
        deleted_for_days=wanted["deleted_for_days"],
        conversation_id=wanted["conversation_id"],
    )


def _chosen(conditions: Selection) -> list[Conversation]:
    try:
        rows = list(selection.selected(conditions))
    except ConversationError as error:
        raise CommandError(str(error)) from error
    if conditions.conversation_id is not None and not rows:
        raise CommandError(f"There is no such conversation: {conditions.conversation_id}.")
    return rows


def _in_force() -> list[RetentionPolicy]:
    return list(RetentionPolicy.objects.in_force())


def _matched(policy: RetentionPolicy) -> Iterator[Conversation]:
    for window in policies.windows(policies.matched(policy)):
        yield from window.select_related("owner")


def _report(
    rows: list[Conversation], by_policy: list[Conversation], sizes: dict[int, Size], *, purged: bool
) -> dict[str, Any]:
    events, size = selection.total(sizes.values())
    return {
        "purged": purged,
        "count": len(rows),
        "events": events,
        "bytes": size,
        "conversations": [
            {
                "id": row.public_id,
                "owner": row.owner.get_username(),
                "deleted_at": row.deleted_at.isoformat() if row.deleted_at else None,
                "last_activity": row.updated_at.isoformat(),
                "events": sizes[row.pk].events,
                "bytes": sizes[row.pk].bytes,
            }
            for row in rows
        ],
        "deleted_by_policies": [row.public_id for row in by_policy],
        "deleted_days": settings.CONFIGURATION.deleted_days,
    }


def _problem(error: Exception) -> str:
    return failures_of.sentence(error, connection) if isinstance(error, DatabaseProblem) else str(error)


def _conversations(count: int) -> str:
    return f"{count:,} conversation{'' if count == 1 else 's'}"


def _in_words(size: Size) -> str:
    return f"{size.events:,} event{'' if size.events == 1 else 's'}, {size.bytes:,} bytes"


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= DAYS_MAX):
        raise ArgumentTypeError(f"{text!r} is not a whole number of days from 0 to {DAYS_MAX}")
    return int(text)
