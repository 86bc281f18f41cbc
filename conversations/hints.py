"""The valid forms of a hint from another process; other messages never reach a reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from conversations.cursors import FINGERPRINT_LENGTH
from conversations.events import SEQ_MAX, EventEnvelope

Hint = dict[str, Any]

_Check = Callable[[Any], bool]

# Larger appends are announced without payloads, and readers fetch them from the log.
EVENTS_MAX_CHARACTERS = 128 * 1024


def checked(message: object) -> Hint | None:
    """Return the message if it is a hint that readers understand, otherwise None.

    A message on a shared channel may come from another release or any other client. Events that a reader
    could not show are removed, so that the reader fetches them from the log.
    """
    if not isinstance(message, dict) or not _is_text(message.get("group")):
        return None
    kind = message.get("kind")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if members is None or not _has(message, members):
        return None
    if kind == "appended" and message["events"]:
        if not _ends_at(message["events"], message["last_seq"]):
            return None
        if not _can_be_shown(message["events"]):
            return {**message, "events": []}
    return message


def size_of(events: Sequence[EventEnvelope]) -> int:
    """Return the number of characters of the events."""
    return sum(len(event["payload"]) + len(event["text"]) for event in events)


def _can_be_shown(events: Sequence[EventEnvelope]) -> bool:
    """Return whether the payloads are JSON objects, which every wire requires: about 3 µs for 1 kB."""
    return size_of(events) <= EVENTS_MAX_CHARACTERS and all(_is_object(event["payload"]) for event in events)


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _has(given: Mapping[Any, Any], members: Mapping[str, _Check]) -> bool:
    return all(name in given and check(given[name]) for name, check in members.items())


def _ends_at(events: list[EventEnvelope], last_seq: int) -> bool:
    """Return whether these events are a part of a log without gaps, up to `last_seq`."""
    first = last_seq - len(events) + 1
    return all(event["seq"] == seq for seq, event in enumerate(events, start=first))


def _list_of(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    """Return whether this is a number that can be a seq or a key."""
    return _is_number(value) and isinstance(value, int) and 0 <= value <= SEQ_MAX


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _or_none(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


_FINGERPRINT = re.compile(rf"[0-9a-f]{{{FINGERPRINT_LENGTH}}}")

_ENVELOPE: Mapping[str, _Check] = {
    **dict.fromkeys(("id", "dialect", "type", "kind", "source", "timestamp", "text", "payload"), _is_text),
    "seq": _is_count,
    "fingerprint": lambda value: _is_text(value) and _FINGERPRINT.fullmatch(value) is not None,
    "cause": _or_none(_is_count),
    **dict.fromkeys(("turn", "tool_call_id"), _or_none(_is_text)),
    **dict.fromkeys(("hidden", "brings_envelope"), lambda value: isinstance(value, bool)),
}

# The members of each kind of hint between processes; the hub creates further kinds for its readers.
_MEMBERS: Mapping[str, Mapping[str, _Check]] = {
    "appended": {
        "last_seq": _is_count,
        "events": _list_of(
            lambda value: (
                isinstance(value, dict) and value.keys() == _ENVELOPE.keys() and _has(value, _ENVELOPE)
            )
        ),
    },
    "changed": {},
    "run": {},
    "news": {},
    "answer": {"answer": _is_text, "through": _is_count},
    "delta": {**dict.fromkeys(("turn", "answer", "text", "reasoning"), _is_text), "index": _is_count},
    "progress": {
        **dict.fromkeys(("turn", "call", "text"), _is_text),
        **dict.fromkeys(("done", "total"), _or_none(_is_number)),
    },
    "receipt": {"seqs": _list_of(_is_count), "seen_seq": _is_count, "turn": _is_text},
    "listed": {"conversation": _is_count},
    "draft": {"conversation": _or_none(_is_text), "version": _is_count},
    "command": {},
    "wake": {"conversation": _is_count},
    "settled": {"command": _is_count},
    "attached": {"number": _is_count},
    "access": {"user": _is_count},
}
