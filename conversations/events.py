"""The shapes of one event: what enters the log, what its columns say, what leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypedDict

from conversations.exceptions import InvalidEvent

EVENT_ID_MAX_LENGTH = 200
TEXT_MAX_BYTES = 100_000
"""The most that the `text` column keeps of what a person would read, in UTF-8 bytes."""


class Dialect(StrEnum):
    """The wire that an event is written for; a conversation's version is the same in capitals."""

    V0 = "v0"
    V1 = "v1"


class Kind(StrEnum):
    """What an event is to any reader, whatever its wire calls it."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    STATE = "state"
    ERROR = "error"
    SYSTEM = "system"
    SUMMARY = "summary"
    TURN = "turn"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """Totals of a conversation so far; the stored ones never fall."""

    accumulated_cost: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The columns that a dialect reads off one payload."""

    dialect: Dialect
    type: str
    """The wire's own name: `run`, `agent_state_changed`, `MessageEvent`."""
    kind: Kind
    source: str
    text: str
    """What a person would read; at most TEXT_MAX_BYTES, NUL and lone surrogates replaced by U+FFFD."""
    timestamp: datetime | None
    """Aware, UTC; None when the payload brings none that can be read."""
    event_id: str | None = None
    """V1: the id inside the payload."""
    wire_id: int | None = None
    """V0: the number that the payload's sender gave it. V1: its index where it was imported from."""
    cause_wire_id: int | None = None
    """V0: the `cause`, in the sender's numbering."""
    cause_event_id: str | None = None
    """V1: the `action_id` that an observation answers."""
    parent_event_id: str | None = None
    """V1: the `parent_id`, where the history is a tree."""
    tool_call_id: str | None = None
    hidden: bool = False
    brings_envelope: bool = False
    """V0: the payload holds `id`, `timestamp` or `cause` itself, so a reader's copy cannot be spliced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEvent:
    """One event on its way into the log."""

    event_id: str
    """Fixed before the first try, so that a repeated append stores nothing twice."""
    payload: str
    """JSON text of one object, kept byte for byte."""
    reading: Reading
    kind: Kind | None = None
    """What its author knows it to be, where the payload alone cannot say (`turn`)."""
    turn_id: str | None = None
    cause_seq: int | None = None
    """The seq that this event answers, when its author knows it; otherwise resolved at append."""
    sender_id: int | None = None
    """The user who sent it; None for what the server or an agent wrote."""
    is_input: bool = False
    """True when it speaks to the agent and asks for an answer."""
    asks: bool = True
    """False for an input that waits until somebody asks for a run."""
    metrics: Metrics | None = None
    stamp_offset: int | None = None
    """Where the payload holds a 26-character naive timestamp that append sets to the server's clock."""

    def __post_init__(self) -> None:
        """Refuse what no database could keep. Raise InvalidEvent."""
        if not 0 < len(self.event_id) <= EVENT_ID_MAX_LENGTH or "\0" in self.event_id:
            raise InvalidEvent(f"An event's id has 1 to {EVENT_ID_MAX_LENGTH} characters, none of them NUL.")
        try:
            self.event_id.encode()
            self.payload.encode()
        except UnicodeEncodeError as error:
            raise InvalidEvent("The text holds half of a surrogate pair: escape it as JSON does.") from error
        if "\0" in self.payload:
            raise InvalidEvent("The text holds a NUL: escape it as JSON does.")


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an appended event stands."""

    event_id: str
    seq: int
    is_new: bool
    """False when the same event had been stored before and nothing was added."""


class EventEnvelope(TypedDict):
    """The columns of a stored event that its readers see, beside its payload as text."""

    seq: int
    id: str
    dialect: str
    type: str
    kind: str
    source: str
    timestamp: str
    """ISO 8601, UTC, six fraction digits, `Z`."""
    cause: int | None
    turn: str | None
    tool_call_id: str | None
    hidden: bool
    """V0: what its author did not mean to be shown; it may hold tokens."""
    brings_envelope: bool
    text: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EventMatch:
    """Facts that the columns of an event have together; what is empty or None holds for all."""

    dialect: Dialect
    types: frozenset[str] = frozenset()
    exclude_types: frozenset[str] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    sources: frozenset[str] = frozenset()
    exclude_sources: frozenset[str] = frozenset()
    is_answer: bool | None = None
    """Whether it has a cause."""
    is_hidden: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """Which events of a log are wanted: those for which all that is set holds."""

    exclude_hidden: bool = False
    types: frozenset[str] = frozenset()
    """The wires' own names; empty for all."""
    any_of: frozenset[EventMatch] = frozenset()
    """At least one of these holds; empty for all."""
    exclude_types: frozenset[str] = frozenset()
    text: str | None = None
    """Occurs in what a person would read, in any case."""
    source: str | None = None
    since: datetime | None = None
    """Aware; this moment or later."""
    until: datetime | None = None
    """Aware; this moment or earlier."""


class EventPage(NamedTuple):
    """Some events of a log, and whether more of those that were asked for follow."""

    events: list[EventEnvelope]
    has_more: bool


class FarEvent(NamedTuple):
    """Where an event stands that was not read because those before it were long."""

    seq: int
    id: str
    dialect: str


class SomeEvents(NamedTuple):
    """Events that were asked for one by one: those that were read, and the others of them."""

    events: list[EventEnvelope]
    far: list[FarEvent]


@dataclass(frozen=True, slots=True)
class Authored:
    """A payload that the server wrote itself, read back into columns."""

    payload: str
    reading: Reading
    stamp_offset: int | None = field(default=None)
