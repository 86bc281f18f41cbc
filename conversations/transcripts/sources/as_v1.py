"""Nodes of other programs' conversations as V1 events, with the same ids in every import."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID, uuid5

from conversations.dialects import v1
from conversations.dialects.v1 import Call, V1Event
from conversations.events import NewEvent
from conversations.transcripts.sources.nodes import (
    Author,
    Failure,
    Instructions,
    Message,
    Node,
    Part,
    Record,
    Summary,
    ToolCall,
    ToolResult,
)

# The key of the state update that keeps a record as it was: clients of every release take it.
RECORD_KEY = "imported_record"
FAILURE_CODE = "ImportedError"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDS = UUID("6f0b6c66-5a0b-5d43-9a51-0a3a2f5a1f0e")


class _Called(NamedTuple):
    tool: str
    event_id: str


class V1Writer:
    """Writes the nodes of one conversation, in order: a result names its call."""

    def __init__(self, format: str, created_at: datetime | None) -> None:
        self._format = format
        self._at = created_at or EPOCH
        self._calls: dict[str, _Called] = {}
        self._forgettable: list[str] = []

    def events_of(self, node: Node) -> list[NewEvent]:
        """Return the events of the next node; a node without a time gets the time of the one before."""
        self._at = node.at or self._at
        return [self._event(node, place) for place in range(len(node.parts))]

    def pass_over(self, node: Node) -> None:
        """Note the facts that later nodes need about a node whose events are stored."""
        self._at = node.at or self._at
        for place, part in enumerate(node.parts):
            event_id = event_id_of(self._format, node.node_id, place)
            if isinstance(part, ToolCall):
                self._calls[part.call_id] = _Called(part.tool, event_id)
            elif isinstance(part, ToolResult):
                self._calls.pop(part.call_id, None)
            if isinstance(part, Summary):
                self._forgettable = []
            if not isinstance(part, Record):
                self._forgettable.append(event_id)

    def _event(self, node: Node, place: int) -> NewEvent:
        event_id = event_id_of(self._format, node.node_id, place)
        event = self._shape(node.parts[place], event_id)
        payload = v1.written(event, event_id=event_id, timestamp=v1.stamp(self._at))
        if not isinstance(node.parts[place], Record):
            self._forgettable.append(event_id)
        return NewEvent(event_id=event_id, payload=payload, reading=v1.read(json.loads(payload)))

    def _shape(self, part: Part, event_id: str) -> V1Event:
        match part:
            case Message():
                return _message(part)
            case ToolCall():
                self._calls[part.call_id] = _Called(part.tool, event_id)
                return v1.action(
                    Call(part.tool, part.call_id),
                    arguments=part.arguments,
                    action={"kind": "MCPToolAction", "data": part.arguments}
                    if not isinstance(part.arguments, str)
                    else None,
                    response_id=event_id,
                    thought=part.thought,
                    reasoning=part.reasoning,
                )
            case ToolResult():
                return self._result(part)
            case Instructions():
                return v1.system_prompt(part.text)
            case Summary():
                forgotten, self._forgettable = self._forgettable, []
                return v1.condensation(
                    forgotten_event_ids=forgotten,
                    response_id=event_id,
                    summary=part.text,
                    summary_offset=0,
                )
            case Failure():
                return v1.conversation_error(code=FAILURE_CODE, detail=part.text)
            case Record():
                kept = {"format": self._format, "name": part.name, "why": part.why, "record": part.value}
                return v1.state_update(RECORD_KEY, kept)

    def _result(self, part: ToolResult) -> V1Event:
        called = self._calls.pop(part.call_id, None)
        tool = part.tool or (called.tool if called else "unknown")
        content = [v1.text_part(part.text), *([v1.image_part(part.images)] if part.images else [])]
        observed = {
            "kind": "MCPToolObservation",
            "content": content,
            "is_error": part.is_error,
            "tool_name": tool,
        }
        action_id = called.event_id if called else event_id_of(self._format, part.call_id, 0)
        return v1.observation(Call(tool, part.call_id), observation=observed, action_id=action_id)


def event_id_of(format: str, node_id: str, place: int) -> str:
    """Return the id of the event for a part of a node."""
    return str(uuid5(_IDS, f"{format}/{node_id}/{place}"))


def _message(part: Message) -> V1Event:
    images = [v1.image_part(part.images)] if part.images else []
    content = [*([v1.text_part(part.text)] if part.text or not images else []), *images]
    if part.author is Author.USER:
        return v1.user_message(content)
    return v1.agent_message(content, reasoning=part.reasoning)
