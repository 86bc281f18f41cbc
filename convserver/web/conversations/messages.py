"""Messages by a form, for browsers without a socket: with the same frame and append as the socket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from uuid import UUID, uuid4

from django.http import HttpRequest

from conversations import access
from conversations.dialects.attached import AttachedFile
from conversations.events import Appended, ConversationRef
from conversations.exceptions import ConversationError, EventConflict
from convserver.event_loop import in_loop
from sessions_app import astore
from sessions_app.loops.manager import get_manager
from sessions_app.sockets.native import frames


def text_of(request: HttpRequest) -> str:
    """Return the text of the form, otherwise the cue of the pressed button."""
    return request.POST.get("text", "").strip() or request.POST.get("cue", "").strip()


def say(
    request: HttpRequest,
    conversation_id: str,
    *,
    text: str,
    message_id: str,
    images: Sequence[str] = (),
    files: Sequence[AttachedFile] = (),
) -> int:
    """Append a message for the agent to answer; return its seq.

    A repeated `message_id`, a UUID, with the same text adds nothing. Raise ConversationError.
    """
    conversation = access.writable(request.user, conversation_id)
    # As the socket takes it: the same bounds, refusals and stored event.
    said = {
        "type": "message",
        "id": message_id,
        "text": text,
        "images": list(images),
        "files": [asdict(file) for file in files],
    }
    frame = frames.parse(json.dumps(said))
    [appended] = in_loop(_append, conversation, frame, access.pk_of(request.user))
    return appended.seq


def why_not_said(error: ConversationError) -> str:
    """Return the reason why a message was refused, for its author."""
    if isinstance(error, EventConflict):  # its own text is for programs, which choose their ids
        return "This message was already sent with a different text. Send it again as a new message."
    return str(error)


def message_id(request: HttpRequest) -> str:
    """Return the id in the form, so that a form sent twice adds one message; otherwise a new id."""
    try:
        return str(UUID(request.POST.get("id", "")))
    except ValueError:
        return str(uuid4())


async def _append(conversation: ConversationRef, frame: frames.Frame, user_id: int) -> list[Appended]:
    event = frames.message_event(frame, conversation, user_id=user_id, session="")
    await astore.room_soon(conversation)  # raises while too many appends of the owner wait
    return await get_manager().take_message_soon(conversation, event)
