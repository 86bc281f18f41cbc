"""Conversations as files."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from conversations import access
from convserver.exports import account
from convserver.exports.conversation import Format, download
from convserver.web.pages import person


@require_safe
@person
def export(request: HttpRequest, conversation_id: str, format: str) -> HttpResponse:
    """Return one conversation as a download."""
    row = access.readable_row(request.user, conversation_id)
    return cast(HttpResponse, download(row, Format(format)))


@require_safe
@person
def export_all(request: HttpRequest) -> HttpResponse:
    """Return all of the user's conversations as a download."""
    return cast(HttpResponse, account.download(request.user))
