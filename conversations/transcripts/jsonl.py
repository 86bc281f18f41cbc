"""A conversation as lines of JSON: a manifest with the hash of the other lines, then one event per line.

The payload of an event is spliced in as it was received, byte for byte. A payload with line breaks between
its tokens is written as a string, `payload`, instead of as `event`, so that it stays one line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from json.encoder import encode_basestring
from typing import NamedTuple

from conversations.events import EventEnvelope

FORMAT = "convserver.transcript"
VERSION = 2
"""Since 2 a line says when its event had arrived; `sources.own` reads both."""


class Beside(NamedTuple):
    """What a line holds of an event beside its envelope, so that an import can store it as it was."""

    received_at: datetime
    """Aware."""
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
    return f"{head[:-1]},{_payload(event['payload'])}}}\n"


def written(moment: datetime) -> str:
    """Return an aware time as lines have it: UTC, six fraction digits, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _payload(payload: str) -> str:
    if "\n" in payload or "\r" in payload:
        return f'"payload":{encode_basestring(payload)}'
    return f'"event":{payload}'


class Manifest:
    """Counts the lines in the order in which they are written, and returns their manifest."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._seqs: list[int] = []
        self._digest = sha256()

    def add(self, event: EventEnvelope, beside: Beside) -> None:
        """Count one event's line."""
        self._kinds[event["kind"]] += 1
        self._seqs = [*self._seqs[:1], event["seq"]]
        self._digest.update(line(event, beside).encode())

    def line(self, *, conversation: Mapping[str, object], head_digest: str) -> str:
        """Return the first line. `sha256` is the hash of all bytes after it; `head_digest` is the log's."""
        manifest = {
            "type": "manifest",
            "format": FORMAT,
            "version": VERSION,
            "conversation": dict(conversation),
            "events": self._kinds.total(),
            "kinds": dict(sorted(self._kinds.items())),
            "first_seq": self._seqs[0] if self._seqs else None,
            "last_seq": self._seqs[-1] if self._seqs else None,
            "head_digest": head_digest,
            "sha256": self._digest.hexdigest(),
        }
        return json.dumps(manifest, ensure_ascii=False, separators=(",", ":")) + "\n"
