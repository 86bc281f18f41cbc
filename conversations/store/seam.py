"""ConversationStore: what every door asks of a store, and what it may raise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from conversations.access import Visitor
from conversations.events import (
    NewEvent,
)
from conversations.exceptions import (
    ConversationError,
)
from conversations.models import (
    ConversationRef,
    Version,
)
from conversations.store.importing import Imported
from conversations.store.metadata import (
    ALL,
    ConversationMetadata,
    ConversationMetadataResultSet,
    MetadataFilter,
)


class ConversationStore(ABC):
    """Where conversations are stored: a seam, chosen by CONVSERVER_STORE.

    The methods for metadata act for one user, named by the id; None means the server itself, which sees
    all. The others are told who asks, by a user or by a conversation that was found for one. Ids are
    accepted in every spelling.
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
        """Say whether the conversation exists and is this user's."""

    @abstractmethod
    def delete_metadata(self, conversation_id: str) -> None:
        """Hide the conversation until it is restored. Raise ConversationNotFound."""

    @abstractmethod
    def exists(self, conversation_id: str) -> bool:
        """Say whether the conversation exists and is not deleted."""

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

    @abstractmethod
    def create(
        self,
        user: Visitor,
        *,
        conversation_id: str | None = None,
        version: Version = Version.V0,
        parameters: dict[str, Any] | None = None,
        events: Sequence[NewEvent] = (),
        **facts: Any,
    ) -> ConversationRef:
        """Create a conversation of the user that begins with `events`; `facts` are columns.

        Raise ConversationExists for a taken id; then, and if it fails, nothing was stored.
        """

    @abstractmethod
    def fork(
        self,
        user: Visitor,
        source: ConversationRef,
        *,
        conversation_id: str | None = None,
        through: int | None = None,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
        keep_metrics: bool = False,
    ) -> ConversationRef:
        """Create a conversation of the user with a copy of another's log, up to and including `through`.

        The events keep their ids, places and digests. Nothing in the copy asks for an answer, and its
        totals start at zero unless `keep_metrics`. Raise ConversationExists for a taken id, EventNotFound
        if there is no event at `through`.
        """

    @abstractmethod
    def import_conversation(
        self,
        user: Visitor,
        events: Iterable[NewEvent],
        *,
        conversation_id: str,
        version: Version,
        begin: Callable[[ConversationRef], None] | None = None,
        **facts: Any,
    ) -> Imported:
        """Import a conversation as the user's, one page of its events at a time.

        Events that are already stored, by their ids, are skipped, so an import can be repeated and
        continues where it was interrupted. No event asks for an answer. `facts` are columns, and `begin`
        runs in the transaction that creates the conversation. Raise ImportRefused if the id is that of a
        conversation that is another user's, deleted, or of another version.
        """

    @abstractmethod
    def join(self, user: Visitor, conversation_id: str, *, version: Version = Version.V0) -> ConversationRef:
        """Return the conversation, created now if it does not exist; an existing one is not changed.

        Raise ConversationNotFound if it is deleted or another user's.
        """

    @abstractmethod
    def retitle(self, conversation: ConversationRef, title: str | None, **only_if: str | None) -> bool:
        """Set the title; with `title_is=…` only if that is still the title. Say whether it was set.

        A title that is set without a condition is a user's choice: no generated one replaces it.
        """

    @abstractmethod
    def retag(self, conversation: ConversationRef, tags: Mapping[str, str]) -> None:
        """Replace all tags."""

    @abstractmethod
    def note_branch(self, conversation: ConversationRef, branch: str) -> None:
        """Set the branch that is checked out; does nothing for a conversation without a repository."""

    @abstractmethod
    def note_pull_request(self, conversation: ConversationRef, number: int) -> None:
        """Add a pull request that was opened after the others; a known one changes nothing."""

    @abstractmethod
    def set_parameter_once(self, conversation: ConversationRef, name: str, value: Any) -> bool:
        """Add a creation parameter (JSON) unless its name exists; say whether it was added."""

    @abstractmethod
    def soft_delete(self, conversation: ConversationRef) -> None:
        """Hide it from all users; every event stays. Deleting twice changes nothing."""

    @abstractmethod
    def restore(self, conversation: ConversationRef) -> None:
        """Restore a deleted conversation with its whole log."""


class ConversationExists(ConversationError):
    """The id is taken, by this user or another, even if deleted."""

    code: ClassVar[str] = "conversation_exists"
