"""Reading a log: pages, events by id or place, and the events of a turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.db.models import F, Min

from conversations.events import EventEnvelope, EventFilter, EventPage, Kind, NewEvent, SomeEvents
from conversations.models import Conversation, ConversationRef, Event

PAGE_MAX_EVENTS = 500
# A page ends after the event that reaches this size, so that long events do not fill the memory.
PAGE_MAX_BYTES = 4 * 1024 * 1024
# A step of work behind the log, such as a purge, ends with the event that reaches either: on SQLite nothing
# else can write meanwhile.
STEP_EVENTS = 200
STEP_BYTES = 512 * 1024


def read_after(
    conversation: ConversationRef, seq: int, *, limit: int = PAGE_MAX_EVENTS, max_bytes: int | None = None
) -> list[EventEnvelope]:
    """Return the events after `seq`, oldest first: at most `limit`, fewer if long; none at the end.

    The last of them reaches `max_bytes` of payload; None means a whole page.
    """
    max_bytes = PAGE_MAX_BYTES if max_bytes is None else max_bytes
    if limit < 1 or max_bytes < 1:
        return []
    page = Event.objects.page(conversation, after=seq, limit=limit, max_bytes=max_bytes).envelopes()
    if page:
        return page
    following = Event.objects.of(conversation).after(seq).oldest_first().seqs().first()
    if following is None:
        return []
    # Seqs have no holes, unless the database was changed by hand.
    return read_after(conversation, following - 1, limit=limit, max_bytes=max_bytes)


def read_before(
    conversation: ConversationRef, seq: int, *, limit: int = PAGE_MAX_EVENTS
) -> list[EventEnvelope]:
    """Return the events just before `seq`, oldest first: at most `limit`, fewer if they are long."""
    if limit < 1:
        return []
    page = Event.objects.page_before(
        conversation, before=seq, limit=limit, max_bytes=PAGE_MAX_BYTES
    ).envelopes()
    if page and page[-1]["seq"] == seq - 1:
        return page
    # `seq` is behind the end of the log, or behind a hole.
    rows = Event.objects.of(conversation).before(seq)
    preceding = page[-1]["seq"] if page else rows.newest_first().seqs().first()
    return [] if preceding is None else read_before(conversation, preceding + 1, limit=limit)


def search_events(
    conversation: ConversationRef,
    wanted: EventFilter,
    *,
    first: int = 0,
    last: int | None = None,
    newest_first: bool = False,
    limit: int,
) -> EventPage:
    """Return matching events with seq from `first` through `last`: at most `limit`, fewer if they are long.

    The places are found first, so that only the page's long payloads are read.
    """
    rows = Event.objects.of(conversation).between(first, last).matching(wanted)
    ordered = rows.newest_first() if newest_first else rows.oldest_first()
    found = list(ordered.values_list("seq", "size")[: limit + 1])
    shown = take_bytes(found[:limit])
    page = Event.objects.of(conversation).with_seqs(shown)
    events = (page.newest_first() if newest_first else page.oldest_first()).envelopes() if shown else []
    return EventPage(events, has_more=len(found) > len(shown))


def count_events(conversation: ConversationRef, wanted: EventFilter) -> int:
    if wanted == EventFilter():
        return last_seq(conversation) + 1
    return Event.objects.of(conversation).matching(wanted).count()


def read_some(
    conversation: ConversationRef, *, event_ids: Collection[str] = (), seqs: Collection[int] = ()
) -> list[EventEnvelope]:
    """Return the events with one of these ids or at one of these places, oldest first, with one query.

    Their length is not limited, so ask for few.
    """
    return Event.objects.of(conversation).known_as(event_ids, seqs).oldest_first().envelopes()


def read_portion(
    conversation: ConversationRef, *, event_ids: Collection[str] = (), seqs: Collection[int] = ()
) -> SomeEvents:
    """Return the events with one of these ids or at one of these places, oldest first, with one query.

    If they are long, read only the first; return the places of the others.
    """
    if not event_ids and not seqs:
        return SomeEvents([], [])
    rows = Event.objects.of(conversation).known_as(event_ids, seqs)
    return rows.oldest_first().portion(max_bytes=PAGE_MAX_BYTES)


def read_turn(
    conversation: ConversationRef, turn_id: str, *, after: int = -1, limit: int
) -> list[EventEnvelope]:
    """Return a page of the events of one turn except states, oldest first, after the one with this seq.

    The places are found first, so that only payloads that are shown are read.
    """
    rows = (
        Event.objects.of(conversation).of_turn(turn_id).after(after).exclude(kind=Kind.STATE).oldest_first()
    )
    shown = take_bytes(list(rows.values_list("seq", "size")[:limit]))
    return Event.objects.of(conversation).with_seqs(shown).oldest_first().envelopes() if shown else []


def read_end_of_turn(
    conversation: ConversationRef, turn_id: str, *, limit: int
) -> tuple[list[EventEnvelope], bool]:
    """Return the newest events of one turn except states, oldest first, and whether it has earlier ones."""
    rows = Event.objects.of(conversation).of_turn(turn_id).exclude(kind=Kind.STATE).newest_first()
    places = list(rows.values_list("seq", "size")[: limit + 1])
    shown = take_bytes(places[:limit])
    events = Event.objects.of(conversation).with_seqs(shown).oldest_first().envelopes() if shown else []
    return events, len(shown) < len(places)


def count_steps(conversation: ConversationRef, turn_id: str) -> int:
    """Return the number of messages and calls that the agent has stored in a turn."""
    rows = Event.objects.of(conversation).of_turn(turn_id)
    return rows.filter(kind__in=[Kind.MESSAGE, Kind.TOOL_CALL], source="agent").count()


def newest_state(conversation: ConversationRef, turn_id: str) -> str | None:
    """Return the text of the last state of a turn; None before the first."""
    rows = Event.objects.of(conversation).of_turn(turn_id).filter(kind=Kind.STATE).newest_first()
    return rows.values_list("text", flat=True).first()


def read_inputs(conversation: ConversationRef, *, after: int, through: int) -> list[EventEnvelope]:
    """Return the events in this range that asked the agent for an answer, oldest first."""
    rows = Event.objects.of(conversation).after(after).through(through)
    return rows.inputs().oldest_first().envelopes()


def input_seqs(conversation: ConversationRef, *, after: int, through: int) -> list[int]:
    """Return the seqs of the events that `read_inputs` returns."""
    rows = Event.objects.of(conversation).after(after).through(through)
    return list(rows.inputs().oldest_first().values_list("seq", flat=True))


def newest_input(conversation: ConversationRef, *, after: int) -> int | None:
    """Return the seq of the newest event after this one that speaks to the agent; None if there is none."""
    rows = Event.objects.of(conversation).after(after).inputs().newest_first()
    return rows.values_list("seq", flat=True).first()


def seq_of_event(conversation: ConversationRef, event_id: str) -> int | None:
    """Return the place of the event with this id, None if there is none."""
    rows = Event.objects.of(conversation).filter(event_id=event_id)
    return rows.values_list("seq", flat=True).first()


def has_events(conversation: ConversationRef, events: Sequence[NewEvent]) -> bool:
    """Return whether events with all of these ids are stored, so that appending them adds nothing."""
    return all(seq_of_event(conversation, event.event_id) is not None for event in events)


def first_since(conversation: ConversationRef, moment: datetime) -> int | None:
    """Return the lowest seq of an event of this time or later, None if there is none.

    Read only the events since then, in an index that needs no row.
    """
    # Not the plain seq: the planner could then read the log from its beginning to find the lowest.
    rows = Event.objects.of(conversation).since(moment)
    found: int | None = rows.aggregate(first=Min(F("seq") + 0))["first"]
    return found


def open_calls(conversation: ConversationRef, turn_id: str) -> list[EventEnvelope]:
    """Return the tool calls of a turn that have no result, oldest first."""
    return Event.objects.of(conversation).of_turn(turn_id).open_calls().oldest_first().envelopes()


def event_ids(
    conversation: ConversationRef, wanted: EventFilter, *, first: int = 0, last: int | None = None
) -> list[str]:
    """Return the ids of all matching events with seq from `first` through `last`, oldest first."""
    rows = Event.objects.of(conversation).between(first, last).matching(wanted)
    return list(rows.oldest_first().values_list("event_id", flat=True))


def last_seq(conversation: ConversationRef) -> int:
    """Return the seq of the newest event, -1 if there is none."""
    return Conversation.objects.values_list("next_seq", flat=True).get(pk=conversation.pk) - 1


def take_bytes(places: Iterable[tuple[int, int]]) -> list[int]:
    """Return keys of (key, size) until PAGE_MAX_BYTES are reached; at least one."""
    shown: list[int] = []
    size_so_far = 0
    for key, size in places:
        if size_so_far >= PAGE_MAX_BYTES:
            break
        shown.append(key)
        size_so_far += size
    return shown
