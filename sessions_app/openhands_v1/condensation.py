"""Condensing: a summary replaces events for the model (spec V1 §2.3).

Nothing is removed from the log: readers still see all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from conversations.dialects import v1
from conversations.dialects.v1 import V1Event
from conversations.events import EventEnvelope, EventFilter, Kind
from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.agents.base import Agent
from sessions_app.agents.chosen import ConversationAgent
from sessions_app.loops.manager import get_manager

logger = logging.getLogger(__name__)

# Of each event, for the agent that writes the summary.
SHOWN_MAX_CHARACTERS = 1000

# What a model gets of a log; the rest needs no forgetting.
_GIVEN = EventFilter(
    types=frozenset(
        {"MessageEvent", "ActionEvent", "ObservationEvent", "UserRejectObservation", "AgentErrorEvent"}
    )
)
_CONDENSATIONS = EventFilter(types=frozenset({"Condensation"}))
_REQUEST = (
    "Summarize the conversation below for the agent that continues it: what the user wants, what was "
    "done, what is left to do. Answer with the summary only."
)


class _Prefix(NamedTuple):
    """The events to forget, cut to what can be shown."""

    event_ids: list[str]
    shown: list[EventEnvelope]
    offset: int
    """The place of the summary among the events that the model gets."""


async def condense(conversation: ConversationRef) -> None:
    """Store that a condensation was requested, ask the agent for the summary, and store that."""
    await _append(conversation, v1.condensation_request())
    prefix = await astore.call(_prefix, conversation)
    event_id = str(uuid4())
    condensation = v1.condensation(
        forgotten_event_ids=prefix.event_ids,
        response_id=event_id,
        summary=await _summary(conversation, prefix),
        summary_offset=prefix.offset,
    )
    await _append(conversation, condensation, event_id)


async def _append(conversation: ConversationRef, event: V1Event, event_id: str | None = None) -> None:
    event_id = event_id or str(uuid4())
    await astore.append(conversation, [v1.authored(event, event_id=event_id).event(event_id)])


def _prefix(conversation: ConversationRef) -> _Prefix:
    """Return the answered part of the log since the last condensation."""
    earlier = reads.search_events(conversation, _CONDENSATIONS, newest_first=True, limit=1).events
    row = Conversation.objects.select_related("loop").get(pk=conversation.pk)
    is_busy = row.is_unanswered or (hasattr(row, "loop") and row.loop.turn_id is not None)
    # An agent at work must not forget what it was asked.
    last = row.answered_through if is_busy else row.next_seq - 1
    since = {"first": earlier[0]["seq"] + 1 if earlier else 0, "last": last}
    newest = reads.search_events(conversation, _GIVEN, **since, newest_first=True, limit=200)
    first = reads.read_after(conversation, -1, limit=1)
    return _Prefix(
        event_ids=reads.event_ids(conversation, _GIVEN, **since),
        # The new summary replaces the earlier one, too, so it must contain what that says.
        shown=[*earlier, *reversed(newest.events)],
        # The system prompt is not forgotten and stays the first.
        offset=1 if first and first[0]["kind"] == Kind.SYSTEM else 0,
    )


async def _summary(conversation: ConversationRef, prefix: _Prefix) -> str:
    messages = [
        {"role": "system", "content": _REQUEST},
        {"role": "user", "content": _transcript(prefix.shown)},
    ]
    try:
        answer = (await _agent(conversation).complete(messages)).strip()
    except Exception as error:  # of any agent: readers already know that a condensation was requested
        logger.warning("Conversation %s is summed up without its agent: %s", conversation.public_id, error)
        answer = ""
    return answer or f"{len(prefix.event_ids)} earlier events were left out here."


def _agent(conversation: ConversationRef) -> Agent:
    loop = get_manager().get_agent_session(conversation.public_id)
    return loop.agent if loop is not None else ConversationAgent(conversation)


def _transcript(events: Sequence[EventEnvelope]) -> str:
    return "\n".join(f"{event['source']}: {event['text'][:SHOWN_MAX_CHARACTERS]}" for event in events)
