"""Two wires, one log: reading any payload into columns, and writing events for either wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from conversations.dialects import columns, v0, v1
from conversations.dialects.author import CALL_INTERRUPTED, CALL_STOPPED, AgentState, EventAuthor
from conversations.dialects.refusals import listed
from conversations.dialects.states import decision_of, state_in, state_of
from conversations.dialects.v0.view import view as v0_view
from conversations.dialects.v1.view import view as v1_view
from conversations.dialects.views import CallView, EventView
from conversations.events import Dialect, EventEnvelope, Reading
from conversations.exceptions import InvalidEvent

__all__ = [
    "CALL_INTERRUPTED",
    "CALL_STOPPED",
    "AgentState",
    "EventAuthor",
    "author",
    "called_tool",
    "decision_of",
    "read",
    "state_in",
    "state_of",
    "view",
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


def view(payload: Mapping[str, object], reading: Reading) -> EventView:
    """Return what a payload with these columns says."""
    of_wire = v0_view if reading.dialect is Dialect.V0 else v1_view
    return of_wire(payload, kind=reading.kind, type_=reading.type, text=reading.text)


def view_of(event: EventEnvelope, *, payload: str | None = None) -> EventView:
    """Return what a stored event says; `payload` to read instead of its own."""
    members = columns.members(event["payload"] if payload is None else payload)
    of_wire = v0_view if event["dialect"] == Dialect.V0 else v1_view
    is_answer = event["cause"] is not None
    return of_wire(members, kind=event["kind"], type_=event["type"], text=event["text"], is_answer=is_answer)


def called_tool(event: EventEnvelope) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a stored tool call as the author of its wire was given them.

    The name is `tool`, without arguments, if the payload has none.
    """
    view = view_of(event)
    return (view.tool, dict(view.given)) if isinstance(view, CallView) else ("tool", {})


def author(dialect: Dialect) -> EventAuthor:
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
