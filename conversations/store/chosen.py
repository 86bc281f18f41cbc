"""The store that the settings name."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

from django.conf import settings
from django.utils.module_loading import import_string

from conversations.exceptions import ConversationNotFound
from conversations.models import ConversationRef
from conversations.store.seam import ConversationStore


def store(user_id: str | None = None) -> ConversationStore:
    """Return the store that the settings name, acting for this user."""
    chosen = cast(type[ConversationStore], import_string(settings.CONVERSATION_STORE))
    return chosen.get_instance(user_id)


def delete(conversation: ConversationRef) -> None:
    """Hide a conversation in its owner's store until it is restored; do nothing if it is hidden already."""
    with suppress(ConversationNotFound):
        store(str(conversation.owner_id)).delete_metadata(conversation.public_id)
