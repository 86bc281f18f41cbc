"""Conversations as files."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from conversations import access
from conversations.models import Conversation
from convserver.exports import account
from convserver.exports.account import in_layout
from convserver.exports.conversation import Format, download
from convserver.exports.openhands import Layout
from convserver.web.listing import Filters, normal_ids
from convserver.web.pages import person, takes_form, words

EXPORT_MAX = 2_000
"""The chosen conversations in one export; an export of all that match the filters may have more."""
TOO_MANY = f"At most {EXPORT_MAX:,} selected conversations can be exported at once. Select fewer, or all."


@require_safe
@person
def export(request: HttpRequest, conversation_id: str, format: str) -> HttpResponse:
    row = access.readable_row(request.user, conversation_id)
    return cast(HttpResponse, download(row, Format(format)))


@require_safe
@person
def export_layout(request: HttpRequest, conversation_id: str, layout: str) -> HttpResponse:
    """Return one conversation as a zip file in a layout of OpenHands."""
    row = access.readable_row(request.user, conversation_id)
    return cast(HttpResponse, in_layout(request.user, row, Layout(layout)))


@takes_form(lambda request: redirect("home"))
def export_some(request: HttpRequest) -> HttpResponse:
    """Return the conversations with the ids, or all that match the list's filters, as a download."""
    # One field has several ids, separated by blanks: the number of a form's fields is limited.
    if request.POST.get("all") == "true":
        chosen = Filters.read(request.POST).shown(request.user)
    else:
        ids = " ".join(request.POST.getlist("id")).split()
        if len(ids) > EXPORT_MAX:
            return words(TOO_MANY, status=400)
        chosen = Conversation.objects.open_to(request.user).with_public_ids(normal_ids(ids))
    return cast(HttpResponse, account.download(request.user, chosen))


@require_safe
@person
def export_all(request: HttpRequest) -> HttpResponse:
    return cast(HttpResponse, account.download(request.user))
