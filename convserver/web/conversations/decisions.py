"""Decisions about waiting calls by a form, for browsers without scripts."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from conversations import access
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from convserver.event_loop import in_loop
from convserver.web.pages import number_in, takes_form, to_conversation
from sessions_app.loops.manager import get_manager
from sessions_app.models import AllowedFor, UnknownAnswer


@takes_form(to_conversation)
def decide(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Decide about the call in the form; the conversation's page shows once why a decision was refused.

    `decision` is `approve`, or what to do about a call whose outcome is unknown; any other value rejects.
    `always` says where the approved tools run without approval from now on.
    """
    conversation = access.writable(request.user, conversation_id)
    seq, decision = number_in(request.POST.get("seq")), request.POST.get("decision", "")
    outcome = UnknownAnswer(decision) if decision in UnknownAnswer.values else None
    always = request.POST.get("always", "") if decision == "approve" else ""
    try:
        in_loop(
            _decide,
            conversation,
            accept=decision in ("approve", UnknownAnswer.RUN_AGAIN, UnknownAnswer.DONE),
            reason=request.POST.get("reason", "").strip()[:2_000],
            always=AllowedFor(always) if always in AllowedFor.values else None,
            call_seq=-1 if seq is None else seq,  # -1 is no call: refused, for another one waits
            **({} if outcome is None else {"outcome": outcome}),
        )
    except ConversationError as error:
        messages.error(request, str(error), extra_tags="decision")
    return redirect("conversation", conversation.public_id)


async def _decide(conversation: ConversationRef, **decision: Any) -> None:
    await get_manager().confirm(conversation, **decision)
