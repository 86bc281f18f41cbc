"""The page that begins a branch: a conversation that starts with a copy of another one's events."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.exceptions import EventNotFound
from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from conversations.store import copying
from convserver.web.pages import named, number_in, page, person
from sessions_app.checkpoints import copies

COPIED_AT_ONCE_S = 5.0  # of a long log, the request copies this long; a background task copies the rest


@require_http_methods(["GET", "HEAD", "POST"])
@person
def branch(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Ask whether to begin a branch after the event that `after` names, or begin it and show it."""
    source = access.readable(request.user, conversation_id)
    after = number_in(request.POST.get("after") or request.GET.get("after"))
    if after is None:
        raise Http404
    if request.method != "POST":
        return _asked(request, source, after)
    row = Conversation.objects.get(pk=source.pk)
    try:
        made = copies.fork(request.user, source, through=after, title=row.title)
    except EventNotFound as error:
        raise Http404 from error
    copying.advance(made, seconds=COPIED_AT_ONCE_S)  # the page of an unfinished copy shows its progress
    return redirect("conversation", made.public_id)


def _asked(request: HttpRequest, source: ConversationRef, after: int) -> HttpResponse:
    last = reads.read_after(source, after - 1, limit=1)
    if not last or last[0]["seq"] != after:
        raise Http404
    context = {
        "conversation": named(source),
        "after": after,
        "excerpt": last[0]["text"][:500],
    }
    return page(request, "web/branch.html", context)
