"""What receivers are told, one parcel at a time, and what can take one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from conversations.events import EventEnvelope
from conversations.facts import Fact
from conversations.models import ConversationRef


class Happening(StrEnum):
    """What a parcel tells; the names are those of a hook's methods."""

    CREATED = "created"
    APPENDED = "appended"
    STATUS = "status"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """One thing to tell of one conversation."""

    happening: Happening
    conversation: ConversationRef
    events: Sequence[EventEnvelope] = ()
    """What was appended, in order; for that happening alone."""
    information: dict[str, Any] | None = None
    """ConversationInfo as it is now (spec V1 §2.2); for the other happenings."""
    fact: Fact | None = None
    """What was noted, where it was not the log that told."""


class Taker(Protocol):
    """One receiver's way to be told."""

    async def take(self, parcel: Parcel) -> None:
        """Hand the parcel over; whatever this raises means that it was not taken."""

    async def close(self) -> None:
        """Give back what is held open."""


class NotTaken(Exception):
    """A receiver did not take a parcel; the text is for staff and names no secret."""
