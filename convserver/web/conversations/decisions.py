"""What a person decides by a form about a call that waits for that, for browsers without scripts."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from conversations import access
from conversations.exceptions import ConversationError
from conversations.models import ConversationRef
from convserver.event_loop import in_loop
from convserver.web.pages import takes_form
from sessions_app.loops.manager import get_manager
from sessions_app.models import UnknownAnswer

REASON_MAX_CHARS = 2_000


def _whole(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Lead to the conversation's page."""
    return redirect("conversation", access.readable(request.user, conversation_id).public_id)


@takes_form(_whole)
def decide(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Decide about the call that the form names; the conversation's page says once why that was refused.

    `decision` is `approve`, or what to do about a call whose outcome is unknown. Anything else rejects: what
    is not said clearly lets nothing happen.
    """
    conversation = access.writable(request.user, conversation_id)
    seq, decision = request.POST.get("seq", ""), request.POST.get("decision", "")
    outcome = UnknownAnswer(decision) if decision in UnknownAnswer.values else None
    try:
        in_loop(
            _decide,
            conversation,
            accept=decision in ("approve", UnknownAnswer.RUN_AGAIN, UnknownAnswer.DONE),
            reason=request.POST.get("reason", "").strip()[:REASON_MAX_CHARS],
            call_seq=int(seq) if seq.isdecimal() and len(seq) < 19 else -1,
            **({} if outcome is None else {"outcome": outcome}),
        )
    except ConversationError as error:
        messages.error(request, str(error), extra_tags="decision")
    return redirect("conversation", conversation.public_id)


async def _decide(conversation: ConversationRef, **decision: Any) -> None:
    await get_manager().confirm(conversation, **decision)
