"""Stopping, starting and removing several conversations as one: what a sandbox, or a family, is told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from django.conf import settings
from django.db import transaction

from conversations import families
from conversations.exceptions import ConversationError
from conversations.locks import lock_all
from conversations.models import ConversationRef, Version
from conversations.store import store
from sessions_app import astore, sandboxes
from sessions_app.manager import get_manager


async def pause(conversations: Sequence[ConversationRef]) -> None:
    """Stop the loops, and let V1 readers see that they were, also where there was none."""
    for conversation in conversations:
        await get_manager().close_session(conversation.public_id)
    of_v1 = [conversation for conversation in conversations if conversation.version == Version.V1]
    if of_v1:
        await astore.call(sandboxes.note_paused, of_v1)


async def resume(conversations: Sequence[ConversationRef]) -> None:
    """Start the loops, the first ones only where the user may not have as many; return once they are there.

    One that cannot be started shows that by its status.
    """
    for conversation in conversations[: settings.CONFIGURATION.max_concurrent]:
        with suppress(ConversationError):
            await get_manager().maybe_start_agent_loop(conversation)


async def remove(conversation: ConversationRef) -> None:
    """Stop the loops of a conversation and of all below it, and hide them: the lowest first, all or none."""
    family = (await astore.call(families.family_of, conversation))[::-1]
    for each in family:
        await get_manager().close_session(each.public_id)
    await astore.call(_hide, family)


@transaction.atomic
def _hide(conversations: Sequence[ConversationRef]) -> None:
    lock_all(conversations)
    for conversation in conversations:
        store(str(conversation.owner_id)).hide(conversation)
