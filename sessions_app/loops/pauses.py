"""Pausing a loop that plays no turn, and resuming it."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from conversations.dialects import AgentState
from conversations.events import ConversationRef, Dialect
from conversations.log import writes
from sessions_app.loops import leases, recovery, turn_events, turns
from sessions_app.models import AgentLoop, ExecutionStatus
from sessions_app.processes import Process


def pause(conversation: ConversationRef, *, holder: Process | None = None) -> bool:
    """Pause a loop that plays no turn; return False for a turn that a dead loop has left.

    A turn that waits for approval keeps waiting, and a V1 run that has ended stays so. `holder` is the
    process of the calling loop, which plays no turn. Raise LoopHeld if another process may be playing
    one.
    """
    events = turn_events.steered(conversation, AgentState.PAUSED)
    with transaction.atomic():
        loop = leases.locked_loop(leases.locked(conversation))
        if loop.waits_for_user or _has_ended(conversation, loop):
            return True
        if loop.execution_status == ExecutionStatus.RUNNING and loop.turn_id is not None:
            if loop.is_held() and loop.owner != holder:
                raise leases.held(loop)
            if not turns.is_unplayed(conversation, loop.turn_id, loop):
                return False
        writes.append(conversation, events, also=turns.suspend_turn(conversation, ExecutionStatus.PAUSED))
    leases.announce(conversation)
    return True


def resume(conversation: ConversationRef) -> None:
    """Resume a paused loop; does nothing to a loop that is not paused."""
    paused = AgentLoop.objects.of(conversation).filter(execution_status=ExecutionStatus.PAUSED)
    if paused.update(execution_status=ExecutionStatus.IDLE, updated_at=timezone.now()):
        leases.announce(conversation)


def _has_ended(conversation: ConversationRef, loop: AgentLoop) -> bool:
    return conversation.dialect is Dialect.V1 and loop.execution_status in recovery.ENDED
