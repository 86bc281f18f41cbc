"""V1 clients' messages to a conversation, and their position in it (spec V1 §2.3, §2.4, §2.6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from uuid import uuid4

from conversations import dialects
from conversations.dialects import columns, v1
from conversations.events import ConversationRef, Dialect, EventFilter, EventMatch, Kind, NewEvent
from conversations.exceptions import EventNotFound
from conversations.log import reads
from conversations.payloads.bounds import is_light_value
from sessions_app.capacity.parsing import in_turn
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1.condensation import condense as condense
from sessions_app.settings import agent_setups

_SAID_BY_THE_AGENT = EventFilter(
    source="agent",
    exclude_hidden=True,
    any_of=frozenset(EventMatch(dialect=dialect, kinds=frozenset({Kind.MESSAGE})) for dialect in Dialect),
)


async def say(
    conversation: ConversationRef,
    request: Mapping[str, object],
    *,
    sender_id: int,
    run: bool,
    event_id: str | None = None,
) -> int:
    """Store a SendMessageRequest and return its seq; with `run`, request a run unless one is on.

    A message during a wait for approval is stored and answered later; it does not approve. A repeated
    `event_id` stores and requests nothing. Raise InvalidEvent.
    """
    event_id = event_id or str(uuid4())
    message = await in_turn(
        sender_id, is_light_value(request), _message, conversation, request, sender_id, event_id=event_id
    )
    # It is answered even if the client leaves.
    taken = await asyncio.shield(get_manager().take_input(conversation, message, run=run))
    return taken.seq


def _message(
    conversation: ConversationRef, request: Mapping[str, object], sender_id: int, event_id: str
) -> NewEvent:
    authored = v1.received(request, event_id=event_id)
    # A log is of one wire: V1 clients also write to conversations of V0.
    if conversation.dialect is not Dialect.V1:
        parts = json.loads(authored.payload)["llm_message"]["content"]
        urls = [url for part in parts for url in part.get("image_urls", ())]
        author = dialects.author(conversation.dialect)
        authored = author.user_message(text=columns.content_text(parts), image_urls=urls, event_id=event_id)
    return authored.event(event_id, sender_id=sender_id, is_input=True)


def navigate(conversation: ConversationRef, event_id: str | None) -> None:
    """Store at which event the user is; None for the end. Raise EventNotFound."""
    if event_id is not None and place_of(conversation, event_id) is None:
        raise EventNotFound(f"There is no event {event_id!r}.")
    setup = agent_setups.row_of(conversation)
    setup.leaf_event_id = event_id
    setup.save(update_fields=["leaf_event_id"])


def place_of(conversation: ConversationRef, event_id: str) -> int | None:
    """Return the seq of the event that V1 readers know by this id; None without one."""
    seq = reads.seq_of_event(conversation, event_id)
    if seq is not None:
        return seq
    # V1 readers see an event without an id of its own under one that is made of its place.
    seqs = v1.seqs_of(conversation.public_id, [event_id], last_seq=reads.last_seq(conversation))
    return seqs.get(event_id)


def final_response(conversation: ConversationRef) -> str:
    """Return the agent's last answer, by `finish` or in a message; empty without one."""
    newest = reads.search_events(conversation, _SAID_BY_THE_AGENT, newest_first=True, limit=1).events
    return newest[0]["text"] if newest else ""
