"""`verify`: report whether the store is complete and undamaged."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseProblem
from django.db import connection

from conversations.engines import durability, failures
from conversations.exceptions import InvalidConversationId
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Occasion,
    Outcome,
    VerificationRun,
    normal_id,
)
from conversations.search.fulltext import indexing
from conversations.verification import checkpoints, derived, records
from conversations.verification.checkpoints import CheckpointRefused
from conversations.verification.records import RunRecord
from conversations.verification.signatures import KeyUnusable, read_key
from sessions_app.imports import options
from sessions_app.processes import this_process
from sessions_app.verification.checks import Check, checks, run

KEY_VARIABLE = "CONVSERVER_CHECKPOINT_KEY"
# Scripts tell damage from a check that did not run.
DAMAGED, COULD_NOT_RUN = 1, 2
PROGRESS_EVERY = 50
"""Steps between two lines of progress, on a terminal."""


def add_key(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help=f"the operator's Ed25519 key, a PEM file (default: the one that {KEY_VARIABLE} names)",
    )


def key_path(given: Path | None) -> Path:
    """Return the path of the operator's key. Raise CommandError."""
    named = given or os.environ.get(KEY_VARIABLE)
    if not named:
        raise CommandError(f"Name the key: --key FILE, or {KEY_VARIABLE}.", returncode=COULD_NOT_RUN)
    return Path(named)


def moment(text: str) -> datetime:
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r} is not a time; write it like 2026-01-31 or 2026-01-31T18:00Z"
        ) from error
    # A time without a zone means the same on each machine.
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class Command(BaseCommand):
    """Verify the store."""

    help = (
        "Read the log again and say whether it is whole: gaps, digests, ids, counters, calls and results, "
        "leases, and what is derived of it. Exit status: 0 if it is, 1 if something is damaged, 2 if the "
        "check could not run. Events are never changed; readers of a damaged conversation are told."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--conversation", metavar="ID", help="this conversation only")
        parser.add_argument(
            "--since",
            type=moment,
            metavar="TIME",
            help="only conversations that changed at this time or later",
        )
        parser.add_argument(
            "--columns", action="store_true", help="also read the columns of events from their payloads again"
        )
        parser.add_argument(
            "--search", action="store_true", help="compare all of the search index, not 1,000 samples"
        )
        parser.add_argument(
            "--repair-derived", action="store_true", help="rebuild the indexes if they are damaged"
        )
        parser.add_argument("--against", type=Path, metavar="FILE", help="compare with a signed checkpoint")
        add_key(parser)
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the result as JSON")

    def handle(self, *args: Any, **chosen: Any) -> None:
        """Verify, print the findings, and end with the status for them."""
        try:
            options.prepare_database(dry_run=True)
            outcome = self._verified(chosen)
        except (KeyUnusable, CheckpointRefused) as error:
            raise CommandError(str(error), returncode=COULD_NOT_RUN) from error
        except DatabaseProblem as error:
            raise CommandError(failures.sentence(error), returncode=COULD_NOT_RUN) from error
        except CommandError as error:
            error.returncode = COULD_NOT_RUN
            raise
        except Exception as error:  # Python would end with the status of a damaged store
            reason = f"The verification could not go on: {records.reason_of(error)}."
            raise CommandError(reason, returncode=COULD_NOT_RUN) from error
        if sentence := durability.of_file(connection):
            self.stderr.write(sentence)
        if outcome == Outcome.DAMAGED:
            sys.exit(DAMAGED)

    def _verified(self, chosen: dict[str, Any]) -> str:
        rows = _rows(chosen["conversation"], chosen["since"])
        if rows is not None and chosen["repair_derived"]:
            raise CommandError(
                "--repair-derived rebuilds the indexes of all conversations: leave out --conversation and "
                "--since."
            )
        made = checks(rows, with_columns=chosen["columns"], whole_search=chosen["search"])
        if chosen["against"]:
            key = read_key(key_path(chosen["key"]))
            checkpoints.require_signed(chosen["against"], key)
            against = chosen["against"]
            made.append(Check(steps=lambda: checkpoints.compare(against, key), examined=checkpoints.EXAMINED))
        process = this_process()
        expected = (Conversation.objects.all() if rows is None else rows).count()
        covers = _covers(chosen)
        record = records.begin(
            Occasion.COMMAND, covers, host=process.host, pid=process.pid, expected=expected
        )
        try:
            self._make(record, made, rows, expected, is_shown=not chosen["as_json"])
            if chosen["repair_derived"]:
                self._repair(record, is_shown=not chosen["as_json"])
        except BaseException as error:  # also Ctrl-C: an unfinished record would seem to go on
            record.end(failure=records.reason_of(error))
            raise
        self._print(record, record.end(), as_json=chosen["as_json"])
        return record.run.outcome

    def _make(
        self,
        record: RunRecord,
        made: list[Check],
        rows: ConversationQuerySet | None,
        expected: int,
        *,
        is_shown: bool,
    ) -> None:
        shows = is_shown and sys.stderr.isatty()  # a line that is written over makes no log
        for number, _ in enumerate(run(record, made, rows)):
            if shows and number % PROGRESS_EVERY == 0:
                done = min(record.run.conversations, expected)
                self.stderr.write(
                    f"\r{done:,} of {expected:,} conversations, {record.run.events:,} events", ending=""
                )
        if shows:
            self.stderr.write("")

    def _repair(self, record: RunRecord, *, is_shown: bool) -> None:
        """Rebuild damaged indexes, and check them again."""
        if not derived.is_damaged():
            return
        events = indexing.rebuild()
        if is_shown:
            self.stdout.write(f"The indexes were rebuilt from {events:,} events.")
        record.forget(derived.EXAMINED)  # what was found before the repair is not there any more
        for step in derived.steps(everything=False):
            record.take(step)

    def _print(self, record: RunRecord, ended: VerificationRun, *, as_json: bool) -> None:
        lasted = ((ended.finished_at or ended.started_at) - ended.started_at).total_seconds()
        if as_json:
            result = {
                "outcome": ended.outcome,
                "covers": ended.covers,
                "conversations": ended.conversations,
                "events": ended.events,
                "problems": ended.problems,
                "seconds": round(lasted, 3),
                "damage": [damage.shown() for damage in record.found],
            }
            self.stdout.write(json.dumps(result, indent=2))
            return
        for damage in record.found:
            self.stdout.write(damage.line())
        read = f"{counted(ended.conversations, 'conversation')}, {counted(ended.events, 'event')} read"
        state = f"DAMAGED, {counted(ended.problems, 'place')}" if ended.problems else "Whole"
        self.stdout.write(f"{state}: {read} in {lasted:.1f} s.")


def _rows(conversation_id: str | None, since: datetime | None) -> ConversationQuerySet | None:
    """Return the chosen conversations; None for all. Raise CommandError."""
    if conversation_id is None and since is None:
        return None
    rows = Conversation.objects.all()
    if conversation_id is not None:
        try:
            rows = rows.with_public_ids([normal_id(conversation_id)])
        except InvalidConversationId as error:
            raise CommandError(str(error)) from error
        if not rows.exists():
            raise CommandError(f"There is no conversation {conversation_id}.")
    return rows if since is None else rows.changed_since(since)


def _covers(chosen: dict[str, Any]) -> str:
    if chosen["conversation"]:
        start = f"conversation {chosen['conversation']}"
    elif chosen["since"]:
        start = f"conversations changed since {chosen['since']:%Y-%m-%d %H:%M}"
    else:
        start = "all conversations"
    more = [name for name in ("columns", "search") if chosen[name]]
    more += ["a checkpoint"] if chosen["against"] else []
    return ", with ".join([start, *more])
