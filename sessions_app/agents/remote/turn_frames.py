"""The bounded frame `turn`, which hands a turn to a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conversations.cursors import EventCursor
from conversations.events import EventEnvelope
from conversations.payloads import halves
from sessions_app.agents.base import Decision, Turn

SHOWN_MAX_CHARACTERS = 512 * 1024
"""The newest inputs have this much text, and so have the newest stored events."""
_COLUMNS = ("seq", "id", "dialect", "kind", "source", "timestamp", "cause", "text")


def turn_frame(
    turn: Turn, events: Sequence[EventEnvelope], unfinished: Mapping[str, Any] | None, *, has_earlier: bool
) -> Any:
    """Return the frame of a turn with its stored events, oldest first; `has_earlier` means there are more."""
    inputs, has_earlier_inputs = _shown(turn.inputs)
    done, has_earlier_done = _shown(events)
    return {
        "type": "turn",
        "turn": turn.turn_id,
        "epoch": turn.epoch,
        "conversation": turn.conversation.public_id,
        "inputs": inputs,
        "done": done,
        "has_earlier": has_earlier or has_earlier_inputs or has_earlier_done,
        "decisions": [_decision(each) for each in turn.decisions],
        "answer": unfinished,
        "stored_through": turn.stored_through,
    }


def shown(event: EventEnvelope) -> dict[str, Any]:
    """Return an event as an `event` frame shows it, without its payload."""
    columns: Mapping[str, Any] = event
    return {
        "type": "event",
        **{name: columns[name] for name in _COLUMNS},
        "event_type": event["type"],
        "cursor": EventCursor(event["seq"], event["fingerprint"]).encode(),
    }


def _shown(events: Sequence[EventEnvelope]) -> tuple[list[dict[str, Any]], bool]:
    """Return the newest events, oldest first, and whether earlier ones were left out."""
    left = SHOWN_MAX_CHARACTERS
    first = len(events)
    while first and left > 0:
        first -= 1
        left -= len(events[first]["text"])
    return [shown(event) for event in events[first:]], first > 0


def _decision(decision: Decision) -> dict[str, Any]:
    call = {"seq": decision.call.seq, "event": decision.call.event_id, "name": decision.call.name}
    # A program's own library may refuse the whole frame for half of a character.
    arguments = halves.whole_value(dict(decision.call.arguments))
    return {
        "call": {**call, "arguments": arguments},
        "accepted": decision.accepted,
        "reason": decision.reason,
    }
