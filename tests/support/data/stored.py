"""What is stored, in a form that is the same on every machine, in every run and on either engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from django.utils import timezone

from conversations.models import Conversation, Event
from sessions_app.models import AgentLoop, AgentSetup, Attachment

TEXT_MAX_CHARS = 100
"""A longer text is shown by its beginning, its length and its digest."""
RECENT = timedelta(hours=1)
"""A time so near to now is that of the import."""
COLUMNS = (
    "version",
    "title",
    "repository",
    "branch",
    "provider",
    "trigger",
    "pr_number",
    "llm_model",
    "accumulated_cost",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "tags",
    "forked_at",
    "last_message",
    "created_at",
    "updated_at",
    "last_message_at",
)

Dump = dict[str, dict[str, Any]]


def dump(conversations: Iterable[Conversation]) -> Dump:
    """Return conversations by their names: the id in the source, or the id here where that is the same."""
    names = {row.pk: row.tags.get("source_id", row.public_id) for row in conversations}
    rows = Conversation.objects.filter(pk__in=names)
    return {names[row.pk]: _conversation(row, names) for row in sorted(rows, key=lambda row: names[row.pk])}


def written(value: Mapping[str, Any]) -> str:
    """Return a dump as JSON, with an event a line."""
    return _written(value, "") + "\n"


def shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > TEXT_MAX_CHARS:
            return f"{value[:60]}… {len(value)} characters, {_digest([value])}"
        case dict():
            return {name: shortened(item) for name, item in value.items()}
        case list():
            return [shortened(item) for item in value]
    return value


def _ordered(value: Any) -> Any:
    """Return a value with the members of its objects by name: PostgreSQL keeps an order of its own."""
    return json.loads(json.dumps(value, sort_keys=True))


def _conversation(row: Conversation, names: Mapping[int, str]) -> dict[str, Any]:
    events = list(Event.objects.filter(conversation=row).order_by("seq"))
    told: dict[str, Any] = {name: _value(getattr(row, name)) for name in COLUMNS}
    told |= {
        "tags": _ordered(row.tags),
        "parent": names.get(row.parent_id or 0),
        "forked_from": names.get(row.forked_from_id or 0),
        "execution_status": _first(AgentLoop, row, "execution_status"),
        "workspace": _ordered(_first(AgentSetup, row, "workspace")),
        "agent": _ordered(_first(AgentSetup, row, "shown_agent")),
        "attachments": [
            [each.name, len(each.content), sha256(bytes(each.content)).hexdigest()]
            for each in Attachment.objects.of(row.ref)
        ],
    }
    return {
        **{name: shortened(value) for name, value in told.items() if value not in (None, "", [], {}, 0)},
        "event_ids": _digest(event.event_id for event in events),
        "payload_bytes": _digest(event.payload for event in events),
        "events": _events(events),
    }


def _events(events: Iterable[Event]) -> list[list[Any]]:
    """Return each event as its columns and its payload, in which events are named by their places."""
    places: dict[str, str] = {}
    told = []
    for event in events:
        places[event.event_id] = f"@{event.seq}"
        beside = {
            "cause": event.cause_seq,
            "turn": event.turn_id,
            "epoch": event.epoch,
            "wire_id": event.wire_id,
            "hidden": event.hidden or None,
            "input": event.is_input or None,
            "received_at": _value(event.received_at),
        }
        told.append(
            [
                event.seq,
                f"{event.kind}/{event.source}/{event.type}",
                _value(event.timestamp),
                {name: value for name, value in beside.items() if value not in (None, "now")},
                shortened(_renamed(json.loads(event.payload), places)),
            ]
        )
    return told


def _renamed(value: Any, places: Mapping[str, str]) -> Any:
    match value:
        case str():
            return places.get(value, value)
        case dict():
            return {name: _renamed(item, places) for name, item in value.items()}
        case list():
            return [_renamed(item, places) for item in value]
    return value


def _first(model: Any, row: Conversation, column: str) -> Any:
    return model.objects.filter(conversation_id=row.pk).values_list(column, flat=True).first()


def _value(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return "now" if abs(timezone.now() - value) < RECENT else value.astimezone(UTC).isoformat()


def _digest(texts: Iterable[str]) -> str:
    return sha256("\n".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]


def _written(value: Any, indent: str) -> str:
    """Write objects a member a line down to the events and the records of a report, which have one each."""
    inner = indent + " "
    if isinstance(value, dict) and value and len(indent) < 3:
        members = (f"{inner}{json.dumps(name)}: {_written(item, inner)}" for name, item in value.items())
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[\n" + ",\n".join(inner + _written(item, inner + "   ") for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)
