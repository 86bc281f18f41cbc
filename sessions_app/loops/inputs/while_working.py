"""The effect of a message that arrives while the agent works: the conversation's choice and its queries."""

from __future__ import annotations

from django.db.models import F

from conversations.events import Dialect
from conversations.exceptions import LoopUnavailable
from conversations.models import Conversation, ConversationRef
from sessions_app.models import AgentLoop, ExecutionStatus, RunOptions, WhileWorking


class AgentWorking(LoopUnavailable):
    """The agent works, and the conversation refuses messages meanwhile; nothing was stored."""

    code = "agent_working"

    def __init__(self) -> None:
        super().__init__(
            "The agent is working, and this conversation takes no messages meanwhile. "
            "Send it when the agent is done."
        )


def choice_of(conversation: ConversationRef) -> WhileWorking:
    """Return the effect of a message, as the conversation's user has chosen it, or by default."""
    chosen = RunOptions.objects.of(conversation).values_list("while_working", flat=True).first()
    return WhileWorking(chosen) if chosen else default_of(conversation)


def default_of(conversation: ConversationRef) -> WhileWorking:
    """Return the default effect of a message: on V1, it steers (spec V1 §2.6)."""
    return WhileWorking.STEER if conversation.dialect is Dialect.V1 else WhileWorking.QUEUE


def steers(conversation: ConversationRef) -> bool:
    """Return whether the agent sees messages before its next step."""
    choice = choice_of(conversation)
    # The OpenHands wires have no refusal: their messages have the default effect where others are refused.
    return (default_of(conversation) if choice is WhileWorking.REJECT else choice) is WhileWorking.STEER


def has_later_input(conversation: ConversationRef, through: int) -> bool:
    rows = Conversation.objects.with_pks([conversation.pk])
    return rows.filter(asked_through__gt=through).exists()


def superseded_through(conversation: ConversationRef, turn_id: str) -> int | None:
    """Return the newest input of a turn that a later message is to interrupt; None if none is.

    A turn that waits for approval, or is paused, is not interrupted: the message waits with it.
    """
    # Without a lock, since it is asked at each wake-up; the loop's own lock keeps its answer true.
    turns = AgentLoop.objects.of(conversation).filter(
        turn_id=turn_id,
        execution_status=ExecutionStatus.RUNNING,
        conversation__asked_through__gt=F("turn_through"),
        conversation__run_options__while_working=WhileWorking.INTERRUPT,
    )
    return turns.values_list("turn_through", flat=True).first()


def refusal(conversation: ConversationRef) -> AgentWorking | None:
    """Return why a message is refused now, under the conversation's lock; None if it is not.

    An agent that waits for approval, or is paused, does not work.
    """
    if choice_of(conversation) is not WhileWorking.REJECT:
        return None
    works = AgentLoop.objects.of(conversation).filter(execution_status=ExecutionStatus.RUNNING).exists()
    return AgentWorking() if works else None
