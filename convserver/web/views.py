"""The first page."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from conversations.models import Conversation
from sessions_app.status import states

SHOWN_CONVERSATIONS = 20


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Show the newest conversations and how to begin one."""
    newest = Conversation.objects.visible_to(request.user).newest_first()[:SHOWN_CONVERSATIONS]
    origin = request.build_absolute_uri("/").removesuffix("/")
    context = {
        "conversations": list(states(newest).values()),
        "origin": origin,
        "socket_origin": origin.replace("http", "ws", 1),
    }
    return render(request, "web/home.html", context)
