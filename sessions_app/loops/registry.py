"""Queries for loops and for connections."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from conversations.models import Conversation, ConversationRef, normal_id
from sessions_app.loops.conversation_manager import AgentLoopInfo
from sessions_app.models import THERE, AgentLoop, Connection, ExecutionStatus

CLOSE_DELAY_S = 3600.0
"""An idle loop without connections is closed after this."""


def attached(conversation_id: str, user: User | None) -> ConversationRef | None:
    """Return the conversation with this id; None if it is deleted or not this user's."""
    rows = Conversation.objects.active().with_public_ids([normal_id(conversation_id)])
    if user is not None:
        rows = rows.owned_by(user.pk)
    row = rows.first()
    return row.ref if row else None


def surplus(conversation: ConversationRef, limit: int) -> list[AgentLoop]:
    """Return the user's loops to close so that one more makes at most `limit`, with their logs."""
    loops = AgentLoop.objects.there().of_user(conversation.owner_id).exclude(conversation_id=conversation.pk)
    surplus = loops.count() - (limit - 1)
    return list(loops.least_wanted_first().select_related("conversation")[:surplus]) if surplus > 0 else []


def forgotten(here: Collection[int]) -> list[int]:
    """Return the idle loops of this process that were neither used nor watched for CLOSE_DELAY_S."""
    before = timezone.now() - timedelta(seconds=CLOSE_DELAY_S)
    loops = AgentLoop.objects.there().filter(conversation_id__in=here, conversation__updated_at__lt=before)
    loops = loops.exclude(execution_status=ExecutionStatus.RUNNING)
    watched = Connection.objects.present().values("conversation_id")
    return list(loops.exclude(conversation_id__in=watched).values_list("pk", flat=True))


def connections(user: User | None, conversation_ids: Collection[str] | None) -> dict[str, str]:
    """Return connection id → conversation id of those present; an empty filter means none."""
    rows = Connection.objects.present()
    if user is not None:
        rows = rows.filter(user_id=user.pk)
    if conversation_ids is not None:
        rows = rows.filter(conversation__public_id__in=[normal_id(each) for each in conversation_ids])
    return dict(rows.values_list("id", "conversation__public_id"))


def infos(user: User | None, conversation_ids: Collection[str] | None) -> list[AgentLoopInfo]:
    """Return the status of the existing loops; an empty filter means none."""
    rows = Conversation.objects.active().filter(loop__status__in=THERE)
    if user is not None:
        rows = rows.owned_by(user.pk)
    if conversation_ids is not None:
        rows = rows.with_public_ids(normal_id(each) for each in conversation_ids)
    return infos_of(rows)


def infos_of(rows: Any) -> list[AgentLoopInfo]:
    """Return the status of these conversations' loops."""
    return [
        AgentLoopInfo(
            conversation_id=row.public_id,
            status=row.loop.status,
            runtime_status=row.loop.runtime_status,
            execution_status=row.loop.execution_status,
        )
        for row in rows.select_related("loop")
    ]
