"""Reading the logs of many conversations at once, in the order in which the conversations were created."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from conversations.access import Visitor
from conversations.events import Dialect, EventEnvelope, EventFilter
from conversations.log.reads import take_bytes
from conversations.models import Conversation, ConversationQuerySet, Event


class LogPlace(NamedTuple):
    conversation_pk: int
    seq: int


class FoundEvent(NamedTuple):
    """An event, its place and its conversation."""

    place: LogPlace
    public_id: str
    event: EventEnvelope


class FoundById(NamedTuple):
    """Events that were requested by id; the keys, by id, of those that are too long to read now."""

    loaded: list[FoundEvent]
    deferred: dict[str, int]


class FoundPage(NamedTuple):
    """A page of events, and whether more of the requested events follow."""

    found: list[FoundEvent]
    has_more: bool


def _logs(user: Visitor) -> ConversationQuerySet:
    """Return the conversations to read: those that V1 clients can name, including sub-conversations."""
    return Conversation.objects.visible_to(user).known_to_v1()


def search(
    user: Visitor, wanted: EventFilter, *, after: LogPlace | None, newest_first: bool, limit: int
) -> FoundPage:
    """Return the events after a position: at most `limit`, fewer if they are long."""
    logs = _logs(user)
    if after is not None:  # otherwise each page would read the logs of all conversations before it
        logs = logs.begun_from(after.conversation_pk, newest_first=newest_first)
    rows = Event.objects.of_any(logs).matching(wanted)
    if after is not None:
        rows = rows.beyond(*after, newest_first=newest_first)
    places = list(rows.log_by_log(newest_first=newest_first).values_list("pk", "size")[: limit + 1])
    shown = take_bytes(places[:limit])
    return FoundPage(_found(shown, newest_first=newest_first), has_more=len(places) > len(shown))


def count(user: Visitor, wanted: EventFilter) -> int:
    """Return the number of events that a search would find."""
    return Event.objects.of_any(_logs(user)).matching(wanted).count()


def with_ids(user: Visitor, event_ids: Collection[str]) -> FoundById:
    """Return the user's V1 events with these ids; of copies, the oldest."""
    rows = Event.objects.of_any(_logs(user)).with_event_ids(event_ids, dialect=Dialect.V1)
    places = list(rows.oldest_copies().order_by("pk").values_list("pk", "size", "event_id"))
    loaded = take_bytes((pk, size) for pk, size, _ in places)
    deferred = {event_id: pk for pk, _, event_id in places[len(loaded) :]}
    return FoundById(_found(loaded, newest_first=False), deferred)


def payload_of(pk: int) -> str | None:
    """Return the payload of the event with this key; None if it was purged."""
    return Event.objects.with_pks([pk]).values_list("payload", flat=True).first()


def _found(pks: Sequence[int], *, newest_first: bool) -> list[FoundEvent]:
    if not pks:
        return []
    rows = Event.objects.with_pks(pks).log_by_log(newest_first=newest_first)
    places = rows.values_list("conversation_id", "seq", "conversation__public_id")
    return [
        FoundEvent(LogPlace(conversation_pk, seq), public_id, event)
        for (conversation_pk, seq, public_id), event in zip(places, rows.envelopes(), strict=True)
    ]
