"""The trash: deleted conversations, the last one first; `web/conversations/actions` restores them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from conversations import access
from conversations.access import Visitor
from conversations.cursors import InvalidCursor, ListCursor
from conversations.models import Conversation
from convserver.pagination import first_page
from convserver.web.listing import normal_ids
from convserver.web.pages import page, person
from sessions_app.live.status import ListedConversation, listed

PAGE_ROWS = 50


class Deleted(NamedTuple):
    """One conversation of the trash."""

    state: ListedConversation
    moment: datetime | None
    """When it was deleted."""


@require_safe
@person
def trash(request: HttpRequest) -> HttpResponse:
    """Show a page of deleted conversations; what was restored just now can be deleted again."""
    place = request.GET.get("page_id")
    try:
        context = _page_of(request.user, ListCursor.decode(place) if place else None)
    except InvalidCursor:
        context = _page_of(request.user, None)
    restored = _restored(request.user, request.GET.get("restored", ""))
    return page(request, "web/trash.html", {**context, "restored": restored})


def _page_of(user: Visitor, place: ListCursor | None) -> dict[str, Any]:
    user_pk = access.pk_of(user)
    rows = Conversation.objects.deleted().owned_by(user_pk).in_order("deleted_at", newest_first=True)
    if place is not None:
        rows = rows.beyond("deleted_at", place.created_at, place.pk, newest_first=True)
    shown = first_page(rows, PAGE_ROWS, column="deleted_at")
    found = Conversation.objects.with_pks(shown.pks)
    states, moments = listed(found, user_pk), dict(found.values_list("pk", "deleted_at"))
    return {
        "deleted": [Deleted(states[pk], moments[pk]) for pk in shown.pks if pk in states],
        "next_page_id": shown.next_page_id,
        "is_first": place is None,
    }


def _restored(user: Visitor, conversation_id: str) -> ListedConversation | None:
    """Return the conversation that this page has just restored."""
    rows = Conversation.objects.visible_to(user).with_public_ids(normal_ids([conversation_id]))
    return next(iter(listed(rows, access.pk_of(user)).values()), None) if conversation_id else None
