"""What a person decides by a form about a call that waits for approval, for browsers without scripts."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from conversations import access
from conversations.exceptions import ConversationError
from conversations.models import ConversationRef
from convserver.event_loop import in_loop
from convserver.web.pages import takes_form
from sessions_app.loops.manager import get_manager

REASON_MAX_CHARS = 2_000


def _whole(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Lead to the conversation's page."""
    return redirect("conversation", access.readable(request.user, conversation_id).public_id)


@takes_form(_whole)
def decide(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Approve or reject the call that the form names; the conversation's page says once why it was refused.

    Anything but `approve` rejects: what is not said clearly lets nothing happen.
    """
    conversation = access.writable(request.user, conversation_id)
    seq = request.POST.get("seq", "")
    try:
        in_loop(
            _decide,
            conversation,
            accept=request.POST.get("decision") == "approve",
            reason=request.POST.get("reason", "").strip()[:REASON_MAX_CHARS],
            call_seq=int(seq) if seq.isdecimal() and len(seq) < 19 else -1,
        )
    except ConversationError as error:
        messages.error(request, str(error), extra_tags="decision")
    return redirect("conversation", conversation.public_id)


async def _decide(conversation: ConversationRef, *, accept: bool, reason: str, call_seq: int) -> None:
    await get_manager().confirm(conversation, accept=accept, reason=reason, call_seq=call_seq)
