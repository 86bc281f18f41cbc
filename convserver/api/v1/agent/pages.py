"""Pages of the agent face and their queries (spec V1 R7)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Literal, NamedTuple

from django.http import HttpResponse
from pydantic import BaseModel, Field
from rest_framework.request import Request

from conversations.cursors import DirectedCursor, InvalidCursor, ListCursor
from conversations.dialects import v1
from conversations.events import EventEnvelope, EventFilter
from conversations.exceptions import UnknownKind
from conversations.log import reads
from conversations.models import ConversationQuerySet, ConversationRef, Moment
from convserver.api.openhands.errors import InvalidRequest, Refused
from convserver.api.openhands.instants import Instant
from convserver.api.openhands.text import StorableText
from convserver.pagination import PAGE_MAX, Page, first_page
from sessions_app.models import ExecutionStatus
from sessions_app.openhands_v1 import input as v1_input
from sessions_app.openhands_v1.information import SIZE

BATCH_MAX = 100
"""Ids in one request."""
MESSAGE = "MessageEvent"


class ListOrder(StrEnum):
    """The orders of conversations."""

    CREATED_AT = "CREATED_AT"
    CREATED_AT_DESC = "CREATED_AT_DESC"
    UPDATED_AT = "UPDATED_AT"
    UPDATED_AT_DESC = "UPDATED_AT_DESC"

    @property
    def column(self) -> Moment:
        """The column of the order."""
        return "created_at" if self in (ListOrder.CREATED_AT, ListOrder.CREATED_AT_DESC) else "updated_at"

    @property
    def newest_first(self) -> bool:
        """Whether the newest come first."""
        return self in (ListOrder.CREATED_AT_DESC, ListOrder.UPDATED_AT_DESC)


class StatusQuery(BaseModel):
    """Which conversations to return."""

    status: ExecutionStatus | None = None


class ListQuery(StatusQuery):
    """Which page of the conversations to return."""

    page_id: str | None = None
    limit: int = Field(default=PAGE_MAX, ge=1, le=PAGE_MAX)
    sort_order: ListOrder = ListOrder.CREATED_AT_DESC


def page_of(rows: ConversationQuerySet, query: ListQuery) -> Page:
    """Return one page of conversations with one query. Raise InvalidCursor."""
    column, newest_first = query.sort_order.column, query.sort_order.newest_first
    if query.page_id:
        rows = rows.beyond(column, *ListCursor.decode(query.page_id), newest_first=newest_first)
    ordered = rows.in_order(column, newest_first=newest_first)
    return first_page(ordered, query.limit, column=column, size=SIZE)


class EventOrder(StrEnum):
    """The end of the log from which pages start; always by place, never by time."""

    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_DESC = "TIMESTAMP_DESC"


class AgentEventsQuery(BaseModel):
    """Which events to return; a time without an offset is UTC."""

    kind: str | None = Field(default=None, description="With or without the path of its class.")
    source: Literal["agent", "user", "environment", "hook"] | None = None
    body: StorableText | None = Field(default=None, description="Occurs in a message, in any case.")
    timestamp__gte: Instant | None = None
    timestamp__lt: Instant | None = None

    def wanted(self) -> EventFilter | None:
        """Return the filter; None if no event can match."""
        of_message = bool(self.body) and self.kind is None
        if self.body and self.kind is not None and self.kind.rpartition(".")[2] != MESSAGE:
            return None
        try:
            # Times are stored with microseconds, and the filter includes its end.
            until = None if self.timestamp__lt is None else self.timestamp__lt - timedelta.resolution
            any_of = v1.shown_as(kind=MESSAGE if of_message else self.kind, source=self.source)
        # A time before the year 1, or a kind that no event has: nothing matches, which is no error here.
        except (OverflowError, UnknownKind):
            return None
        is_any = self.kind is None and self.source is None and not of_message
        return EventFilter(
            any_of=frozenset() if is_any else any_of,
            text=self.body or None,
            since=self.timestamp__gte,
            until=until,
        )


class AgentEventPageQuery(AgentEventsQuery):
    """Which page of the events to return."""

    page_id: StorableText | None = None
    limit: int = Field(default=PAGE_MAX, ge=1, le=PAGE_MAX)
    sort_order: EventOrder = EventOrder.TIMESTAMP

    @property
    def newest_first(self) -> bool:
        """Whether pages start at the end of the log."""
        return self.sort_order is EventOrder.TIMESTAMP_DESC

    def bounds(self, conversation: ConversationRef) -> tuple[int, int | None]:
        """Return the first and the last seq that remain, None for no limit. Raise InvalidCursor.

        A page id is ours, or the id of an event, with which the page begins: that of agent servers.
        """
        if not self.page_id:
            return 0, None
        try:
            after = DirectedCursor.decode(self.page_id, newest_first=self.newest_first).seq
        except InvalidCursor:
            # Agent servers give the id of the event with which the next page begins.
            seq = v1_input.place_of(conversation, self.page_id)
            if seq is None:
                raise
        else:
            seq = after - 1 if self.newest_first else after + 1
        return (0, seq) if self.newest_first else (seq, None)


class ShownPage(NamedTuple):
    """A page of events, and where the next page begins; None on the last one."""

    events: list[EventEnvelope]
    next_page_id: str | None


def event_page(conversation: ConversationRef, query: AgentEventPageQuery) -> ShownPage:
    """Return one page of a log, with as many queries however long it is. Raise InvalidCursor."""
    first, last = query.bounds(conversation)
    wanted = query.wanted()
    if wanted is None:
        return ShownPage([], None)
    page = reads.search_events(
        conversation,
        wanted,
        first=first,
        last=last,
        newest_first=query.newest_first,
        limit=query.limit,
    )
    # Clients ask on until there is no id (spec V1 R7).
    if not page.has_more:
        return ShownPage(page.events, None)
    return ShownPage(page.events, DirectedCursor(page.events[-1]["seq"], query.newest_first).encode())


def batch(ids: list[str]) -> list[str]:
    """Return the ids of a batch. Raise Refused for too many."""
    if len(ids) > BATCH_MAX:
        raise Refused(400, {"detail": f"At most {BATCH_MAX} ids can be asked for at once."})
    return ids


def queried(request: Request, *names: str) -> list[str] | None:
    """Return the query's values for these names, in order; None if there are none."""
    given = [value for name in names for value in request.query_params.getlist(name)]
    return given if given or any(name in request.query_params for name in names) else None


def missing(*where: str) -> InvalidRequest:
    """Return the refusal of a request without a required value."""
    problem = {"type": "missing", "loc": list(where), "msg": "Field required", "input": None}
    return InvalidRequest([problem])


def text_of_page(texts: Iterable[str], next_page_id: str | None) -> str:
    """Return a page of events as JSON, from their JSON texts, without decoding them."""
    return f'{{"items":[{",".join(texts)}],"next_page_id":{json.dumps(next_page_id)}}}'


def as_json(text: str) -> HttpResponse:
    """Return a JSON text unchanged."""
    return HttpResponse(text, content_type="application/json")
