"""The columns of events against what is read off their payloads again."""

from __future__ import annotations

from collections.abc import Iterator

from conversations import dialects
from conversations.events import Kind, Reading
from conversations.exceptions import InvalidEvent
from conversations.models import ConversationQuerySet, DamageKind
from conversations.payloads import jsontext
from conversations.verification.damage import DamageList
from conversations.verification.rows import (
    SMALL_PAYLOAD,
    SMALL_TEXT,
    Batch,
    Row,
    all_conversations,
    pages,
    payload_of,
)
from conversations.verification.store import Step, confirmed

DERIVED = ("dialect", "type", "kind", "source", "tool_call_id", "hidden", "text")
EXAMINED = frozenset({DamageKind.COLUMN})
_COLUMNS = (*DERIVED[:-1], SMALL_TEXT, SMALL_PAYLOAD)


def steps(rows: ConversationQuerySet | None = None) -> Iterator[Step]:
    """Read the columns of all events of these conversations again; without any, of all."""
    chosen, above = all_conversations() if rows is None else rows, 0
    while (batch := Batch.after(above, chosen)) is not None:
        found = {head.pk: DamageList(head.pk, head.public_id) for head in batch.heads}
        for page in pages(batch, _COLUMNS, only_heads=True):
            for row in page:
                if wrong := _wrong(row):
                    detail = f"Event {row[1]} has another {' and '.join(wrong)} than its payload."
                    found[row[0]].add(DamageKind.COLUMN, row[1], detail)
            yield Step()
        above = batch.through
        yield Step(found=confirmed([damage for each in found.values() for damage in each], batch.heads))


def _wrong(row: Row) -> list[str]:
    """Return the names of the columns that the payload does not say."""
    _, _, pk, *stored, payload = row
    values = dict(zip(DERIVED, stored, strict=True))
    try:
        reading = dialects.read(jsontext.loads(payload_of(pk) if payload is None else payload))
    except (ValueError, RecursionError, AttributeError, TypeError, InvalidEvent):
        return ["form"]
    read = _columns(reading)
    return [name for name, value in read.items() if not _agrees(name, values[name], value)]


def _columns(reading: Reading) -> dict[str, object]:
    return {name: getattr(reading, name) for name in DERIVED}


def _agrees(name: str, stored: object, read: object) -> bool:
    """Say whether a column can have come from the payload.

    A kind that no payload shows is the author's. What was masked in a text that could not be read apart has
    no other source than the column.
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
