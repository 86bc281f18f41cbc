"""The reads of the native door that polls make: as its views answer them, by one statement each."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Value
from rest_framework.renderers import JSONRenderer

from conversations import provisional_titles
from conversations.cursors import OrderedCursor
from conversations.engines.compiled import CompiledQuery
from conversations.models import Conversation, ListOrder, normal_id
from convserver.api.direct.calls import DirectAnswer, Read
from convserver.api.native import etags
from convserver.pagination import PAGE_DEFAULT
from sessions_app.live.status import listed_in, listed_rows


def _one(*, public_id: Value, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    rows = Conversation.objects.active().owned_by(user).with_public_ids([public_id])
    return listed_rows(provisional_titles.noted(rows), user, "is_title_made")


def _page(rows: int, *, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    listed = Conversation.objects.active().permanent().owned_by(user).listed_by(ListOrder.USED)
    return listed_rows(listed, user, "list_key")[:rows]


_ONE, _PAGE = CompiledQuery(_one), CompiledQuery(_page)


def conversation(read: Read) -> DirectAnswer:
    """Return one conversation. Raise NotDirect."""
    read.require_no_query()
    row = read.one(_ONE.rows(public_id=normal_id(read.conversation_id), user=read.user_pk))
    state = listed_in(row)
    return DirectAnswer(
        JSONRenderer().render(state), etags.etag_of(state, is_title_made=row["is_title_made"])
    )


def first_page(read: Read) -> DirectAnswer:
    """Return the first page of the list. Raise NotDirect."""
    limit = read.limit(PAGE_DEFAULT)
    rows = _PAGE.rows(limit + 1, user=read.user_pk)
    shown, more = rows[:limit], None
    if len(rows) > limit:
        more = OrderedCursor(shown[-1]["list_key"], shown[-1]["pk"]).encode(ListOrder.USED)
    page = {"conversations": [listed_in(row) for row in shown], "next_page_id": more}
    return DirectAnswer(JSONRenderer().render(page))
