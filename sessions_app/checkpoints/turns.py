"""Checkpoints around the turns of agents: before the first change of a turn, and after its end.

A failure is logged, and disturbs no turn. What a server that dies has not kept, the next checkpoint has.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from conversations.models import Conversation, ConversationRef, Event
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.checkpoints import copies, kept
from sessions_app.checkpoints.kept import NewCheckpoint
from sessions_app.event_loops import PerEventLoop
from sessions_app.models import AgentLoop, CheckpointCause, FilesCheckpoint
from sessions_app.workspaces import chosen

_failing = Outage(
    __name__, "The files of a conversation could not be kept", "The files of conversations are kept again"
)

_turns: PerEventLoop[dict[int, str]] = PerEventLoop(dict)
"""The turns that use files, by the conversation."""


class TurnPlace(NamedTuple):
    """The turn that is played."""

    turn_id: str
    through: int
    """The newest input that it answers."""


async def before_use(conversation: ConversationRef, *, changes: bool) -> str:
    """Make the files ready for a tool, which may change them: of a branch, they may not be there yet, and a
    restore may be at work on them.

    The first use that may change files in a turn keeps them as they were before. Return why the tool cannot
    be used now; empty if it can.
    """
    try:
        # A branch whose files the background has not copied yet: usually there is nothing to do.
        await copies.finish(conversation)
        await kept.wait_for_restore(conversation)
    except Exception as error:
        # What the tool would write now, the copy could replace.
        _failing.failed(error, conversation=conversation.public_id)
        return "The files of this branch are still being copied. Try again in a minute."
    try:
        if changes:
            await _before_change(conversation)
    except Exception as error:
        _failing.failed(error, conversation=conversation.public_id)
    return ""


async def _before_change(conversation: ConversationRef) -> None:
    timeout_s = 10.0
    turn = await astore.call(_turn_of, conversation)
    turns = _turns.get()
    if turn is None or turns.get(conversation.pk) == turn.turn_id:
        return
    # What is in a directory of the user's own, only the user brings back.
    if await astore.call(chosen.directory_of, conversation) or not await kept.are_made():
        return
    # Before the checkpoint: where that fails, the other calls of the turn do not wait for it again.
    turns[conversation.pk] = turn.turn_id
    seq = await astore.call(_seq_before, conversation, turn)
    new = NewCheckpoint(seq, CheckpointCause.BEFORE_TURN)
    # Also of the wait for a place among the runs of others.
    async with asyncio.timeout(2 * timeout_s):
        await kept.take(conversation, new, timeout_s=timeout_s)


async def after_turn(conversation: ConversationRef) -> None:
    """Keep the files after a turn that has used them; return at once after another one."""
    if conversation.pk not in _turns.get():
        return
    timeout_s = 30.0
    try:
        if await astore.call(_turn_of, conversation) is not None:
            return  # it waits for the user, and goes on
        turn_id = _turns.get().pop(conversation.pk)
        # The next turn begins after this, so that the files are those of the end.
        seq = await astore.call(_end_of_turn, conversation, turn_id)
        async with asyncio.timeout(2 * timeout_s):
            await kept.take(conversation, NewCheckpoint(seq, CheckpointCause.TURN), timeout_s=timeout_s)
    except Exception as error:
        _failing.failed(error, conversation=conversation.public_id)
    else:
        _failing.worked()


def forget_turn(conversation: ConversationRef) -> None:
    """Forget which turn uses the files: its loop has ended."""
    with suppress(KeyError):
        del _turns.get()[conversation.pk]


def _turn_of(conversation: ConversationRef) -> TurnPlace | None:
    rows = AgentLoop.objects.of(conversation).filter(turn_id__isnull=False)
    found = rows.values_list("turn_id", "turn_through").first()
    return None if found is None else TurnPlace(found[0] or "", found[1])


def _seq_before(conversation: ConversationRef, turn: TurnPlace) -> int:
    """Return the last event when the files were as they are now, before the turn has changed any."""
    is_known = FilesCheckpoint.objects.of(conversation).filter(seq__gte=turn.through).exists()
    # Otherwise the turn has used files before, in a process that is gone.
    return _last_seq(conversation) if is_known else turn.through


def _end_of_turn(conversation: ConversationRef, turn_id: str) -> int:
    """Return the last event of a turn: a message may have come since."""
    ends = Event.objects.filter(conversation_id=conversation.pk, turn_id=turn_id).order_by("-seq")
    found = ends.values_list("seq", flat=True).first()
    return _last_seq(conversation) if found is None else found


def _last_seq(conversation: ConversationRef) -> int:
    return Conversation.objects.values_list("next_seq", flat=True).get(pk=conversation.pk) - 1
