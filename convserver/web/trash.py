"""The trash: deleted conversations, the newest deletion first, until they are restored or purged.

`web/conversations/actions` restores them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from conversations import access
from conversations.access import Visitor
from conversations.cursors import InvalidCursor, ListCursor
from conversations.exceptions import ConversationNotFound
from conversations.models import Conversation
from conversations.store import purging
from convserver.pagination import first_page
from convserver.web.listing import normal_ids
from convserver.web.pages import page, person
from sessions_app.live.status import ListedConversation, listed
from sessions_app.retention import limit

PAGE_ROWS = 50


class DeletedRow(NamedTuple):
    """One conversation of the trash."""

    state: ListedConversation
    moment: datetime | None
    until: datetime | None  # the time until which it can be restored; None without a limit


@require_safe
@person
def trash(request: HttpRequest) -> HttpResponse:
    """Show a page of deleted conversations; the one that was just restored can be deleted again."""
    place = request.GET.get("page_id")
    try:
        context = _page_of(request.user, ListCursor.decode(place) if place else None)
    except InvalidCursor:
        context = _page_of(request.user, None)
    restored = _restored(request.user, request.GET.get("restored", ""))
    context |= {"restored": restored, "is_purged": "purged" in request.GET}
    return page(request, "web/trash.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@person
def purge(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Ask whether to purge a deleted conversation, or purge it."""
    conversation = access.restorable(request.user, conversation_id)
    row = Conversation.objects.deleted().filter(pk=conversation.pk).first()
    if row is None:
        raise ConversationNotFound("Conversation not found.")
    if request.method != "POST":
        until = limit.kept_time().until(row.deleted_at)
        return page(request, "web/purge.html", {"row": row, "until": until})
    begun = purging.begin(
        conversation,
        # Asked once more under the lock: the page may have stood open for hours.
        among=Conversation.objects.deleted(),
        requested_by=request.user.get_username(),
        reason="by its owner",
    )
    if begun is None:  # it was restored or purged in the meantime
        raise ConversationNotFound("Conversation not found.")
    return redirect(f"{reverse('deleted')}?purged")


def _page_of(user: Visitor, place: ListCursor | None) -> dict[str, Any]:
    user_pk = access.pk_of(user)
    rows = (
        Conversation.objects.deleted()
        .permanent()
        .reachable_by(user)
        .in_order("deleted_at", newest_first=True)
    )
    if place is not None:
        rows = rows.beyond("deleted_at", place.created_at, place.pk, newest_first=True)
    shown = first_page(rows, PAGE_ROWS, column="deleted_at")
    found = Conversation.objects.with_pks(shown.pks)
    states, moments = listed(found, user_pk), dict(found.values_list("pk", "deleted_at"))
    kept = limit.kept_time()
    return {
        "deleted": [
            DeletedRow(states[pk], moments[pk], kept.until(moments[pk])) for pk in shown.pks if pk in states
        ],
        "days": kept.days,
        "next_page_id": shown.next_page_id,
        "is_first": place is None,
    }


def _restored(user: Visitor, conversation_id: str) -> ListedConversation | None:
    """Return the conversation that this page has just restored."""
    rows = Conversation.objects.visible_to(user).with_public_ids(normal_ids([conversation_id]))
    return next(iter(listed(rows, access.pk_of(user)).values()), None) if conversation_id else None
