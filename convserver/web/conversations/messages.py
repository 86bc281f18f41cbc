"""What a person says by a form, for browsers without a socket: the same frame, the same append."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID, uuid4

from django.http import HttpRequest

from conversations import access
from conversations.events import Appended
from conversations.exceptions import ConversationError, EventConflict
from conversations.models import ConversationRef
from convserver.event_loop import in_loop
from sessions_app import astore
from sessions_app.loops.manager import get_manager
from sessions_app.sockets.native import frames


def text_of(request: HttpRequest) -> str:
    """Return what was typed into the form, else the cue whose button was pressed."""
    return request.POST.get("text", "").strip() or request.POST.get("cue", "").strip()


def say(
    request: HttpRequest, conversation_id: str, *, text: str, message_id: str, images: Sequence[str] = ()
) -> int:
    """Append a message and let it be answered; return its seq.

    The same `message_id`, a UUID, with the same text adds nothing. Raise ConversationError.
    """
    conversation = access.writable(request.user, conversation_id)
    said = {"type": "message", "id": message_id, "text": text, "images": list(images)}
    frame = frames.parse(json.dumps(said))
    [appended] = in_loop(_append, conversation, frame, access.pk_of(request.user))
    return appended.seq


def why_not_said(error: ConversationError) -> str:
    """Return why a message was refused, for who wrote it."""
    if isinstance(error, EventConflict):  # its own words are for programs, which choose their ids
        return "This message was already sent with a different text. Send it again as a new message."
    return str(error)


def message_id(request: HttpRequest) -> str:
    """Return the id that the form was given, so that sending it twice says it once; else a new one."""
    try:
        return str(UUID(request.POST.get("id", "")))
    except ValueError:
        return str(uuid4())


async def _append(conversation: ConversationRef, frame: frames.Frame, user_id: int) -> list[Appended]:
    event = frames.message_event(frame, conversation, user_id=user_id, session="")
    await astore.room_soon(conversation)
    return await get_manager().take_message_soon(conversation, event)
