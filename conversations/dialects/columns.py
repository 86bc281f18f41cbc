"""Converting values of payloads into values that columns can store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from conversations.events import EVENT_ID_MAX_LENGTH, TEXT_MAX_BYTES

Fields = Mapping[str, object]  # the members of a JSON object

TYPE_MAX_CHARS = 200
SOURCE_MAX_CHARS = 50

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """Replace NUL and lone surrogates, which no database takes, by U+FFFD."""
    if text.isascii() and "\0" not in text:  # most texts
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def may_be_cut(text: str) -> bool:
    """Return whether a text of the `text` column can be the beginning of a longer one."""
    return len(text.encode()) >= TEXT_MAX_BYTES - 3  # a cut leaves less than one character's bytes


def readable(text: str) -> str:
    """Return a text for the `text` column: clean, at most TEXT_MAX_BYTES of UTF-8, no character broken."""
    text = clean(text[:TEXT_MAX_BYTES])
    if text.isascii():
        return text
    encoded = text.encode()
    return encoded[:TEXT_MAX_BYTES].decode(errors="ignore")


def name(value: object, max_chars: int) -> str | None:
    """Return a non-empty string, clean and cut to `max_chars`; None for anything else."""
    if not isinstance(value, str) or not value:
        return None
    return clean(value[:max_chars])


def event_id(value: object) -> str | None:
    """Return an event id that fits; None for a longer one, since a cut id would name another event."""
    if not isinstance(value, str) or len(value) > EVENT_ID_MAX_LENGTH:
        return None
    return name(value, EVENT_ID_MAX_LENGTH)


def wire_id(value: object) -> int | None:
    """Return an event number that fits a 64-bit column; None for anything else, also booleans."""
    number = whole_number(value)
    return number if number is not None and 0 <= number < 2**63 else None


def whole_number(value: object) -> int | None:
    """Return a whole number; None for anything else, also booleans."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> int | float | None:
    """Return a number; None for anything else, also booleans."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def amount(value: object, *, below: float) -> float:
    """Return a number from 0 to this bound; 0 for anything else."""
    found = number(value)
    return float(found) if found is not None and 0 <= found < below else 0.0


def instant(value: object) -> datetime | None:
    """Read an ISO 8601 time, UTC if it has no zone; None if it cannot be read."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        if read.tzinfo is UTC:
            return read
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def fields(value: object) -> Mapping[str, object]:
    """Return the fields of a JSON object; none for any other value."""
    # The check of an abstract class takes ten times as long, and a payload has dicts.
    return value if isinstance(value, (dict, Mapping)) else {}


def members(payload: str) -> Mapping[str, object]:
    """Return the members of a stored payload; none if it is nested too deeply to be read."""
    try:
        return fields(json.loads(payload))
    except (ValueError, RecursionError):
        return {}


def items(value: object) -> list[Any]:
    """Return the items of a JSON list; none for any other value."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects with members among the items of a JSON list."""
    return [found for each in items(value) if (found := fields(each))]


def texts(value: object) -> list[str]:
    """Return the strings among the items of a JSON list."""
    return [each for each in items(value) if isinstance(each, str)]


def first_text(*candidates: object) -> str:
    """Return the first candidate that is a non-empty string, else an empty one."""
    for text in candidates:
        if isinstance(text, str) and text:
            return text
    return ""


def content_text(content: object) -> str:
    """Join the texts of a content list, one part, or a plain string, by newlines."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    found = (part if isinstance(part, str) else fields(part).get("text") for part in parts)
    return "\n".join(text for text in found if isinstance(text, str) and text)


def image_urls(content: object) -> Iterator[str]:
    """Yield the images in a content list, by their URLs."""
    for part in items(content):
        yield from texts(fields(part).get("image_urls"))


def as_json(value: object, *, indent: int | None = None) -> str:
    """Return a value of any depth as JSON; an empty string if that fails."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (RecursionError, ValueError, TypeError):
        return ""


def as_text(value: object) -> str:
    """Return a string unchanged, any other value as JSON."""
    return value if isinstance(value, str) else as_json(value)
