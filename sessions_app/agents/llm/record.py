"""The part of a conversation that its model sees, read from the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.v0.reading import number_of
from conversations.dialects.views import EventView, SummaryView
from conversations.events import SEQ_MAX, Dialect, EventEnvelope, EventFilter, EventMatch, Kind
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, CreationParameters
from conversations.payloads import halves
from sessions_app.agents.llm import plans
from sessions_app.agents.llm.guidance.skills import NO_GUIDANCE, Guidance
from sessions_app.models import AgentSetup, CheckpointCause, FilesCheckpoint, InputReceipt
from sessions_app.repository_skills.skill import Skill, usable
from sessions_app.storage.attachments import attachments_of, content_of

EVENTS_MAX = 5_000
"""A model sees at most this many events."""
CONDENSATIONS_MAX = 100
FILES_MAX_BYTES = 4 * 1024 * 1024
"""A model sees at most this many bytes of files, the oldest first."""

_SHOWN = EventFilter(
    exclude_hidden=True,
    any_of=frozenset(
        EventMatch(
            dialect=dialect,
            kinds=frozenset({Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ERROR}),
        )
        for dialect in Dialect
    ),
)
_CONDENSATIONS = EventFilter(types=frozenset({"Condensation", "condensation"}), exclude_hidden=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file that the user has added."""

    name: str
    size: int
    """Bytes."""
    content: bytes | None
    """None if there is no room for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A conversation as its model sees it."""

    events: Sequence[EventEnvelope] = ()
    """Oldest first; the turn's inputs and what the turn has stored come last."""
    is_complete: bool = True
    """Whether no older events are left out."""
    forgotten: frozenset[str | int] = frozenset()
    """The events that a condensation has replaced: ids in V1, numbers in V0."""
    summary: str = ""
    """The text that replaces them."""
    files: Sequence[File] = ()
    repository: str = ""
    branch: str = ""
    repository_place: str = ""
    """The sentence that says where it is, or why it is not there."""
    own_instructions: str = ""
    """The user's own, for all conversations."""
    instructions: str = ""
    """Those of the conversation's creation, and those that its user has written since."""
    suffix: str = ""
    """A V1 client's addition to the system prompt."""
    plans: Sequence[str] = ()
    """The plans of other conversations for this one, oldest first."""
    parent: str = ""
    """The messages of the conversation to plan for."""
    task: str = ""
    """The model's instruction, if it is not to answer."""
    message_suffix: str = ""
    """A V1 client's addition to each message."""
    skills: Sequence[Skill] = ()
    home: str = ""
    """The path by which the model names its workspace; empty if it reads no files there."""


_OF_USER, _OF_OPTIONS = "owner__user_settings__instructions", "run_options__instructions"
_COLUMNS = ("repository", "branch", _OF_USER, _OF_OPTIONS)


def read(
    conversation: ConversationRef,
    *,
    turn_id: str,
    inputs: Sequence[int],
    max_chars: int,
    task: str = "",
    guidance: Guidance = NO_GUIDANCE,
) -> Record:
    """Read a conversation for a turn that answers the events with these seqs.

    It has the newest `max_chars` or so of text, no later inputs, and what files of the workspace say.
    """
    forgotten, summary = _condensed(conversation)
    newest, is_complete = _newest(conversation, max_chars, forgotten)
    row = Conversation.objects.values(*_COLUMNS).get(pk=conversation.pk)
    found = [*_with_inputs(conversation, newest, inputs), *_restores(conversation, newest)]
    seen = _seen(conversation, found)
    agents = AgentSetup.objects.filter(pk=conversation.pk).values_list("shown_agent", flat=True)
    context = columns.fields(columns.fields(agents.first()).get("agent_context"))
    parameters = CreationParameters.objects.filter(pk=conversation.pk).values_list("parameters", flat=True)
    told = [columns.first_text(columns.fields(parameters.first()).get("instructions")), row[_OF_OPTIONS]]
    return Record(
        events=ordered(found, turn_id=turn_id, inputs=inputs, seen=seen),
        is_complete=is_complete,
        forgotten=forgotten,
        summary=summary,
        files=list(_files(conversation)),
        repository=row["repository"] or "",
        branch=row["branch"] or "",
        own_instructions=row[_OF_USER] or "",
        instructions="\n\n".join(filter(None, told)),
        plans=() if task else plans.plans_for(conversation),
        parent=plans.said_before(conversation) if task else "",
        task=task,
        suffix=columns.first_text(context.get("system_message_suffix")),
        message_suffix=columns.first_text(context.get("user_message_suffix")),
        skills=usable(guidance.skills, context),
        home=guidance.home,
    )


def ordered(
    events: Sequence[EventEnvelope], *, turn_id: str, inputs: Sequence[int], seen: Mapping[int, int]
) -> list[EventEnvelope]:
    """Return the events up to a turn and its own in the order in which the agent has seen them.

    `seen` has, by a message's seq, the newest seq of the log when the agent saw it. An input that is not in
    it comes before the turn's own events. Later messages are for the next turn.
    """
    through = max(inputs, default=None)
    begun = min((event["seq"] for event in events if event["turn"] == turn_id), default=SEQ_MAX)

    def place(event: EventEnvelope) -> tuple[int, bool, int]:
        seq = event["seq"]
        known = seen.get(seq, begun - 1 if seq in inputs else seq)
        return known, seq in seen or seq in inputs, seq

    def is_later(event: EventEnvelope) -> bool:
        return event["source"] == "user" and through is not None and event["seq"] > through

    return sorted((event for event in events if event["seq"] in inputs or not is_later(event)), key=place)


def _seen(conversation: ConversationRef, events: Sequence[EventEnvelope]) -> dict[int, int]:
    """Return the receipts of the messages among these events."""
    said = [event["seq"] for event in events if event["source"] == "user"]
    if not said:
        return {}
    receipts = InputReceipt.objects.of(conversation).after(min(said) - 1).through(max(said))
    return dict(receipts.values_list("seq", "seen_seq"))


def before(conversation: ConversationRef, found: Record, *, inputs: Sequence[int]) -> list[EventEnvelope]:
    """Return the older events that a record lacks, oldest first, without the turn's inputs."""
    older: list[EventEnvelope] = []
    last = min((event["seq"] for event in found.events if event["seq"] not in inputs), default=0) - 1
    while True:
        page = reads.search_events(
            conversation, _SHOWN, last=last, newest_first=True, limit=reads.PAGE_MAX_EVENTS
        )
        left = [event for event in page.events if not is_forgotten(event, found.forgotten)]
        older += [event for event in left if event["seq"] not in inputs]
        if not page.has_more or not left:
            return older[::-1]
        last = page.events[-1]["seq"] - 1


def _with_inputs(
    conversation: ConversationRef, newest: list[EventEnvelope], inputs: Sequence[int]
) -> list[EventEnvelope]:
    """Return the newest events, and the inputs of the turn that lie before them."""
    missing = set(inputs) - {event["seq"] for event in newest}
    if not missing:
        return newest
    first, last = min(missing), max(missing)
    page = reads.search_events(conversation, _SHOWN, first=first, last=last, limit=reads.PAGE_MAX_EVENTS)
    return [*(event for event in page.events if event["seq"] in missing), *newest]


def _restores(conversation: ConversationRef, newest: Sequence[EventEnvelope]) -> list[EventEnvelope]:
    """Return the notices that files were restored, which a model would not notice otherwise."""
    most, first = 20, newest[0]["seq"] if newest else 0
    rows = FilesCheckpoint.objects.of(conversation).filter(cause=CheckpointCause.RESTORED, seq__gte=first)
    seqs = list(rows.newest_first().values_list("seq", flat=True)[:most])
    return reads.read_some(conversation, seqs=seqs) if seqs else []


def is_forgotten(event: EventEnvelope, forgotten: frozenset[str | int]) -> bool:
    """Return whether a condensation has replaced an event."""
    return bool(forgotten) and not forgotten.isdisjoint((event["id"], number_of(event)))


def _newest(
    conversation: ConversationRef, max_chars: int, forgotten: frozenset[str | int]
) -> tuple[list[EventEnvelope], bool]:
    """Return the newest events that a model sees, oldest first, and whether these are all."""
    found: list[EventEnvelope] = []
    last: int | None = None
    room = max_chars
    while True:
        page = reads.search_events(
            conversation, _SHOWN, last=last, newest_first=True, limit=reads.PAGE_MAX_EVENTS
        )
        left = [event for event in page.events if not is_forgotten(event, forgotten)]
        found += left
        room -= sum(len(event["text"]) for event in left)
        # A summary replaces all that is before it, so nothing is left before a page of forgotten events.
        if not page.has_more or not left:
            return found[::-1], True
        if room < 0 or len(found) >= EVENTS_MAX:
            return found[::-1], False
        last = page.events[-1]["seq"] - 1


def _condensed(conversation: ConversationRef) -> tuple[frozenset[str | int], str]:
    """Return the events that condensations have replaced, and the newest summary."""
    page = reads.search_events(conversation, _CONDENSATIONS, newest_first=True, limit=CONDENSATIONS_MAX)
    forgotten: set[str | int] = set()
    summary = ""
    for event in page.events:
        view = view_of(event)
        if isinstance(view, SummaryView):
            forgotten.update(view.forgotten)
            summary = summary or view.summary  # the newest contains the earlier ones
    return frozenset(forgotten), summary


def view_of(event: EventEnvelope) -> EventView:
    """Return what an event says, for a model."""
    # The log keeps halves of characters as they came; a model's server refuses the whole request for one.
    return dialects.view_of(event, payload=halves.whole_json(event["payload"]))


def _files(conversation: ConversationRef) -> Iterator[File]:
    room = FILES_MAX_BYTES
    for each in attachments_of(conversation, with_said=False):  # a message has the texts of its own
        room -= each.size
        content = content_of(conversation, each.name) if room >= 0 else None
        yield File(name=each.name, size=each.size, content=content)
