"""One page of events as HTML: each event read once, results put into the calls that they answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, assert_never

from django.template.loader import get_template
from django.utils.safestring import SafeString, mark_safe

from conversations import dialects
from conversations.dialects import AgentState
from conversations.events import SEQ_MAX, EventEnvelope, Kind
from convserver.rendering.cards import (
    WAITING,
    CallCard,
    CallOutcome,
    Card,
    Entry,
    ErrorCard,
    MessageCard,
    QuietLine,
    ResultCard,
)
from convserver.rendering.parts import Parts
from convserver.rendering.plans import Plan, gathered
from convserver.rendering.reading import read
from convserver.rendering.subjects import subject_of

RESULTS = (Kind.TOOL_RESULT, Kind.ERROR)
OPEN = frozenset({CallOutcome.RUNNING, CallOutcome.WAITING})
"""The possible outcomes of a call without a result while nothing else is known."""


class FilesShown(NamedTuple):
    """What a page shows of checkpoints of files."""

    first: int | None = None
    """The first event whose files can be restored; None if none can."""
    changed: Mapping[int, int] = {}
    """How many files a turn has changed, by its last event."""


NO_FILES = FilesShown()


class PendingCall(NamedTuple):
    """The newest call of a page that waits for the user."""

    seq: int
    is_whole: bool
    is_untold: bool = False  # whether the user is asked for the outcome, and not for an approval
    is_allowable: bool = False


class RenderedPage(NamedTuple):
    html: SafeString
    asked: PendingCall | None


def render_page(
    envelopes: Sequence[EventEnvelope],
    *,
    conversation_id: str,
    beyond: Sequence[EventEnvelope] = (),
    still: Set[CallOutcome] = OPEN,
    untold: int | None = None,
    allowable: Set[int] = frozenset(),
    whole: bool = False,
    files: FilesShown = NO_FILES,
    rated: Mapping[int, str] = MappingProxyType({}),
) -> RenderedPage:
    """Return the events of one page that people are shown, in order, as articles.

    A result is inside its call if both are on the page, otherwise an article that names its call.
    Of `beyond`, the events that follow the page, only results are shown, in calls of the page.
    `still` is the set of outcomes that a call without a result can have now; others are "No result".
    `untold` is the seq of the call whose outcome the user is asked for.
    `allowable` are the seqs of waiting calls with which the user may allow all later ones of their tools.
    `whole` includes long texts completely, folded, instead of a link that downloads them.
    `files` has the files of events and turns, and `rated` the ratings of answers by seq.
    """
    parts = Parts(conversation_id, whole=whole, rated=rated)
    shown = entries(envelopes, beyond)
    _leave_behind(shown, OPEN - still)
    for entry in shown:
        if isinstance(entry.card, CallCard) and entry.event["seq"] in allowable:
            entry.card = replace(entry.card, is_allowable=True)
    about = (each for each in shown if each.event["seq"] == untold)
    _tell(about, set(CallOutcome), CallOutcome.OUTCOME_UNKNOWN)
    articles = [(_seq_of(each), _article(each, parts, files)) for each in gathered(shown)]
    html = mark_safe("\n".join(_with_changes(articles, files, parts)))  # noqa: S308 - of templates
    asked = None
    for entry in reversed(shown):
        card = entry.card
        if isinstance(card, CallCard) and card.outcome in WAITING and not entry.results:
            is_untold = card.outcome is CallOutcome.OUTCOME_UNKNOWN
            asked = PendingCall(entry.event["seq"], subject_of(card).is_whole, is_untold, card.is_allowable)
            break
    return RenderedPage(html, asked)


def entries(envelopes: Iterable[EventEnvelope], beyond: Iterable[EventEnvelope] = ()) -> list[Entry]:
    """Return the entries of these events with results, also those from `beyond`, inside their calls."""
    shown: list[Entry] = []
    calls: dict[int | str, Entry] = {}
    pauses = _Pauses()
    for event in envelopes:
        card = read(event)
        _note_state(event, calls.values())
        pauses.note(event, shown)
        if card is None:
            continue
        entry = Entry(event=event, card=card)
        # One failure, and one pause, is two events on some wires: in either order, one line tells it.
        if shown and (_is_failure_told_by(event, shown[-1].card) or _is_told_by(event, shown[-1].event)):
            continue
        if shown and (_is_failure_told_by(shown[-1].event, card) or _is_told_by(shown[-1].event, event)):
            shown.pop()
        if isinstance(card, ResultCard) and (call := _call_of(event, calls)):
            call.results.append(entry)
            continue
        shown.append(entry)
        if isinstance(card, CallCard):
            # A result names its call by seq (V0), or by the id that the model gave it (V1).
            calls[event["seq"]] = entry
            if event["tool_call_id"]:
                calls[event["tool_call_id"]] = entry
    for event in beyond:
        _note_state(event, calls.values())
        pauses.note(event, shown)
        if event["kind"] in RESULTS and (call := _call_of(event, calls)) and (card := read(event)):
            call.results.append(Entry(event=event, card=card))
    return shown


class _Pauses:
    """Marks the last answer of a turn that was paused and did not go on as interrupted."""

    def __init__(self) -> None:
        self._is_paused = False
        self._last: Entry | None = None  # the entry before the pause

    def note(self, event: EventEnvelope, shown: Sequence[Entry]) -> None:
        """Read the next event; `shown` are the entries before it."""
        if event["kind"] == Kind.STATE:
            was_paused, self._is_paused = self._is_paused, dialects.state_of(event) is AgentState.PAUSED
            if self._is_paused and not was_paused:
                self._last = shown[-1] if shown else None
        elif event["kind"] == Kind.TURN:
            # A turn that ends while it is paused did not go on: its last answer is only a beginning.
            cut = self._last if self._is_paused else None
            if cut is not None and isinstance(cut.card, MessageCard) and not cut.card.is_users:
                cut.card = replace(cut.card, interrupted=True)
            self._is_paused = False


def _is_failure_told_by(event: EventEnvelope, card: Card) -> bool:
    """Return whether an event is the state of a failed agent, and the card beside it is its error."""
    return dialects.state_of(event) is AgentState.ERROR and isinstance(card, ErrorCard)


def _is_told_by(state: EventEnvelope, event: EventEnvelope) -> bool:
    """Return whether a state is the pause of a V1 agent, and the event beside it names its cause."""
    return (
        state["type"] == "ConversationStateUpdateEvent"
        and dialects.state_of(state) is AgentState.PAUSED
        and event["type"] in ("PauseEvent", "InterruptEvent")
    )


def _call_of(event: EventEnvelope, calls: Mapping[int | str, Entry]) -> Entry | None:
    if event["cause"] is not None:
        return calls.get(event["cause"])
    return calls.get(event["tool_call_id"] or "")


def _note_state(event: EventEnvelope, calls: Iterable[Entry]) -> None:
    """Update the outcomes of calls without a result from a later event."""
    if (is_accepted := dialects.decision_of(event)) is not None:
        decided = CallOutcome.RUNNING if is_accepted else CallOutcome.REJECTED
        # The result may follow long after; until then the card must not ask for an approval.
        _tell(calls, {CallOutcome.WAITING}, decided)
    elif dialects.state_of(event) is AgentState.WAITING_FOR_CONFIRMATION:
        _tell(calls, OPEN, CallOutcome.WAITING)
    elif event["kind"] == Kind.MESSAGE and event["source"] == "user":
        _leave_behind(calls, {CallOutcome.RUNNING})  # a call that waits for a decision still waits
    elif event["kind"] in (Kind.MESSAGE, Kind.TURN):
        _leave_behind(calls, OPEN)


def _leave_behind(calls: Iterable[Entry], outcomes: Set[CallOutcome]) -> None:
    _tell(calls, outcomes, CallOutcome.NO_RESULT)


def _tell(entries: Iterable[Entry], outcomes: Set[CallOutcome], outcome: CallOutcome) -> None:
    """Set the outcome of the calls without a result that have one of `outcomes`."""
    for entry in entries:
        card = entry.card
        if isinstance(card, CallCard) and card.outcome in outcomes and not entry.results:
            # A thought has no result on any wire, and none is missing.
            entry.card = replace(card, outcome=outcome) if card.tool.icon != "think" else card


def _beside(call: CallCard, result: ResultCard) -> ResultCard:
    """Return a result without the plan, if its call shows it."""
    # A call that waits shows its arguments instead, all of them.
    return replace(result, tasks=()) if call.tasks and call.outcome not in WAITING else result


def _seq_of(entry: Entry | Plan) -> int:
    return (entry.states[0] if isinstance(entry, Plan) else entry).event["seq"]


def _with_changes(articles: Sequence[tuple[int, str]], files: FilesShown, parts: Parts) -> Iterator[str]:
    """Yield the articles, and after the last one of a turn how many files it has changed."""
    left = sorted(files.changed.items())
    for number, (_, article) in enumerate(articles):
        yield article
        # The event that ends a turn is shown by no article of its own.
        following = articles[number + 1][0] if number + 1 < len(articles) else SEQ_MAX
        while left and left[0][0] < following:
            seq, count = left.pop(0)
            context = {"conversation_id": parts.conversation_id, "seq": seq, "count": count}
            yield get_template("web/events/files.html").render(context)


def _article(entry: Entry | Plan, parts: Parts, files: FilesShown) -> str:
    if isinstance(entry, Plan):
        return get_template("web/events/plan.html").render(parts.plan(entry))
    match entry.card:
        case MessageCard():
            name, context = "message", parts.message(entry.event, entry.card)
        case CallCard():
            results = [
                parts.result(each.event, _beside(entry.card, each.card))
                for each in entry.results
                if isinstance(each.card, ResultCard)
            ]
            # The outcome beside the call is that of a result that is missing; a result brings its own.
            card = entry.card if not entry.results else replace(entry.card, outcome=CallOutcome.NO_RESULT)
            name, context = "call", {**parts.call(entry.event, card), "results": results}
        case ResultCard():
            name, context = "result_alone", {"result": parts.result(entry.event, entry.card)}
        case QuietLine():
            name, context = "quiet", parts.quiet(entry.event, entry.card)
        case ErrorCard():
            name, context = "error", parts.error(entry.event, entry.card)
        case _:
            assert_never(entry.card)
    has_files = files.first is not None and entry.event["seq"] >= files.first
    shared = {
        "event": entry.event,
        "moment": entry.moment,
        "links": parts.links,
        "has_files": has_files,
    }
    return get_template(f"web/events/{name}.html").render({**shared, **context})
