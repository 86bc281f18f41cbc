"""Condensing: the model sums up the older part of a conversation that has become too long for it.

The log keeps everything. An event of the wire has the ids of the replaced events, and the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from conversations.dialects import columns
from conversations.events import EventEnvelope, Kind
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents.base import LOOK_S, AgentFailure, CallUsage, Turn
from sessions_app.agents.llm import prompts, record
from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.record import Record

if TYPE_CHECKING:
    from sessions_app.agents.llm.requests import ModelClient

logger = structlog.stdlib.get_logger(__name__)

# In succession: a conversation that stays too long after these is cut instead.
TRIES = 2
KEPT_SHARE = 4
"""The newest events that stay fill one part in this many of a request."""
SHOWN_SHARE = 2
"""The transcript to sum up fills at most one part in this many."""
EVENT_MAX_CHARS = 4_000  # of each event in the transcript
SUMMARY_MAX_CHARS = 20_000
SUMMARY_S = 180.0


class Parts(NamedTuple):
    """The older events of a record, to sum up, and the newer ones, which stay."""

    older: Sequence[EventEnvelope]
    newer: Sequence[EventEnvelope]


class Condenser:
    """Condenses the conversation of one turn."""

    def __init__(
        self, turn: Turn, target: Target, client: ModelClient, on_usage: Callable[[CallUsage], None]
    ) -> None:
        self._turn = turn
        self._target = target
        self._client = client
        self._on_usage = on_usage
        self._tries = 0

    async def shortens(self, *, is_cut: bool, max_chars: int) -> bool:
        """Condense if the newest request is cut; return whether to build the request again."""
        if not is_cut:
            self._tries = 0
            return False
        if self._tries >= TRIES:
            return False
        self._tries += 1
        return await self._condense(max_chars)

    async def _condense(self, max_chars: int) -> bool:
        turn = self._turn
        inputs = [event["seq"] for event in turn.inputs]
        found = await astore.call(
            lambda: record.read(turn.conversation, turn_id=turn.turn_id, inputs=inputs, max_chars=max_chars)
        )
        older = parted(found, inputs=inputs, kept_chars=max_chars // KEPT_SHARE).older
        if not older:
            return False
        # The summary replaces the unread events as well: no later request would show them.
        if not found.is_complete:
            unread = await astore.call(lambda: record.before(turn.conversation, found, inputs=inputs))
            older = [*unread, *older]
        summary = await self._summary(transcript(found.summary, older, max_chars // SHOWN_SHARE))
        if summary is None:
            return False
        await turn.condense(older, summary)
        logger.info("A conversation is condensed", **ids_of(turn.conversation), events=len(older))
        return True

    async def _summary(self, text: str) -> str | None:
        """Return the model's summary of a transcript; None if it fails, or the turn is to pause."""
        messages = [{"role": "system", "content": prompts.SUMMARIZE}, {"role": "user", "content": text}]
        await self._turn.reserve(self._client.expected_of(self._target, messages))
        asking = asyncio.ensure_future(self._client.complete(self._target, messages, self._on_usage))
        try:
            async with asyncio.timeout(SUMMARY_S):
                while not asking.done() and not self._turn.is_pausing:
                    await asyncio.wait({asking}, timeout=LOOK_S)
            return asking.result().strip()[:SUMMARY_MAX_CHARS] or None if asking.done() else None
        except (AgentFailure, TimeoutError) as error:
            logger.info(
                "A conversation is not condensed", **ids_of(self._turn.conversation), error=str(error)
            )
            return None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)  # a pause makes its error useless


def parted(found: Record, *, inputs: Sequence[int], kept_chars: int) -> Parts:
    """Part a record so that about `kept_chars` of its newest events stay.

    The inputs of the turn stay, and a call stays with its result. Nothing is older if the rest is one call
    with its result.
    """
    events = [event for event in found.events if not record.is_forgotten(event, found.forgotten)]
    room, wanted = kept_chars, len(events)
    while wanted and (room := room - len(events[wanted - 1]["payload"])) >= 0:
        wanted -= 1
    places = _whole_places(events)
    place = max((each for each in places if each <= wanted), default=0)
    if not _has_others(events[:place], inputs):
        later = [each for each in places if each > wanted and _has_others(events[:each], inputs)]
        place = later[0] if later else 0
    asked = [event for event in events[:place] if event["seq"] in inputs]
    older = [event for event in events[:place] if event["seq"] not in inputs]
    return Parts(older, [*asked, *events[place:]])


def _has_others(events: Sequence[EventEnvelope], inputs: Sequence[int]) -> bool:
    return any(event["seq"] not in inputs for event in events)


def _whole_places(events: Sequence[EventEnvelope]) -> list[int]:
    """Return the places between these events, and after them, that separate no call from its result."""
    # Servers refuse a result whose call is missing.
    calls: dict[int | str | None, int] = {}
    parting: set[int] = set()
    for place, event in enumerate(events):
        if event["kind"] == Kind.TOOL_CALL:
            calls[event["seq"]] = calls[event["tool_call_id"] or "-"] = place
        elif event["kind"] in (Kind.TOOL_RESULT, Kind.ERROR):
            named = (event["cause"], event["tool_call_id"] or "")
            begun = min((calls[each] for each in named if each in calls), default=place)
            parting.update(range(begun + 1, place + 1))
    return [place for place in range(1, len(events) + 1) if place not in parting]


def transcript(summary: str, events: Sequence[EventEnvelope], max_chars: int) -> str:
    """Return the newest events as text of at most about `max_chars`, oldest first."""
    lines: list[str] = []
    room = max_chars - len(summary)
    for event in reversed(events):
        line = f"{event['source']}: {columns.clean(event['text'])[:EVENT_MAX_CHARS]}"
        room -= len(line)
        if room < 0 and lines:
            break
        lines.append(line[:max_chars])
    before = [f"A summary of what was before:\n\n{summary}"] if summary else []
    return "\n\n".join([*before, *reversed(lines)])
