"""Which stored events a V1 reader is shown under which kind: one table for showing and for filtering.

It looks at columns alone, so that a database can count what a page would show.
"""

from __future__ import annotations

from collections.abc import Collection

from conversations.dialects import refusals
from conversations.dialects.v1_kinds import KINDS
from conversations.events import Dialect, EventEnvelope, EventMatch, Kind
from conversations.exceptions import UnknownKind

STATE_UPDATE = "ConversationStateUpdateEvent"
_RECALL = "recall"
_REQUEST = "condensation_request"


def _v0(
    *kinds: Kind, types: Collection[str] = (), besides: Collection[str] = (), is_answer: bool | None = None
) -> EventMatch:
    return EventMatch(
        dialect=Dialect.V0,
        types=frozenset(types),
        exclude_types=frozenset(besides),
        kinds=frozenset(kinds),
        is_answer=is_answer,
        is_hidden=False,
    )


SHOWN_AS = (
    ("MessageEvent", _v0(Kind.MESSAGE, besides=["finish"])),
    ("ActionEvent", _v0(Kind.MESSAGE, types=["finish"])),
    ("ActionEvent", _v0(Kind.TOOL_CALL, besides=[_RECALL])),
    ("ObservationEvent", _v0(Kind.TOOL_RESULT, besides=[_RECALL, "user_rejected"], is_answer=True)),
    ("UserRejectObservation", _v0(Kind.TOOL_RESULT, types=["user_rejected"], is_answer=True)),
    # An observation must name its call; what a person would read of it is said all the same.
    ("MessageEvent", _v0(Kind.TOOL_RESULT, besides=[_RECALL], is_answer=False)),
    ("AgentErrorEvent", _v0(Kind.ERROR, is_answer=True)),
    ("ConversationErrorEvent", _v0(Kind.ERROR, is_answer=False)),
    ("SystemPromptEvent", _v0(Kind.SYSTEM)),
    ("Condensation", _v0(Kind.SUMMARY)),
    ("CondensationRequest", _v0(Kind.OTHER, types=[_REQUEST])),
    (STATE_UPDATE, _v0(Kind.STATE, Kind.TURN)),
    (STATE_UPDATE, _v0(Kind.OTHER, besides=[_REQUEST])),
    (STATE_UPDATE, _v0(Kind.TOOL_CALL, Kind.TOOL_RESULT, types=[_RECALL])),
    (STATE_UPDATE, EventMatch(dialect=Dialect.V0, is_hidden=True)),
)
"""Every V0 event meets exactly one of these."""


def shown_kind(event: EventEnvelope) -> str:
    """Return the kind that a V1 reader is shown an event under."""
    if event["dialect"] == Dialect.V1:
        return event["type"]
    return next(kind for kind, match in SHOWN_AS if is_met(match, event))


def shown_as(kind: str) -> frozenset[EventMatch]:
    """Return what the events have in common that are shown under a kind: any one of these.

    `kind` is a short name, or a class with the path to it. Raise UnknownKind.
    """
    name = kind.rpartition(".")[2]
    if name not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise UnknownKind(f"There is no kind of event {refusals.quoted(kind)}; known are {known}.")
    own = EventMatch(dialect=Dialect.V1, types=frozenset({name}))
    return frozenset({own, *(match for shown, match in SHOWN_AS if shown == name)})


def is_met(match: EventMatch, event: EventEnvelope) -> bool:
    """Say whether an event has all the facts of a match."""
    return (
        event["dialect"] == match.dialect
        and (not match.types or event["type"] in match.types)
        and event["type"] not in match.exclude_types
        and (not match.kinds or event["kind"] in match.kinds)
        and match.is_answer in (None, event["cause"] is not None)
        and match.is_hidden in (None, event["hidden"])
    )
