"""The parts of a conversation of another program, for all formats.

A source is a path. It has conversations, and each is a list of nodes in the order in which they are stored. A
node is the unit that the format counts: a line, a message. Every node is yielded, also those that cannot be
stored, so that an import can account for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from conversations.events import Metrics

TITLE_MAX_CHARS = 200  # the part of a title that is taken


class Unreadable(ValueError):
    """A source cannot be imported; the message says why."""


class Unfinished(Unreadable):
    """A file is incomplete; its program may still be writing it."""


class Changed(Unreadable):
    """A source was written to during the read; it can be read again at once."""


class Empty(Unreadable):
    """A source is a complete export without conversations."""

    def __init__(self) -> None:
        super().__init__("There is no conversation in the file")


class Author(StrEnum):
    USER = "user"
    AGENT = "agent"


class Kept(StrEnum):
    """Why a record is stored unchanged, instead of as an event for people."""

    BOOKKEEPING = "bookkeeping"  # it is known, and has nothing for people
    UNKNOWN = "unknown"  # its shape is not described anywhere
    DAMAGED = "damaged"  # it does not follow the format, such as half a line


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    author: Author
    text: str
    reasoning: str = ""
    images: tuple[str, ...] = ()  # URLs or data URLs


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    call_id: str
    tool: str
    arguments: Mapping[str, object] | str  # as text where it is no JSON object
    thought: str = ""
    reasoning: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    call_id: str
    text: str
    tool: str = ""  # empty if the result does not name it; its call does
    images: tuple[str, ...] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Instructions:
    """The system prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that replaced all earlier messages in the model's input."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an answer failed, in words of the program."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A record that is stored unchanged."""

    name: str  # the format's name of it
    value: object  # JSON; the text of one that is damaged
    why: Kept


Part = Message | ToolCall | ToolResult | Instructions | Summary | Failure | Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One record of a source."""

    node_id: str  # the same whenever the source is read, also after it has grown; unique in a conversation
    place: str  # for people: `line 12`
    at: datetime | None = None  # aware, UTC; None if unknown
    parts: tuple[Part, ...] = ()  # empty if it is skipped
    skipped: str = ""  # why nothing of it is stored
    noted: tuple[str, ...] = ()  # assumptions and omissions, in a few words each


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving:
    """Where a branch leaves another conversation of the same source."""

    source_id: str
    after: str | None  # the id of the last node that both have; None if they have none


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    source_id: str  # the same whenever the source is read; unique in a format
    # Read the nodes, from the beginning; a branch begins with those that it shares.
    nodes: Callable[[], Iterable[Node]]
    node_count: int  # how many there are, counted before and apart from reading them
    shared_count: int = 0  # how many of them a branch shares with the conversation that it leaves
    title: str | None = None
    created_at: datetime | None = None
    model: str | None = None
    directory: str | None = None  # where the agent worked
    repository: str | None = None
    branch: str | None = None  # of the repository
    metrics: Metrics = field(default_factory=Metrics)
    leaves: Leaving | None = None  # for a branch
    parent_id: str | None = None  # for a sub-agent: the `source_id` of the conversation that started it
    is_active: bool = True  # whether this is the branch that the program shows
    is_empty: bool = False  # whether it has no words of the user or the agent
    labels: tuple[str, ...] = ()  # the user's labels or folders
    is_pinned: bool = False
    is_archived: bool = False


def unreadable(source_id: str, why: str) -> Transcript:
    """Return a conversation that raises Unreadable when its nodes are read: its report says why."""

    def nodes() -> Iterator[Node]:
        raise Unreadable(why)
        yield

    return Transcript(source_id=source_id, nodes=nodes, node_count=0)
