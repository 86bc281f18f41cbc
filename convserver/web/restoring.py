"""The page that restores the files as of an event, and the line about what a turn has changed."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from conversations import access
from conversations.exceptions import ConversationError
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from convserver.web.pages import named, number_in, page, person
from sessions_app.checkpoints import kept


@in_lane(Lane.ABROAD)  # git may take seconds
@require_http_methods(["GET", "HEAD", "POST"])
@person
def restore_files(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Ask whether to restore the files as of the event in `at`, or restore those of `checkpoint`."""
    conversation = access.writable(request.user, conversation_id)
    given = request.POST if request.method == "POST" else request.GET
    checkpoint = kept.meant(conversation, given.get("checkpoint"), number_in(given.get("at")))
    if checkpoint is None:
        raise Http404
    context: dict[str, Any] = {"conversation": named(conversation), "checkpoint": checkpoint}
    status = 200
    if request.method == "POST":
        try:
            context["undo"] = in_loop(kept.restore, conversation, checkpoint).checkpoint_id
        except ConversationError as error:
            context["problem"], status = str(error), 409
    return page(request, "web/restore_files.html", context, status=status)


@require_safe
@person
def changed(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return the line about the files that the turn with this last event has changed; 204 without any."""
    conversation = access.readable(request.user, conversation_id)
    # The page asks after the end of a turn, until the files are kept.
    seq = number_in(request.GET.get("seq"))
    count = None if seq is None else kept.shown(conversation, seq, seq)[1].get(seq)
    if seq is None or count is None:
        return HttpResponse(status=204)
    context = {"conversation_id": conversation.public_id, "seq": seq, "count": count}
    return render(request, "web/events/files.html", context)
