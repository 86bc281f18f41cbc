"""Events of either wire as V1 readers see them, found by their shown ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from conversations.dialects import v1
from conversations.events import ConversationRef, SomeEvents
from conversations.log import reads
from convserver.api.openhands.text import storable
from convserver.api.v1.batches import Read


class Shown(NamedTuple):
    """Events as JSON by the ids that readers see, and how to read those that are too long to read now."""

    loaded: dict[str, str]
    deferred: dict[str, Read]


def with_ids(conversation: ConversationRef, event_ids: Sequence[str]) -> Shown:
    """Return the events with these shown ids; the number of queries never grows."""
    known = [event_id for event_id in event_ids if _can_be_stored(event_id)]
    loaded, deferred = _shown(conversation, reads.read_portion(conversation, event_ids=known))
    # Ids of V0's events are made of their places and stored nowhere; to look for them costs a hash for each.
    if absent := [event_id for event_id in known if event_id not in loaded and event_id not in deferred]:
        last_seq = reads.last_seq(conversation)
        seqs = v1.seqs_of(conversation.public_id, absent, last_seq=last_seq)
        others = _shown(conversation, reads.read_portion(conversation, seqs=list(seqs.values())))
        loaded, deferred = loaded | others.loaded, deferred | others.deferred
    return Shown(loaded, deferred)


def with_id(conversation: ConversationRef, event_id: str) -> str | None:
    """Return the event with this shown id; None if there is none."""
    return with_ids(conversation, [event_id]).loaded.get(event_id)


def _shown(conversation: ConversationRef, found: SomeEvents) -> Shown:
    public_id = conversation.public_id
    return Shown(
        {v1.shown_id(event, public_id): v1.shown(event, public_id) for event in found.events},
        {
            v1.id_of(each.id, public_id, dialect=each.dialect, seq=each.seq): partial(
                _read, conversation, each.seq
            )
            for each in found.deferred
        },
    )


def _read(conversation: ConversationRef, seq: int) -> str | None:
    found = reads.read_portion(conversation, seqs=[seq]).events
    return v1.shown(found[0], conversation.public_id) if found else None


def _can_be_stored(event_id: str) -> bool:
    try:
        storable(event_id)
    except ValueError:
        return False
    return True
