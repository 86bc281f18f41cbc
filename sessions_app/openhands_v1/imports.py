"""V1 conversations from an agent server's directories: log, agent's setup and status (spec V1 §7.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from hashlib import sha256
from itertools import chain
from typing import Any
from uuid import uuid5

from django.db import transaction
from django.utils import timezone

from conversations import access, live
from conversations.access import Visitor
from conversations.dialects import columns, v1
from conversations.dialects.v1 import Call, V1Event
from conversations.events import Kind, NewEvent
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef, Version
from conversations.payloads import jsontext
from conversations.store import changes, importing
from conversations.store.importing import Imported
from conversations.transcripts import openhands_v1
from conversations.transcripts.openhands_v1 import Persisted, Skip
from conversations.transcripts.sources.as_v1 import RECORD_KEY
from conversations.transcripts.sources.nodes import Kept, rest_of
from sessions_app.live import marks
from sessions_app.models import (
    MAX_ITERATIONS,
    AgentLoop,
    ExecutionStatus,
    LoopStatus,
    default_workspace,
    never_confirm,
)
from sessions_app.settings import agent_setups, setup_keys
from sessions_app.settings.agent_setups import NewSetup

FORMAT = "openhands-v1"
CUT_OFF = "This call was interrupted. Its result is unknown."
# No agent here can run a call of the other server's agent.
_CANNOT_GO_ON = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.WAITING_FOR_CONFIRMATION})
_FACTS = (
    "invoked_skills",
    "blocked_actions",
    "blocked_messages",
    "agent_state",
    "hook_config",
    "client_tools",
    "tool_module_qualnames",
    "launched_agent_profile",
)
# Members of the files beside the events that columns and the agent's setup have, or the totals count.
CARRIED = frozenset(
    {
        *("agent", "workspace", "confirmation_policy", "security_analyzer", "max_iterations"),
        *("stuck_detection", "secrets", "secret_registry", "title", "tags", "id", "conversation_id"),
        *("created_at", "updated_at", "execution_status", "stats", "metrics", "leaf_event_id"),
        *("initial_message", "persistence_dir"),
        *_FACTS,
    }
)


def preview(user: Visitor, persisted: Persisted, *, zone: tzinfo, skip: Skip) -> Imported:
    """Return what `import_persisted` would do, without doing it.

    Raise ImportRefused or Unreadable.
    """
    return importing.preview(
        user,
        _Log(persisted, zone, skip).events(),
        conversation_id=persisted.conversation_id.hex,
        version=Version.V1,
    )


def import_persisted(user: Visitor, persisted: Persisted, *, zone: tzinfo, skip: Skip) -> Imported:
    """Store the conversation as the user's, or the missing part of it.

    Raise ImportRefused or Unreadable.
    """
    log = _Log(persisted, zone, skip)

    def settle(conversation: ConversationRef) -> None:
        _set_status(conversation, log.status, is_new=True)
        # An import is not news to the user who asked for it.
        marks.mark_all_seen(access.pk_of(user), conversation)

    imported = _stored(user, persisted, log.events(), settle)
    if imported.conversation is not None and not imported.added:
        _set_status(imported.conversation, log.status, is_new=False)
    return imported


def import_growing(user: Visitor, persisted: Persisted, events: Iterator[NewEvent]) -> Imported:
    """Store new events of a conversation on which a server works; its first event creates it.

    Raise ImportRefused or Unreadable.
    """
    # Without `_Log`, which ends an interrupted run: it looks like one that goes on.
    first = next(events, None)
    if first is None:
        return Imported(conversation=standing(user, persisted))
    return _stored(user, persisted, chain([first], events))


def standing(user: Visitor, persisted: Persisted) -> ConversationRef | None:
    """Return the stored conversation, None without one. Raise ImportRefused."""
    return importing.standing(user, persisted.conversation_id.hex, Version.V1)


def keep_up(conversation: ConversationRef, persisted: Persisted, *, title_was: str | None) -> None:
    """Update the title, the totals and the state of a conversation that is followed.

    `title_was` is its earlier title in the source; a title that it was given here stays.
    """
    if persisted.title is not None and persisted.title != title_was:
        changes.retitle(conversation, persisted.title, title_is=title_was)
    status = _status(persisted.execution_status)
    with transaction.atomic():
        if lock(Conversation.objects.active(), conversation) is None:
            return
        # A list is notified only of a change, since every look of a follower comes here.
        is_changed = importing.keep_up(conversation, persisted.metrics, _model(persisted))
        is_changed |= _set_status(
            conversation, ExecutionStatus.IDLE if status in _CANNOT_GO_ON else status, is_new=True
        )
        if is_changed:
            Conversation.objects.with_pks([conversation.pk]).update(listed_at=timezone.now())
            transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)


def _stored(
    user: Visitor,
    persisted: Persisted,
    events: Iterable[NewEvent],
    settle: Callable[[ConversationRef], None] | None = None,
) -> Imported:
    metrics = persisted.metrics
    leaf_event_id = columns.event_id(persisted.state.get("leaf_event_id"))
    return importing.import_conversation(
        user,
        events,
        conversation_id=persisted.conversation_id.hex,
        version=Version.V1,
        begin=lambda conversation: agent_setups.add(
            conversation, _setup(persisted), leaf_event_id=leaf_event_id
        ),
        settle=settle,
        title=persisted.title,
        tags=persisted.tags,
        llm_model=_model(persisted),
        created_at=persisted.created_at,
        accumulated_cost=metrics.accumulated_cost,
        prompt_tokens=metrics.prompt_tokens,
        completion_tokens=metrics.completion_tokens,
        total_tokens=metrics.prompt_tokens + metrics.completion_tokens,
    )


class _Log:
    """The events of a directory, followed by those that end an interrupted run."""

    def __init__(self, persisted: Persisted, zone: tzinfo, skip: Skip) -> None:
        self._persisted = persisted
        self._zone = zone
        self._skip = skip
        self._told: ExecutionStatus | None = None
        self._last_id = ""
        self._last_at: datetime | None = None
        # By the id of a tool call without a result: the event's id, and the call.
        self._open: dict[str, tuple[str, Call]] = {}

    @property
    def status(self) -> ExecutionStatus | None:
        """The agent's state at the end of the log, None if it is unknown."""
        told = self._last_told
        return ExecutionStatus.ERROR if told in _CANNOT_GO_ON else told

    @property
    def _last_told(self) -> ExecutionStatus | None:
        return _status(self._persisted.execution_status) or self._told

    def events(self) -> Iterator[NewEvent]:
        """Yield the events in order. Raise Unreadable."""
        for event in openhands_v1.events(self._persisted.directory, zone=self._zone, skip=self._skip):
            self._follow(event)
            yield event
        yield from self._records()
        if self._last_told in _CANNOT_GO_ON:
            yield from self._ending()

    def _records(self) -> Iterator[NewEvent]:
        """Yield what no column and no setup has of the files beside the events, as records without keys.

        What they say later is another record.
        """
        persisted = self._persisted
        files = ((openhands_v1.BASE_STATE, persisted.state), (openhands_v1.META, persisted.request))
        for file, told in files:
            # A flag that is off is the default, and says nothing.
            set_here = {key: value for key, value in told.items() if value is not False}
            if left := rest_of(set_here, CARRIED):
                name = f"members of {file}"
                kept = {
                    "format": FORMAT,
                    "name": name,
                    "why": Kept.BOOKKEEPING,
                    "record": setup_keys.masked(left),
                }
                # The content decides the id, so that a repeated import stores no second record.
                digest = sha256(columns.as_json(kept).encode()).hexdigest()
                event_id = str(uuid5(persisted.conversation_id, f"{name} {digest}"))
                at = v1.stamp(self._last_at or persisted.created_at)
                payload = v1.written(v1.state_update(RECORD_KEY, kept), event_id=event_id, timestamp=at)
                reading = v1.read(json.loads(payload))
                yield NewEvent(event_id=event_id, payload=payload, reading=reading)

    def _follow(self, event: NewEvent) -> None:
        self._last_id = event.event_id
        reading = event.reading
        self._last_at = reading.timestamp or self._last_at
        if reading.kind is Kind.STATE:
            self._told = _status(reading.text) or self._told
        elif reading.tool_call_id is None:
            return
        elif reading.type == "ActionEvent":
            self._open[reading.tool_call_id] = (event.event_id, _call(event, reading.tool_call_id))
        else:
            self._open.pop(reading.tool_call_id, None)

    def _ending(self) -> Iterator[NewEvent]:
        """Yield a result for each open call, then the state, always with the same ids."""
        for event_id, call in self._open.values():
            yield self._authored(v1.agent_error(call, error=CUT_OFF), f"call {event_id}")
        yield self._authored(v1.execution_status(ExecutionStatus.ERROR.value), f"state after {self._last_id}")

    def _authored(self, event: V1Event, name: str) -> NewEvent:
        event_id = str(uuid5(self._persisted.conversation_id, name))
        authored = v1.authored(event, event_id=event_id)
        return authored.event(event_id)


def _set_status(conversation: ConversationRef, status: ExecutionStatus | None, *, is_new: bool) -> bool:
    """Store the agent's last state; return whether it is new."""
    if status is None:
        return False
    told = {"execution_status": status}
    _, is_first = AgentLoop.objects.get_or_create(conversation_id=conversation.pk, defaults=told)
    if is_new and not is_first:
        # A loop that was ever claimed here has an epoch, and a state of its own.
        rows = AgentLoop.objects.of(conversation).filter(epoch=0, status=LoopStatus.STOPPED)
        return rows.exclude(**told).update(**told) > 0
    return is_first


def _call(event: NewEvent, tool_call_id: str) -> Call:
    tool_name = jsontext.members(event.payload).get("tool_name")
    return Call(columns.first_text(tool_name.value if tool_name else None), tool_call_id)


def _status(word: str | None) -> ExecutionStatus | None:
    return ExecutionStatus(word) if word in ExecutionStatus.values else None


def _setup(persisted: Persisted) -> NewSetup:
    """Return the agent's setup without keys."""
    # The keys in the files are encrypted for another server.
    agent = persisted.fact("agent")
    iterations = columns.wire_id(persisted.fact("max_iterations"))
    detects = persisted.fact("stuck_detection")
    registry = columns.fields(persisted.state.get("secret_registry"))
    return NewSetup(
        agent=setup_keys.masked(agent) if isinstance(agent, Mapping) else None,
        secrets=_described(persisted.request.get("secrets")) | _described(registry.get("secret_sources")),
        workspace=columns.fields(persisted.fact("workspace")) or default_workspace(),
        confirmation_policy=columns.fields(persisted.fact("confirmation_policy")) or never_confirm(),
        security_analyzer=columns.fields(persisted.fact("security_analyzer")) or None,
        # PostgreSQL's integers have 32 bits.
        max_iterations=iterations if iterations and iterations < 2**31 else MAX_ITERATIONS,
        stuck_detection=detects if isinstance(detects, bool) else True,
        facts={name: value for name in _FACTS if (value := persisted.fact(name))},
        is_recorded=True,
    )


def _described(secrets: object) -> dict[str, dict[str, Any]]:
    """Return the names and descriptions of secrets, without values."""
    return {
        name: {key: columns.fields(source).get(key) for key in ("kind", "description")}
        for name, source in columns.fields(secrets).items()
    }


def _model(persisted: Persisted) -> str | None:
    llm = columns.fields(columns.fields(persisted.fact("agent")).get("llm"))
    return columns.first_text(llm.get("model")) or None
