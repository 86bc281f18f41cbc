"""Pages of one log as V1 clients ask for them most: without a filter, by two statements."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import QuerySet, Value

from conversations.dialects import v1
from conversations.engines.compiled import CompiledQuery
from conversations.events import SEQ_MAX, Dialect
from conversations.log.reads import take_bytes
from conversations.models import Conversation, Event
from conversations.models.events import envelope
from convserver.api.direct.calls import NotDirect, Read


class LogPlace(NamedTuple):
    """Which part of a log is asked for."""

    limit: int
    newest_first: bool
    after: int | None = None
    """The seq with which the page before has ended."""

    def bounds(self) -> tuple[int, int]:
        """Return the first and the last seq that the page can have, and one more to know whether it ends.

        Seqs have no holes. The bounds keep PostgreSQL from sorting the rest of a log that it takes for short.
        """
        if self.newest_first:
            return (0, SEQ_MAX) if self.after is None else (self.after - 1 - self.limit, self.after - 1)
        first = 0 if self.after is None else self.after + 1
        return first, first + self.limit


class LogPage(NamedTuple):
    """Events as JSON, as V1 clients are shown them."""

    conversation_pk: int
    shown: list[str]
    end: int | None
    """The seq of the last event; None if no page follows."""


def _places(
    rows: int, newest_first: bool, *, public_id: Value, user: Value, first: Value, last: Value
) -> QuerySet[Event, Any]:
    conversation = Conversation.objects.active().owned_by(user).with_public_ids([public_id])
    events = Event.objects.of_one(conversation).between(first, last)
    ordered = events.newest_first() if newest_first else events.oldest_first()
    return ordered.values("conversation_id", "seq", "size", "dialect", "conversation__next_seq")[:rows]


def _payloads(newest_first: bool, *, pk: Value, first: Value, last: Value) -> QuerySet[Event, Any]:
    events = Event.objects.of_key(pk).between(first, last)
    return (events.newest_first() if newest_first else events.oldest_first()).values_list("payload")


def _events(newest_first: bool, *, pk: Value, first: Value, last: Value) -> QuerySet[Event, Any]:
    events = Event.objects.of_key(pk).between(first, last)
    return (events.newest_first() if newest_first else events.oldest_first()).envelope_rows()


_PLACES, _PAYLOADS, _EVENTS = CompiledQuery(_places), CompiledQuery(_payloads), CompiledQuery(_events)


def page_of_log(read: Read, public_id: str, place: LogPlace) -> LogPage:
    """Return a page of one log. Raise NotDirect if there is none, or the client may not reach it."""
    first, last = place.bounds()
    # The keys and sizes first: a page ends before its events are more than memory should hold.
    rows = _PLACES.rows(
        place.limit + 1, place.newest_first, public_id=public_id, user=read.user_pk, first=first, last=last
    )
    if not rows or read.only not in (None, rows[0]["conversation_id"]):
        raise NotDirect
    end_of_log = rows[0]["conversation__next_seq"]
    if place.after is not None and place.after > end_of_log:
        raise NotDirect  # a cursor of another log, or of this one before it was restored
    if len(rows) < min(min(last + 1, end_of_log) - max(first, 0), place.limit + 1):
        raise NotDirect  # the log has a hole, which only a damaged one has: the view looks behind it
    seqs = take_bytes((row["seq"], row["size"]) for row in rows[: place.limit])
    pk: int = rows[0]["conversation_id"]
    bounds = {"pk": pk, "first": min(seqs), "last": max(seqs)}
    # Events of this wire are shown as their payload: the other columns took most of the time of a page.
    if all(row["dialect"] == Dialect.V1 for row in rows[: len(seqs)]):
        texts = [payload for (payload,) in _PAYLOADS.tuples(place.newest_first, **bounds)]
    else:
        found = _EVENTS.tuples(place.newest_first, **bounds)
        texts = [v1.shown(envelope(*row), public_id) for row in found]
    return LogPage(pk, texts, seqs[-1] if len(rows) > len(seqs) else None)
