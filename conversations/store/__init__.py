"""ConversationStore, the seam, and the store in the database."""

from __future__ import annotations

from conversations.store.chosen import delete, store
from conversations.store.database import (
    PAGE_MAX_BYTES,
    DatabaseConversationStore,
    take_bytes,
)
from conversations.store.metadata import MetadataFilter
from conversations.store.seam import (
    PAGE_MAX_EVENTS,
    ConversationExists,
    ConversationStore,
)

__all__ = [
    "PAGE_MAX_BYTES",
    "PAGE_MAX_EVENTS",
    "ConversationExists",
    "ConversationStore",
    "DatabaseConversationStore",
    "MetadataFilter",
    "delete",
    "store",
    "take_bytes",
]
