"""Converting what a client sends over the V0 wire into an event to store (spec V0 §2.6)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from conversations.dialects import refusals
from conversations.dialects.v0 import payload as v0_payload
from conversations.dialects.v0.actions import ACTIONS
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v0.older import todays_args, todays_extras
from conversations.dialects.v0.reading import read
from conversations.dialects.v0.types import EventType
from conversations.events import Authored
from conversations.exceptions import InvalidEvent


def received(event: Mapping[str, object]) -> Authored:
    """Return the user's event in the wire's form: with every default, and the message of its type.

    Only `action` and `args`, or `observation`, `content` and `extras`, are used; a client cannot set other
    members (id, source, cause, metrics). Raise InvalidEvent with a sentence that names the fault.
    """
    try:
        payload = _payload(event)
        return Authored(payload=payload, reading=read(json.loads(payload)))
    except RecursionError as error:
        raise InvalidEvent("The event is nested too deeply.") from error


def _payload(event: Mapping[str, object]) -> str:
    match [key for key in ("action", "observation") if event.get(key) is not None]:
        case ["action"]:
            return _action(event)
        case ["observation"]:
            return _observation(event)
        case names:
            problem = "has both" if names else "has neither"
            raise InvalidEvent(f"An event is either an `action` or an `observation`; this one {problem}.")


def _action(event: Mapping[str, object]) -> str:
    name, known = _known("action", event["action"], ACTIONS)
    args = todays_args(_members(event, "args", of=f"the action `{name}`"))
    _refuse_unknown(args, known.fields, of=f"The action `{name}`")
    if name == "condensation":
        _check_condensation(args)
    return v0_payload.action(name, args, source="user")


def _observation(event: Mapping[str, object]) -> str:
    name, known = _known("observation", event["observation"], OBSERVATIONS)
    extras = todays_extras(_members(event, "extras", of=f"the observation `{name}`"))
    _refuse_unknown(extras, known.fields.keys() - {"content"}, of=f"The observation `{name}`")
    return v0_payload.observation(name, event.get("content", ""), extras=extras, source="user")


def _known(what: str, name: object, types: Mapping[str, EventType]) -> tuple[str, EventType]:
    if not isinstance(name, str):
        raise InvalidEvent(f"`{what}` must be a string.")
    if name not in types:
        known = ", ".join(sorted(types))
        raise InvalidEvent(f"There is no {what} {refusals.quoted(name)}; known are {known}.")
    return name, types[name]


def _members(event: Mapping[str, object], key: str, *, of: str) -> Mapping[str, Any]:
    members = event.get(key)
    if members is None:
        return {}
    if not isinstance(members, Mapping):
        raise InvalidEvent(f"`{key}` of {of} must be an object.")
    return members


def _refuse_unknown(given: Mapping[str, object], known: Collection[str], *, of: str) -> None:
    if unknown := [name for name in given if name not in known]:
        raise InvalidEvent(f"{of} has no {refusals.listed(unknown)}.")


def _check_condensation(args: Mapping[str, object]) -> None:
    first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    if (args.get("forgotten_event_ids") is None) is (first is None or last is None):
        raise InvalidEvent(
            "A condensation names the forgotten events either by `forgotten_event_ids` or by "
            "`forgotten_events_start_id` and `forgotten_events_end_id`."
        )
    if (args.get("summary") is None) is not (args.get("summary_offset") is None):
        raise InvalidEvent("A condensation has both `summary` and `summary_offset`, or neither.")
