"""The events of commands, as the V1 wire has them: the command, then its output (spec V1 §2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from uuid import uuid4

from django.utils import timezone

from conversations.dialects import v1


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEvent:
    """What all of them have."""

    kind: ClassVar[str]

    id: str = field(default_factory=lambda: uuid4().hex)
    timestamp: datetime = field(default_factory=timezone.now)

    def shown(self) -> dict[str, Any]:
        """Return the event as the wire has it."""
        # A time with its zone, unlike those of conversations' events: clients compare it with their own.
        moment = f"{v1.stamp(self.timestamp)}Z"
        return {"kind": self.kind, **asdict(self), "timestamp": moment}


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandStarted(CommandEvent):
    """A command that a client has started."""

    kind: ClassVar[str] = "BashCommand"

    command: str
    cwd: str | None
    timeout: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOutput(CommandEvent):
    """A part of a command's output; with an exit code, the last one."""

    kind: ClassVar[str] = "BashOutput"

    command_id: str
    order: int
    exit_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


# This event is not stored: it is about a frame, and goes to its sender only.
def failure(code: str, detail: str) -> Mapping[str, Any]:
    """Return the frame that tells a client of the socket why its frame was refused."""
    event = CommandEvent()
    moment = f"{v1.stamp(event.timestamp)}Z"
    return {"kind": "BashError", "id": event.id, "timestamp": moment, "code": code, "detail": detail}
