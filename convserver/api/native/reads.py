"""The reads of the native door that polls make: as its views answer them, by one statement each."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Value
from rest_framework.renderers import JSONRenderer

from conversations import provisional_titles
from conversations.engines.compiled import CompiledQuery
from conversations.models import Conversation, normal_id
from convserver.api.direct.reading import Answer, Read, shown_and_more
from convserver.api.native import etags
from sessions_app.live.status import listed_in, listed_rows

PAGE_DEFAULT = 20


def _one(*, public_id: Value, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    rows = Conversation.objects.active().owned_by(user).with_public_ids([public_id])
    return listed_rows(provisional_titles.noted(rows), user, "is_title_made")


def _page(rows: int, *, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return listed_rows(Conversation.objects.active().owned_by(user).newest_first(), user)[:rows]


_ONE, _PAGE = CompiledQuery(_one), CompiledQuery(_page)


def conversation(read: Read) -> Answer:
    """Return one conversation. Raise NotDirect."""
    read.require_no_query()
    row = read.one(_ONE.rows(public_id=normal_id(read.conversation_id), user=read.user_pk))
    state = listed_in(row)
    return Answer(JSONRenderer().render(state), etags.etag_of(state, is_title_made=row["is_title_made"]))


def first_page(read: Read) -> Answer:
    """Return the first page of the list. Raise NotDirect."""
    limit = read.limit(PAGE_DEFAULT)
    rows, next_page_id = shown_and_more(_PAGE.rows(limit + 1, user=read.user_pk), limit)
    page = {"conversations": [listed_in(row) for row in rows], "next_page_id": next_page_id}
    return Answer(JSONRenderer().render(page))
