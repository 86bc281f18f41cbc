"""What a conversation of another program is made of, in whatever format it is stored.

A source is a path. It holds conversations, and each is a list of nodes in the order in which they are to be
stored. A node is the unit that the format counts: a line, a message. Every node that is found is yielded,
those that cannot be stored as well, so that an import can account for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from conversations.events import Metrics


class Unreadable(ValueError):
    """A source cannot be imported; the message says why."""


class Changed(Unreadable):
    """A source was written to while it was read, and can be read again at once."""


class Empty(Unreadable):
    """A source is a whole export, and has no conversation in it."""

    def __init__(self) -> None:
        super().__init__("There is no conversation in the file")


class Author(StrEnum):
    """Who said something."""

    USER = "user"
    AGENT = "agent"


class Kept(StrEnum):
    """Why a record is kept as it was, instead of as an event that people read."""

    BOOKKEEPING = "bookkeeping"
    """It is known, and says nothing to people."""
    UNKNOWN = "unknown"
    """Its shape is not described anywhere."""
    DAMAGED = "damaged"
    """It is not what the format demands, such as half a line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Words of the user or of the agent."""

    author: Author
    text: str
    reasoning: str = ""
    images: tuple[str, ...] = ()
    """URLs or data URLs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """The agent called a tool."""

    call_id: str
    tool: str
    arguments: Mapping[str, object] | str
    """As text where it is no JSON object."""
    thought: str = ""
    reasoning: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a tool returned."""

    call_id: str
    text: str
    tool: str = ""
    """Empty if the result does not name it; its call does."""
    images: tuple[str, ...] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Instructions:
    """The system prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What stood for all that came before when the model was asked again."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an answer failed: words of the program, not of the agent."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A record that is stored as it was."""

    name: str
    """What the format calls it."""
    value: object
    """JSON; the text of one that is damaged."""
    why: Kept


Part = Message | ToolCall | ToolResult | Instructions | Summary | Failure | Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One record of a source."""

    node_id: str
    """The same whenever the source is read, also after it has grown; unique in a conversation."""
    place: str
    """Where it stands, for people: `line 12`."""
    at: datetime | None = None
    """Aware, UTC; None if unknown."""
    parts: tuple[Part, ...] = ()
    """Empty if it is skipped."""
    skipped: str = ""
    """Why nothing of it is stored."""
    noted: tuple[str, ...] = ()
    """What had to be assumed or left out, in a few words each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving:
    """Where a branch leaves another conversation of the same source."""

    source_id: str
    after: str | None
    """The id of the last node that both have; None if they have none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """One conversation of a source."""

    source_id: str
    """The same whenever the source is read; unique in a format."""
    nodes: Callable[[], Iterable[Node]]
    """Read the nodes, from the beginning; a branch begins with those that it shares."""
    node_count: int
    """How many there are, counted before and apart from reading them."""
    shared_count: int = 0
    """How many of them a branch shares with the conversation that it leaves."""
    title: str | None = None
    created_at: datetime | None = None
    model: str | None = None
    directory: str | None = None
    """Where the agent worked."""
    repository: str | None = None
    branch: str | None = None
    """Of the repository."""
    metrics: Metrics = field(default_factory=Metrics)
    leaves: Leaving | None = None
    """For a branch."""
    parent_id: str | None = None
    """For a sub-agent: the `source_id` of the conversation that started it."""
    is_active: bool = True
    """Whether this is the branch that the program shows."""
    is_empty: bool = False
    """Whether nobody says anything in it."""
    labels: tuple[str, ...] = ()
    """What the user has filed it under."""
    is_pinned: bool = False
    is_archived: bool = False
