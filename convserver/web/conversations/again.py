"""A message in other words, or another answer: a branch up to the message that sends it again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.access import Visitor
from conversations.dialects.attached import AttachedFile
from conversations.events import EventEnvelope, Kind
from conversations.exceptions import ConversationError, EventNotFound, ForkUnfinished
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import ConversationExists, copying
from convserver.api.errors import RETRY_AFTER_S
from convserver.rendering import MessageCard, read
from convserver.web.conversations.branching import COPIED_AT_ONCE_S
from convserver.web.conversations.messages import message_id, say
from convserver.web.conversations.page import not_said
from convserver.web.pages import named, number_in, page, person
from sessions_app.checkpoints import copies

NOTHING_ASKED = "There is no question before this message, so there is no other answer to it."

STILL_COPIED = (
    "Not sent yet: the new branch is still being copied, {copied:,} of {events:,} events are here. "
    "Your message is kept below: send it again in a moment."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedMessage:
    """A user's message that is sent again."""

    seq: int
    text: str
    images: tuple[str, ...]
    files: tuple[AttachedFile, ...]


@require_http_methods(["GET", "HEAD", "POST"])
@person
def again(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Ask for the new text of the event in `message`, or begin a branch and send it there.

    With `answer` instead, repeat the message that this event of the agent answers.
    """
    source = access.readable(request.user, conversation_id)
    given = request.POST if request.method == "POST" else request.GET
    answer = number_in(given.get("answer"))
    said = (
        _answered_by(source, answer) if answer is not None else _said(source, number_in(given.get("message")))
    )
    context = {
        "conversation": named(source),
        "said": said,
        "answer": answer,
        "place": said.seq if said else answer,
        "message_id": str(uuid4()),
    }
    if said is None:
        return page(request, "web/again.html", {**context, "problem": NOTHING_ASKED}, status=409)
    if request.method != "POST":
        return page(request, "web/again.html", context)
    # Another answer is one to the same words: those of the form are not read.
    text = said.text if answer is not None else request.POST.get("text", "").strip()
    if not text and not said.images and not said.files:
        return page(request, "web/again.html", {**context, "problem": "Write a message."}, status=400)
    new_id = message_id(request)
    try:
        return _begun(request, source, said, text, new_id)
    except ForkUnfinished as error:
        # The form finds its branch by the id when it is sent again; the copy goes on meanwhile.
        problem = STILL_COPIED.format(copied=error.copied, events=error.events)
        kept = {**context, "said": replace(said, text=text), "message_id": new_id, "problem": problem}
        shown = page(request, "web/again.html", kept, status=503)
        shown.headers["Retry-After"] = str(RETRY_AFTER_S)
        return shown


def _begun(
    request: HttpRequest, source: ConversationRef, said: RepeatedMessage, text: str, new_id: str
) -> HttpResponse:
    """Begin the branch and send the message there; a form that was sent before finds both.

    Raise ForkUnfinished while the branch is being copied.
    """
    conversation_id = UUID(new_id).hex
    trunk = _trunk(request.user, source, said.seq - 1)
    row = Conversation.objects.get(pk=source.pk)
    try:
        with suppress(ConversationExists):
            made = copies.fork(
                request.user,
                trunk,
                through=said.seq - 1,
                title=row.title,
                tags=row.tags,
                conversation_id=conversation_id,
            )
            copying.advance(made, seconds=COPIED_AT_ONCE_S)
    except EventNotFound as error:
        raise Http404 from error
    try:
        say(
            request,
            conversation_id,
            text=text,
            images=said.images,
            files=said.files,
            message_id=new_id,
        )
    except ForkUnfinished:
        raise  # the caller keeps the text in its form
    except ConversationError as error:
        return not_said(request, conversation_id, text=text, error=error)
    return redirect("conversation", conversation_id)


def _trunk(user: Visitor, source: ConversationRef, through: int) -> ConversationRef:
    """Return the oldest conversation with the same log up to a seq, so that all branches have one source."""
    while True:
        row = Conversation.objects.only("forked_from_id", "forked_at").get(pk=source.pk)
        if row.forked_from_id is None or row.forked_at is None or through > row.forked_at:
            return source
        before = Conversation.objects.open_to(user).filter(pk=row.forked_from_id).first()
        # A branch leaves only what its user sees, with the same events up to there.
        if before is None or _digest(before.ref, through) != _digest(source, through):
            return source
        source = before.ref


def _digest(conversation: ConversationRef, seq: int) -> str | None:
    rows = Event.objects.of(conversation).with_seqs([seq])
    return rows.values_list("digest", flat=True).first()


def _said(source: ConversationRef, seq: int | None) -> RepeatedMessage:
    """Return the user's message at a place. Raise Http404."""
    found = _event(source, seq)
    said = None if found is None else _message(found)
    if said is None:
        raise Http404
    return said


def _answered_by(source: ConversationRef, seq: int) -> RepeatedMessage | None:
    """Return the user's last message before an event, if any. Raise Http404 for an unknown event."""
    if _event(source, seq) is None:
        raise Http404
    messages = Event.objects.of(source).filter(kind=Kind.MESSAGE, source="user", seq__lt=seq)
    found = messages.newest_first().values_list("seq", flat=True).first()
    event = _event(source, found)
    return None if event is None else _message(event)


def _event(source: ConversationRef, seq: int | None) -> EventEnvelope | None:
    if seq is None:
        return None
    found = reads.read_after(source, seq - 1, limit=1)
    return found[0] if found and found[0]["seq"] == seq else None


def _message(event: EventEnvelope) -> RepeatedMessage | None:
    card = read(event)
    if not isinstance(card, MessageCard) or not card.is_users:
        return None
    return RepeatedMessage(seq=event["seq"], text=card.text, images=card.images, files=card.files)
