"""The reads of the app face that polls make: as its views answer them, by two statements each at most."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Value
from pydantic import TypeAdapter

from conversations.cursors import PlaceCursor
from conversations.engines.compiled import CompiledQuery
from conversations.models import Conversation
from convserver.api.addresses import seen_by
from convserver.api.direct.calls import DirectAnswer, NotDirect, Read, shown_and_more
from convserver.api.openhands.view import NullRenderer
from convserver.api.v1.app.events import AppEventOrder, EventSearchQuery, page_text
from convserver.api.v1.app.shapes import AppConversationPage, conversation_rows, conversations_in
from convserver.api.v1.log_pages import LogPlace, page_of_log
from convserver.pagination import PAGE_MAX

_IDS = TypeAdapter(list[UUID])
_SIMPLE = frozenset({"conversation_id__eq", "sort_order", "limit", "page_id"})
"""What a direct search of events understands."""


def _some(*, public_ids: list[Value], user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return conversation_rows(Conversation.objects.owned_by(user).with_public_ids(public_ids))


def _page(rows: int, *, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return conversation_rows(Conversation.objects.permanent().owned_by(user).top_level().newest_first())[
        :rows
    ]


_SOME, _PAGE = CompiledQuery(_some), CompiledQuery(_page)


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
    place = None if cursor is None else cursor.seq
    page = page_of_log(read, query.conversation_id__eq.hex, LogPlace(query.limit, newest_first, after=place))
    if cursor is not None and cursor.conversation_pk != page.conversation_pk:
        raise NotDirect
    end = None if page.end is None else PlaceCursor(page.conversation_pk, page.end)
    return DirectAnswer(page_text(page.shown, end).encode())
