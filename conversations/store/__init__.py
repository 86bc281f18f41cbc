"""ConversationStore, the seam, and the store in the database."""

from __future__ import annotations

from conversations.store.chosen import delete, store
from conversations.store.creation import ConversationExists
from conversations.store.database import DatabaseConversationStore
from conversations.store.metadata import MetadataFilter
from conversations.store.seam import ConversationStore

__all__ = [
    "ConversationExists",
    "ConversationStore",
    "DatabaseConversationStore",
    "MetadataFilter",
    "delete",
    "store",
]
