"""The reads of the app face that polls make: as its views answer them, by two statements each at most."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Value
from pydantic import TypeAdapter

from conversations.cursors import PlaceCursor
from conversations.dialects import v1
from conversations.engines.compiled import CompiledQuery
from conversations.events import SEQ_MAX
from conversations.log.reads import take_bytes
from conversations.models import Conversation, Event
from conversations.models.events import envelope
from convserver.api.addresses import seen_by
from convserver.api.direct.calls import DirectAnswer, NotDirect, Read, shown_and_more
from convserver.api.openhands.view import NullRenderer
from convserver.api.v1.app.events import AppEventOrder, EventSearchQuery, page_text
from convserver.api.v1.app.shapes import AppConversationPage, conversation_rows, conversations_in
from convserver.pagination import PAGE_MAX

_IDS = TypeAdapter(list[UUID])
_SIMPLE = frozenset({"conversation_id__eq", "sort_order", "limit", "page_id"})
"""What a direct search of events understands."""


def _some(*, public_ids: list[Value], user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return conversation_rows(Conversation.objects.owned_by(user).with_public_ids(public_ids))


def _page(rows: int, *, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return conversation_rows(Conversation.objects.owned_by(user).top_level().newest_first())[:rows]


def _places(
    rows: int, newest_first: bool, *, public_id: Value, user: Value, first: Value, last: Value
) -> QuerySet[Event, Any]:
    conversation = Conversation.objects.active().owned_by(user).with_public_ids([public_id])
    events = Event.objects.of_one(conversation).between(first, last)
    ordered = events.newest_first() if newest_first else events.oldest_first()
    return ordered.values("conversation_id", "seq", "size", "conversation__next_seq")[:rows]


def _events(newest_first: bool, *, pk: Value, first: Value, last: Value) -> QuerySet[Event, Any]:
    events = Event.objects.of_key(pk).between(first, last)
    return (events.newest_first() if newest_first else events.oldest_first()).envelope_rows()


_SOME, _PAGE = CompiledQuery(_some), CompiledQuery(_page)
_PLACES, _EVENTS = CompiledQuery(_places), CompiledQuery(_events)


def conversations(read: Read) -> DirectAnswer:
    """Return conversations by their ids, null for an unknown one. Raise NotDirect."""
    given = read.parameters()
    if not given or any(name != "ids" for name, _ in given):
        raise NotDirect
    ids = [found.hex for found in _IDS.validate_python([value for _, value in given])]
    rows = list(read.reachable(_SOME.rows(public_ids=ids, user=read.user_pk)))
    shown = conversations_in(rows, origin=read.origin)
    found = {each.id: seen_by(read.user, each).model_dump(mode="json") for _, each in shown}
    return DirectAnswer(NullRenderer().render([found.get(public_id) for public_id in ids]))


def first_page(read: Read) -> DirectAnswer:
    """Return the first page of the list. Raise NotDirect."""
    limit = read.limit(PAGE_MAX)
    rows, next_page_id = shown_and_more(_PAGE.rows(limit + 1, user=read.user_pk), limit)
    items = [seen_by(read.user, each) for _, each in conversations_in(rows, origin=read.origin)]
    page = AppConversationPage(items=items, next_page_id=next_page_id)
    return DirectAnswer(NullRenderer().render(page.model_dump(mode="json")))


def events(read: Read) -> DirectAnswer:
    """Return a page of the events of one conversation. Raise NotDirect, also if there is none."""
    read.require_all_conversations()
    # Of a repeated parameter the last one counts, as in the view.
    given = dict(read.parameters())
    if not given.keys() <= _SIMPLE:
        raise NotDirect
    query = EventSearchQuery.model_validate(given)
    if query.conversation_id__eq is None:
        raise NotDirect
    newest_first = query.sort_order is AppEventOrder.TIMESTAMP_DESC
    cursor = PlaceCursor.decode(query.page_id) if query.page_id else None
    # Seqs have no holes. The bound keeps PostgreSQL from sorting the rest of a log that it takes for short.
    first, last = 0, SEQ_MAX if newest_first else query.limit
    if cursor is not None and newest_first:
        first, last = cursor.seq - 1 - query.limit, cursor.seq - 1
    elif cursor is not None:
        first, last = cursor.seq + 1, cursor.seq + 1 + query.limit
    public_id = query.conversation_id__eq.hex
    # The keys and sizes first: a page ends before its events are more than memory should hold.
    places = _PLACES.rows(
        query.limit + 1, newest_first, public_id=public_id, user=read.user_pk, first=first, last=last
    )
    if not places:
        raise NotDirect
    end_of_log = places[0]["conversation__next_seq"]
    if len(places) < min(min(last + 1, end_of_log) - max(first, 0), query.limit + 1):
        raise NotDirect  # the log has a hole, which only a damaged one has: the view looks behind it
    pk: int = places[0]["conversation_id"]
    if cursor is not None and cursor.conversation_pk != pk:
        raise NotDirect
    shown = take_bytes((place["seq"], place["size"]) for place in places[: query.limit])
    found = _EVENTS.tuples(newest_first, pk=pk, first=min(shown), last=max(shown))
    end = PlaceCursor(pk, shown[-1]) if len(places) > len(shown) else None
    return DirectAnswer(page_text([v1.shown(envelope(*row), public_id) for row in found], end).encode())
