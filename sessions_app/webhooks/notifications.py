"""Notifications, one at a time, and the transports that deliver them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from conversations.events import ConversationRef, EventEnvelope


class NotificationKind(StrEnum):
    """The kinds of notifications; the names are those of a hook's methods."""

    CREATED = "created"
    APPENDED = "appended"
    STATUS = "status"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    kind: NotificationKind
    conversation: ConversationRef
    events: Sequence[EventEnvelope] = ()
    """The appended events, in order; only for that kind."""
    information: dict[str, Any] | None = None
    """The present ConversationInfo (spec V1 §2.2); for the other kinds."""


class Transport(Protocol):
    async def deliver(self, notification: Notification) -> None:
        """Deliver the notification; any exception means that it was not delivered."""

    async def close(self) -> None:
        """Release all open resources."""


class DeliveryFailed(Exception):
    """An endpoint did not accept a notification; the text is for staff and contains no secret."""
