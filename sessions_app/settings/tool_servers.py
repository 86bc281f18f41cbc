"""The tool servers that a conversation was created with: sealed, for what names them holds keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db import transaction

from conversations.models import Conversation, ConversationRef, CreationParameters
from sessions_app.encryption import Sealed, seal
from sessions_app.settings import agent_setups
from sessions_app.settings.tool_server_secrets import secret_values

PARAMETER = "mcp_config"
"""The creation parameter that holds them."""


def sealed_parameter(config: str) -> dict[str, str]:
    """Return the creation parameter that keeps a configuration (JSON text of spec V0 §1.9's shape)."""
    return {PARAMETER: seal(config).token}


def hide_keys(conversation: ConversationRef, config: str) -> None:
    """Mask the keys in a configuration in the conversation's events. Raise TooManySecrets."""
    keys = set(secret_values(config))
    if keys:
        agent_setups.add_keys(conversation, keys)


def tool_servers_of(conversation: ConversationRef) -> dict[str, Any] | None:
    """Return the configuration; None where there is none. Raise SecretUnreadable when no key opens it."""
    row = CreationParameters.objects.filter(conversation_id=conversation.pk).first()
    if row is None or PARAMETER not in row.parameters:
        return None
    config: dict[str, Any] = json.loads(Sealed(row.parameters[PARAMETER]).open())
    return config


def sealed_conversations() -> Iterator[int]:
    """Return the keys of all conversations that have such a parameter."""
    rows = CreationParameters.objects.filter(parameters__has_key=PARAMETER)
    return agent_setups.sealed_conversations(rows)


def rotate(conversation_pk: int) -> bool:
    """Encrypt it with the newest key unless it is; return whether that was done. Raise SecretUnreadable."""
    with transaction.atomic():
        # The lock of every write to the parameters: each writes the whole of their JSON.
        Conversation.objects.locked().get(pk=conversation_pk)
        row = CreationParameters.objects.get(pk=conversation_pk)
        stored = Sealed(row.parameters[PARAMETER])
        if stored.is_newest:
            return False
        row.parameters[PARAMETER] = stored.resealed().token
        row.save(update_fields=["parameters"])
    return True
