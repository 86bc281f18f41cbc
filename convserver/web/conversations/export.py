"""Conversations as files."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from conversations import access
from conversations.models import Conversation
from convserver.exports import account
from convserver.exports.account import in_layout
from convserver.exports.conversation import Format, download
from convserver.exports.openhands import Layout
from convserver.web.listing import Filters, normal_ids
from convserver.web.pages import person, takes_form

EXPORT_MAX = 2_000
"""So many chosen conversations are in one export; all that the filters let through may be more."""
TOO_MANY = f"At most {EXPORT_MAX:,} selected conversations can be exported at once. Select fewer, or all."


@require_safe
@person
def export(request: HttpRequest, conversation_id: str, format: str) -> HttpResponse:
    """Return one conversation as a download."""
    row = access.readable_row(request.user, conversation_id)
    return cast(HttpResponse, download(row, Format(format)))


@require_safe
@person
def export_layout(request: HttpRequest, conversation_id: str, layout: str) -> HttpResponse:
    """Return one conversation as a zip file with the files that OpenHands would keep of it."""
    row = access.readable_row(request.user, conversation_id)
    return cast(HttpResponse, in_layout(request.user, row, Layout(layout)))


@takes_form(lambda request: redirect("home"))
def export_some(request: HttpRequest) -> HttpResponse:
    """Return the conversations of the ids, or all that the list's filters let through, as a download.

    A field `id` has one id or, with blanks between, more: a form may not have a field for each.
    """
    if request.POST.get("all") == "true":
        chosen = Filters.read(request.POST).shown(request.user)
    else:
        ids = " ".join(request.POST.getlist("id")).split()
        if len(ids) > EXPORT_MAX:
            return HttpResponseBadRequest(TOO_MANY, content_type="text/plain; charset=utf-8")
        chosen = Conversation.objects.visible_to(request.user).with_public_ids(normal_ids(ids))
    return cast(HttpResponse, account.download(request.user, chosen))


@require_safe
@person
def export_all(request: HttpRequest) -> HttpResponse:
    """Return all of the user's conversations as a download."""
    return cast(HttpResponse, account.download(request.user))
