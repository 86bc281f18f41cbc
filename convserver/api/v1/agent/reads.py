"""The reads of the agent face that polls make: as its views answer them, by two statements each at most."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Value

from conversations.cursors import DirectedCursor
from conversations.engines.compiled import CompiledQuery
from conversations.models import Conversation, normal_id
from convserver.api.direct.calls import DirectAnswer, NotDirect, Read
from convserver.api.openhands.view import NullRenderer
from convserver.api.v1.agent.pages import AgentEventPageQuery, text_of_page
from convserver.api.v1.log_pages import LogPlace, page_of_log
from convserver.pagination import PAGE_MAX, page_of_places, places
from sessions_app.openhands_v1.information import SIZE, information_in, information_rows


def _one(*, public_id: Value, user: Value) -> QuerySet[Conversation, dict[str, Any]]:
    return information_rows(Conversation.objects.active().owned_by(user).with_public_ids([public_id]))


def _places(limit: int, *, user: Value) -> QuerySet[Conversation, Any]:
    return places(Conversation.objects.active().permanent().owned_by(user).newest_first(), limit, size=SIZE)


def _some(*, pks: list[Value]) -> QuerySet[Conversation, dict[str, Any]]:
    return information_rows(Conversation.objects.active().with_pks(pks))


_ONE, _PLACES, _SOME = CompiledQuery(_one), CompiledQuery(_places), CompiledQuery(_some)


def conversation(read: Read) -> DirectAnswer:
    """Return one conversation. Raise NotDirect."""
    read.require_no_query()
    row = read.one(_ONE.rows(public_id=normal_id(read.conversation_id), user=read.user_pk))
    return DirectAnswer(NullRenderer().render(information_in(row)))


def first_page(read: Read) -> DirectAnswer:
    """Return the first page of the list. Raise NotDirect."""
    limit = read.limit(PAGE_MAX)
    page = page_of_places(_PLACES.tuples(limit, user=read.user_pk), limit)
    found = {row["pk"]: information_in(row) for row in _SOME.rows(pks=page.pks)}
    items = [found[pk] for pk in page.pks if pk in found]
    return DirectAnswer(NullRenderer().render({"items": items, "next_page_id": page.next_page_id}))


def events(read: Read) -> DirectAnswer:
    """Return a page of the events of one conversation. Raise NotDirect, also if there is none."""
    # Of a repeated parameter the last one counts, as in the view.
    given = dict(read.parameters())
    if not given.keys() <= {"page_id", "limit", "sort_order"}:
        raise NotDirect
    query = AgentEventPageQuery.model_validate(given)
    newest_first = query.newest_first
    # The id of an event, which agent servers give, is left to the view.
    after = DirectedCursor.decode(query.page_id, newest_first=newest_first).seq if query.page_id else None
    page = page_of_log(
        read, normal_id(read.conversation_id), LogPlace(query.limit, newest_first, after=after)
    )
    next_page_id = None if page.end is None else DirectedCursor(page.end, newest_first).encode()
    return DirectAnswer(text_of_page(page.shown, next_page_id).encode())
