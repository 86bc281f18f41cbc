"""The kind and source under which V1 readers see a stored event: one table for showing and filtering.

It uses only columns, so that a database can count what a page would show.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from conversations.dialects import refusals
from conversations.dialects.v1.kinds import KINDS
from conversations.events import Dialect, EventEnvelope, EventMatch, Kind
from conversations.exceptions import UnknownKind

STATE_UPDATE = "ConversationStateUpdateEvent"
_RECALL = "recall"
_REQUEST = "condensation_request"
_NOTICE = "success"  # the type of a V0 event that is a notice of the server


class Shown(NamedTuple):
    """The kind and source under which V0 events with some facts are shown."""

    kind: str
    source: str
    match: EventMatch


def _v0(
    *kinds: Kind,
    types: Collection[str] = (),
    besides: Collection[str] = (),
    is_answer: bool | None = None,
) -> EventMatch:
    return EventMatch(
        dialect=Dialect.V0,
        types=frozenset(types),
        exclude_types=frozenset(besides),
        kinds=frozenset(kinds),
        is_answer=is_answer,
        is_hidden=False,
    )


_SAID = _v0(Kind.MESSAGE, besides=["finish"])
_RESULT = _v0(Kind.TOOL_RESULT, besides=[_RECALL, "user_rejected"], is_answer=True)

# Every V0 event matches exactly one of these; the web frontend identifies most kinds also by their source.
SHOWN_AS = (
    Shown("MessageEvent", "user", replace(_SAID, sources=frozenset({"user"}))),
    Shown("MessageEvent", "agent", replace(_SAID, exclude_sources=frozenset({"user"}))),
    Shown("ActionEvent", "agent", _v0(Kind.MESSAGE, types=["finish"])),
    Shown("ActionEvent", "agent", _v0(Kind.TOOL_CALL, besides=[_RECALL])),
    Shown("ObservationEvent", "environment", _RESULT),
    Shown(
        "UserRejectObservation",
        "environment",
        _v0(Kind.TOOL_RESULT, types=["user_rejected"], is_answer=True),
    ),
    # An observation must name its call; without one, its text is shown as a message.
    Shown("MessageEvent", "agent", _v0(Kind.TOOL_RESULT, besides=[_RECALL], is_answer=False)),
    Shown("AgentErrorEvent", "agent", _v0(Kind.ERROR, is_answer=True)),
    Shown("ConversationErrorEvent", "environment", _v0(Kind.ERROR, is_answer=False)),
    Shown("SystemPromptEvent", "agent", _v0(Kind.SYSTEM)),
    Shown("Condensation", "environment", _v0(Kind.SUMMARY)),
    Shown("CondensationRequest", "environment", _v0(Kind.OTHER, types=[_REQUEST])),
    Shown(STATE_UPDATE, "environment", _v0(Kind.STATE, Kind.TURN)),
    Shown("MessageEvent", "environment", _v0(Kind.OTHER, types=[_NOTICE])),
    Shown(STATE_UPDATE, "environment", _v0(Kind.OTHER, besides=[_REQUEST, _NOTICE])),
    Shown(STATE_UPDATE, "environment", _v0(Kind.TOOL_CALL, Kind.TOOL_RESULT, types=[_RECALL])),
    Shown(STATE_UPDATE, "environment", EventMatch(dialect=Dialect.V0, is_hidden=True)),
)


def shown_kind(event: EventEnvelope) -> str:
    """Return the kind under which a V1 reader sees an event."""
    if event["dialect"] == Dialect.V1:
        return event["type"]
    return next(shown.kind for shown in SHOWN_AS if is_met(shown.match, event))


def shown_as(*, kind: str | None = None, source: str | None = None) -> frozenset[EventMatch]:
    """Return the matches of all events that are shown under a kind and a source.

    `kind` is a short name, or a class with its path; None, as for `source`, is any. Raise UnknownKind.
    """
    name = None if kind is None else _known(kind)
    own = EventMatch(dialect=Dialect.V1, types=_only(name), sources=_only(source))
    foreign = (
        shown.match for shown in SHOWN_AS if name in (None, shown.kind) and source in (None, shown.source)
    )
    return frozenset({own, *foreign})


def _known(kind: str) -> str:
    name = kind.rpartition(".")[2]
    if name not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise UnknownKind(f"There is no kind of event {refusals.quoted(kind)}; known are {known}.")
    return name


def _only(value: str | None) -> frozenset[str]:
    return frozenset() if value is None else frozenset({value})


def is_met(match: EventMatch, event: EventEnvelope) -> bool:
    """Return whether an event has all the facts of a match."""
    return (
        event["dialect"] == match.dialect
        and (not match.types or event["type"] in match.types)
        and event["type"] not in match.exclude_types
        and (not match.kinds or event["kind"] in match.kinds)
        and (not match.sources or event["source"] in match.sources)
        and event["source"] not in match.exclude_sources
        and match.is_answer in (None, event["cause"] is not None)
        and match.is_hidden in (None, event["hidden"])
    )
