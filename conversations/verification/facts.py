"""The facts of an event outside the chain of digests, as bytes that are the same on both engines."""

from __future__ import annotations

import json
from hashlib import sha256

from django.db import connection

from conversations.verification.rows import SMALL_TEXT, Row, text_of

_PLAIN = (
    "dialect",
    "type",
    "kind",
    "source",
    "cause_seq",
    "turn_id",
    "epoch",
    "tool_call_id",
    "parent_event_id",
    "sender_id",
    "wire_id",
    "size",
)
_FLAGS = ("brings_envelope", "hidden", "is_input")
_TIMES = ("timestamp", "received_at")
_TIME = {
    "sqlite": "{} || '' AS {}",  # or the driver makes a datetime of it
    "postgresql": "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') AS {}",
}
_SECONDS = len("2026-01-01 00:00:00")


def columns() -> tuple[str, ...]:
    """Return the columns that `digest_of` takes after a row's place; the first is the digest of the chain."""
    times = (_TIME[connection.vendor].format(name, f"{name}_text") for name in _TIMES)
    return ("digest", *_PLAIN, SMALL_TEXT, *_FLAGS, *times)


def chained(row: Row) -> str:
    """Return the digest of the chain, or the value in its place."""
    return _as_text(row[3])


def digest_of(row: Row) -> bytes:
    _, _, pk, _, *values = row
    plain, times = values[: len(_PLAIN)], values[-len(_TIMES) :]
    text, *flags = values[len(_PLAIN) : -len(_TIMES)]
    if text is None:  # it is a long one
        text = text_of(pk)
    # SQLite's text of a time lacks microseconds if there are none.
    moments = (f"{time}.000000" if len(time) == _SECONDS else time for time in times)
    canonical = [*plain, text, *(bool(flag) for flag in flags), *moments]
    written = json.dumps(canonical, ensure_ascii=True, separators=(",", ":"), default=_as_text)
    return sha256(written.encode()).digest()


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
