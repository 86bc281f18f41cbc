"""Events that the server itself writes: ends of turns, rejections, and the user's commands to an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID, uuid4, uuid5

from conversations import dialects
from conversations.dialects import AgentState
from conversations.events import Authored, Dialect, EventEnvelope, Kind, NewEvent
from conversations.exceptions import EventConflict
from conversations.log import reads
from conversations.models import ConversationRef
from sessions_app.models import UnfinishedAnswer

T = TypeVar("T")


def turn_event_id(turn_id: str, part: str) -> str:
    """Return the id of a turn's only event of this part: `end`, `partial`, `failed …`."""
    return str(uuid5(UUID(turn_id), part))


Naming = Callable[[str], str]
"""Gives an event of the server its id: the one that belongs to it, or another."""


def own_id(event_id: str) -> str:
    """Return the id unchanged: a repeated event is stored once."""
    return event_id


def fresh_id(event_id: str) -> str:
    """Return an id that is certainly unused."""
    return str(uuid4())


def under_a_free_id(append: Callable[[Naming], T]) -> T:
    """Append with the events' own ids, or with fresh ones if a client has used one of those.

    Readers see the ids of an answer and a turn before these are stored, and a client may record events
    under any id: that must not keep a turn from ending.
    """
    try:
        return append(own_id)
    except EventConflict:
        return append(fresh_id)


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
    return new_event(authored, event_id, turn_id=turn_id, kind=Kind.TURN)


def new_event(
    authored: Authored,
    event_id: str,
    *,
    turn_id: str | None = None,
    kind: Kind | None = None,
    cause_seq: int | None = None,
    is_input: bool = False,
) -> NewEvent:
    """Return an event of the server, ready for the log."""
    return NewEvent(
        event_id=event_id,
        payload=authored.payload,
        reading=authored.reading,
        kind=kind,
        turn_id=turn_id,
        cause_seq=cause_seq,
        is_input=is_input,
        stamp_offset=authored.stamp_offset,
    )


def steered(
    conversation: ConversationRef, state: AgentState, *, turn_id: str | None = None, reason: str = ""
) -> list[NewEvent]:
    """Return the events that say that the user led the agent into this state."""
    author = dialects.author(conversation.dialect)
    state_id, steering_id = str(uuid4()), str(uuid4())
    events = [author.state(state=state, event_id=state_id, reason=reason)]
    if (steering := author.steering(state=state, event_id=steering_id)) is not None:
        events.append(steering)
    ids = (state_id, steering_id)
    return [new_event(each, event_id, turn_id=turn_id) for each, event_id in zip(events, ids, strict=False)]


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
    return [] if authored is None else [new_event(authored, event_id, turn_id=turn_id)]


def interrupted_turn(
    conversation: ConversationRef, turn_id: str, *, calls_ended: str, naming: Naming = own_id
) -> list[NewEvent]:
    """Return the events that complete a turn that was cut off: its partial answer, and the end of its calls.

    `calls_ended` says why the calls have no result.
    """
    author = dialects.author(conversation.dialect)
    events: list[NewEvent] = []
    answer = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk, turn_id=turn_id).first()
    if answer is not None and (answer.text or answer.reasoning):
        event_id = naming(answer.event_id)
        authored = author.agent_message(
            text=answer.text, event_id=event_id, interrupted=True, reasoning=answer.reasoning
        )
        events.append(new_event(authored, event_id, turn_id=turn_id))
    for call in reads.open_calls(conversation, turn_id):
        event_id = naming(turn_event_id(turn_id, f"failed {call['seq']}"))
        authored = author.tool_failed(
            name=_tool_of(call),
            reason=calls_ended,
            tool_call_id=call["tool_call_id"] or "",
            event_id=event_id,
            call_event_id=call["id"],
        )
        events.append(new_event(authored, event_id, turn_id=turn_id, cause_seq=call["seq"]))
    return events


def refused_calls(
    conversation: ConversationRef, turn_id: str, reason: str, naming: Naming = own_id
) -> list[NewEvent]:
    """Return the events that say that the user rejected a turn's open calls."""
    author = dialects.author(conversation.dialect)
    events: list[NewEvent] = []
    for call in reads.open_calls(conversation, turn_id):
        event_id = naming(turn_event_id(turn_id, f"refused {call['seq']}"))
        authored = author.tool_rejected(
            name=_tool_of(call),
            reason=reason,
            tool_call_id=call["tool_call_id"] or "",
            event_id=event_id,
            call_event_id=call["id"],
        )
        events.append(new_event(authored, event_id, turn_id=turn_id, cause_seq=call["seq"]))
    return events


def _tool_of(call: EventEnvelope) -> str:
    return dialects.called_tool(json.loads(call["payload"]), Dialect(call["dialect"]))[0]
