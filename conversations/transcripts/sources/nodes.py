"""The parts of a conversation of another program, for all formats.

A source is a path. It has conversations, and each is a list of nodes in the order in which they are stored. A
node is the unit that the format counts: a line, a message. Every node is yielded, also those that cannot be
stored, so that an import can account for each of them.

A reader names the members that its events carry, and keeps the rest of the record unchanged, known or not. An
event cannot carry it: clients of its dialect refuse unknown members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from conversations.dialects import columns
from conversations.events import Metrics

HEAD_BYTES = 4096  # by these first bytes a file is recognised
LINE_MAX_BYTES = 64 * 1024 * 1024  # a longer line counts as damaged, and only this much is kept
VALUES_MAX = 1_000_000  # a record with more members and items counts as damaged: they would fill the memory
TITLE_MAX_CHARS = 200  # the part of a title that is taken
PATHS_MAX = 1_000  # the values of this many members are compared with those of the record before

_EMPTY: tuple[object, ...] = (None, {}, [], "")


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


def rest_of(
    fields: Mapping[str, object], carried: Collection[str], inner: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the members that no event carries, and the rest of the `inner` ones.

    Null and empty members are left out.
    """
    inner = inner or {}
    rest = {
        name: value
        for name, value in fields.items()
        if name not in carried and name not in inner and value not in _EMPTY
    }
    return rest | {name: value for name, value in inner.items() if value not in _EMPTY}


def rest_of_block(
    block: Mapping[str, object], carried: Collection[str], inner: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the rest of a block of content, with its type; nothing if all of it is carried."""
    rest = rest_of(block, (*carried, "type"), inner)
    return {"type": block.get("type"), **rest} if rest else {}


def filled_rests(by_place: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rests of blocks, each at the place of its block; none if all are empty."""
    return by_place if any(by_place) else []


class Rests:
    """The rests of the records of one conversation, in order.

    Most members repeat those of the record before, such as the program's release: a value is kept again only
    if it changes.
    """

    def __init__(self, known: Mapping[str, object] | None = None) -> None:
        """Begin with the values that the conversation itself carries."""
        self._last: dict[tuple[str, ...], object] = {}
        self._changed(known or {}, ())

    def parts(self, name: str, rest: Mapping[str, object]) -> tuple[Record, ...]:
        """Return the rest of the next record as a part, the last one of its node; nothing if none is new."""
        changed = self._changed(rest, ())
        return (Record(name=f"members of {name}", value=changed, why=Kept.BOOKKEEPING),) if changed else ()

    def _changed(self, rest: Mapping[str, object], path: tuple[str, ...]) -> dict[str, object]:
        changed: dict[str, object] = {}
        for name, value in rest.items():
            if isinstance(value, Mapping) and value:
                if inner := self._changed(value, (*path, name)):
                    changed[name] = inner
            elif self._is_new((*path, name), value):
                changed[name] = value
        return changed

    def _is_new(self, path: tuple[str, ...], value: object) -> bool:
        told = _compared(value)
        if self._last.get(path) == told:
            return False
        if path in self._last or len(self._last) < PATHS_MAX:
            self._last[path] = told
        return True


def _compared(value: object) -> object:
    """Return a small stand-in for a value, to compare the next value with it."""
    short_characters = 100
    if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= short_characters):
        return (type(value), value)
    text = columns.as_json(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest() if text else object()
