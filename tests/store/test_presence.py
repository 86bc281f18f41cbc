"""Who is connected is written together, and what one of them lacks takes nothing from the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.live import presence
from sessions_app.models import Connection

pytestmark = pytest.mark.usefixtures("live")  # closes the connections of the threads that write


@pytest.fixture
async def gone(conversation: ConversationRef) -> AsyncIterator[ConversationRef]:
    """A conversation that was removed while somebody came to it."""
    yield conversation._replace(pk=10**9)
    await presence.disconnect("too late")


async def connections() -> list[str]:
    return await astore.call(lambda: sorted(Connection.objects.values_list("id", flat=True)))


async def test_whoever_comes_too_late_keeps_nobody_else_from_being_present(
    conversation: ConversationRef, gone: ConversationRef, alice: User
) -> None:
    places = {"first": conversation, "too late": gone, "last": conversation}
    coming = [presence.connect(name, place, alice.pk, door="native") for name, place in places.items()]
    await asyncio.gather(*coming)
    assert await connections() == ["first", "last"]


async def test_whoever_comes_too_late_keeps_nobody_else_from_being_gone(
    conversation: ConversationRef, gone: ConversationRef, alice: User
) -> None:
    await presence.connect("leaver", conversation, alice.pk, door="native")
    await asyncio.gather(
        presence.connect("too late", gone, alice.pk, door="native"), presence.disconnect("leaver")
    )
    assert await connections() == []
