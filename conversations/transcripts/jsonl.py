"""A conversation as lines of JSON: a manifest, one event per line, and an end with the hash of these.

Because the hash is at the end, the log is read once and the first byte is sent at once.

The payload of an event is spliced in as it was received, byte for byte. A payload with line breaks between
its tokens is written as a string, `payload`, instead of as `event`, so that it stays one line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from json.encoder import encode_basestring
from typing import NamedTuple

from conversations.events import EventEnvelope

FORMAT = "convserver.transcript"
# Since 2 a line says when its event had arrived. Before 3 the hash and the kinds were in the first line, and
# there was no end. `sources.own` reads all.
VERSION = 3
HASHED_FIRST = (1, 2)  # the versions whose first line has the hash of all that follows
END = "end"


class Beside(NamedTuple):
    """The facts of an event in a line beside its envelope, so that an import can store it unchanged."""

    received_at: datetime  # aware
    epoch: int | None
    is_input: bool
    wire_id: int | None


def line(event: EventEnvelope, beside: Beside) -> str:
    """Return one event as a line: its columns and its payload."""
    envelope = {
        "type": "event",
        "seq": event["seq"],
        "id": event["id"],
        "dialect": event["dialect"],
        "event_type": event["type"],
        "kind": event["kind"],
        "source": event["source"],
        "timestamp": event["timestamp"],
        "cause": event["cause"],
        "turn": event["turn"],
        "tool_call_id": event["tool_call_id"],
        "hidden": event["hidden"],
        "received_at": written(beside.received_at),
        "epoch": beside.epoch,
        "input": beside.is_input,
        "wire_id": beside.wire_id,
    }
    head = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    payload = event["payload"]
    is_one_line = "\n" not in payload and "\r" not in payload
    member = f'"event":{payload}' if is_one_line else f'"payload":{encode_basestring(payload)}'
    return f"{head[:-1]},{member}}}\n"


def written(moment: datetime) -> str:
    """Return an aware time in the form of the lines: UTC, six fraction digits, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def manifest(*, conversation: Mapping[str, object], events: int, head_digest: str) -> str:
    """Return the first line. `head_digest` is the digest of the log with this number of events."""
    return _written_line(
        {
            "type": "manifest",
            "format": FORMAT,
            "version": VERSION,
            "conversation": dict(conversation),
            "events": events,
            "first_seq": 0 if events else None,
            "last_seq": events - 1 if events else None,
            "head_digest": head_digest,
        }
    )


class Lines:
    """Writes the lines of events, and counts them for the last line."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._digest = sha256()

    def write(self, events: Iterable[tuple[EventEnvelope, Beside]]) -> str:
        text = ""
        for event, beside in events:
            self._kinds[event["kind"]] += 1
            text += line(event, beside)
        self._digest.update(text.encode())
        return text

    def end(self) -> str:
        """Return the last line. `sha256` is the hash of all bytes between it and the first line."""
        return _written_line(
            {
                "type": END,
                "events": self._kinds.total(),
                "kinds": dict(sorted(self._kinds.items())),
                "sha256": self._digest.hexdigest(),
            }
        )


def _written_line(members: Mapping[str, object]) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")) + "\n"
