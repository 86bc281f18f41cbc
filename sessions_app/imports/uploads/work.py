"""The work of an import, in a thread of its own: conversation by conversation, each noted in the report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.db import DataError, IntegrityError, NotSupportedError, ProgrammingError, connections
from django.db import Error as DatabaseProblem

from conversations.confined import processes
from conversations.dialects import columns
from conversations.events import NewEvent
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    OutcomeUnknown,
    QuotaExceeded,
    StoreUnavailable,
)
from conversations.outages import Outage
from conversations.storage import quotas
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.uploads import leases, pieces, sources
from sessions_app.imports.uploads.totals import Totals, of_one
from sessions_app.imports.watching import Watch
from sessions_app.imports.ways import Found, Wanted
from sessions_app.models import ImportedConversation, ImportRun, ImportState

LINES_MAX = 100_000
"""A report lists at most this many conversations; its sums are of all."""
NOTHING = "There is no conversation in the file."
DEFECT = (
    "Something went wrong in the server, which its log tells more about. Nothing that was imported is lost."
)
# Database errors that a repeated attempt would raise again. Any other database error may pass.
UNSTORABLE = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
NOT_STORED = "The database refuses something in this conversation, which the server's log tells more about."
# After one of these the import pauses until its lease has lapsed: at once it would fail again.
PASSING = (DatabaseProblem, ConversationBusy, OutcomeUnknown, StoreUnavailable)

_failing = Outage(__name__, "An import failed")


class Interrupted(Exception):
    """The server ends, or another process has taken the import over."""


class Cancelled(Exception):
    """The user does not want the rest."""


@dataclass(slots=True)
class Progress:
    """How far an import is; the thread that works changes it, and the event loop's reads it."""

    records: int = 0
    conversations: int = 0
    failed: int = 0
    format: str = ""
    totals: Totals = field(default_factory=Totals)
    noted: dict[str, Any] = field(default_factory=dict)
    """The totals as of the last conversation."""
    is_cancelled: bool = False
    is_stopped: bool = False

    def columns(self) -> dict[str, Any]:
        """Return the columns of the import's row that say it."""
        return {
            "records": self.records,
            "conversations": self.conversations,
            "failed": self.failed,
            "format": self.format,
            "totals": self.noted,
        }


@dataclass(kw_only=True, slots=True)
class ImportWork:
    """One import that this process has taken."""

    run: ImportRun
    progress: Progress = field(default_factory=Progress)

    def begin(self, then: Callable[[], None]) -> None:
        """Begin a thread for it; `then` is called there at its end."""

        def carried_out() -> None:
            try:
                self.carry_out()
            finally:
                connections.close_all()
                then()

        # A daemon, for the process does not wait for it: the next one goes on with what was stored.
        threading.Thread(target=carried_out, name=f"import-{self.run.pk}", daemon=True).start()

    def carry_out(self) -> None:
        """Import the file, and note how that ended. Raise nothing."""
        self.progress.format = self.run.format
        with _failing.counted():  # after an unforeseen error the lease of the import ends
            try:
                state, problem = self._outcome()
            except Interrupted:
                leases.give_back(self.run)
                return
            leases.end(self.run, state, problem=problem, progress=self.progress.columns())

    def _outcome(self) -> tuple[ImportState, str]:
        """Import the file; return how that ended, and why. Raise Interrupted and PASSING."""
        path = pieces.directory_of(self.run) / self.run.file_name
        try:
            with pieces.local_file(self.run) as path:
                self._import(path)
        except Cancelled:
            return ImportState.CANCELLED, ""
        except (Interrupted, *PASSING) as error:
            # A refusal outside of any conversation, such as of the report.
            if isinstance(error, UNSTORABLE):
                _failing.failed(error, run=self.run.public_id)
                return ImportState.FAILED, DEFECT
            raise
        except (ConversationError, Unreadable) as error:
            return ImportState.FAILED, self._sentence(error, path)
        except OSError as error:
            return ImportState.FAILED, f"The file cannot be read: {error.strerror}."
        except Exception as error:
            _failing.failed(error, run=self.run.public_id)
            return ImportState.FAILED, DEFECT
        return ImportState.DONE, ""

    def _import(self, path: Path) -> None:
        # Staff import for others without a quota.
        admit = None if self.run.by_id else self._admit
        watch = Watch(look=self._look_between, read=self._read, admit=admit)
        labels, zone = tuple(self.run.labels), ZoneInfo(self.run.zone)
        wanted = Wanted(user=self.run.user, labels=labels, zone=zone, watch=watch)
        with processes.checked_by(self._look_between):
            way, place = sources.opened(self.run, path, self._look_between)
            self.progress.format = way.name
            for number, found in enumerate(way.found(place, wanted), 1):
                self._look_between()
                self._take(number, found, path)
        if not self.progress.conversations:
            raise Unreadable(NOTHING)

    def _take(self, number: int, found: Found, path: Path) -> None:
        """Import one conversation. Raise QuotaExceeded, after which none has room, and PASSING."""
        line = ImportedConversation(run=self.run, number=number, source_id=_text(found.source_id))
        try:
            # A cancel waits for the whole of what has begun.
            with processes.checked_by(self._require_going_on):
                done = found.take()
        except UNSTORABLE as error:  # the other conversations can be stored
            _failing.failed(error, run=self.run.public_id, number=number)
            line.problem = NOT_STORED
            self._note(line)
        except PASSING:
            raise
        except (ConversationError, Unreadable) as error:
            line.problem = self._sentence(error, path)
            self._note(line)
            if isinstance(error, QuotaExceeded):
                raise
        else:
            self._merge_earlier(number, done)
            line.conversation = done.conversation_id or ""
            line.title, line.report = _text(done.title or ""), of_one(done)
            self.progress.totals.add(done)
            self._note(line)

    def _merge_earlier(self, number: int, done: ConversationReport) -> None:
        """Count as added what an attempt of this import has added that was cut off later."""
        # To its user it is one import, however many processes had it.
        if self.run.attempt == 1:
            return
        before = ImportedConversation.objects.filter(run=self.run, number=number).first()
        if before is not None and before.report:
            added = min(before.report["events"]["added"], done.events_already_here)
            done.events_added += added
            done.events_already_here -= added

    def _note(self, line: ImportedConversation) -> None:
        """Store a line of the report, over that of an earlier attempt; after LINES_MAX only count it."""
        if line.number <= LINES_MAX:
            ImportedConversation.objects.bulk_create(
                [line],
                update_conflicts=True,
                unique_fields=["run", "number"],
                update_fields=["source_id", "conversation", "title", "problem", "report"],
            )
        self.progress.conversations += 1
        self.progress.failed += bool(line.problem)
        self.progress.noted = self.progress.totals.as_json()

    def _read(self) -> None:
        self.progress.records += 1
        self._require_going_on()

    def _look_between(self) -> None:
        """Raise Cancelled, where no conversation is half imported, or Interrupted."""
        if self.progress.is_cancelled:
            raise Cancelled
        self._require_going_on()

    def _require_going_on(self) -> None:
        if self.progress.is_stopped:
            raise Interrupted

    def _sentence(self, error: Exception, path: Path) -> str:
        return _sentence(error, (pieces.unpacked_of(self.run), path.parent), path.name)

    def _admit(self, events: Sequence[NewEvent]) -> None:
        quotas.admit_bytes(self.run.user_id, lambda: sum(len(event.payload) for event in events))


def _sentence(error: Exception, places: Sequence[Path], name: str) -> str:
    """Return what an error says, without the places where this server keeps the file."""
    text = str(error)
    for place in places:
        text = text.replace(f"{place}/", "").replace(str(place), name)
    text = _text(text[:1].upper() + text[1:])
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _text(text: str) -> str:
    text_max_length = 1_000
    return columns.clean(text)[:text_max_length]
