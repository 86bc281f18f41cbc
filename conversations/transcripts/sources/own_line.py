"""One line of an exported conversation: the event that it was written from.

A line of the form that `transcripts.jsonl` writes is cut at the place where its payload begins, and both
parts are decoded once, in C. A line of any other form is split member by member, which takes much longer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from conversations import dialects
from conversations.dialects import columns
from conversations.events import Arrival, Dialect, Kind, NewEvent, Reading
from conversations.payloads import jsontext
from conversations.payloads.jsontext import InvalidJson

_FIRST_NAMES = (
    *("type", "seq", "id", "dialect", "event_type", "kind", "source", "timestamp"),
    *("cause", "turn", "tool_call_id", "hidden"),
)
_SECOND_NAMES = ("received_at", "epoch", "input", "wire_id")  # the members that a line has since version 2
_TEXTS = ("id", "event_type", "source")  # members that are texts
_TEXTS_OR_NULL = ("tool_call_id", "turn")
# For longer integers the two ways differ: one keeps the number, the other its digits.
_VALUE = r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|null|true|false|-?[0-9]{1,18})'


def _members(names: Sequence[str]) -> str:
    return ",".join(f'"{name}":{_VALUE}' for name in names)


_HEAD = re.compile(
    rf"(\{{{_members(_FIRST_NAMES)}(?:,{_members(_SECOND_NAMES)})?),"
    r'(?:"event":(?=\{)|(?P<is_text>"payload":(?=")))'
)


def event(line: str) -> NewEvent:
    """Return the event of a line. Raise ValueError, LookupError, TypeError or InvalidEvent."""
    return as_exported(line) or in_any_form(line)


def as_exported(line: str) -> NewEvent | None:
    """Return the event of a line in the exported form; None for any other line, even invalid JSON.

    Raise like `event`.
    """
    head = _HEAD.match(line)
    if head is None:
        return None
    try:
        told, _ = jsontext.value_at(f"{head[1]}}}", 0)
        value, end = jsontext.value_at(line, head.end())
    except (ValueError, RecursionError):
        return None  # `in_any_form` reports the fault
    if line[end:] != "}":
        return None
    if head["is_text"]:
        return _stored(told, value, _decoded(value))
    return _stored(told, line[head.end() : end], value)


def in_any_form(line: str) -> NewEvent:
    """Return the event of a line with members in any order and spacing. Raise like `event`."""
    members = jsontext.members(line)
    told = {name: member.value for name, member in members.items()}
    payload = told["payload"] if "payload" in told else members["event"].text
    if not isinstance(payload, str):
        raise InvalidJson("its payload is no text")
    return _stored(told, payload, _decoded(payload))


def _decoded(payload: str) -> Mapping[str, object]:
    try:
        value = json.loads(payload)
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise InvalidJson("its payload is no object")
    return value


def _stored(told: Mapping[str, Any], payload: str, value: Mapping[str, object]) -> NewEvent:
    """Return the event whose columns a line names; `value` is the payload, decoded."""
    _check_texts(told)
    read = dialects.read(value)
    timestamp = columns.instant(told["timestamp"])
    received = told.get("received_at", told["timestamp"])
    received_at = timestamp if received == told["timestamp"] else columns.instant(received)
    if received_at is None:
        raise InvalidJson("it does not say when it was received")
    return NewEvent(
        event_id=told["id"],
        payload=payload,
        reading=Reading(
            dialect=Dialect(told["dialect"]),
            type=told["event_type"],
            kind=read.kind,
            source=told["source"],
            text=read.text,
            timestamp=timestamp,
            event_id=read.event_id,
            wire_id=columns.wire_id(told["wire_id"]) if "wire_id" in told else read.wire_id,
            cause_wire_id=read.cause_wire_id,
            cause_event_id=read.cause_event_id,
            parent_event_id=read.parent_event_id,
            tool_call_id=told["tool_call_id"],
            hidden=told["hidden"] is True,
            brings_envelope=read.brings_envelope,
        ),
        kind=Kind(told["kind"]),
        turn_id=told["turn"],
        cause_seq=columns.wire_id(told["cause"]),
        is_input=told.get("input") is True,
        asks=False,
        arrival=Arrival(received_at, columns.wire_id(told.get("epoch"))),
    )


def _check_texts(told: Mapping[str, object]) -> None:
    """Raise InvalidJson, or LookupError, unless all values for text columns are texts."""
    for name in _TEXTS + _TEXTS_OR_NULL:
        text = told[name]
        if text is None and name in _TEXTS_OR_NULL:
            continue
        if not isinstance(text, str):
            raise InvalidJson(f"its {name} is no text")
        if columns.clean(text) != text:
            raise InvalidJson(f"its {name} has a NUL, or half of a surrogate pair")
