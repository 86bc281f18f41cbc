"""Signatures: data that a model's server wants back with its calls, and only it can read.

Some servers refuse the next request without them, and all refuse those of another model. Clients know a
member of a call for them, `thinking_blocks`: it has signed thoughts unchanged, and all else in a redacted one
with the model's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from conversations.dialects import columns
from sessions_app.agents.llm.streams.answer import ReadCall

# Longer signatures are dropped: the model then thinks anew.
SIGNED_MAX_CHARS = 500_000
_REDACTED, _THINKING = "redacted_thinking", "thinking"
# Google's documented replacement of a missing signature: it signs only the first call of an answer.
_UNSIGNED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}

Block = Mapping[str, Any]


class Signer(NamedTuple):
    """A model that signs and reads signatures."""

    model: str
    system: str
    """The library's name of the provider's API."""


class Signed(NamedTuple):
    """The signatures of one call."""

    call: Mapping[str, Any] = {}
    thoughts: Sequence[Block] = ()


def kept(calls: Sequence[ReadCall], thoughts: Sequence[Block], model: str) -> list[list[Block]]:
    """Return the blocks to store with each call of an answer; the first call has the thoughts."""
    found = []
    is_googles = bool(calls) and "google" in columns.fields(calls[0].opaque.get("extra_content"))
    for number, call in enumerate(calls):
        opaque = call.opaque or (_UNSIGNED if is_googles else {})
        found.append(_blocks(opaque, [] if number else list(thoughts), model))
    return found


def _blocks(opaque: Mapping[str, Any], thoughts: list[Block], model: str) -> list[Block]:
    if not (opaque or thoughts):
        return []
    data = json.dumps({"model": model, "call": dict(opaque)})
    blocks = [*thoughts, {"type": _REDACTED, "data": data}]
    return blocks if len(json.dumps(blocks)) <= SIGNED_MAX_CHARS else []


def of(blocks: Sequence[object], model: str) -> Signed:
    """Return what a stored call has for a model; nothing for another than the one that signed."""
    *thoughts, last = blocks or [None]
    try:
        about = columns.fields(json.loads(columns.first_text(columns.fields(last).get("data")) or "null"))
    except (ValueError, RecursionError):  # another server's agent wrote it
        return Signed()
    if not model or about.get("model") != model:
        return Signed()
    known = [columns.fields(each) for each in thoughts]
    signed = [each for each in known if each.get("type") in (_REDACTED, _THINKING)]
    return Signed(columns.fields(about.get("call")), signed)
