"""Marks planted into every member of a sample, and where an import puts each of them.

All marks of a sample are planted at once, each is unique, and one import shows which are missing.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from conversations.models import Conversation, Event
from conversations.transcripts.sources.as_v1 import RECORD_KEY
from tests.support.data.import_samples import imported

EVENT, RECORD, CONVERSATION, REPORT = "event", "record", "conversation", "report"
"""Where a mark can be found: what people read, a record that is kept, a column or tag, the report."""
COLUMNS = ("title", "llm_model", "repository", "branch", "provider", "trigger", "pr_number", "tags")
MEANINGFUL = re.compile(
    r"(.*_)?(id|uuid|type|kind|role|recipient|status|timestamp|subtype|operation)"
    r"|.*(Id|ID|Uuid|UUID|Type|Status)|.*(_at|_time|_type|_ids|_status)|event|author|sender"
)
"""Names of members whose text says what a record is, when it was or what it is linked to."""
_MARK = re.compile(r"mk[0-9]{5}km")

Path_ = tuple[str | int, ...]
IsFixed = Callable[[Path_, object], bool]


def is_meaningful(path: Path_, _value: object) -> bool:
    """Return whether changing the text at a path may change what the record is."""
    names = [each for each in path if isinstance(each, str)]
    return bool(names) and MEANINGFUL.fullmatch(names[-1]) is not None


@dataclass(slots=True)
class Marks:
    """Plants marks, and knows where each one is."""

    is_fixed: IsFixed = is_meaningful
    """Says of a text that it stays as it is: its mark goes into an unknown member beside it."""
    is_whole: IsFixed = lambda _path, _value: False
    """Says of a value that nothing is planted into it or beside it, such as one that a reader leaves out."""
    adds_items: bool = True
    """Whether lists get an unknown item as well."""
    at: dict[str, str] = field(default_factory=dict)
    """By mark: where it was planted, as `1.message.content[]`."""

    def planted(self, value: Any, path: Path_ = ()) -> Any:
        """Return a copy of a JSON value with a mark in every member, object and list."""
        if self.is_whole(path, value):
            return value
        match value:
            case dict():
                return self._object(value, path)
            case list():
                items = [self.planted(item, (*path, at)) for at, item in enumerate(value)]
                return [*items, *self._item(path)] if self.adds_items else items
            case str() if not self.is_fixed(path, value):
                return value + self._new((*path,))
        return value

    def _object(self, value: Mapping[str, Any], path: Path_) -> dict[str, Any]:
        marked: dict[str, Any] = {}
        for name, member in value.items():
            inner = (*path, name)
            marked[name] = self.planted(member, inner)
            if self.is_whole(inner, member) or isinstance(member, dict | list):
                continue
            if not isinstance(member, str) or self.is_fixed(inner, member):
                marked[f"beside_{name}"] = self._new((*path, f"beside_{name}"))
        return marked | {"planted": self._new((*path, "planted"))}

    def _item(self, path: Path_) -> list[Any]:
        return [{"type": "planted_kind", "planted": self._new((*path, "[]"))}]

    def _new(self, path: Path_) -> str:
        mark = f"mk{len(self.at):05}km"
        self.at[mark] = ".".join(map(str, path))
        return mark

    def places(self, format: str, path: Path, user: User) -> dict[str, str]:
        """Import a path, and return by mark where it is found first; empty for one that is lost."""
        report = imported(format, path)
        found: dict[str, str] = {}
        for place, text in _texts(user):
            for mark in _MARK.findall(text):
                found[mark] = EVENT if EVENT in (place, found.get(mark)) else found.get(mark, place)
        for mark in _MARK.findall(json.dumps(report)):
            found.setdefault(mark, REPORT)
        return {mark: found.get(mark, "") for mark in self.at}

    def lost(self, format: str, path: Path, user: User) -> list[str]:
        """Import a path, and return where the marks were planted that are found nowhere."""
        places = self.places(format, path, user)
        return sorted(self.at[mark] for mark, place in places.items() if not place)


def _texts(user: User) -> list[tuple[str, str]]:
    """Return all that is stored of a user's conversations, each text with what it is."""
    found: list[tuple[str, str]] = []
    for conversation in Conversation.objects.filter(owner=user):
        columns = [getattr(conversation, name) for name in COLUMNS]
        found.append((CONVERSATION, json.dumps(columns)))
        for payload in Event.objects.filter(conversation=conversation).values_list("payload", flat=True):
            event = json.loads(payload)
            is_record = isinstance(event, dict) and event.get("key") == RECORD_KEY
            found.append((RECORD, _opened(payload, event)) if is_record else (EVENT, payload))
    return found


def _opened(payload: str, event: Mapping[str, Any]) -> str:
    """Return a record's payload, with the bytes that it holds in base64 as text."""
    record = event["value"].get("record")
    if isinstance(record, dict) and set(record) == {"base64"}:
        return base64.b64decode(record["base64"]).decode(errors="replace")
    return payload
