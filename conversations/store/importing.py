"""Importing conversations: which ids may be imported, and which of their events are not stored yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from conversations.access import Visitor
from conversations.events import Kind, NewEvent
from conversations.exceptions import ConversationError
from conversations.models import Conversation, ConversationRef, Event, Version, normal_id

BATCH_MAX_EVENTS = 500
BATCH_MAX_BYTES = 4 * 1024 * 1024
"""A batch ends after the event that reaches this size, so that long events do not fill the memory."""


class ImportRefused(ConversationError):
    """The conversation under this id cannot take the imported events."""

    code: ClassVar[str] = "import_refused"


@dataclass(kw_only=True, slots=True)
class Imported:
    """The outcome of one import."""

    conversation: ConversationRef | None = None
    """None if no conversation was created."""
    added: int = 0
    repeated: int = 0
    """Events that were stored before; the first bytes under an id stay."""
    refused: list[tuple[NewEvent, str]] = field(default_factory=list)
    """Events that cannot be stored, with the reasons."""


@dataclass(slots=True)
class Times:
    """The times of the last event and the last message of an import; None for now."""

    event: datetime | None = None
    message: datetime | None = None

    def note(self, event: NewEvent) -> None:
        """Take the next event of the log into account."""
        self.event = None if event.stamp_offset is not None else event.reading.timestamp
        if event.reading.kind is Kind.MESSAGE and not event.reading.hidden:
            self.message = self.event


def standing(user: Visitor, conversation_id: str, version: Version) -> ConversationRef | None:
    """Return the user's conversation with this id, None if the id is free. Raise ImportRefused."""
    row = Conversation.objects.with_public_ids([normal_id(conversation_id)]).first()
    if row is None:
        return None
    if row.owner_id != user.pk:
        raise ImportRefused(f"The conversation {row.public_id} exists here and belongs to another user.")
    if row.deleted_at is not None:
        raise ImportRefused(f"The conversation {row.public_id} was deleted here. Restore it first.")
    if row.version != version:
        raise ImportRefused(f"The conversation {row.public_id} exists here as a {row.version} conversation.")
    return row.ref


def batches(events: Iterable[NewEvent]) -> Iterator[list[NewEvent]]:
    """Yield the events in their order, in batches of one transaction each."""
    batch: list[NewEvent] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event.payload)
        if len(batch) >= BATCH_MAX_EVENTS or size >= BATCH_MAX_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def missing(conversation: ConversationRef, events: Sequence[NewEvent]) -> list[NewEvent]:
    """Return the events whose ids the log does not have; of one id the first. No payload is read."""
    first = {event.event_id: event for event in reversed(events)}
    stored = Event.objects.of(conversation).known_as(first, ()).values_list("event_id", flat=True)
    for event_id in stored:
        del first[event_id]
    return [event for event in events if first.get(event.event_id) is event]


def preview(user: Visitor, events: Iterable[NewEvent], *, conversation_id: str, version: Version) -> Imported:
    """Return what an import would do, as far as that can be known. Raise ImportRefused."""
    found = Imported(conversation=standing(user, conversation_id, version))
    for batch in batches(events):
        new = missing(found.conversation, batch) if found.conversation else batch
        found.added += len(new)
        found.repeated += len(batch) - len(new)
    return found
