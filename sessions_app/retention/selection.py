"""The conversations that an operator wants to purge, by age, label, owner, deletion or id, and their size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Sum
from django.utils import timezone

from conversations.models import Conversation, ConversationQuerySet, ConversationRef, Event, normal_id
from sessions_app.models import Attachment
from sessions_app.retention import policies


class Size(NamedTuple):
    events: int
    bytes: int
    """Of payloads and attachments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Conditions that all must hold; None for none."""

    older_than_days: int | None = None
    """Minimum time since anything was added."""
    label: str | None = None
    """NAME or NAME=VALUE."""
    owner_pk: int | None = None
    deleted_for_days: int | None = None
    """Minimum time since deletion."""
    conversation_id: str | None = None

    def rows(self, now: datetime | None = None) -> Iterator[ConversationQuerySet]:
        """Yield the conversations in parts.

        Active ones are included only if an age is given, only old ones that no rule spares; a named one
        in any case. Raise InvalidConversationId.
        """
        moment = now or timezone.now()
        if self.conversation_id is not None:
            yield self._named(moment)
            return
        for window in policies.windows(Conversation.objects.unpurged()):
            yield self._narrowed(window.deleted(), moment)
            if self.older_than_days is not None and self.deleted_for_days is None:
                yield self._live(window, moment)

    def like(self, row: Conversation) -> ConversationQuerySet:
        """Return the rows that still meet the conditions and are deleted or active like this one."""
        moment = timezone.now()
        if self.conversation_id is not None:
            return self._named(moment)
        if row.deleted_at is not None:
            return self._narrowed(Conversation.objects.deleted(), moment)
        return self._live(Conversation.objects.all(), moment)

    def _named(self, now: datetime) -> ConversationQuerySet:
        named = Conversation.objects.with_public_ids([normal_id(self.conversation_id or "")])
        return self._narrowed(named.unpurged(), now)

    def _live(self, rows: ConversationQuerySet, now: datetime) -> ConversationQuerySet:
        moment = now - timedelta(days=self.older_than_days or 0)
        return policies.unspared(self._narrowed(rows, now), moment)

    def _narrowed(self, rows: ConversationQuerySet, now: datetime) -> ConversationQuerySet:
        if self.older_than_days is not None:
            rows = rows.quiet_since(now - timedelta(days=self.older_than_days))
        if self.deleted_for_days is not None:
            rows = rows.deleted_before(now - timedelta(days=self.deleted_for_days))
        if self.owner_pk is not None:
            rows = rows.owned_by(self.owner_pk)
        return rows if self.label is None else policies.labelled(rows, self.label)


def selected(selection: Selection) -> Iterator[Conversation]:
    for rows in selection.rows():
        yield from rows.select_related("owner").order_by("pk")


def size_of(conversation: ConversationRef) -> Size:
    """Return how much a purge of the conversation removes; it reads the size of each event."""
    events = Event.objects.of(conversation)
    stored = events.aggregate(sum=Sum("size"))["sum"] or 0
    files = Attachment.objects.of(conversation).aggregate(sum=Sum("size"))["sum"] or 0
    return Size(events.count(), stored + files)


def total(sizes: Iterable[Size]) -> Size:
    found = list(sizes)
    return Size(sum(size.events for size in found), sum(size.bytes for size in found))
