"""Importing conversations: the events that are not stored yet, each batch in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar

from django.db import transaction
from django.utils import timezone

from conversations import access, live, provisional_titles
from conversations.access import Visitor
from conversations.events import Appended, Kind, Metrics, NewEvent
from conversations.exceptions import ConversationError, EventConflict, InvalidEvent
from conversations.log import writes
from conversations.log.reads import PAGE_MAX_BYTES, PAGE_MAX_EVENTS
from conversations.models import Conversation, ConversationRef, Event, Version, normal_id
from conversations.redaction import secrets
from conversations.store import creation
from conversations.store.creation import ConversationExists

# Counts events before they are added; raises ConversationError to refuse them.
Admit = Callable[[Sequence[NewEvent]], None]


class ImportRefused(ConversationError):
    """The conversation under this id cannot take the imported events."""

    code: ClassVar[str] = "import_refused"


@dataclass(kw_only=True, slots=True)
class Imported:
    conversation: ConversationRef | None = None  # None if no conversation was created
    added: int = 0
    repeated: int = 0  # events that were stored before; the first bytes under an id stay
    masked: int = 0  # events in which registered secrets were masked, as far as they were added
    # Events that cannot be stored, with the reasons.
    refused: list[tuple[NewEvent, str]] = field(default_factory=list)


@dataclass(slots=True)
class Times:
    """The times of the last event and the last message of an import; None for now."""

    event: datetime | None = None
    message: datetime | None = None

    def note(self, event: NewEvent) -> None:
        """Note the times of the next event of the log."""
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
    if row.purged_at is not None:
        raise ImportRefused(
            f"The conversation {row.public_id} was removed here for good, and its id cannot be used again."
        )
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
        if len(batch) >= PAGE_MAX_EVENTS or size >= PAGE_MAX_BYTES:
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


def import_conversation(
    user: Visitor,
    events: Iterable[NewEvent],
    *,
    conversation_id: str,
    version: Version,
    begin: Callable[[ConversationRef], None] | None = None,
    settle: Callable[[ConversationRef], None] | None = None,
    admit: Admit | None = None,
    **facts: Any,
) -> Imported:
    """Import a conversation as the user's, one page of its events at a time.

    Events that are already stored, by their ids, are skipped, so an import can be repeated and
    continues where it was interrupted. No event asks for an answer. `facts` are columns, and `begin`
    runs in the transaction that creates the conversation. `settle` runs in each transaction that adds
    events, so that nothing is left to do if the process ends. `admit` is called before each page with the
    events to add, for the first page before the conversation is created; it may raise. Raise ImportRefused
    if the id is that of a conversation that is another user's, deleted, or of another version.
    """
    conversation = standing(user, conversation_id, version)
    pages = batches(events)
    admitted: list[NewEvent] = []
    is_new = conversation is None
    if conversation is None:
        admitted = next(pages, [])
        if admit is not None and admitted:
            admit(admitted)
        conversation = _created(user, conversation_id, version, begin, facts)
    adding = _Adding(conversation, settle, is_new=is_new)
    for batch in chain([admitted] if admitted else [], pages):
        adding.take(batch, None if batch is admitted else admit)
    return adding.imported


def _created(
    user: Visitor,
    conversation_id: str,
    version: Version,
    begin: Callable[[ConversationRef], None] | None,
    facts: Mapping[str, Any],
) -> ConversationRef:
    try:
        with transaction.atomic():
            # The new conversation counts against no quota. An upload by its owner counts the bytes of its
            # events, in `admit`.
            public_id, owner_id = normal_id(conversation_id), access.pk_of(user)
            shown = secrets.masked_columns(owner_id, None, dict(facts))
            made = creation.insert(public_id=public_id, owner_id=owner_id, version=version, **shown).ref
            if begin is not None:
                begin(made)
            if facts.get("title"):  # perhaps no user chose it, but it is the beginning of a message
                provisional_titles.note_derived(made.pk)
    except ConversationExists:  # created by another transaction just now
        found = standing(user, conversation_id, version)
        if found is None:
            raise
        return found
    return made


class _Adding:
    """Appends the missing events of a conversation, with their consequences in the same transactions."""

    def __init__(
        self,
        conversation: ConversationRef,
        settle: Callable[[ConversationRef], None] | None,
        *,
        is_new: bool,
    ) -> None:
        self.imported = Imported(conversation=conversation)
        self._conversation = conversation
        self._settle = settle
        self._times = Times()
        self._is_new = is_new  # then nothing is looked up; the append meets a concurrent import

    def take(self, batch: Sequence[NewEvent], admit: Admit | None = None) -> None:
        """Append the missing events of a batch; one by one if one of them cannot be stored."""
        for event in batch:
            self._times.note(event)
        if self._is_new:
            if admit is not None:
                admit(batch)
            if self._append_all(batch):
                return
            admit, self._is_new = None, False
        new = missing(self._conversation, batch)
        if new and admit is not None:
            admit(new)
        self.imported.repeated += len(batch) - len(new)
        if new:
            self._append(new)

    def _append_all(self, batch: Sequence[NewEvent]) -> bool:
        """Append a whole batch; return whether it could be stored."""
        try:
            self._store(batch)
        except (InvalidEvent, EventConflict):
            return False
        return True

    def _append(self, new: Sequence[NewEvent]) -> None:
        try:
            self._store(new)
        except (InvalidEvent, EventConflict) as error:
            if len(new) == 1:
                self.imported.refused.append((new[0], str(error)))
                return
            for event in new:
                self._append([event])

    def _store(self, new: Sequence[NewEvent]) -> None:
        """Append events and count them. Raise InvalidEvent or EventConflict."""
        imported = self.imported
        appended = writes.append(self._conversation, new, also=self._follow_up)
        added = [event for event, each in zip(new, appended, strict=True) if each.is_new]
        imported.added += len(added)
        masks = secrets.masks_of(self._conversation.owner_id, self._conversation.pk)
        imported.masked += sum(bool(masks.in_event(event.payload)) for event in added) if masks else 0
        imported.repeated += len(appended) - len(added)

    def _follow_up(self, appended: Sequence[Appended]) -> None:
        """Run the consequences of the stored events, unless another import has stored all of them."""
        if not any(each.is_new for each in appended):
            return
        passed = self.imported.added + self.imported.repeated + len(appended)
        _set_times(self._conversation, self._times, event_count=passed)
        if self._settle is not None:
            self._settle(self._conversation)


def _set_times(conversation: ConversationRef, times: Times, *, event_count: int) -> None:
    """Set the times of a log that contains only imported events to those of its last event."""
    moments = {"updated_at": times.event, "last_message_at": times.message}
    now = timezone.now()
    changes = {name: min(moment, now) for name, moment in moments.items() if moment is not None}
    rows = Conversation.objects.active().with_pks([conversation.pk])
    if changes and rows.filter(next_seq=event_count).update(**changes, listed_at=now):
        transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)


def keep_up(conversation: ConversationRef, used: Metrics, llm_model: str | None) -> bool:
    """Update model and totals of a conversation whose source has grown; return whether any changed."""
    tokens = used.prompt_tokens + used.completion_tokens
    rows = Conversation.objects.with_pks([conversation.pk])
    changed = rows.filter(total_tokens__lt=tokens).update(
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        total_tokens=tokens,
    )
    dearer = rows.filter(accumulated_cost__lt=used.accumulated_cost)
    changed += dearer.update(accumulated_cost=used.accumulated_cost)
    if llm_model is not None:
        changed += rows.filter(llm_model__isnull=True).update(llm_model=llm_model)
    return changed > 0


def preview(user: Visitor, events: Iterable[NewEvent], *, conversation_id: str, version: Version) -> Imported:
    """Return what an import would do, as far as it can be known. Raise ImportRefused."""
    found = Imported(conversation=standing(user, conversation_id, version))
    for batch in batches(events):
        new = missing(found.conversation, batch) if found.conversation else batch
        found.added += len(new)
        found.repeated += len(batch) - len(new)
    return found
