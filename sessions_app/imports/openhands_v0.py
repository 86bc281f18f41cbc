"""Storing the conversations of OpenHands V0's file stores: as V0 conversations, each event as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import chain
from typing import Any
from uuid import UUID, uuid5

from conversations import access
from conversations.access import Visitor
from conversations.events import NewEvent
from conversations.exceptions import InvalidConversationId
from conversations.models import ConversationRef, Version, normal_id
from conversations.store import importing
from conversations.store.importing import Imported
from conversations.store.labels import TAG_MAX_LENGTH
from conversations.transcripts.local_times import LocalTimes
from conversations.transcripts.sources import openhands_v0
from conversations.transcripts.sources.openhands_v0 import Stored, StoredFacts
from sessions_app.imports.importer import SOURCE, SOURCE_ID
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.watching import UNWATCHED, Watch, watched
from sessions_app.live import marks

USER = "user_id"
"""The tag of whose conversation it was."""
NOTHING = "there is no event to store in it"
# For ids that no conversation here can have: always the same ones, so that an import can be repeated.
_IDS = UUID("5d2f0f6e-6c2b-5a0f-8a0d-6e2b7f6f4d19")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenHandsV0Importer:
    """Imports the conversations of a store for one user, under the ids that they had."""

    user: Visitor
    labels: tuple[str, ...] = ()
    is_dry: bool = False
    zone: tzinfo = UTC
    """Of the computer that wrote the events, whose times have none."""
    watch: Watch = UNWATCHED

    def id_of(self, sid: str) -> str:
        """Return the id that a conversation has here: its own, unless no conversation here can have it."""
        try:
            return normal_id(sid)
        except InvalidConversationId:
            return uuid5(_IDS, f"{access.pk_of(self.user)}/{sid}").hex

    def take(self, found: Stored) -> ConversationReport:
        """Import a conversation, or what is missing of it; return what was done with each event file.

        Raise ImportRefused, Unreadable, and DoesNotAddUp.
        """
        files = openhands_v0.event_files(found)
        report = ConversationReport(source_id=found.sid, found=len(files))

        def skip(_name: str, reason: str) -> None:
            report.skipped[reason] += 1

        def note(_name: str, what: str) -> None:
            report.noted[what] += 1

        def note_by_name(name: str, what: str) -> None:
            report.noted[f"{name}: {what}"] += 1

        facts = openhands_v0.read(found, files, zone=self.zone, note=note_by_name)
        report.title = facts.title
        times = LocalTimes(self.zone, facts.created_at)
        events = openhands_v0.events(found, files, times=times, skip=skip, note=note)
        # Before the import, which would create a conversation without events.
        if (first := next(events, None)) is None:
            report.noted[NOTHING] += 1
        else:
            self._count(self._stored(found, facts, watched(chain([first], events), self.watch)), report)
        report.check()
        return report

    def _stored(self, found: Stored, facts: StoredFacts, events: Iterator[NewEvent]) -> Imported:
        conversation_id = self.id_of(found.sid)
        if self.is_dry:
            return importing.preview(self.user, events, conversation_id=conversation_id, version=Version.V0)
        return importing.import_conversation(
            self.user,
            events,
            conversation_id=conversation_id,
            version=Version.V0,
            settle=self._settle,
            admit=self.watch.admit,
            tags=self._tags(found, facts),
            **_columns(facts),
        )

    def _count(self, imported: Imported, report: ConversationReport) -> None:
        report.stored = imported.added + imported.repeated
        report.refused.update(reason for _, reason in imported.refused)
        report.events_added, report.events_already_here = imported.added, imported.repeated
        report.events_masked = imported.masked
        if imported.conversation is not None:
            report.conversation_id = imported.conversation.public_id

    def _settle(self, conversation: ConversationRef) -> None:
        marks.mark_all_seen(access.pk_of(self.user), conversation)  # an import is no news

    def _tags(self, found: Stored, facts: StoredFacts) -> dict[str, str]:
        told = {SOURCE: openhands_v0.NAME, SOURCE_ID: found.sid, USER: facts.user_id}
        tags = {name: value[:TAG_MAX_LENGTH] for name, value in told.items() if value}
        return tags | dict.fromkeys(self.labels, "")


def _columns(facts: StoredFacts) -> dict[str, Any]:
    return {
        "created_at": facts.created_at,
        "title": facts.title,
        "repository": facts.repository,
        "branch": facts.branch,
        "provider": facts.provider,
        "trigger": facts.trigger,
        "pr_number": list(facts.pr_number),
        "llm_model": facts.llm_model,
        "accumulated_cost": facts.accumulated_cost,
        "prompt_tokens": facts.prompt_tokens,
        "completion_tokens": facts.completion_tokens,
        "total_tokens": facts.total_tokens,
    }
