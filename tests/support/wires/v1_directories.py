"""Directories of conversations as a V1 agent server writes them, file by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from conversations.models import Event
from tests.support.wires import app_face

RUNNING = {"execution_status": "running", "agent": {"kind": "Agent", "llm": {"model": "m"}}}


def event_id(number: int) -> str:
    return str(UUID(int=number + 1))


class Kept:
    """A conversation's directory, which a server writes."""

    def __init__(self, root: Path, conversation_id: UUID) -> None:
        self.id = conversation_id
        self.path = root / conversation_id.hex
        (self.path / "events").mkdir(parents=True)

    def write(self, name: str, content: Any) -> None:
        """Write a file in place, as such servers do."""
        (self.path / name).write_text(content if isinstance(content, str) else json.dumps(content))

    def state(self, **members: Any) -> None:
        self.write("base_state.json", {"id": str(self.id), **RUNNING, **members})

    def event(self, number: int, *, part: float = 1.0) -> Path:
        """Write the file of an event, or its beginning."""
        name = f"events/event-{number:05d}-{event_id(number)}.json"
        text = json.dumps(app_face.reported(f"message {number}", event_id=event_id(number)))
        self.write(name, text[: int(len(text) * part)])
        return self.path / name

    def call(self, number: int) -> None:
        """Write the file of a call that has no result yet."""
        name = f"events/event-{number:05d}-{event_id(number)}.json"
        call = {"kind": "ActionEvent", "id": event_id(number), "source": "agent", "tool_name": "terminal"}
        self.write(
            name, call | {"tool_call_id": "call", "action": {"kind": "TerminalAction", "command": "ls"}}
        )

    def stored(self) -> list[str]:
        """Return the ids of what is stored of it, in order."""
        rows = Event.objects.filter(conversation__public_id=self.id.hex).order_by("seq")
        return list(rows.values_list("event_id", flat=True))
