"""The complete text of one event as a file."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from conversations import access
from conversations.events import SEQ_MAX
from conversations.exceptions import ConversationNotFound
from conversations.log import reads
from convserver.rendering import whole_text
from convserver.web.pages import person


@require_safe
@person
def download(request: HttpRequest, conversation_id: str, seq: int) -> HttpResponse:
    """Return an event's text as a download. Raise ConversationNotFound for hidden and missing events."""
    conversation = access.readable(request.user, conversation_id)
    found = reads.read_some(conversation, seqs=[seq]) if seq <= SEQ_MAX else []
    if not found or found[0]["hidden"]:
        raise ConversationNotFound("There is no such event.")
    return HttpResponse(
        whole_text(found[0]).encode(errors="replace"),
        content_type="text/plain; charset=utf-8",
        # A download, and never guessed to be HTML: an agent's output could contain scripts.
        headers={
            "Content-Disposition": f'attachment; filename="event-{seq}.txt"',
            "X-Content-Type-Options": "nosniff",
        },
    )
