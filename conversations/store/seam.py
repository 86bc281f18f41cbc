"""ConversationStore: the interface of the store that keeps the metadata of conversations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Self

from conversations.store.metadata import (
    ALL,
    ConversationMetadata,
    ConversationMetadataResultSet,
    MetadataFilter,
)


class ConversationStore(ABC):
    """Where the metadata of conversations is kept: a seam, chosen by CONVSERVER_STORE.

    A store acts for one user, named by the id; None means the server itself, which sees all. Ids are
    accepted in every spelling. Logs and the other rows of a conversation need no store: `conversations.log`
    and the other modules of this package have functions for them.
    """

    @classmethod
    @abstractmethod
    def get_instance(cls, user_id: str | None = None) -> Self:
        """Return a store that acts for this user."""

    @abstractmethod
    def save_metadata(self, metadata: ConversationMetadata, fields: Collection[str] | None = None) -> None:
        """Store the metadata; create the conversation if necessary.

        The metadata alone fills empty columns and overwrites none, so a stub or an old copy removes
        nothing. The named `fields` overwrite, even with empty values. Totals only increase, and no event
        can be changed from here. Raise ValueError for a field that cannot be saved, ConversationExists for
        an id that is another user's or deleted, and ConversationNotFound if a new one would have no owner.
        """

    @abstractmethod
    def get_metadata(self, conversation_id: str) -> ConversationMetadata:
        """Return the metadata. Raise ConversationNotFound."""

    @abstractmethod
    def validate_metadata(self, conversation_id: str, user_id: str) -> bool:
        """Return whether the conversation exists and is this user's."""

    @abstractmethod
    def delete_metadata(self, conversation_id: str) -> None:
        """Hide the conversation until it is restored. Raise ConversationNotFound."""

    @abstractmethod
    def exists(self, conversation_id: str) -> bool:
        """Return whether the conversation exists and is not deleted."""

    @abstractmethod
    def search(
        self, page_id: str | None = None, limit: int = 20, *, wanted: MetadataFilter = ALL, skip: int = 0
    ) -> ConversationMetadataResultSet:
        """Return one page of the user's conversations, the newest first. Raise InvalidCursor.

        `skip` leaves out this many of the first ones, for clients that count conversations.
        """

    @abstractmethod
    def get_all_metadata(self, conversation_ids: Iterable[str]) -> list[ConversationMetadata]:
        """Return the metadata of all, in the order asked. Raise ConversationNotFound if one is missing."""
