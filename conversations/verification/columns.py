"""Comparing the columns of events with what their payloads say."""

from __future__ import annotations

from collections.abc import Iterator

from conversations import dialects
from conversations.events import Kind
from conversations.exceptions import InvalidEvent
from conversations.models import Conversation, ConversationQuerySet, DamageKind
from conversations.payloads import jsontext
from conversations.verification.damage import DamageList
from conversations.verification.rows import (
    SMALL_PAYLOAD,
    SMALL_TEXT,
    Batch,
    Row,
    pages,
    payload_of,
)
from conversations.verification.store import VerificationStep, confirmed

DERIVED = ("dialect", "type", "kind", "source", "tool_call_id", "hidden", "text")
EXAMINED = frozenset({DamageKind.COLUMN})
_COLUMNS = (*DERIVED[:-1], SMALL_TEXT, SMALL_PAYLOAD)


def steps(rows: ConversationQuerySet | None = None) -> Iterator[VerificationStep]:
    """Read the columns of all events of these conversations again; by default of all conversations."""
    chosen, above = Conversation.objects.all() if rows is None else rows, 0
    while (batch := Batch.after(above, chosen)) is not None:
        found = {head.pk: DamageList(head.pk, head.public_id) for head in batch.heads}
        for page in pages(batch, _COLUMNS, only_heads=True):
            for row in page:
                if wrong := _wrong(row):
                    detail = f"Event {row[1]} has another {' and '.join(wrong)} than its payload."
                    found[row[0]].add(DamageKind.COLUMN, row[1], detail)
            yield VerificationStep()
        above = batch.through
        yield VerificationStep(
            found=confirmed([damage for each in found.values() for damage in each], batch.heads)
        )


def _wrong(row: Row) -> list[str]:
    """Return the names of the columns that contradict the payload."""
    _, _, pk, *stored, payload = row
    values = dict(zip(DERIVED, stored, strict=True))
    try:
        reading = dialects.read(jsontext.loads(payload_of(pk) if payload is None else payload))
    except (ValueError, RecursionError, AttributeError, TypeError, InvalidEvent):
        return ["form"]
    return [name for name in DERIVED if not _agrees(name, values[name], getattr(reading, name))]


def _agrees(name: str, stored: object, read: object) -> bool:
    """Return whether a column can come from the payload.

    Its author may have set a kind that no payload shows. If a payload with a secret could not be parsed, the
    masked text is only in the column.
    """
    match name:
        case "kind":
            return stored in (read, Kind.TURN)
        case "hidden":
            return bool(stored) == read
        case "text":
            return not read or stored is None or stored == read
        case "tool_call_id":
            return read is None or stored == read
    return stored == read
