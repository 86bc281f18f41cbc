"""Conversations that wait until their agent, a program, connects."""

from __future__ import annotations

from django.utils import timezone

from conversations import live
from conversations.exceptions import LoopUnavailable
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from sessions_app.agents.remote import attachments, names
from sessions_app.models import AgentLoop, LoopStatus, asked_conversations
from sessions_app.processes import Process

# The conversations that a program wakes when it connects; the sweep finds the others.
AT_ONCE_MAX = 100


class AgentAway(LoopUnavailable):
    """The program of the conversation's agent is not connected to this process."""

    def __init__(self, name: str, *, is_elsewhere: bool) -> None:
        """`is_elsewhere`: it is connected to another process, which was notified."""
        super().__init__(names.not_connected(name))
        self.is_elsewhere = is_elsewhere


def require_here(conversation: ConversationRef, name: str, process: Process) -> None:
    """Wake the process to which the agent's program is connected, and raise AgentAway."""
    row = attachments.connected(conversation, name)
    is_elsewhere = row is not None and row.process != process
    if row is not None and is_elsewhere:
        live.announce(attachments.group_of(row.pk), {"kind": "wake", "conversation": conversation.pk})
    raise AgentAway(name, is_elsewhere=is_elsewhere)


def name_away(conversation: ConversationRef) -> str | None:
    """Return the name of the conversation's remote agent if no program of it is connected."""
    name = names.name_of(conversation)
    return None if name is None or attachments.connected(conversation, name) else name


def waiting_for(user_id: int, name: str, conversation: ConversationRef | None) -> list[ConversationRef]:
    """Return a user's conversations with work for the agent of this name."""
    rows = _served(user_id, name, conversation)
    return [row.ref for asked in asked_conversations(rows) for row in asked[:AT_ONCE_MAX]]


def forget_absence(user_id: int, name: str, conversation: ConversationRef | None) -> None:
    """Clear the error that the agent is not connected."""
    rows = _served(user_id, name, conversation).filter(
        loop__status=LoopStatus.ERROR, loop__error=names.not_connected(name)
    )
    for row in rows[:AT_ONCE_MAX]:
        AgentLoop.objects.of(row.ref).filter(status=LoopStatus.ERROR).update(
            status=LoopStatus.STOPPED, runtime_status=None, error="", ended_by="", updated_at=timezone.now()
        )
        live.announce_changed(row.ref)


def _served(user_id: int, name: str, conversation: ConversationRef | None) -> ConversationQuerySet:
    rows = Conversation.objects.active().owned_by(user_id)
    if conversation is not None:
        rows = rows.with_pks([conversation.pk])
    return rows.filter(run_options__agent=f"{names.PREFIX}{name}")
