"""The state of a conversation for its V1 sockets: read once for all of them, and never stale."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from uuid import uuid4

from django.utils import timezone

from conversations import live
from conversations.dialects import v1
from conversations.events import ConversationRef
from conversations.log import reads
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.live.hub import hub
from sessions_app.openhands_v1.information import information_of


class FullState(NamedTuple):
    """A conversation's whole state at one moment, and the length of its log then."""

    execution_status: str
    frame: str
    """A ConversationStateUpdateEvent `full_state` as JSON text."""
    last_seq: int
    changes: int
    """The hub's count of changes before it was read."""


class FullStates:
    """Reads states for the sockets of one event loop: simultaneous callers share a reading."""

    def __init__(self) -> None:
        self._next: dict[int, asyncio.Task[FullState | None]] = {}
        self._turn = asyncio.Lock()

    async def read(self, conversation: ConversationRef) -> FullState | None:
        """Return a state that was read after this call; None for a deleted conversation."""
        pk = conversation.pk
        if pk not in self._next:
            self._next[pk] = reading = asyncio.get_running_loop().create_task(self._read(conversation))
            # All callers may leave before it fails: then asyncio would log it as never retrieved.
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next[pk])

    async def _read(self, conversation: ConversationRef) -> FullState | None:
        async with self._turn:
            del self._next[conversation.pk]  # later callers may know of a newer change
            changes = hub().changes(live.conversation_group(conversation.pk))
            return await astore.call(_full_state, conversation, changes)


def is_fresh(conversation: ConversationRef, state: FullState) -> bool:
    """Return whether nothing has changed since it was read, for a subscriber of the conversation's hints."""
    return state.changes == hub().changes(live.conversation_group(conversation.pk))


def _full_state(conversation: ConversationRef, changes: int) -> FullState | None:
    information = information_of([conversation.pk]).get(conversation.pk)
    if information is None:
        return None
    timestamp = v1.stamp(timezone.now())
    return FullState(
        execution_status=information["execution_status"],
        frame=v1.written(v1.full_state(information), event_id=str(uuid4()), timestamp=timestamp),
        # Read after the status, so that the log has at least the events that led to the status.
        last_seq=reads.last_seq(conversation),
        changes=changes,
    )


_states = PerEventLoop(FullStates)


def full_states() -> FullStates:
    return _states.get()
