"""The forms of one event: on its way into the log, as columns, and for readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypedDict

from conversations.exceptions import InvalidEvent

EVENT_ID_MAX_LENGTH = 200
SEQ_MAX = 2**63 - 1  # the largest seq that a column holds
TEXT_MAX_BYTES = 100_000  # the longest `text` column (what a person would read), in UTF-8 bytes


class Dialect(StrEnum):
    """The wire that an event is written for; a conversation's version is the same in capitals."""

    V0 = "v0"
    V1 = "v1"


class ConversationRef(NamedTuple):
    """A conversation that a caller may access: enough to act on it, and nothing that goes stale."""

    pk: int
    public_id: str
    owner_id: int
    version: str

    @property
    def dialect(self) -> Dialect:
        """The wire of the events that the server itself writes in this conversation."""
        return Dialect(self.version.lower())


class Kind(StrEnum):
    """The meaning of an event for any reader, on all wires."""

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
    """Totals of a conversation so far; the stored ones never decrease."""

    accumulated_cost: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The columns that a dialect derives from one payload."""

    dialect: Dialect
    type: str  # the wire's own name: `run`, `agent_state_changed`, `MessageEvent`
    kind: Kind
    source: str
    text: str  # what a person would read; at most TEXT_MAX_BYTES, NUL and lone surrogates replaced by U+FFFD
    timestamp: datetime | None  # aware, UTC; None if the payload has none that can be read
    event_id: str | None = None  # V1: the id inside the payload
    # V0: the number that the payload's sender assigned. V1: its index in the imported files.
    wire_id: int | None = None
    cause_wire_id: int | None = None  # V0: the `cause`, in the sender's numbering
    cause_event_id: str | None = None  # V1: the `action_id` that an observation answers
    parent_event_id: str | None = None  # V1: the `parent_id`, if the history is a tree
    tool_call_id: str | None = None
    hidden: bool = False
    # V0: the payload has its own `id`, `timestamp` or `cause`, so a reader's copy cannot be spliced.
    brings_envelope: bool = False


class Arrival(NamedTuple):
    """The facts that a store notes when an event arrives, beside its payload."""

    received_at: datetime  # aware
    epoch: int | None  # of the loop that wrote it; None for all other writers


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEvent:
    """One event on its way into the log."""

    event_id: str  # fixed before the first try, so that a repeated append stores nothing twice
    payload: str  # JSON text of one object, kept byte for byte
    reading: Reading
    kind: Kind | None = None  # set by the author if the payload alone cannot show it (`turn`)
    turn_id: str | None = None
    # The seq that this event answers, if its author knows it; otherwise resolved at append.
    cause_seq: int | None = None
    sender_id: int | None = None  # the user who sent it; None for events of the server or an agent
    is_input: bool = False  # True when it speaks to the agent and asks for an answer
    asks: bool = True  # False for an input that waits until a client requests a run
    metrics: Metrics | None = None
    # The place of a 26-character naive timestamp in the payload, which append sets to the server's clock.
    stamp_offset: int | None = None
    # For an event that another store had before: the arrival there.
    arrival: Arrival | None = None

    def __post_init__(self) -> None:
        """Refuse events that no database could store. Raise InvalidEvent."""
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
    """The place of an appended event."""

    event_id: str
    seq: int
    is_new: bool  # False if the same event was stored before and nothing was added


class EventEnvelope(TypedDict):
    """The columns of a stored event for its readers, with its payload as text."""

    seq: int
    fingerprint: str  # of the log up to and with this event (`cursors.fingerprint`)
    id: str
    dialect: str
    type: str
    kind: str
    source: str
    timestamp: str  # ISO 8601, UTC, six fraction digits, `Z`
    cause: int | None
    turn: str | None
    tool_call_id: str | None
    hidden: bool  # V0: its author did not mean to show it; it may contain tokens
    brings_envelope: bool
    text: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EventMatch:
    """Conditions on the columns of an event, all of which must hold; empty or None matches everything."""

    dialect: Dialect
    types: frozenset[str] = frozenset()
    exclude_types: frozenset[str] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    sources: frozenset[str] = frozenset()
    exclude_sources: frozenset[str] = frozenset()
    is_answer: bool | None = None  # whether it has a cause
    is_hidden: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """The events of a log to return: those that meet every condition that is set."""

    exclude_hidden: bool = False
    types: frozenset[str] = frozenset()  # the wires' own names; empty for all
    any_of: frozenset[EventMatch] = frozenset()  # at least one of these must hold; empty for all
    exclude_types: frozenset[str] = frozenset()
    text: str | None = None  # the event's text contains this, in any case
    source: str | None = None
    since: datetime | None = None  # aware; this moment or later
    until: datetime | None = None  # aware; this moment or earlier


class EventPage(NamedTuple):
    """A page of events, and whether more matching ones follow."""

    events: list[EventEnvelope]
    has_more: bool


class DeferredEvent(NamedTuple):
    """An event that was not read because earlier ones were long."""

    seq: int
    id: str
    dialect: str


class SomeEvents(NamedTuple):
    """Events that were requested by id, and the places of those that were not read."""

    events: list[EventEnvelope]
    deferred: list[DeferredEvent]


@dataclass(frozen=True, slots=True)
class Authored:
    """A payload that the server has written, with its columns."""

    payload: str
    reading: Reading
    stamp_offset: int | None = field(default=None)

    def event(
        self,
        event_id: str,
        *,
        kind: Kind | None = None,
        turn_id: str | None = None,
        cause_seq: int | None = None,
        sender_id: int | None = None,
        is_input: bool = False,
    ) -> NewEvent:
        """Return the event to append. Raise InvalidEvent."""
        return NewEvent(
            event_id=event_id,
            payload=self.payload,
            reading=self.reading,
            kind=kind,
            turn_id=turn_id,
            cause_seq=cause_seq,
            sender_id=sender_id,
            is_input=is_input,
            stamp_offset=self.stamp_offset,
        )
