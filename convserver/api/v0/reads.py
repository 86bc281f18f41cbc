"""The reads of this wire that polls make: as its views answer them, by one statement each."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Value

from conversations.engines.compiled import CompiledQuery
from conversations.models import Conversation, normal_id
from convserver.api.addresses import seen_by
from convserver.api.direct.calls import DirectAnswer, Read, shown_and_more
from convserver.api.openhands.view import NullRenderer
from convserver.api.v0.conversations import oldest_change
from convserver.api.v0.info import ConversationInfoResultSet, info_in, info_rows
from convserver.pagination import PAGE_DEFAULT


def _one(*, public_id: Value, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return info_rows(Conversation.objects.owned_by(user).with_public_ids([public_id]))


def _page(rows: int, *, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return info_rows(Conversation.objects.permanent().owned_by(user).top_level().newest_first())[:rows]


def _recent_page(rows: int, *, user: Value, oldest: Value) -> QuerySet[Conversation, dict[str, Any]]:
    found = Conversation.objects.permanent().owned_by(user).top_level().changed_since(oldest)
    return info_rows(found.newest_first())[:rows]


_ONE, _PAGE, _RECENT_PAGE = CompiledQuery(_one), CompiledQuery(_page), CompiledQuery(_recent_page)


def conversation(read: Read) -> DirectAnswer:
    """Return one conversation. Raise NotDirect."""
    read.require_no_query()
    public_id = normal_id(read.conversation_id)
    row = read.one(_ONE.rows(public_id=public_id, user=read.user_pk))
    info = seen_by(read.user, info_in(row, origin=read.origin))
    return DirectAnswer(NullRenderer().render(info.model_dump(mode="json")))


def first_page(read: Read) -> DirectAnswer:
    """Return the first page of the list. Raise NotDirect."""
    limit = read.limit(PAGE_DEFAULT)
    oldest = oldest_change()
    if oldest is None:
        found = _PAGE.rows(limit + 1, user=read.user_pk)
    else:
        found = _RECENT_PAGE.rows(limit + 1, user=read.user_pk, oldest=oldest)
    rows, next_page_id = shown_and_more(found, limit)
    results = [seen_by(read.user, info_in(row, origin=read.origin)) for row in rows]
    page = ConversationInfoResultSet(results=results, next_page_id=next_page_id)
    return DirectAnswer(NullRenderer().render(page.model_dump(mode="json")))
