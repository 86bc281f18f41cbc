"""Events of the app face: of one conversation, or of all conversations of the user (spec V1 §1.3, §1.7).

An event of this wire is returned as it was stored, byte for byte; one of the other wire as its counterpart.
The order is that of the log; without a named conversation, the logs follow one another in the order of
their creation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, ConfigDict
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.cursors import InvalidCursor, PlaceCursor
from conversations.dialects import v1
from conversations.events import ConversationRef, EventFilter
from conversations.exceptions import ConversationNotFound
from conversations.log import reads
from conversations.search import across_logs
from conversations.search.across_logs import LogPlace
from convserver.api.openhands.errors import Detail, ValidationProblems
from convserver.api.openhands.instants import Instant
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import query_of
from convserver.api.scopes import WRITES
from convserver.api.v1 import batches, shown_events
from convserver.api.v1.app.view import IDS, AppViewSet, PageQuery, described, of_list, texts_of

NOTHING = EventFilter(types=frozenset({""}))
"""No event has an empty type."""


class AppEventOrder(StrEnum):
    """The orders of events."""

    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_DESC = "TIMESTAMP_DESC"


class LogQuery(BaseModel):
    """Which events to return."""

    kind__eq: StorableText | None = None
    timestamp__gte: Instant | None = None
    timestamp__lt: Instant | None = None
    sort_order: AppEventOrder = AppEventOrder.TIMESTAMP


class LogPageQuery(LogQuery, PageQuery):
    """Which events to return, and which page of them."""


class EventCountQuery(LogQuery):
    """Which events to count, of one conversation or of all conversations of the user."""

    conversation_id__eq: UUID | None = None


class EventSearchQuery(EventCountQuery, PageQuery):
    """Which events to return, of which conversation, and which page."""


class AppEvent(BaseModel):
    """An event in this wire's form; its other members depend on its kind."""

    model_config = ConfigDict(extra="allow")

    kind: str


class AppEventPage(BaseModel):
    """One page of events; `next_page_id` is null on the last one."""

    items: list[AppEvent]
    next_page_id: str | None


_of_log: dict[int, Any] = {400: Detail, 404: Detail, 422: ValidationProblems}


class AppEventViewSet(AppViewSet):
    """The events of all conversations of the user, or of one."""

    needs = WRITES

    @extend_schema(parameters=described(EventSearchQuery), responses={200: AppEventPage, **of_list})
    def search(self, request: Request) -> HttpResponse:
        """Return one page, in the order of the log; no event if the conversation does not exist."""
        query = query_of(request, EventSearchQuery)
        if query.conversation_id__eq is None:
            return _page_of_all(request, query)
        conversation = _found(request, query.conversation_id__eq)
        return _page(conversation, query)

    @extend_schema(parameters=described(EventCountQuery), responses={200: int, **of_list})
    def count(self, request: Request) -> Response:
        """Count what a search would return."""
        query = query_of(request, EventCountQuery)
        if query.conversation_id__eq is None:
            return Response(across_logs.count(request.user, _wanted(query)))
        conversation = _found(request, query.conversation_id__eq)
        return Response(0 if conversation is None else _count(conversation, query))

    @extend_schema(parameters=[IDS], responses={200: list[AppEvent | None], **of_list})
    def batch(self, request: Request) -> HttpResponseBase:
        """Return them in the requested order, null for an unknown id; only events stored in this wire.

        Of the copies in forks the oldest is returned.
        """
        ids = texts_of(request, "id")
        found = across_logs.with_ids(request.user, ids)
        # As stored, and under the stored id: no conversation is named, so ids of the other wire cannot be
        # looked up.
        loaded = {each.event["id"]: each.event["payload"] for each in found.loaded}
        deferred = {event_id: partial(across_logs.payload_of, pk) for event_id, pk in found.deferred.items()}
        return batches.in_order(ids, loaded, deferred)


class LogViewSet(AppViewSet):
    """The events of one conversation."""

    needs = WRITES

    @extend_schema(parameters=described(LogPageQuery), responses={200: AppEventPage, **_of_log})
    def search(self, request: Request, conversation_id: str) -> HttpResponse:
        """Return one page, in the order of the log."""
        query = query_of(request, LogPageQuery)
        conversation = access.readable(request.user, UUID(conversation_id).hex)
        return _page(conversation, query)

    @extend_schema(parameters=described(LogQuery), responses={200: int, **_of_log})
    def count(self, request: Request, conversation_id: str) -> Response:
        """Count what a search would return."""
        query = query_of(request, LogQuery)
        return Response(_count(access.readable(request.user, UUID(conversation_id).hex), query))

    @extend_schema(parameters=[IDS], responses={200: list[AppEvent | None], **_of_log})
    def batch(self, request: Request, conversation_id: str) -> HttpResponseBase:
        """Return them in the requested order, null for an unknown id."""
        ids = texts_of(request, "id")
        conversation = access.readable(request.user, UUID(conversation_id).hex)
        found = shown_events.with_ids(conversation, ids)
        return batches.in_order(ids, found.loaded, found.deferred)


def _found(request: Request, conversation_id: UUID) -> ConversationRef | None:
    try:
        return access.readable(request.user, conversation_id.hex)
    except ConversationNotFound:
        return None


def _wanted(query: LogQuery) -> EventFilter:
    """Return the filter. Raise UnknownKind."""
    until: datetime | None = None
    if query.timestamp__lt is not None:
        try:
            until = query.timestamp__lt - timedelta.resolution  # times are stored with microseconds
        # A time before the year 1.
        except OverflowError:
            return NOTHING
    return EventFilter(
        any_of=frozenset() if query.kind__eq is None else v1.shown_as(kind=query.kind__eq),
        since=query.timestamp__gte,
        until=until,
    )


def _count(conversation: ConversationRef, query: LogQuery) -> int:
    return reads.count_events(conversation, _wanted(query))


def _page(conversation: ConversationRef | None, query: LogPageQuery | EventSearchQuery) -> HttpResponse:
    newest_first = query.sort_order is AppEventOrder.TIMESTAMP_DESC
    wanted = _wanted(query)
    cursor = PlaceCursor.decode(query.page_id) if query.page_id else None
    if conversation is None:
        return _shown_page([], None)
    # Its seq would be a place in this log, too.
    if cursor is not None and cursor.conversation_pk != conversation.pk:
        raise InvalidCursor("This is a page id of another conversation.")
    first, last = 0, None
    if cursor is not None:
        first, last = (0, cursor.seq - 1) if newest_first else (cursor.seq + 1, None)
    page = reads.search_events(
        conversation, wanted, first=first, last=last, newest_first=newest_first, limit=query.limit
    )
    end = PlaceCursor(conversation.pk, page.events[-1]["seq"]) if page.has_more else None
    return _shown_page([v1.shown(event, conversation.public_id) for event in page.events], end)


def _page_of_all(request: Request, query: EventSearchQuery) -> HttpResponse:
    cursor = PlaceCursor.decode(query.page_id) if query.page_id else None
    page = across_logs.search(
        request.user,
        _wanted(query),
        after=LogPlace(*cursor) if cursor else None,
        newest_first=query.sort_order is AppEventOrder.TIMESTAMP_DESC,
        limit=query.limit,
    )
    end = PlaceCursor(*page.found[-1].place) if page.has_more else None
    return _shown_page([v1.shown(each.event, each.public_id) for each in page.found], end)


def _shown_page(payloads: Sequence[str], end: PlaceCursor | None) -> HttpResponse:
    return _json(page_text(payloads, end))


def page_text(payloads: Sequence[str], end: PlaceCursor | None) -> str:
    """Return a page of events, whose JSON these are, that ends at this place; None for the last page."""
    next_page_id = json.dumps(end.encode() if end else None)
    return f'{{"items":[{",".join(payloads)}],"next_page_id":{next_page_id}}}'


def _json(text: str) -> HttpResponse:
    return HttpResponse(text, content_type="application/json")
