"""The one event that everything here stores: a V0 action of typical size, and its columns as SQL."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

COMMAND = "cd /workspace/project && python -m pytest tests/test_orders.py -q"
PAYLOAD = json.dumps(
    {
        "source": "agent",
        "message": f"Running command: {COMMAND}",
        "action": "run",
        "args": {"command": COMMAND, "thought": "", "blocking": False, "hidden": False, "security_risk": -1},
    },
    separators=(",", ":"),
)
"""Some 300 bytes; it holds no single quote, so that it can stand in SQL."""
DIGEST = "0123456789abcdef" * 4

COLUMNS = {
    "dialect": "'v0'",
    "type": "'run'",
    "kind": "'tool_call'",
    "source": "'agent'",
    "cause_seq": "NULL",
    "turn_id": "NULL",
    "epoch": "NULL",
    "tool_call_id": "NULL",
    "wire_id": "NULL",
    "brings_envelope": "FALSE",
    "hidden": "FALSE",
    "is_input": "FALSE",
    "text": f"'{COMMAND}'",
    "payload": f"'{PAYLOAD}'",
    "size": str(len(PAYLOAD)),
    "digest": f"'{DIGEST}'",
}
"""By column of conversations_event, an SQL expression; place, id and times come from elsewhere."""


class Link(NamedTuple):
    """An event's place in the chain of its log."""

    seq: int
    event_id: str
    digest: str


def chain(count: int, payload: str) -> Iterator[Link]:
    """Yield what chains a log of so many events with this payload."""
    digest = ""
    for seq in range(count):
        event_id = secrets.token_hex(16)
        head = f"{digest} {seq} {len(event_id)} {event_id}"
        digest = sha256((head + payload).encode()).hexdigest()
        yield Link(seq, event_id, digest)
