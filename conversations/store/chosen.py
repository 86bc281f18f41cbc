"""The store that the settings name."""

from __future__ import annotations

from contextlib import suppress

from conversations.events import ConversationRef
from conversations.exceptions import ConversationNotFound
from conversations.store.seam import ConversationStore, chosen_class


def store(user_id: str | None = None) -> ConversationStore:
    """Return the store that the settings name, acting for this user."""
    return chosen_class().for_user(user_id)


def delete(conversation: ConversationRef) -> None:
    """Hide a conversation in its owner's store until it is restored; do nothing if it is hidden already."""
    with suppress(ConversationNotFound):
        store(str(conversation.owner_id)).delete_metadata(conversation.public_id)
