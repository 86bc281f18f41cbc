"""The setup of a V1 conversation's agent: stored as it was sent, with keys sealed, and shown with keys
masked."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from conversations.access import Visitor
from conversations.dialects import v1
from conversations.events import Dialect, NewEvent
from conversations.exceptions import ConversationNotFound
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.redaction import secrets as secrecy
from conversations.redaction.masking import Masks
from conversations.store import creation, forks
from sessions_app.encryption import Sealed, seal
from sessions_app.models import MAX_ITERATIONS, AgentSetup, default_workspace, never_confirm
from sessions_app.settings import run_options
from sessions_app.settings.setup_keys import MASK, keys_of, masked
from sessions_app.settings.user_settings import TooManySecrets

SEALED = ("sealed_agent", "sealed_secrets", "sealed_keys")
BATCH = 500  # of rows whose secrets are encrypted anew: no statement reads all of them


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSetup:
    """What a client has set for the agent; sources of secrets are objects with a `kind` (spec V1 §2.2)."""

    agent: Mapping[str, Any] | None = None
    secrets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workspace: Mapping[str, Any] = field(default_factory=default_workspace)
    confirmation_policy: Mapping[str, Any] = field(default_factory=never_confirm)
    security_analyzer: Mapping[str, Any] | None = None
    max_iterations: int = MAX_ITERATIONS
    stuck_detection: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    # Another server's agent had it: its model and tool servers are shown, and none is used.
    is_recorded: bool = False


def create(
    user: Visitor,
    setup: NewSetup,
    *,
    conversation_id: str | None = None,
    events: Sequence[NewEvent] = (),
    **columns: Any,
) -> ConversationRef:
    """Create a V1 conversation with its agent's setup and first `events`, all or nothing.

    Raise ConversationExists for a taken id, and TooManySecrets.
    """
    # The row is created before its setup, whose secrets its title and tags must not show either.
    own = Masks([*secret_values(json.dumps(setup.secrets)), *_keys(setup)])
    columns = secrecy.hidden_in_columns(columns, own)
    with transaction.atomic():
        conversation = creation.create(user, conversation_id=conversation_id, version=Version.V1, **columns)
        add(conversation, setup)
        if events:  # after the setup, because its secrets must be masked in them
            writes.append(conversation, events)
    return conversation


def add(conversation: ConversationRef, setup: NewSetup, *, leaf_event_id: str | None = None) -> None:
    """Store the setup of a conversation that has none. Raise TooManySecrets."""
    keys = _keys(setup)
    sealed_secrets = _sealed_secrets(setup.secrets, keys)
    AgentSetup.objects.create(
        conversation_id=conversation.pk,
        sealed_agent=seal(json.dumps(None if setup.is_recorded else setup.agent)),
        shown_agent=masked(setup.agent),
        sealed_secrets=sealed_secrets,
        sealed_keys=seal(json.dumps(keys)),
        has_secrets=bool(setup.secrets or keys),
        shown_secrets=shown_secrets(setup.secrets),
        workspace=masked(setup.workspace),
        confirmation_policy=masked(setup.confirmation_policy),
        security_analyzer=masked(setup.security_analyzer),
        max_iterations=setup.max_iterations,
        stuck_detection=setup.stuck_detection,
        facts=masked(setup.facts),
        leaf_event_id=leaf_event_id,
    )


def _keys(setup: NewSetup) -> list[str]:
    return keys_of(
        setup.agent, setup.workspace, setup.confirmation_policy, setup.security_analyzer, setup.facts
    )


def fork(user: Visitor, source: ConversationRef, **options: Any) -> ConversationRef:
    """Fork a conversation with its agent's setup and options."""
    with transaction.atomic():
        made = forks.fork(user, source, **options)
        copy(source, made)
    return made


def copy(source: ConversationRef, target: ConversationRef) -> None:
    """Give a new conversation the agent's setup and the options of another, in the running transaction."""
    setup = AgentSetup.objects.filter(pk=source.pk).first()
    if setup is not None:
        # A child is created with an empty setup, which its parent's replaces.
        AgentSetup.objects.filter(pk=target.pk).delete()
        # The leaf belongs to the branches of the source's log.
        setup.pk, setup.leaf_event_id = target.pk, None
        setup.save(force_insert=True)
    run_options.copy(source, target)


def agent_of(conversation: ConversationRef) -> Mapping[str, Any]:
    """Return the agent of a V1 client's start, with its keys; empty without one. Raise SecretUnreadable."""
    if conversation.dialect is not Dialect.V1:
        return {}
    setup = AgentSetup.objects.filter(pk=conversation.pk).only("sealed_agent").first()
    agent: Mapping[str, Any] | None = None if setup is None else json.loads(setup.sealed_agent.open())
    return agent or {}


def detects_repetition(conversation: ConversationRef) -> bool:
    """Return whether to stop an agent that repeats itself; a start may switch that off."""
    found = AgentSetup.objects.filter(pk=conversation.pk).values_list("stuck_detection", flat=True).first()
    return found is not False


def add_secrets(conversation: ConversationRef, secrets: Mapping[str, Mapping[str, Any]]) -> None:
    """Add sources of secrets; one of the same name replaces the other.

    Raise TooManySecrets; then the earlier ones stay.
    """
    with transaction.atomic():
        # Sealed JSON is written whole: of two writers without the lock, one would undo the other.
        Conversation.objects.locked().get(pk=conversation.pk)
        setup = row_of(conversation)
        merged = json.loads(setup.sealed_secrets.open()) | dict(secrets)
        keys = json.loads(setup.sealed_keys.open())
        setup.sealed_secrets = _sealed_secrets(merged, keys)
        setup.has_secrets = bool(merged or keys)
        setup.shown_secrets = shown_secrets(merged)
        setup.save(update_fields=["sealed_secrets", "has_secrets", "shown_secrets"])


def add_keys(conversation: ConversationRef, keys: Collection[str]) -> None:
    """Mask further keys in the conversation's events. Raise TooManySecrets; then nothing has changed."""
    if set(keys) <= set(json.loads(row_of(conversation).sealed_keys.open())):
        return
    with transaction.atomic():
        Conversation.objects.locked().get(pk=conversation.pk)
        setup = row_of(conversation)
        merged = sorted({*json.loads(setup.sealed_keys.open()), *keys})
        setup.sealed_secrets = _sealed_secrets(json.loads(setup.sealed_secrets.open()), merged)
        setup.sealed_keys = seal(json.dumps(merged))
        setup.has_secrets = setup.has_secrets or bool(merged)
        setup.save(update_fields=["sealed_secrets", "sealed_keys", "has_secrets"])


def _sealed_secrets(secrets: Mapping[str, Mapping[str, Any]], keys: Sequence[str]) -> Sealed:
    """Seal all secrets of a conversation whose agent has these keys. Raise TooManySecrets."""
    most, most_bytes = settings.CONFIGURATION.secrets_max, settings.CONFIGURATION.secrets_max_kb * 1000
    if len(secrets) + len(keys) > most:
        raise TooManySecrets(
            f"A conversation keeps {most} secrets at the most, and would have {len(secrets) + len(keys)}"
            f"{', with the keys of its agent' if keys else ''}."
        )
    text = json.dumps(secrets)  # all ASCII: its characters are its bytes
    if len(text) + sum(map(len, keys)) > most_bytes:
        raise TooManySecrets(
            f"The secrets of a conversation and the keys of its agent may have {most_bytes:,} bytes as JSON."
        )
    return seal(text)


def set_policy(conversation: ConversationRef, policy: Mapping[str, Any]) -> None:
    """Set when the agent asks for approval, and notify every reader. Raise ConversationNotFound."""
    _set(conversation, "confirmation_policy", policy)


def set_analyzer(conversation: ConversationRef, analyzer: Mapping[str, Any] | None) -> None:
    """Set what judges the risk of a call, and notify every reader. Raise ConversationNotFound."""
    _set(conversation, "security_analyzer", analyzer)


@transaction.atomic
def set_model(conversation: ConversationRef, llm: Mapping[str, Any]) -> None:
    """Set the model of a conversation's agent, in the place of any that was chosen. Raise TooManySecrets."""
    if not Conversation.objects.active().locked().filter(pk=conversation.pk).exists():
        raise ConversationNotFound("Conversation not found.")
    row = row_of(conversation)
    before = json.loads(row.sealed_agent.open()) or {"kind": "Agent", "tools": []}
    agent = {**before, "llm": dict(llm)}
    # Earlier keys stay masked: earlier events may hold them.
    keys = list(dict.fromkeys([*keys_of(agent), *key_values(row.sealed_keys.open())]))
    secrets = json.loads(row.sealed_secrets.open())
    row.sealed_secrets = _sealed_secrets(secrets, keys)
    row.sealed_agent, row.shown_agent = seal(json.dumps(agent)), masked(agent)
    row.sealed_keys, row.has_secrets = seal(json.dumps(keys)), bool(secrets or keys)
    row.save(update_fields=["sealed_agent", "shown_agent", "sealed_secrets", "sealed_keys", "has_secrets"])
    Conversation.objects.filter(pk=conversation.pk).update(llm_model=llm.get("model"))
    # An option comes before the model of the setup, which would change nothing.
    if run_options.model_of(conversation):
        run_options.change(conversation, {"model": ""})


def _set(conversation: ConversationRef, field: str, value: Mapping[str, Any] | None) -> None:
    """Store a field of the state with the event that reports it, keys masked in both."""
    event_id, shown = str(uuid4()), masked(value)
    authored = v1.authored(v1.state_update(field, shown), event_id=event_id)
    told = authored.event(event_id)
    row = row_of(conversation)
    setattr(row, field, shown)
    # In one transaction, so that readers are never notified of a change that was not stored.
    writes.append(conversation, [told], also=lambda _: row.save(update_fields=[field]))


def sealed_conversations(rows: QuerySet[Any] | None = None) -> Iterator[int]:
    """Yield the keys of all conversations that have a setup, or of these rows."""
    after = 0
    pks = (AgentSetup.objects.all() if rows is None else rows).order_by("pk").values_list("pk", flat=True)
    while batch := list(pks.filter(pk__gt=after)[:BATCH]):
        yield from batch
        after = batch[-1]


def rotate(conversation_pk: int) -> bool:
    """Seal agent and secrets with the newest key unless they are; return whether that was necessary.

    Raise SecretUnreadable.
    """
    with transaction.atomic():
        # The lock of every write to a setup, so that secrets that are added meanwhile are not lost.
        Conversation.objects.locked().get(pk=conversation_pk)
        setup = AgentSetup.objects.get(pk=conversation_pk)
        if all(getattr(setup, name).is_newest for name in SEALED):
            return False
        for name in SEALED:
            setattr(setup, name, getattr(setup, name).resealed())
        setup.save(update_fields=SEALED)
    return True


def row_of(conversation: ConversationRef) -> AgentSetup:
    """Return the setup of a conversation; if no V1 client has set one, create it with the defaults."""
    defaults = {"sealed_agent": seal("null"), "sealed_secrets": seal("{}")}
    row, _ = AgentSetup.objects.get_or_create(conversation_id=conversation.pk, defaults=defaults)
    return row


def secret_values(opened: str) -> Iterator[str]:
    """Yield the values that events must not show: the conversation's decrypted secrets, and their headers."""
    for source in json.loads(opened).values():
        headers = source.get("headers")
        values = headers.values() if isinstance(headers, Mapping) else ()
        yield from (value for value in (source.get("value"), *values) if isinstance(value, str))


def key_values(opened: str) -> Iterator[str]:
    """Yield the keys of the agent and its tool servers, which events must not show either."""
    yield from json.loads(opened)


def shown_secrets(secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sources of secrets as they are shown: without values, addresses and headers."""
    return {
        name: {"kind": source.get("kind"), "description": source.get("description"), "value": MASK}
        for name, source in secrets.items()
    }
