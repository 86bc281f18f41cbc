"""The cards that show events to people, the same for both wires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from conversations.dialects import CALL_STOPPED
from conversations.dialects.attached import AttachedFile
from conversations.events import EventEnvelope
from convserver.rendering.diffs import Diff
from convserver.rendering.tools import ShownTool


class CallOutcome(StrEnum):
    """The outcome of a tool call."""

    RUNNING = "running"
    WAITING = "waiting"
    NO_RESULT = "unknown"  # there is no result, and the conversation went on
    OUTCOME_UNKNOWN = "untold"  # it was cut off while it ran; the user is asked whether it took effect
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"  # the user stopped the agent before the result came
    REJECTED = "rejected"


WAITING = frozenset({CallOutcome.WAITING, CallOutcome.OUTCOME_UNKNOWN})
"""The outcomes of calls that wait for the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """Text that a reader can unfold."""

    label: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One entry of the agent's own list."""

    title: str
    status: str  # `todo`, `in_progress` or `done`; anything else is shown as it is
    notes: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageCard:
    author: str
    text: str
    is_users: bool
    images: tuple[str, ...] = ()
    files: tuple[AttachedFile, ...] = ()
    reasoning: str = ""
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CallCard:
    tool: ShownTool
    summary: str  # one line: a command's first, a file's path
    thought: str = ""  # the agent's words before the call
    reasoning: str = ""
    arguments: str = ""
    language: str = "json"
    diff: Diff | None = None
    tasks: tuple[Task, ...] = ()
    risk: str = ""
    outcome: CallOutcome = CallOutcome.RUNNING
    is_allowable: bool = False
    """Whether the user may allow all later calls of the tool with this one."""
    given: Mapping[str, object] | None = field(default_factory=dict)
    """All arguments of the call; None where they cannot be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultCard:
    tool: ShownTool
    output: str
    outcome: CallOutcome = CallOutcome.DONE
    exit_code: int | None = None
    timed_out: bool = False
    diff: Diff | None = None
    images: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()


def unanswered(tool: ShownTool, reason: str) -> ResultCard:
    """Return the card of a call that brought no result: it failed, or the user stopped it."""
    if reason == CALL_STOPPED:
        return ResultCard(tool=tool, output="", outcome=CallOutcome.STOPPED)
    return ResultCard(tool=tool, output=reason, outcome=CallOutcome.FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuietLine:
    """An event in a few words."""

    words: str
    folded: tuple[Folded, ...] = ()


def noticed(text: str) -> QuietLine:
    """Return the line of a notice of the server; what follows its first line is folded."""
    line, _, more = text.partition("\n")
    return QuietLine(words=line, folded=(Folded(label="More", text=more.strip()),) if more.strip() else ())


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorCard:
    words: str
    next_step: str
    code: str
    detail: str
    cause: str = ""  # one-line error detail, if the words do not contain it
    is_models: bool = False  # whether the settings of the model can solve it


Card = MessageCard | CallCard | ResultCard | QuietLine | ErrorCard


@dataclass(kw_only=True, slots=True)
class Entry:
    """An event, its card, and the results inside it."""

    event: EventEnvelope
    card: Card  # replaced as later events of the page tell more
    results: list[Entry] = field(default_factory=list)

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.event["timestamp"])
