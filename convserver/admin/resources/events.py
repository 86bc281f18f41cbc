"""The log of one conversation, read-only: its pages, one event, its payload.

Every answer with events in it is entered in the admin's log, page by page.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Substr
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from conversations.events import SEQ_MAX, EventEnvelope
from conversations.log import reads
from conversations.models import Conversation, Event
from convserver.admin import cells
from convserver.admin.base import may_read, record_act, staff_page
from convserver.admin.payload import READ_MAX_CHARACTERS, indented
from convserver.admin.widgets import TextInput
from convserver.exports.conversation import safe_name

PAGE = 50
TEXT_READ_MAX = 20_000

KIND_LABELS = {"message": "primary", "tool_call": "info", "tool_result": "success", "error": "danger"}


def opened(request: HttpRequest, admin: ModelAdmin[Conversation], pk: int) -> Conversation:
    """Return the conversation whose events this member of staff may read.

    Raise PermissionDenied, or Http404 for one that does not exist.
    """
    if not (may_read(request) and admin.has_view_permission(request)):
        raise PermissionDenied
    return get_object_or_404(admin.get_queryset(request), pk=pk)


class SeqForm(forms.Form):
    """Which page: after a seq, before one, or from one on."""

    after = forms.IntegerField(required=False, min_value=-1, max_value=SEQ_MAX)
    before = forms.IntegerField(required=False, min_value=0, max_value=SEQ_MAX)
    seq = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=SEQ_MAX,
        label="Go to event",
        widget=TextInput({"inputmode": "numeric", "placeholder": "number"}),
    )


@require_GET
def events_page(request: HttpRequest, pk: int, *, admin: ModelAdmin[Conversation]) -> HttpResponse:
    """Show a page of the log, oldest first; fewer than PAGE where events are long."""
    conversation = opened(request, admin, pk)
    form = SeqForm(request.GET)
    if not form.is_valid():
        messages.error(request, "An event number is a whole number. Showing the first events.")
    page = _page(conversation, form.cleaned_data if form.is_valid() else {})
    # Recorded before it is shown, with the numbers that were read, so that the log says who knows what.
    read = f"{page[0]['seq']} to {page[-1]['seq']}" if page else "(there were none)"
    record_act(request, [conversation], f"Read events {read}")
    context = {
        "form": SeqForm(),
        "events": [_row(event) for event in page],
        "last_seq": conversation.next_seq - 1,
        "has_previous": bool(page) and page[0]["seq"] > 0,
        "has_next": bool(page) and page[-1]["seq"] < conversation.next_seq - 1,
    }
    return _shown(request, admin, conversation, "admin/events.html", "Events", **context)


@require_GET
def event_page(request: HttpRequest, pk: int, seq: int, *, admin: ModelAdmin[Conversation]) -> HttpResponse:
    """Show one event with its payload, or the beginning of a long one."""
    conversation = opened(request, admin, pk)
    # The database cuts it: a payload may have 16 MB, and one more character tells that it goes on.
    beginning = Substr("payload", 1, READ_MAX_CHARACTERS + 1)
    rows = _at(conversation, seq).defer("payload").annotate(beginning=beginning)
    event = rows.first()
    if event is None:
        raise Http404("There is no such event.")
    record_act(request, [conversation], f"Read event {seq}")
    context = {
        "event": event,
        "seq": seq,
        "facts": _facts(event),
        "text": event.text[:TEXT_READ_MAX],
        "text_goes_on": len(event.text) > TEXT_READ_MAX,
        "payload": indented(event.beginning[:READ_MAX_CHARACTERS]),
        "payload_goes_on": len(event.beginning) > READ_MAX_CHARACTERS,
        "payload_shown": cells.number(READ_MAX_CHARACTERS),
        "payload_size": cells.number(event.size),
        "previous_seq": seq - 1 if seq else None,
        "next_seq": seq + 1 if seq < conversation.next_seq - 1 else None,
    }
    return _shown(request, admin, conversation, "admin/event.html", f"Event {seq}", **context)


@require_GET
def payload_download(
    request: HttpRequest, pk: int, seq: int, *, admin: ModelAdmin[Conversation]
) -> HttpResponse:
    """Return a payload as it was received, as a download."""
    conversation = opened(request, admin, pk)
    text = _at(conversation, seq).values_list("payload", flat=True).first()
    if text is None:
        raise Http404("There is no such event.")
    record_act(request, [conversation], f"Downloaded the payload of event {seq}")
    name = f"conversation-{safe_name(conversation.public_id)}-event-{seq}.json"
    disposition = content_disposition_header(True, name)
    return HttpResponse(text, content_type="application/json", headers={"Content-Disposition": disposition})


def _page(conversation: Conversation, place: dict[str, int | None]) -> list[EventEnvelope]:
    if (before := place.get("before")) is not None:
        return reads.read_before(conversation.ref, before, limit=PAGE)
    after, seq = place.get("after"), place.get("seq")
    start = after if after is not None else seq - 1 if seq is not None else -1
    return reads.read_after(conversation.ref, start, limit=PAGE)


def _at(conversation: Conversation, seq: int) -> Any:
    return Event.objects.of(conversation.ref).after(seq - 1).through(seq)


def _shown(
    request: HttpRequest,
    admin: ModelAdmin[Conversation],
    conversation: Conversation,
    template: str,
    title: str,
    **context: Any,
) -> HttpResponse:
    named = {"original": conversation, "conversation": conversation}
    return staff_page(request, admin, template, title, **named, **context)


def _row(event: EventEnvelope) -> dict[str, Any]:
    return {
        "seq": event["seq"],
        "time": event["timestamp"].replace("T", " ").removesuffix("Z"),
        "kind": event["kind"].replace("_", " "),
        "label": KIND_LABELS.get(event["kind"], ""),
        "type": event["type"],
        "source": event["source"],
        # Long texts are cut before their white space is joined.
        "text": cells.cut(event["text"][:640], 160),
    }


def _facts(event: Event) -> list[tuple[str, Any]]:
    """Return the labels and values of the columns in the order of the page."""
    facts = [
        ("Time (UTC)", cells.moment(event.timestamp)),
        ("Received (UTC)", cells.moment(event.received_at)),
        ("Kind", event.get_kind_display().replace("_", " ")),
        ("Type", event.type),
        ("Source", event.source),
        ("Protocol", event.dialect.upper()),
        ("Event ID", cells.code(event.event_id)),
        ("In reply to event", event.cause_seq),
        ("Turn", event.turn_id and cells.code(event.turn_id)),
        ("Tool call", event.tool_call_id and cells.code(event.tool_call_id)),
        ("Sender (user ID)", event.sender_id),
        ("Start of the agent", event.epoch),
        ("Hidden from clients", "Yes" if event.hidden else None),
        ("Input to the agent", "Yes" if event.is_input else None),
        ("Payload", f"{cells.number(event.size)} bytes"),
        ("Checksum", cells.code(event.digest)),
    ]
    return [(label, value) for label, value in facts if value not in (None, "")]
