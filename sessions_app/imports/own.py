"""Storing conversations that another server of this kind has exported: as they were, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conversations import access
from conversations.access import Visitor
from conversations.dialects import columns
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import importing
from conversations.store.importing import Imported, ImportRefused
from conversations.transcripts.sources.own import Exported
from sessions_app.imports.importer import END
from sessions_app.imports.report import ConversationReport
from sessions_app.live import marks
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup

ANOTHER_DIGEST = "its log has another digest than it had: secrets were masked, or it had other events here"
SAME_NAMES = ("title", "repository", "branch", "accumulated_cost", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImporter:
    """Imports exported conversations for one user, under the ids that they had."""

    user: Visitor
    labels: tuple[str, ...] = ()
    is_dry: bool = False

    def take(self, exported: Exported) -> ConversationReport:
        """Import a conversation, or what is missing of it; return what was done.

        Raise ImportRefused, Unreadable for a file that is not whole, and DoesNotAddUp.
        """
        exported.check()
        version = _version(exported)
        report = ConversationReport(
            source_id=exported.source_id,
            title=columns.first_text(exported.about.get("title")) or None,
            found=exported.event_count,
        )
        imported = self._stored(exported, version)
        report.stored = imported.added + imported.repeated
        for _, reason in imported.refused:
            report.refused[reason] += 1
        report.events_added, report.events_already_here = imported.added, imported.repeated
        if imported.conversation is not None and not self.is_dry:
            report.conversation_id = imported.conversation.public_id
            self._settle(exported, imported.conversation, report)
        report.check()
        return report

    def _stored(self, exported: Exported, version: Version) -> Imported:
        events = exported.events()
        if self.is_dry:
            return importing.preview(self.user, events, conversation_id=exported.source_id, version=version)
        return importing.import_conversation(
            self.user,
            events,
            conversation_id=exported.source_id,
            version=version,
            begin=_with_setup if version == Version.V1 else None,
            **self._facts(exported),
        )

    def _facts(self, exported: Exported) -> dict[str, Any]:
        about = exported.about
        facts: dict[str, Any] = {name: about[name] for name in SAME_NAMES if about.get(name) is not None}
        tags = {name: str(value) for name, value in columns.fields(about.get("tags")).items()}
        tokens = sum(columns.wire_id(about.get(name)) or 0 for name in ("prompt_tokens", "completion_tokens"))
        facts |= {
            "llm_model": about.get("model"),
            "tags": tags | dict.fromkeys(self.labels, ""),
            "total_tokens": tokens,
            "parent_id": self._pk_of(about.get("parent")),
            "forked_from_id": self._pk_of(about.get("forked_from")),
            "forked_at": columns.wire_id(about.get("forked_at")),
        }
        if created_at := columns.instant(about.get("created_at")):
            facts["created_at"] = created_at
        return facts

    def _pk_of(self, public_id: object) -> int | None:
        """Return a conversation of the user's that is here already; None if there is none."""
        if not isinstance(public_id, str):
            return None
        rows = Conversation.objects.with_public_ids([public_id]).filter(owner_id=access.pk_of(self.user))
        return rows.values_list("pk", flat=True).first()

    def _settle(self, exported: Exported, conversation: ConversationRef, report: ConversationReport) -> None:
        """Give the conversation its own times again, if its log is what it was."""
        marks.mark_seen(access.pk_of(self.user), conversation, END)
        names = ("updated_at", "last_message_at")
        times = {name: columns.instant(exported.about.get(name)) for name in names}
        whole = Conversation.objects.with_pks([conversation.pk]).filter(
            head_digest=columns.first_text(exported.manifest.get("head_digest"))
        )
        if not whole.update(**{name: moment for name, moment in times.items() if moment is not None}):
            report.noted[ANOTHER_DIGEST] += 1


def _with_setup(conversation: ConversationRef) -> None:
    agent_setups.add(conversation, NewSetup())


def _version(exported: Exported) -> Version:
    """Return which clients the conversation is for. Raise ImportRefused."""
    try:
        return Version(columns.first_text(exported.about.get("version")))
    except ValueError as error:
        raise ImportRefused("It is of a version that this server does not know.") from error
