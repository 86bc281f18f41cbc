"""The page of one conversation: its newest events, and the pages before and after."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from conversations import access
from conversations.cursors import EventCursor
from conversations.events import EventEnvelope
from conversations.exceptions import ConversationError
from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from convserver.api.errors import NATIVE_STATUS, retry_headers, status_of
from convserver.rendering import CallOutcome, FilesShown, PendingCall, render_page
from convserver.web.conversations.agent import words_of
from convserver.web.conversations.branches import branches_of
from convserver.web.conversations.messages import message_id, say, text_of, why_not_said
from convserver.web.conversations.while_working import choices_of
from convserver.web.listing import ListRow, labels_in
from convserver.web.pages import number_in, page, person, takes_form, to_conversation
from sessions_app.agents.chosen import cues, uses_model
from sessions_app.agents.remote.names import name_in, not_connected
from sessions_app.agents.remote.waiting import name_away
from sessions_app.checkpoints import kept
from sessions_app.identity.authentication import is_keyed
from sessions_app.live import ratings
from sessions_app.live.status import (
    ConversationState,
    last_turn_of,
    listed,
    progress_of,
    states_of,
)
from sessions_app.models import SUSPENDED, THERE, AgentLoop, ExecutionStatus, LoopEnd, RunState, ToolRun
from sessions_app.settings import allowed_tools, chosen_models, run_options

PAGE_EVENTS = 50  # the events of the log that are shown at once
# The events after them that are read for the results of their calls: most results follow soon.
BEYOND_EVENTS = 10
# Parts of HTML that need `calls.css` and `code.css`, which a page without them does not load.
_CALLS = ('="event tool_', '="event plan', '="event error', '="output', '="code', '="attached')
# The ends of a loop that can leave its last turn without an answer.
_CUT_OFF = (LoopEnd.STOPPED, LoopEnd.EVICTED, LoopEnd.INTERRUPTED)

_PLAYING = (ExecutionStatus.RUNNING, *SUSPENDED)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsShown:
    """A stretch of the log as HTML, and its place."""

    html: SafeString
    first: int  # its first seq; a page requests the events before with `before=`
    last: int  # the seq of its last event, `first - 1` if it has none
    last_seq: int  # the end of the log
    cursor: str  # the cursor of that end, with a fingerprint if the last event was read
    has_calls: bool
    """Whether it has calls, results, errors, output or code, which have their own stylesheets."""
    asked: PendingCall | None = None  # the call that waits for approval, if the stretch has it


@require_safe
@person
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show one conversation: its newest events, those in the address, or its state at an event."""
    found = access.readable(request.user, conversation_id)
    as_of = _seq(request.GET.get("as_of"))
    if as_of is None or as_of >= reads.last_seq(found):
        return _page(request, found)
    return _page_as_of(request, found, as_of)


def _page_as_of(request: HttpRequest, found: ConversationRef, as_of: int) -> HttpResponse:
    """Show the conversation as it was when this event was stored, without forms."""
    asked = _seq(request.GET.get("before"))
    before = as_of + 1 if asked is None else min(asked, as_of + 1)
    read = reads.read_before(found, before, limit=PAGE_EVENTS)
    last = read[-1]["seq"] if read else -1
    beyond = reads.read_after(found, last, limit=BEYOND_EVENTS) if last < as_of else []
    known = [event for event in beyond if event["seq"] <= as_of]
    # Nothing is still to come: a call without a result had none at that event.
    shown = render_page(read, conversation_id=found.public_id, beyond=known, still=set())
    context = {
        "conversation": states_of([found.pk])[found.pk],
        "as_of": as_of,
        "html": shown.html,
        "has_calls": any(mark in shown.html for mark in _CALLS),
        "first": read[0]["seq"] if read else 0,
        "last": last,
    }
    return page(request, "web/as_of.html", context)


def not_said(
    request: HttpRequest, conversation_id: str, *, text: str, error: ConversationError
) -> HttpResponse:
    """Show the conversation with a refused message: the reason, and its text in the box to send it again.

    Raise ConversationNotFound.
    """
    found = access.readable(request.user, conversation_id)
    status = status_of(error, NATIVE_STATUS)
    shown = _page(request, found, status=status, typed=text, problem=why_not_said(error))
    for name, value in retry_headers(error).items():
        shown.headers[name] = value
    return shown


def _page(request: HttpRequest, found: ConversationRef, *, status: int = 200, **said: str) -> HttpResponse:
    # The socket replays all events after this read of the log, so that the other reads can be newer.
    shown, standing = _asked_for(request, found), progress_of(found)
    state = listed(Conversation.objects.with_pks([found.pk]), access.pk_of(request.user))[found.pk]
    options = run_options.options_of(found)
    loop = state["loop"]
    # Only then can the last turn have ended without an answer, and is it read.
    has_given_up = loop["ended_by"] in _CUT_OFF or loop["execution_status"] == ExecutionStatus.ERROR
    context = {
        "conversation": state,
        "chosen": words_of(options),
        "model": options.model,
        "for_next": chosen_models.next_of(options),
        "has_key": is_keyed(state["version"]),
        "standing": standing,
        "last_turn": last_turn_of(found) if has_given_up else None,
        **_absence(found, options.agent, state),
        # The running turn may have been resumed after a crash.
        "is_resumed": loop["execution_status"] in _PLAYING and AgentLoop.objects.of(found).resumed().exists(),
        "row": ListRow(state=state, now=timezone.now()),
        "parent": _parent(request, state["parent"]),
        "branches": branches_of(request, found),
        "labels": labels_in(state["tags"]),
        "shown": shown,
        "is_decided": _is_decided(found, loop["execution_status"]),
        "message_id": str(uuid4()),
        "while_working": choices_of(found),
        "cues": cues(found.owner_id, options.agent).items(),
        "asks_model": uses_model(),
        **said,
    }
    return page(request, "web/conversation.html", context, status=status)


def _absence(found: ConversationRef, chosen: str, state: ConversationState) -> dict[str, str]:
    """Return the words for a remote agent that is not connected; `away` if it is not connected now."""
    name = name_in(chosen) or name_in(state["loop"]["agent"])
    if name is None:
        return {}
    away = name_away(found)
    return {"absence": not_connected(away or name), "away": "" if away is None else not_connected(away)}


@require_safe
@person
def events(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return only a stretch of the log, for a page that has others of it."""
    found = access.readable(request.user, conversation_id)
    return render(request, "web/conversation/events.html", {"shown": _asked_for(request, found)})


@takes_form(to_conversation)
def post_message(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Take a message from a form, and show the conversation again."""
    text = text_of(request)
    if not text:
        return redirect("conversation", conversation_id)
    try:
        seq = say(request, conversation_id, text=text, message_id=message_id(request))
    except ConversationError as error:
        return not_said(request, conversation_id, text=text, error=error)
    return redirect(f"{reverse('conversation', args=[conversation_id])}#e{seq}")


def _parent(request: HttpRequest, parent_id: str | None) -> Conversation | None:
    """Return the conversation that started this one, if the user may see it."""
    if parent_id is None:
        return None
    return Conversation.objects.open_to(request.user).with_public_ids([parent_id]).first()


def _asked_for(request: HttpRequest, found: ConversationRef) -> EventsShown:
    """Return the stretch in `before`, `after` or `around`, otherwise the end of the log.

    A seq beyond the end counts as the end.
    """
    last_seq = reads.last_seq(found)
    asked = {name: _seq(request.GET.get(name)) for name in ("after", "before", "around")}
    if asked["after"] is not None:
        after = min(asked["after"], last_seq)
        return _shown(found, reads.read_after(found, after, limit=PAGE_EVENTS), after + 1, last_seq)
    if asked["around"] is not None:
        start = max(-1, min(asked["around"], last_seq) - PAGE_EVENTS // 2)  # in the middle of the page
        return _shown(found, reads.read_after(found, start, limit=PAGE_EVENTS), start + 1, last_seq)
    before = last_seq + 1 if asked["before"] is None else asked["before"]
    page_before = reads.read_before(found, before, limit=PAGE_EVENTS)
    return _shown(found, page_before, page_before[0]["seq"] if page_before else 0, last_seq)


def _shown(found: ConversationRef, page: list[EventEnvelope], first: int, last_seq: int) -> EventsShown:
    last = page[-1]["seq"] if page else first - 1
    beyond = reads.read_after(found, last, limit=BEYOND_EVENTS) if last < last_seq else []
    still = _still(found, is_end=last >= last_seq)
    # Only a turn that waits can have such a call: all other pages do without the query.
    untold, allowable = _asked(found) if still == {CallOutcome.WAITING} else (None, set[int]())
    shown = render_page(
        page,
        conversation_id=found.public_id,
        beyond=beyond,
        still=still,
        untold=untold,
        allowable=allowable,
        files=FilesShown(*kept.shown(found, first, last)),
        rated=ratings.polarities(found, [event["seq"] for event in page]),
    )
    # A decision may be stored that the log does not have yet.
    asked = shown.asked if shown.asked and AgentLoop.objects.of(found).undecided().exists() else None
    has_calls = any(mark in shown.html for mark in _CALLS)
    end = max(last, last_seq)  # events may have come between the two reads
    return EventsShown(
        html=shown.html,
        first=first,
        last=last,
        last_seq=end,
        cursor=_cursor([*page, *beyond], end),
        has_calls=has_calls,
        asked=asked,
    )


def _cursor(read: list[EventEnvelope], end: int) -> str:
    found = next((event["fingerprint"] for event in reversed(read) if event["seq"] == end), None)
    return EventCursor(end, found).encode()


def _asked(found: ConversationRef) -> tuple[int | None, Set[int]]:
    """Return the seq of the call whose outcome the user is asked for, or those that can be allowed always."""
    runs = list(ToolRun.objects.of(found).filter(state__in=[RunState.UNKNOWN, RunState.WAITING]))
    untold = next((run.call_seq for run in runs if run.state == RunState.UNKNOWN), None)
    return untold, {run.call_seq for run in runs if allowed_tools.allowable(runs) and untold is None}


def _still(found: ConversationRef, *, is_end: bool) -> Set[CallOutcome]:
    """Return the possible outcomes of a call without a result, by the agent's state after the read."""
    loop = states_of([found.pk])[found.pk]["loop"]
    is_there = loop["status"] in THERE
    if loop["execution_status"] == ExecutionStatus.WAITING_FOR_CONFIRMATION:
        return {CallOutcome.RUNNING if _is_decided(found, loop["execution_status"]) else CallOutcome.WAITING}
    if loop["execution_status"] == ExecutionStatus.RUNNING and is_there and is_end:
        return {CallOutcome.RUNNING, CallOutcome.WAITING}
    return set()


def _is_decided(found: ConversationRef, execution_status: str) -> bool:
    """Return whether a decision about the waiting calls is stored and not yet carried out."""
    waits = execution_status == ExecutionStatus.WAITING_FOR_CONFIRMATION
    return waits and not AgentLoop.objects.of(found).undecided().exists()


def _seq(text: str | None) -> int | None:
    """Return a seq or -1; None for any other text, which shows the end of the log."""
    # An address that was cut or edited by hand shows the conversation, not an error.
    text = text or ""
    number = number_in(text.removeprefix("-"))
    return -1 if number is not None and text.startswith("-") else number
