"""Events of the V1 wire as payloads of the V0 wire: each one of them as exactly one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from conversations.dialects import columns, v0_payload, v1
from conversations.events import TEXT_MAX_BYTES, EventEnvelope, Kind

_SOURCES = frozenset({"agent", "user", "environment"})
_STATES = {
    "idle": "awaiting_user_input",
    "running": "running",
    "paused": "paused",
    "waiting_for_confirmation": "awaiting_user_confirmation",
    "finished": "finished",
    "error": "error",
    "stuck": "error",
    "deleting": "stopped",
}


def payload(event: EventEnvelope) -> str:
    """Return the V0 payload of a V1 event: a message, an error, a state of the agent, or its plain text."""
    source = event["source"] if event["source"] in _SOURCES else "environment"
    match event["kind"]:
        case Kind.MESSAGE:
            return _message(event)
        case Kind.ERROR:
            return v0_payload.observation("error", _text(event), source=source)
        case Kind.STATE | Kind.TURN if state := _agent_state(event):
            extras = {"agent_state": state, "reason": ""}
            return v0_payload.observation("agent_state_changed", extras=extras, source="environment")
        case _:
            return v0_payload.plain(_text(event) or event["type"], source=source)


def _message(event: EventEnvelope) -> str:
    source = "user" if event["source"] == "user" else "agent"
    args = {"content": _text(event), "wait_for_response": source == "agent"}
    return v0_payload.action("message", args, source=source)


def _text(event: EventEnvelope) -> str:
    """Return what a person would read, all of it: the column is cut where it is long."""
    if len(event["text"].encode()) < TEXT_MAX_BYTES - 3:  # a cut leaves less than one character's bytes
        return event["text"]
    return v1.whole_text(_members(event)) or event["text"]


def _agent_state(event: EventEnvelope) -> str | None:
    members = _members(event)
    status = members.get("value")
    if members.get("key") == "full_state":
        status = columns.fields(status).get("execution_status")
    elif members.get("key") != "execution_status":
        return None
    return _STATES.get(status) if isinstance(status, str) else None


def _members(event: EventEnvelope) -> Mapping[str, object]:
    try:
        return columns.fields(json.loads(event["payload"]))
    except (ValueError, RecursionError):
        return {}
