"""Conversations as files."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from conversations import access
from conversations.models import Conversation
from convserver.batches.actions import BATCH_MAX
from convserver.exports import account
from convserver.exports.account import in_layout
from convserver.exports.conversation import Format, download
from convserver.exports.openhands import Layout
from convserver.web.listing import Filters, normal_ids
from convserver.web.pages import person, takes_form


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
    """Return the conversations of the ids, or all that the list's filters let through, as a download."""
    if request.POST.get("all") == "true":
        chosen = Filters.read(request.POST).shown(request.user)
    else:
        ids = normal_ids(request.POST.getlist("id")[:BATCH_MAX])
        chosen = Conversation.objects.visible_to(request.user).with_public_ids(ids)
    return cast(HttpResponse, account.download(request.user, chosen))


@require_safe
@person
def export_all(request: HttpRequest) -> HttpResponse:
    """Return all of the user's conversations as a download."""
    return cast(HttpResponse, account.download(request.user))
