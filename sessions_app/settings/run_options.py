"""The options of one conversation's agent: read with their defaults, and changed by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction

from conversations.exceptions import ConversationNotFound
from conversations.models import Conversation, ConversationRef
from sessions_app.models import RunOptions, WhileWorking

# A provider is chosen on pages, whose people have all of their owner's keys, and so is the next model.
NAMES: Final = tuple(
    field.name
    for field in RunOptions._meta.concrete_fields
    if not field.primary_key and field.name not in ("provider", "for_next_message")
)
"""The options, as the native door names them."""

MODEL_COLUMNS: Final = ("llm_model", "run_options__model")


def options_of(conversation: ConversationRef) -> RunOptions:
    """Return the options of a conversation; without a row, those that leave every default."""
    return RunOptions.objects.of(conversation).first() or RunOptions(conversation_id=conversation.pk)


def agent_of(conversation: ConversationRef) -> str:
    """Return the name of the agent that was chosen for a conversation; empty for the server's default."""
    return RunOptions.objects.of(conversation).values_list("agent", flat=True).first() or ""


def model_of(conversation: ConversationRef) -> str:
    """Return the name of the model that was chosen for a conversation; empty for the default."""
    return (RunOptions.objects.of(conversation).values_list("model", flat=True).first() or "").strip()


def shown_model(row: Mapping[str, Any]) -> str | None:
    """Return the model that clients are shown; `row` has MODEL_COLUMNS of a conversation."""
    model: str | None = row["run_options__model"] or row["llm_model"]
    return model


def change(conversation: ConversationRef, options: Mapping[str, Any]) -> RunOptions:
    """Change the options that are named, and return all. Raise ConversationNotFound.

    `options` have valid values. Another model without a provider is one of the settings' server.
    """
    with transaction.atomic():
        if not Conversation.objects.active().locked().filter(pk=conversation.pk).exists():
            raise ConversationNotFound("Conversation not found.")
        if "model" in options and "provider" not in options and options["model"] != model_of(conversation):
            options = {**options, "provider": ""}
        row, _ = RunOptions.objects.update_or_create(conversation_id=conversation.pk, defaults=dict(options))
        if "while_working" in options:
            _guard(conversation, row)
    return row


def copy(source: ConversationRef, target: ConversationRef) -> None:
    """Give a new conversation the options of another, in the running transaction.

    The network is not among them, since its owner switches it on for one conversation, nor is the model of
    the next message.
    """
    row = RunOptions.objects.of(source).first()
    if row is not None:
        row.pk, row.network, row.for_next_message = target.pk, None, None
        row.save(force_insert=True)
        _guard(target, row)


def _guard(conversation: ConversationRef, options: RunOptions) -> None:
    """Make appends check for a refusal, in conversations whose agent may refuse messages."""
    guards = True if options.while_working == WhileWorking.REJECT else None
    Conversation.objects.filter(pk=conversation.pk).update(guards_inputs=guards)
