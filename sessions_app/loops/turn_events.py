"""Events that the server itself writes: ends of turns, rejections, and the user's commands to an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID, uuid4, uuid5

from conversations import dialects
from conversations.dialects import AgentState, v1
from conversations.events import Authored, ConversationRef, EventEnvelope, Kind, NewEvent
from conversations.exceptions import EventConflict
from conversations.log import reads
from sessions_app.models import UnfinishedAnswer, UnknownAnswer

T = TypeVar("T")

SYSTEM_PROMPT = "You are the agent of this conversation: answer the user with the tools that you have."


def turn_event_id(turn_id: str, part: str) -> str:
    """Return the id of a turn's only event of this part: `end`, `partial`, `failed …`."""
    return str(uuid5(UUID(turn_id), part))


Naming = Callable[[str], str]
"""Returns the id of a server's event: its own, or a fresh one."""


def own_id(event_id: str) -> str:
    """Return the id unchanged: a repeated event is stored once."""
    return event_id


def fresh_id(event_id: str) -> str:
    return str(uuid4())


def under_a_free_id(append: Callable[[Naming], T]) -> T:
    """Append with the events' own ids, or with fresh ones if a client has used one of those."""
    # Readers see the ids of an answer and of a turn before these are stored.
    try:
        return append(own_id)
    except EventConflict:  # a client may record events under any id; the turn must end nevertheless
        return append(fresh_id)


def system_prompt() -> NewEvent:
    """Return the event that a V1 client's conversation begins with."""
    event_id = str(uuid4())
    return v1.authored(v1.system_prompt(SYSTEM_PROMPT), event_id=event_id).event(event_id)


def end_of_turn(
    conversation: ConversationRef,
    turn_id: str,
    state: AgentState,
    *,
    reason: str = "",
    naming: Naming = own_id,
) -> NewEvent:
    """Return the `turn` event: its id is derived from the turn, so that a repetition ends it only once."""
    event_id = naming(turn_event_id(turn_id, "end"))
    authored = dialects.author(conversation.dialect).state(state=state, event_id=event_id, reason=reason)
    return authored.event(event_id, turn_id=turn_id, kind=Kind.TURN)


def steered(
    conversation: ConversationRef, state: AgentState, *, turn_id: str | None = None, reason: str = ""
) -> list[NewEvent]:
    """Return the events of a state into which the user led the agent."""
    author = dialects.author(conversation.dialect)
    state_id, steering_id = str(uuid4()), str(uuid4())
    events = [author.state(state=state, event_id=state_id, reason=reason)]
    if (steering := author.steering(state=state, event_id=steering_id)) is not None:
        events.append(steering)
    ids = (state_id, steering_id)
    return [each.event(event_id, turn_id=turn_id) for each, event_id in zip(events, ids, strict=False)]


def said_of_end(
    conversation: ConversationRef,
    turn_id: str,
    state: AgentState,
    *,
    code: str,
    reason: str,
    naming: Naming = own_id,
) -> list[NewEvent]:
    """Return the event beside the state in which a turn ends, if its wire has one."""
    author = dialects.author(conversation.dialect)
    event_id = naming(turn_event_id(turn_id, "error" if state is AgentState.ERROR else "steering"))
    if state is AgentState.ERROR:
        authored: Authored | None = author.error(code=code, detail=reason, event_id=event_id)
    else:
        authored = author.steering(state=state, event_id=event_id)
    return [] if authored is None else [authored.event(event_id, turn_id=turn_id)]


def interrupted_turn(
    conversation: ConversationRef, turn_id: str, *, calls_ended: str, naming: Naming = own_id
) -> list[NewEvent]:
    """Return the events that complete a turn that was cut off: its partial answer, and the end of its calls.

    `calls_ended` is the reason why the calls have no result.
    """
    events = cut_answer(conversation, turn_id, naming)
    for call in reads.open_calls(conversation, turn_id):
        events.append(failed_call(conversation, call, calls_ended, naming))
    return events


def cut_answer(conversation: ConversationRef, turn_id: str, naming: Naming = own_id) -> list[NewEvent]:
    """Return the text of an unfinished answer, marked as interrupted; nothing if it is empty."""
    answer = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk, turn_id=turn_id).first()
    if answer is None or not (answer.text or answer.reasoning):
        return []
    event_id = naming(answer.event_id)
    authored = dialects.author(conversation.dialect).agent_message(
        text=answer.text, event_id=event_id, interrupted=True, reasoning=answer.reasoning
    )
    return [authored.event(event_id, turn_id=turn_id)]


def failed_call(
    conversation: ConversationRef, call: EventEnvelope, reason: str, naming: Naming = own_id
) -> NewEvent:
    """Return the event with the reason why a stored call has no result."""
    event_id = naming(turn_event_id(call["turn"] or "", f"failed {call['seq']}"))
    authored = dialects.author(conversation.dialect).tool_failed(
        name=_tool_of(call),
        reason=reason,
        tool_call_id=call["tool_call_id"] or "",
        event_id=event_id,
        call_event_id=call["id"],
    )
    return authored.event(event_id, turn_id=call["turn"], cause_seq=call["seq"])


def refused_calls(
    conversation: ConversationRef, turn_id: str, reason: str, naming: Naming = own_id
) -> list[NewEvent]:
    """Return the events for the user's rejection of a turn's open calls."""
    calls = reads.open_calls(conversation, turn_id)
    return [_refused_call(conversation, call, reason, naming) for call in calls]


def _refused_call(
    conversation: ConversationRef, call: EventEnvelope, reason: str, naming: Naming
) -> NewEvent:
    event_id = naming(turn_event_id(call["turn"] or "", f"refused {call['seq']}"))
    authored = dialects.author(conversation.dialect).tool_rejected(
        name=_tool_of(call),
        reason=reason,
        tool_call_id=call["tool_call_id"] or "",
        event_id=event_id,
        call_event_id=call["id"],
    )
    return authored.event(event_id, turn_id=call["turn"], cause_seq=call["seq"])


OUTCOME_ASKED = (
    "The server stopped while the tool `{tool}` was running, so it is unknown whether the call has taken "
    "effect. Approve it to run it again, or reject it to go on without it."
)
OUTCOME_UNKNOWN = (
    "The server stopped while the tool was running, so it is unknown whether the call has taken effect. "
    "Find out before you repeat it."
)
OUTCOME_DONE = "The server stopped while the tool was running. The user says that the call has taken effect"
SKIPPED = "The user skipped the call, whose outcome is unknown."


def asked_outcome(conversation: ConversationRef, call: EventEnvelope) -> list[NewEvent]:
    """Return the events with which a turn waits for a person to tell the outcome of a call."""
    turn_id, event_id = call["turn"], str(uuid4())
    said = dialects.author(conversation.dialect).notice(
        text=OUTCOME_ASKED.format(tool=_tool_of(call)), event_id=event_id
    )
    states = steered(conversation, AgentState.WAITING_FOR_CONFIRMATION, turn_id=turn_id)
    return [said.event(event_id, turn_id=turn_id), *states]


def told_outcome(
    conversation: ConversationRef,
    call_id: str,
    answer: UnknownAnswer,
    words: str,
    naming: Naming = own_id,
) -> list[NewEvent]:
    """Return the substitute for the result of a call after a person has told its outcome, if it has one."""
    if answer is UnknownAnswer.RUN_AGAIN:
        return []
    (call,) = reads.read_some(conversation, event_ids=[call_id])
    if answer is UnknownAnswer.SKIP:
        return [_refused_call(conversation, call, words or SKIPPED, naming)]
    event_id = naming(turn_event_id(call["turn"] or "", f"result {call['seq']}"))
    name, arguments = dialects.called_tool(call)
    authored = dialects.author(conversation.dialect).tool_result(
        name=name,
        arguments=arguments,
        content=f"{OUTCOME_DONE}: {words}" if words else f"{OUTCOME_DONE}.",
        tool_call_id=call["tool_call_id"] or "",
        event_id=event_id,
        call_event_id=call["id"],
    )
    return [authored.event(event_id, turn_id=call["turn"], cause_seq=call["seq"])]


def _tool_of(call: EventEnvelope) -> str:
    return dialects.called_tool(call)[0]
