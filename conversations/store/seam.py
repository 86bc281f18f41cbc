"""ConversationStore: the interface of the store that keeps the metadata of conversations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import replace
from inspect import signature
from typing import Any, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.utils.module_loading import import_string

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

    A class defines `for_user` and these methods, or, as for the OpenHands server (spec V0 §4.9), the
    asynchronous `get_instance` and the same methods as coroutines.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Each has a default that asks the other one.
        defined = {name for each in cls.mro() if each is not ConversationStore for name in vars(each)}
        if not defined & {"for_user", "get_instance"}:
            raise TypeError(f"{cls.__name__} defines neither for_user nor get_instance")

    @classmethod
    def for_user(cls, user_id: str | None = None) -> ConversationStore:
        store = async_to_sync(cls.get_instance)(settings.CONFIGURATION, user_id)
        return cast(ConversationStore, WaitingStore(store))

    @classmethod
    async def get_instance(cls, config: Any, user_id: str | None) -> Any:
        """Return a store that acts for this user, whose methods are coroutines.

        `config` is not read. Called on this class itself, it is the store that the settings name.
        """
        store_class = chosen_class() if cls is ConversationStore else cls
        if any("get_instance" in vars(each) for each in store_class.mro() if each is not ConversationStore):
            return await store_class.get_instance(config, user_id)
        return AwaitedStore(store_class.for_user(user_id))

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


class AwaitedStore:
    """A store whose methods are coroutines; each runs in Django's thread for the database."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return sync_to_async(_method(self._store, name))


class WaitingStore:
    """A store whose methods wait for the coroutines of another one."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return async_to_sync(_method(self._store, name))

    def save_metadata(self, metadata: ConversationMetadata, fields: Collection[str] | None = None) -> None:
        """Save as `ConversationStore.save_metadata` does.

        A store that takes no `fields` gets the metadata that it has, with these fields.
        """
        save = async_to_sync(self._store.save_metadata)
        if fields is None:
            save(metadata)
        elif "fields" in signature(self._store.save_metadata).parameters:
            save(metadata, fields)
        else:
            stored = async_to_sync(self._store.get_metadata)(metadata.conversation_id)
            save(replace(stored, **{name: getattr(metadata, name) for name in fields}))

    def search(
        self, page_id: str | None = None, limit: int = 20, *, wanted: MetadataFilter = ALL, skip: int = 0
    ) -> ConversationMetadataResultSet:
        """Search as `ConversationStore.search` does.

        A store that takes no filter is asked for a page, of which what matches is left.
        """
        search = async_to_sync(self._store.search)
        page: ConversationMetadataResultSet
        if "wanted" in signature(self._store.search).parameters:
            page = search(page_id, limit, wanted=wanted, skip=skip)
            return page
        page = search(page_id, skip + limit)
        return replace(page, results=[each for each in page.results if wanted.covers(each)][skip:])


def _method(store: object, name: str) -> Any:
    if name not in ConversationStore.__abstractmethods__:
        raise AttributeError(f"A store has no {name}.")
    return getattr(store, name)


def chosen_class() -> type[ConversationStore]:
    """Return the class that the settings name."""
    return cast(type[ConversationStore], import_string(settings.CONVERSATION_STORE))
