"""Hooks that tests install."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conversations.events import ConversationRef, EventEnvelope


class Listener:
    """Writes down what it is told; fails as often as it is asked to."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []
        self.failures = 0

    def created(self, conversation: ConversationRef, information: Mapping[str, Any]) -> None:
        self._hear("created", conversation, information["title"])

    async def appended(self, conversation: ConversationRef, events: Sequence[EventEnvelope]) -> None:
        self._hear("appended", conversation, [event["text"] for event in events])

    def status(self, conversation: ConversationRef, information: Mapping[str, Any]) -> None:
        self._hear("status", conversation, information["execution_status"])

    def deleted(self, conversation: ConversationRef, information: Mapping[str, Any]) -> None:
        self._hear("deleted", conversation, information["title"])

    def _hear(self, kind: str, conversation: ConversationRef, detail: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a secret that no page may show")
        self.told.append((kind, conversation.public_id, detail))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, *_ in self.told]

    @property
    def statuses(self) -> list[str]:
        return [status for kind, _, status in self.told if kind == "status"]

    @property
    def texts(self) -> list[str]:
        return [text for kind, _, texts in self.told if kind == "appended" for text in texts]


class Deaf:
    """Has no method that could be called."""
