"""Who is connected, as rows that expire."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from django.utils import timezone

from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.models import Connection

logger = logging.getLogger(__name__)

_here: set[str] = set()
"""The connections of this process, which `touch` keeps alive."""


@asynccontextmanager
async def connected(
    connection_id: str, conversation: ConversationRef, user_id: int, *, door: str
) -> AsyncIterator[None]:
    """Be present while inside."""
    arriving = asyncio.ensure_future(come(connection_id, conversation, user_id, door=door))
    try:
        await asyncio.shield(arriving)
        yield
    finally:
        # Whoever leaves at once would otherwise be taken away first, and noted after that.
        await asyncio.wait({arriving})
        await go(connection_id)


async def come(connection_id: str, conversation: ConversationRef, user_id: int, *, door: str) -> None:
    """Be present from now on; a failure to say so is logged and costs nobody a connection."""
    try:
        await astore.call(arrive, connection_id, conversation, user_id, door)
    except Exception as error:  # who is present is good to know; what they came for matters
        logger.warning("Connection %s could not be noted: %s", connection_id, error)
    _here.add(connection_id)


async def go(connection_id: str) -> None:
    """Be gone."""
    _here.discard(connection_id)
    try:
        await astore.call(leave, [connection_id])
    except Exception as error:  # it expires by itself
        logger.warning("Connection %s could not be taken away: %s", connection_id, error)


def here() -> list[str]:
    """Return the ids of the connections of this process."""
    return list(_here)


def arrive(connection_id: str, conversation: ConversationRef, user_id: int, door: str) -> None:
    """Store a connection."""
    Connection.objects.create(id=connection_id, conversation_id=conversation.pk, user_id=user_id, door=door)


def leave(connection_ids: Iterable[str]) -> None:
    """Remove connections."""
    Connection.objects.with_ids(connection_ids).delete()


def touch(connection_ids: Iterable[str]) -> None:
    """Note that these are still there, and remove what expired."""
    Connection.objects.with_ids(connection_ids).update(last_seen_at=timezone.now())
    Connection.objects.expired().delete()
