"""Stopping, starting and removing a conversation with all below it, for sandboxes and families."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from conversations import families
from conversations.exceptions import ConversationBusy, ConversationError
from conversations.log.locks import lock_all
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import delete
from sessions_app import astore
from sessions_app.loops import leases
from sessions_app.loops.commands import CommandPending
from sessions_app.loops.manager import get_manager
from sessions_app.models import AgentLoop, LoopEnd, LoopStatus


async def pause(conversation: ConversationRef) -> None:
    """Stop the loops of a conversation and of all below it; V1 readers see it even without a loop.

    Raise CommandPending if one has not ended within 8 s; it ends later. Raise ConversationBusy if one
    stays locked that long.
    """
    family = await astore.call(families.family_of, conversation)
    of_v1 = [each for each in family if each.version == Version.V1]
    try:
        await get_manager().close_session(conversation.public_id)
    except ConversationBusy:  # a note would wait for the same lock once more
        raise
    except BaseException:  # it was stopped on purpose, also if it ends later or the client has left
        await _note_paused(of_v1)
        raise
    await _note_paused(of_v1)


async def _note_paused(conversations: Sequence[ConversationRef]) -> None:
    if conversations:
        await astore.change(note_paused, conversations)


def note_paused(conversations: Sequence[ConversationRef]) -> None:
    """Record that these were stopped on purpose, even without a loop or with a dead one.

    A loop that was started meanwhile does not change.
    """
    pks = [conversation.pk for conversation in conversations]
    now = timezone.now()
    with transaction.atomic():
        lock_all(conversations)
        Conversation.objects.with_pks(pks).update(listed_at=now)
        # A conversation without a loop gets a row, which keeps that it was stopped.
        AgentLoop.objects.bulk_create(
            [AgentLoop(conversation_id=pk, ended_by=LoopEnd.STOPPED) for pk in pks], ignore_conflicts=True
        )
        AgentLoop.objects.filter(conversation_id__in=pks, status=LoopStatus.STOPPED).update(
            ended_by=LoopEnd.STOPPED, updated_at=now
        )
    for conversation in conversations:
        leases.announce(conversation)


async def stop_to_delete(conversation: ConversationRef) -> None:
    """Stop the loops of a conversation that is about to be deleted, and of all below it."""
    # A loop that has not ended within 8 s cannot write once its conversation is deleted, and ends later.
    with suppress(CommandPending):
        await get_manager().close_session(conversation.public_id)


async def resume(conversations: Sequence[ConversationRef]) -> None:
    """Start the loops, only the first ones if the user may not have all; return once they run."""
    for conversation in conversations[: settings.CONFIGURATION.max_concurrent]:
        with suppress(ConversationError):  # the status of the conversation shows a failed start
            await get_manager().maybe_start_agent_loop(conversation)


async def remove(conversation: ConversationRef) -> None:
    """Stop the loops of a conversation and of all below it, and hide them: the lowest first, all or none."""
    family = (await astore.call(families.family_of, conversation))[::-1]
    await stop_to_delete(conversation)
    await astore.change(_hide, family)


@transaction.atomic
def _hide(conversations: Sequence[ConversationRef]) -> None:
    lock_all(conversations)
    for conversation in conversations:
        delete(conversation)
