"""The page of the search in titles and events."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.views.decorators.http import require_safe
from rest_framework.exceptions import ValidationError

from conversations.events import Kind
from conversations.exceptions import ConversationError, ConversationNotFound
from conversations.models import Version
from convserver.api.errors import sentences
from convserver.api.native.search import answer
from convserver.rendering.text.excerpts import plain_parts
from convserver.serving.admission import Lane, in_lane
from convserver.web.listing import ListRow
from convserver.web.pages import page, person
from sessions_app.live.state_words import OWNER_WORDS

# The kinds to choose from; without a choice, all kinds are found.
KINDS = {
    Kind.MESSAGE: "Messages",
    Kind.TOOL_CALL: "Tool calls",
    Kind.TOOL_RESULT: "Tool results",
    Kind.ERROR: "Errors",
    Kind.SUMMARY: "Summaries",
    Kind.SYSTEM: "System",
}
SOURCES = {"user": "You", "agent": "Agent", "environment": "Tools and server"}
KIND_WORDS = {
    Kind.MESSAGE: "Message",
    Kind.TOOL_CALL: "Tool call",
    Kind.TOOL_RESULT: "Tool result",
    Kind.ERROR: "Error",
    Kind.SUMMARY: "Summary",
    Kind.SYSTEM: "System message",
    Kind.STATE: "State",
    Kind.TURN: "End of turn",
    Kind.OTHER: "Event",
}
FILTERS = ("repository", "trigger", "status", "version", "kind", "source", "since", "until", "conversation")


@in_lane(Lane.SEARCH)
@require_safe
@person
def search(request: HttpRequest) -> HttpResponse:
    """Show the form, and the hits for `q` and the filters."""
    asked = _given(request.GET)
    context: dict[str, Any] = {
        "asked": request.GET,
        "is_filtered": any(request.GET.get(name) for name in FILTERS),
        "kinds": KINDS.items(),
        "sources": SOURCES.items(),
        "statuses": OWNER_WORDS.items(),
        "versions": Version.values,
    }
    if not request.GET.get("q", "").strip():
        return page(request, "web/search.html", context)
    try:
        found = answer(request.user, asked, state=_state(asked))
    except ConversationNotFound:
        raise  # `person` has a page for it
    except (ConversationError, ValidationError) as error:
        return page(request, "web/search.html", {**context, "problem": _sentence(error)}, status=400)
    now = timezone.now()
    titled = [ListRow(state=state, now=now) for state in found["conversations"]]
    more = _next(request.GET, found["next_page_id"])
    for hit in found["hits"]:
        hit["moment"] = parse_datetime(hit["timestamp"])
        words = KIND_WORDS[Kind(hit["kind"])]
        # Only people's and agents' events need a source.
        is_said = hit["source"] in ("user", "agent")
        hit["what"] = f"{SOURCES[hit['source']]} · {words}" if is_said else words
        hit["parts"] = plain_parts([(part["text"], part["match"]) for part in hit["snippet"]])
    return page(request, "web/search.html", {**context, "found": found, "titled": titled, "more": more})


def _state(asked: QueryDict) -> str | None:
    """Remove the chosen state from a query and return it; an unknown one stays there and is refused."""
    chosen = asked.get("status", "") in OWNER_WORDS
    return str(asked.pop("status")[-1]) if chosen else None


def _given(query: QueryDict) -> QueryDict:
    """Return the query without empty fields, with days of the reader's time zone as moments."""
    given = QueryDict(mutable=True)
    for name, values in query.lists():
        if filled := [value for value in values if value]:
            given.setlist(name, filled)
    zone = _zone(query.get("zone", ""))
    first_day, last_day = _day(query.get("since", "")), _day(query.get("until", ""))
    if first_day is not None:
        given["since"] = _midnight(first_day, zone)
    if last_day is not None and last_day < date.max:  # the last day is included
        given["until"] = _midnight(last_day + timedelta(days=1), zone)
    return given


def _zone(name: str) -> tzinfo:
    """Return a time zone by its name; UTC for one that this machine does not know."""
    try:
        return ZoneInfo(name)  # it looks for a file: a name like `../x` is refused by the library
    except (LookupError, ValueError, OSError):  # an unknown zone, no name, or a directory
        return UTC


def _midnight(day: date, zone: tzinfo) -> str:
    try:
        return datetime.combine(day, time(), zone).astimezone(UTC).isoformat()
    except OverflowError:  # UTC has no date this early
        return datetime.combine(day, time(), UTC).isoformat()


def _day(text: str) -> date | None:
    try:
        return parse_date(text)
    except ValueError:
        return None


def _next(query: QueryDict, page_id: str | None) -> str | None:
    """Return the query of the next page."""
    if page_id is None:
        return None
    following = query.copy()
    following["page_id"] = page_id
    return following.urlencode()


def _sentence(error: ConversationError | ValidationError) -> str:
    return " ".join(sentences(error.detail)) if isinstance(error, ValidationError) else str(error)
