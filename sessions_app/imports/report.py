"""What an import did with every record that it found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from conversations.exceptions import ConversationError
from conversations.transcripts.sources.nodes import Node, Record


class DoesNotAddUp(ConversationError):
    """More or fewer records were dealt with than were found: a defect, of which the report tells."""

    code = "import_incomplete"


@dataclass(kw_only=True, slots=True)
class ConversationReport:
    """One conversation. Records are counted as the format counts them; a record may become several events."""

    source_id: str
    conversation_id: str | None = None
    """None if nothing was stored."""
    title: str | None = None
    found: int = 0
    """Records of its own, counted before any was read."""
    stored: int = 0
    """Records that are here now, new or not."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Records of which nothing is stored, by the reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Records with an event that cannot be stored, by the reason."""
    shared: int = 0
    """Records that a branch shares with the conversation that it leaves; they count there."""
    kept: Counter[str] = field(default_factory=Counter)
    """Records that are stored as they were, by why and by name."""
    noted: Counter[str] = field(default_factory=Counter)
    """What had to be assumed or left out."""
    events_added: int = 0
    events_already_here: int = 0
    events_masked: int = 0
    """Of those added: with registered secrets in them, which were masked."""

    def take(self, node: Node) -> None:
        """Count a record of its own that is about to be stored, or is skipped."""
        self.noted.update(node.noted)
        if not node.parts:
            self.skipped[node.skipped or "it says nothing"] += 1
            return
        self.stored += 1
        self.kept.update(f"{part.why}: {part.name}" for part in node.parts if isinstance(part, Record))

    def refuse(self, reason: str) -> None:
        """Count a record, taken before, that cannot be stored."""
        self.stored -= 1
        self.refused[reason] += 1

    def check(self) -> None:
        """Raise DoesNotAddUp unless everything that was found was dealt with."""
        dealt_with = self.stored + self.skipped.total() + self.refused.total()
        if dealt_with != self.found:
            raise DoesNotAddUp(f"{self.source_id}: {self.found} records found, {dealt_with} dealt with.")

    def as_json(self) -> dict[str, Any]:
        return {
            "source_id": self.source_id,
            "conversation_id": self.conversation_id,
            "title": self.title,
            "records": {
                "found": self.found,
                "stored": self.stored,
                "skipped": dict(self.skipped),
                "refused": dict(self.refused),
                "shared": self.shared,
            },
            "kept_as_they_were": dict(self.kept),
            "noted": dict(self.noted),
            "events": {
                "added": self.events_added,
                "already_here": self.events_already_here,
                "masked": self.events_masked,
            },
        }


@dataclass(kw_only=True, slots=True)
class Report:
    """A whole import."""

    format: str
    path: str
    conversations: list[ConversationReport] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Conversations and files that could not be imported, with the reasons."""

    def as_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "path": self.path,
            "conversations": [each.as_json() for each in self.conversations],
            "failed": self.failed,
        }
