"""Storing conversations that another server of this kind has exported: as they were, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conversations import access
from conversations.access import Visitor
from conversations.dialects import columns
from conversations.events import NewEvent
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import importing
from conversations.store.importing import Imported, ImportRefused
from conversations.transcripts.sources.own import Exported
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.watching import UNWATCHED, Watch, watched
from sessions_app.live import marks
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup

ANOTHER_DIGEST = "its log has another digest than it had: secrets were masked, or it had other events here"
LINK_LOST = "what it is linked to is not here"
TEXTS = {"title": "title", "repository": "repository", "branch": "branch", "model": "llm_model"}
"""The members of a manifest that are texts, and their columns."""
TOKENS = ("prompt_tokens", "completion_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImporter:
    """Imports exported conversations for one user, under the ids that they had."""

    user: Visitor
    labels: tuple[str, ...] = ()
    is_dry: bool = False
    watch: Watch = UNWATCHED

    def take(self, exported: Exported) -> ConversationReport:
        """Import a conversation, or what is missing of it; return what was done.

        Raise ImportRefused, Unreadable for a file that is not whole, and DoesNotAddUp.
        """
        # The bytes are checked against the manifest before anything is stored.
        events = exported.whole(self.watch.look)
        version = _version(exported)
        report = ConversationReport(
            source_id=exported.source_id,
            title=columns.first_text(exported.about.get("title")) or None,
            found=exported.event_count,
        )
        facts = self._facts(exported, report)
        imported = self._stored(exported, events, version, facts)
        report.stored = imported.added + imported.repeated
        for _, reason in imported.refused:
            report.refused[reason] += 1
        report.events_added, report.events_already_here = imported.added, imported.repeated
        report.events_masked = imported.masked
        if imported.conversation is not None and not self.is_dry:
            report.conversation_id = imported.conversation.public_id
            self._set_times(exported, imported.conversation, report)
        report.check()
        return report

    def _stored(
        self, exported: Exported, found: Iterable[NewEvent], version: Version, facts: Mapping[str, Any]
    ) -> Imported:
        events = watched(found, self.watch)
        if self.is_dry:
            return importing.preview(self.user, events, conversation_id=exported.source_id, version=version)
        return importing.import_conversation(
            self.user,
            events,
            conversation_id=exported.source_id,
            version=version,
            begin=(lambda made: agent_setups.add(made, NewSetup())) if version == Version.V1 else None,
            settle=self._settle,
            admit=self.watch.admit,
            **facts,
        )

    def _facts(self, exported: Exported, report: ConversationReport) -> dict[str, Any]:
        about = exported.about
        facts: dict[str, Any] = {
            column: columns.clean(text)
            for name, column in TEXTS.items()
            if isinstance(text := about.get(name), str)
        }
        tags = {name: str(value) for name, value in columns.fields(about.get("tags")).items()}
        tokens = {name: columns.wire_id(about.get(name)) or 0 for name in TOKENS}
        cost = about.get("accumulated_cost")
        cost_limit = 1e12
        is_cost = isinstance(cost, int | float) and 0 <= cost < cost_limit
        facts |= tokens | {
            "accumulated_cost": float(cost) if is_cost else 0.0,  # type: ignore[arg-type]
            "tags": tags | dict.fromkeys(self.labels, ""),
            "total_tokens": sum(tokens.values()),
            "parent_id": self._pk_of(about.get("parent"), report),
            "forked_from_id": self._pk_of(about.get("forked_from"), report),
            "forked_at": _place(about.get("forked_at")),
        }
        if created_at := columns.instant(about.get("created_at")):
            facts["created_at"] = created_at
        return facts

    def _pk_of(self, public_id: object, report: ConversationReport) -> int | None:
        """Return a conversation of the user's that is here already; None if there is none, which is noted."""
        if not isinstance(public_id, str):
            return None
        rows = Conversation.objects.with_public_ids([public_id]).filter(owner_id=access.pk_of(self.user))
        found = rows.values_list("pk", flat=True).first()
        if found is None and not self.is_dry:
            report.noted[LINK_LOST] += 1
        return found

    def _settle(self, conversation: ConversationRef) -> None:
        marks.mark_all_seen(access.pk_of(self.user), conversation)  # an import is no news

    def _set_times(
        self, exported: Exported, conversation: ConversationRef, report: ConversationReport
    ) -> None:
        """Give the conversation its own times again, if its log is what it was."""
        # The import has set them to now; a masked or longer log is not the exported one any more.
        names = ("updated_at", "last_message_at")
        times = {name: columns.instant(exported.about.get(name)) for name in names}
        whole = Conversation.objects.with_pks([conversation.pk]).filter(
            head_digest=columns.first_text(exported.manifest.get("head_digest"))
        )
        if not whole.update(**{name: moment for name, moment in times.items() if moment is not None}):
            report.noted[ANOTHER_DIGEST] += 1


def _place(value: object) -> int | None:
    return -1 if value == -1 else columns.wire_id(value)


def _version(exported: Exported) -> Version:
    """Return which clients the conversation is for. Raise ImportRefused."""
    try:
        return Version(columns.first_text(exported.about.get("version")))
    except ValueError as error:
        raise ImportRefused("It is of a version that this server does not know.") from error
