"""A stored event for readers of the V0 wire, with the server's own number, time and cause."""

from __future__ import annotations

import re
from collections.abc import Mapping

from conversations.dialects.author import to_json
from conversations.dialects.translation import v1_as_v0
from conversations.dialects.v0 import payload as v0_payload
from conversations.events import Dialect, EventEnvelope
from conversations.payloads import jsontext
from conversations.payloads.jsontext import InvalidJson, Member

_LAID_OVER = ("id", "timestamp", "cause")
_SPACE = r"[ \t\n\r]*+"
# The beginning of a payload with a source and a message: it was written here, or received over V0.
_COMPLETE = re.compile(
    rf'{_SPACE}\{{{_SPACE}"source"{_SPACE}:{_SPACE}"[^"\\]*+"{_SPACE},{_SPACE}"message"{_SPACE}:{_SPACE}"'
)
_EMPTY = re.compile(rf"{_SPACE}\}}")


def shown(event: EventEnvelope, *, source: str | None = None) -> str:
    """Return the event as JSON text: `id`, `timestamp` and `cause` from the columns, all else as stored.

    `source`, if given, replaces the stored one.

    A payload that begins like the server's own is not decoded, however long it is. A payload with columns of
    its own, or without a required member of this wire, is rebuilt from its members' texts.
    """
    payload = event["payload"]
    if event["dialect"] == Dialect.V1:
        payload = v1_as_v0.payload(event)
    elif event["brings_envelope"] or not _COMPLETE.match(payload):
        payload = _completed(event)
    if source is not None:
        payload = _in_the_name_of(source, payload)
    time = event["timestamp"].removesuffix("Z")
    cause = "" if event["cause"] is None else f',"cause":{event["cause"]}'
    return _spliced(f'"id":{event["seq"]},"timestamp":"{time}"{cause}', payload)


def _in_the_name_of(source: str, payload: str) -> str:
    if (beginning := _COMPLETE.match(payload)) is not None:
        return f'{{"source":{to_json(source)},"message":"{payload[beginning.end() :]}'
    members = {name: member.text for name, member in jsontext.members(payload).items()}
    return f"{{{_joined(members | {'source': to_json(source)})}}}"


def _spliced(members: str, payload: str) -> str:
    """Return an object's text with more members before its own."""
    start = payload.index("{") + 1
    comma = "" if _EMPTY.match(payload, start) else ","
    return f"{{{members}{comma}{payload[start:]}"


def _completed(event: EventEnvelope) -> str:
    """Return the payload without columns of its own, and with a source and a message."""
    try:
        members = jsontext.members(event["payload"])
    except InvalidJson:  # nested too deeply: show the text column
        return v0_payload.plain(event["text"], source=event["source"])
    added: dict[str, str] = {}
    if not _is_text(members.get("source")):
        added["source"] = to_json(event["source"])
    if not _is_text(members.get("message")):
        values = {name: member.value for name, member in members.items()}
        added["message"] = to_json(v0_payload.message_of(values))
    if members.keys().isdisjoint((*_LAID_OVER, *added)):
        return _spliced(_joined(added), event["payload"]) if added else event["payload"]
    kept = {name: member.text for name, member in members.items() if name not in _LAID_OVER}
    return f"{{{_joined(added | {name: text for name, text in kept.items() if name not in added})}}}"


def _is_text(member: Member | None) -> bool:
    return member is not None and isinstance(member.value, str)


def _joined(texts: Mapping[str, str]) -> str:
    return ",".join(f"{to_json(name)}:{text}" for name, text in texts.items())
