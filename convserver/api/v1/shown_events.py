"""Events as V1 readers know them: found by the id that they are shown under, whatever wire they are of."""

from __future__ import annotations

from collections.abc import Sequence

from conversations.dialects import v1
from conversations.events import EventEnvelope
from conversations.models import ConversationRef
from conversations.store import store
from convserver.api.v0.text import storable


def with_ids(conversation: ConversationRef, event_ids: Sequence[str]) -> dict[str, EventEnvelope]:
    """Return the events that readers know by these ids, by id; the number of queries never grows."""
    known = [event_id for event_id in event_ids if _can_be_stored(event_id)]
    log = store(str(conversation.owner_id))
    found = _by_shown_id(conversation, log.read_some(conversation, event_ids=known) if known else [])
    if absent := [event_id for event_id in known if event_id not in found]:
        last_seq = log.last_seq(conversation)
        seqs = {v1.seq_of(conversation.public_id, each, last_seq=last_seq) for each in absent} - {None}
        if seqs:
            found |= _by_shown_id(
                conversation, log.read_some(conversation, seqs=[seq for seq in seqs if seq is not None])
            )
    return {event_id: found[event_id] for event_id in known if event_id in found}


def _by_shown_id(conversation: ConversationRef, events: Sequence[EventEnvelope]) -> dict[str, EventEnvelope]:
    return {v1.shown_id(event, conversation.public_id): event for event in events}


def _can_be_stored(event_id: str) -> bool:
    try:
        storable(event_id)
    except ValueError:
        return False
    return True
