"""Two wires, one log: reading any payload into columns, and writing events for either wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, assert_never

from conversations.dialects import columns, v0, v1
from conversations.dialects.author import CALL_INTERRUPTED, CALL_STOPPED, AgentState, EventAuthor
from conversations.dialects.refusals import listed
from conversations.dialects.states import state_in, state_of
from conversations.dialects.v0.view import view as v0_view
from conversations.dialects.v1.view import view as v1_view
from conversations.dialects.views import EventView
from conversations.events import Dialect, EventEnvelope, Reading
from conversations.exceptions import InvalidEvent

__all__ = [
    "CALL_INTERRUPTED",
    "CALL_STOPPED",
    "AgentState",
    "EventAuthor",
    "author",
    "called_tool",
    "is_interrupted",
    "is_notice",
    "read",
    "state_in",
    "state_of",
    "view_of",
]


def read(payload: Mapping[str, object]) -> Reading:
    """Return the columns of one event of either wire.

    Raise InvalidEvent if the payload names no type, or two.
    """
    if _is_name(payload.get("kind")):
        return v1.read(payload)  # also for kinds of later releases
    names = [key for key in ("action", "observation") if _is_name(payload.get(key))]
    match names:
        case ["action"] | ["observation"]:
            return v0.read(payload)
        case _:
            raise InvalidEvent(_refusal(payload, names))


def is_interrupted(payload: Mapping[str, object], dialect: Dialect) -> bool:
    """Return whether a message is an answer that was stopped before its end."""
    match dialect:
        case Dialect.V0:
            return v0.is_interrupted(payload)
        case Dialect.V1:
            return v1.is_interrupted(payload)
        case _:
            assert_never(dialect)


def is_notice(payload: Mapping[str, object], dialect: Dialect) -> bool:
    """Return whether an event is a notice of the server to the user."""
    match dialect:
        case Dialect.V0:
            return v0.is_notice(payload)
        case Dialect.V1:
            return v1.is_notice(payload)
        case _:
            assert_never(dialect)


def called_tool(payload: Mapping[str, object], dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a tool call as the author of its wire was given them.

    The name is `tool`, without arguments, if the payload has none.
    """
    match dialect:
        case Dialect.V0:
            name, arguments = v0.called_tool(payload)
        case Dialect.V1:
            name, arguments = v1.called_tool(payload)
        case _:
            assert_never(dialect)
    return name or "tool", dict(arguments)


def view_of(event: EventEnvelope, *, payload: str | None = None) -> EventView:
    """Return what a stored event says; `payload` to read instead of its own."""
    try:
        members = columns.fields(json.loads(event["payload"] if payload is None else payload))
    except (ValueError, RecursionError):
        members = {}
    view = v0_view if event["dialect"] == Dialect.V0 else v1_view
    is_answer = event["cause"] is not None
    return view(members, kind=event["kind"], type_=event["type"], text=event["text"], is_answer=is_answer)


def author(dialect: Dialect) -> EventAuthor:
    """Return the author that writes for a wire."""
    match dialect:
        case Dialect.V0:
            return v0.AUTHOR
        case Dialect.V1:
            return v1.AUTHOR
        case _:
            assert_never(dialect)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _refusal(payload: Mapping[str, object], names: list[str]) -> str:
    problem = f"names its type {len(names)} times ({', '.join(names)})" if names else "names no type"
    keys = f"its keys are {listed(payload)}" if payload else "it is empty"
    return (
        f"The event {problem}; {keys}. "
        "Give it exactly one non-empty string: `kind` for V1, `action` or `observation` for V0."
    )
