"""Starting V1 conversations: conversation, agent's setup, first message and record, all or nothing.

Later queries find a start ready, or failed with the reason, never half done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from django.db import transaction

from conversations.access import Visitor, pk_of
from conversations.dialects import columns, v1
from conversations.events import NewEvent
from conversations.models import Conversation
from conversations.redaction import masking, secrets
from conversations.storage import quotas
from conversations.store import ConversationExists
from sessions_app.agents import registry
from sessions_app.agents.llm import choice
from sessions_app.loops import turn_events
from sessions_app.models import DEFAULT_MODEL, StartTask, UserSettings, never_confirm
from sessions_app.openhands_v1.information import default_agent
from sessions_app.settings import agent_setups, run_options, setup_keys, user_settings
from sessions_app.settings.agent_setups import NewSetup

READY = "READY"
ERROR = "ERROR"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartParameters:
    """The parameters of a start; None means the parent's value, if there is a parent."""

    request: Mapping[str, Any]
    """The request as JSON, which clients can read again."""
    conversation_id: str | None = None
    parent: Conversation | None = None
    first_message: NewEvent | None = None
    system_message_suffix: str | None = None
    llm_model: str | None = None
    repository: str | None = None
    branch: str | None = None
    provider: str | None = None
    title: str | None = None
    trigger: str | None = None
    pr_number: Sequence[int] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    agent: str = ""
    """The name of the agent; empty for the server's default."""


def first_message(message: Mapping[str, Any], *, sender_id: int) -> NewEvent:
    """Return a SendMessageRequest as a conversation's first event. Raise InvalidEvent.

    It requires an answer, also without `run`.
    """
    event_id = str(uuid4())
    authored = v1.received(message, event_id=event_id)
    return authored.event(event_id, sender_id=sender_id, is_input=True)


def shown_content(message: NewEvent) -> Any:
    """Return the parts of a first message in a form that can be shown again and stored by any database."""
    return _clean(json.loads(message.payload)["llm_message"]["content"])


def _clean(value: Any) -> Any:
    match value:
        case str():
            return columns.clean(value)
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {name: _clean(item) for name, item in value.items()}
    return value


def start(user: Visitor, wanted: StartParameters) -> StartTask:
    """Create the conversation and return the record: ready, or failed.

    Raise InvalidEvent if the request cannot be stored, and QuotaExceeded.
    """
    quotas.admit_start(pk_of(user))
    try:
        with transaction.atomic():  # a failed start is recorded, but leaves nothing else
            return _started(user, wanted)
    except ConversationExists as error:
        return _failed(user, wanted, str(error))


def failed(user: Visitor, wanted: StartParameters, reason: str) -> StartTask:
    """Record why a conversation could not be started. Raise InvalidEvent, QuotaExceeded."""
    quotas.admit_start(pk_of(user))
    return _failed(user, wanted, reason)


def _failed(user: Visitor, wanted: StartParameters, reason: str) -> StartTask:
    return StartTask.objects.create(
        user_id=pk_of(user), status=ERROR, detail=reason, request=_masked(user, wanted.request)
    )


def _masked(user: Visitor, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request without keys and the user's secrets. Raise InvalidEvent if it may hold too many."""
    text = json.dumps(setup_keys.masked(request))
    spans = secrets.masks_of(pk_of(user)).in_event(text)
    masked: dict[str, Any] = json.loads(masking.replaced(text, spans))
    return masked


def _started(user: Visitor, wanted: StartParameters) -> StartTask:
    parent = wanted.parent
    settings = user_settings.settings_of(pk_of(user))
    inherited = parent if parent is not None else Conversation()
    # A child inherits the model that its parent's user chose, and none that a recording has.
    named = wanted.llm_model or (choice.named_for(parent.ref) if parent is not None else None)
    model = named or (settings.llm_model if settings else None)
    # The parent's branch would be another repository's.
    has_own_repository = wanted.repository is not None
    conversation = agent_setups.create(
        user,
        _setup(wanted, named, settings),
        conversation_id=wanted.conversation_id,
        events=[turn_events.system_prompt(), *([wanted.first_message] if wanted.first_message else [])],
        parameters=dict(wanted.parameters),
        parent_id=parent.pk if parent is not None else None,
        title=wanted.title,
        repository=wanted.repository or inherited.repository,
        branch=wanted.branch or (None if has_own_repository else inherited.branch),
        provider=wanted.provider or (None if has_own_repository else inherited.provider),
        llm_model=model,
        trigger=wanted.trigger,
        pr_number=list(wanted.pr_number),
    )
    # V1 clients may request a type of agent that this server does not offer.
    if wanted.agent in registry.offered():
        run_options.change(conversation, {"agent": wanted.agent})
    return StartTask.objects.create(
        user_id=conversation.owner_id,
        conversation_id=conversation.pk,
        status=READY,
        request=_masked(user, wanted.request),
    )


def _setup(wanted: StartParameters, named: str | None, settings: UserSettings | None) -> NewSetup:
    suffix = wanted.system_message_suffix
    agent = default_agent(named or DEFAULT_MODEL)
    if suffix:
        agent |= {"agent_context": {"system_message_suffix": suffix}}
    asks_always = settings is not None and settings.confirmation_mode
    return NewSetup(
        # Without an agent of its own, a conversation follows its user's settings.
        agent=agent if suffix or named else None,
        confirmation_policy={"kind": "AlwaysConfirm"} if asks_always else never_confirm(),
    )
