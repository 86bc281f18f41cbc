"""Purges that staff ask for: first a page that names what would go, then the purges are begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from conversations import provisional_titles
from conversations.exceptions import ConversationError
from conversations.models import Conversation
from conversations.store import purging
from convserver.admin import cells
from convserver.admin.base import may_purge, record_act, staff_page
from convserver.web.pages import number_in
from sessions_app.retention import selection

if TYPE_CHECKING:
    from convserver.admin.resources.conversations import ConversationAdmin


def question(request: HttpRequest, rows: Sequence[Conversation]) -> HttpResponse | None:
    """Redirect to the page that asks whether to purge these; None, with a message, if none can be purged."""
    pks = [row.pk for row in rows if row.deleted_at is not None and row.purged_at is None]
    if not pks:
        messages.warning(request, "Nothing was purged. Delete conversations before you purge them.")
        return None
    query = urlencode({"pk": pks}, doseq=True)
    return HttpResponseRedirect(f"{reverse('admin:conversations_conversation_purge')}?{query}")


@require_http_methods(["GET", "HEAD", "POST"])
def purge_page(request: HttpRequest, *, admin: ConversationAdmin) -> HttpResponseBase:
    """Name what would be purged, and purge it once the form is sent."""
    if not may_purge(request):
        raise PermissionDenied
    rows = _rows(request)
    if not rows:
        messages.warning(request, "Nothing was purged. There is no such deleted conversation.")
        return HttpResponseRedirect(cells.list_of(Conversation))
    if request.method == "POST":
        _purge(request, rows)
        return HttpResponseRedirect(cells.list_of(Conversation))
    sizes = [selection.size_of(row.ref) for row in rows]
    return staff_page(
        request,
        admin,
        "admin/purge.html",
        "Purge conversations",
        conversations=list(zip(map(cells.title_of, rows), rows, sizes, strict=True)),
        total=selection.total(sizes),
        list_page=cells.list_of(Conversation),
    )


def _rows(request: HttpRequest) -> list[Conversation]:
    """Return the deleted conversations that the request names."""
    given = request.POST.getlist("pk") if request.method == "POST" else request.GET.getlist("pk")
    # The address may be typed by hand: it names no more than a list would let one select.
    pks = [pk for pk in map(number_in, given[: cells.SELECTED_MAX]) if pk is not None]
    rows = Conversation.objects.deleted().with_pks(pks)
    return list(provisional_titles.noted(rows.select_related("owner").order_by("pk")))


def _purge(request: HttpRequest, rows: Sequence[Conversation]) -> None:
    begun = []
    for row in rows:
        try:  # one by one: a conversation that is locked or was restored does not stop the others
            record = purging.begin(
                row.ref,
                among=Conversation.objects.deleted(),
                requested_by=request.user.get_username(),
                reason="by staff",
            )
        except ConversationError as error:
            messages.error(request, f"{row.public_id}: {error}")
            continue
        if record is None:
            messages.warning(request, f"{row.public_id} was not purged: it was restored or purged meanwhile.")
        else:
            begun.append(row)
    record_act(request, begun, "Purged")
    if begun:
        count = cells.counted(len(begun), "conversation")
        messages.success(request, f"Purging {count}. See Purges for how far it is.")
