"""A store in the form of the OpenHands server: its methods are awaited (spec V0 §4.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client as Visitor
from django.utils import timezone

from conversations.exceptions import ConversationNotFound
from conversations.store import ConversationStore, MetadataFilter, creation, store
from conversations.store.metadata import ConversationMetadata, ConversationMetadataResultSet

pytestmark = pytest.mark.one_engine


class RememberingStore(ConversationStore):
    """A custom store as somebody has written it for the OpenHands server."""

    kept: ClassVar[dict[str, ConversationMetadata]] = {}

    def __init__(self, config: Any, user_id: str | None) -> None:
        self.config, self.user_id = config, user_id

    async def save_metadata(self, metadata: ConversationMetadata) -> None:  # type: ignore[override]
        self.kept[metadata.conversation_id] = metadata

    async def get_metadata(self, conversation_id: str) -> ConversationMetadata:  # type: ignore[override]
        if conversation_id not in self.kept:
            raise ConversationNotFound("Conversation not found.")
        return self.kept[conversation_id]

    async def delete_metadata(self, conversation_id: str) -> None:  # type: ignore[override]
        del self.kept[conversation_id]

    async def exists(self, conversation_id: str) -> bool:  # type: ignore[override]
        return conversation_id in self.kept

    async def validate_metadata(self, conversation_id: str, user_id: str) -> bool:  # type: ignore[override]
        return self.kept[conversation_id].user_id == user_id

    async def search(  # type: ignore[override]
        self, page_id: str | None = None, limit: int = 20
    ) -> ConversationMetadataResultSet:
        return ConversationMetadataResultSet(results=list(self.kept.values())[:limit], next_page_id=None)

    async def get_all_metadata(  # type: ignore[override]
        self, conversation_ids: Iterable[str]
    ) -> list[ConversationMetadata]:
        return [await self.get_metadata(each) for each in conversation_ids]

    @classmethod
    async def get_instance(cls, config: Any, user_id: str | None) -> ConversationStore:
        return cls(config, user_id)


async def test_an_asynchronous_store_of_the_settings_is_awaited_as_it_is(
    alice: User, configured_store: Callable[[str], None]
) -> None:
    configured_store(f"{__name__}.RememberingStore")
    theirs = await ConversationStore.get_instance(settings.CONFIGURATION, str(alice.pk))
    assert isinstance(theirs, RememberingStore)
    assert theirs.user_id == str(alice.pk)


async def test_the_store_of_the_settings_is_awaited_as_the_reference_has_it(alice: User, bob: User) -> None:
    theirs = await ConversationStore.get_instance(settings.CONFIGURATION, str(alice.pk))
    metadata = ConversationMetadata(
        conversation_id="conv_123", user_id=str(alice.pk), title="Code Review Task"
    )
    await theirs.save_metadata(metadata)
    assert (await theirs.get_metadata("conv_123")).title == "Code Review Task"
    assert await theirs.validate_metadata("conv_123", str(alice.pk))
    assert not await theirs.validate_metadata("conv_123", str(bob.pk))
    assert [each.title for each in (await theirs.search(limit=10)).results] == ["Code Review Task"]
    others = await ConversationStore.get_instance(settings.CONFIGURATION, str(bob.pk))
    with pytest.raises(ConversationNotFound):
        await others.get_metadata("conv_123")
    await theirs.delete_metadata("conv_123")
    assert not await theirs.exists("conv_123")
    with pytest.raises(AttributeError):
        theirs.drop_table  # noqa: B018


def test_a_store_of_the_reference_s_form_serves_the_doors(
    alice: User, bob: User, configured_store: Callable[[str], None]
) -> None:
    configured_store(f"{__name__}.RememberingStore")
    now = timezone.now()
    creation.insert(public_id="abc", owner_id=alice.pk, version="V0", created_at=now, updated_at=now)
    metadata = ConversationMetadata(
        conversation_id="abc", user_id=str(alice.pk), title="Kept elsewhere", created_at=now
    )
    theirs = store(str(alice.pk))
    theirs.save_metadata(metadata)
    assert theirs.get_metadata("abc") == metadata
    theirs.save_metadata(ConversationMetadata(conversation_id="abc", tags={"a": "b"}), {"tags"})
    metadata = replace(metadata, tags={"a": "b"})
    assert theirs.get_metadata("abc") == metadata
    assert theirs.get_all_metadata(["abc"]) == [metadata]
    assert theirs.exists("abc")
    assert theirs.validate_metadata("abc", str(alice.pk))
    assert not theirs.validate_metadata("abc", str(bob.pk))
    visitor = Visitor()
    visitor.force_login(alice)
    found = visitor.get("/api/conversations").json()["results"]
    assert [each["conversation_id"] for each in found] == ["abc"]
    theirs.delete_metadata("abc")
    assert visitor.get("/api/conversations").json()["results"] == []


def test_a_visitor_of_one_conversation_sees_no_other_of_a_store_without_filters(
    alice: User, configured_store: Callable[[str], None]
) -> None:
    configured_store(f"{__name__}.RememberingStore")
    now = timezone.now()
    theirs = store(str(alice.pk))
    for name in ("one", "another"):
        theirs.save_metadata(
            ConversationMetadata(conversation_id=name, user_id=str(alice.pk), created_at=now)
        )
    row = creation.insert(public_id="one", owner_id=alice.pk, version="V0", created_at=now, updated_at=now)
    found = theirs.search(wanted=MetadataFilter(only=row.pk)).results
    assert [each.conversation_id for each in found] == ["one"]


def test_a_class_with_neither_form_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError, match="NoStore defines neither for_user nor get_instance"):

        class NoStore(ConversationStore):
            pass


@pytest.fixture
def configured_store(settings: Any) -> Callable[[str], None]:
    """Let the settings name a store."""
    RememberingStore.kept.clear()

    def name(path: str) -> None:
        settings.CONVERSATION_STORE = path

    return name
