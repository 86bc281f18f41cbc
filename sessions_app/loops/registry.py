"""Loops and connections as rows: their queries, and the part of a manager that answers from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from conversations.exceptions import LoopUnavailable
from conversations.models import Conversation, ConversationRef, normal_id
from sessions_app import astore
from sessions_app.live import presence
from sessions_app.loops.conversation_manager import AgentLoopInfo, ConversationManager
from sessions_app.models import THERE, AgentLoop, Connection, ExecutionStatus, LoopStatus

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


class RegistryConversationManager(ConversationManager):
    """Finds conversations, loops and connections; a subclass runs the loops."""

    def __init__(self) -> None:
        # By the id of a connection: its conversation and its user.
        self._joined: dict[str, tuple[ConversationRef, int]] = {}

    async def attach_to_conversation(
        self, conversation_id: str, user_id: str | None = None
    ) -> ConversationRef | None:
        return await astore.call(attached, conversation_id, _payer(user_id))

    async def detach_from_conversation(self, conversation: ConversationRef) -> None:
        """Nothing was held."""

    async def join_conversation(
        self,
        conversation: ConversationRef,
        connection_id: str,
        user_id: str,
        settings: Mapping[str, Any] | None = None,
    ) -> AgentLoopInfo:
        self._joined[connection_id] = conversation, int(user_id)
        await presence.connect(connection_id, conversation, int(user_id), door="v0")
        self.start_soon(conversation)
        infos = await self.get_agent_loop_info(user_id, [conversation.public_id])
        return infos[0] if infos else _starting(conversation)

    async def is_agent_loop_running(self, conversation_id: str) -> bool:
        return bool(await self.get_running_agent_loops(filter_to_sids={conversation_id}))

    async def get_running_agent_loops(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> set[str]:
        return {info.conversation_id for info in await self.get_agent_loop_info(user_id, filter_to_sids)}

    async def get_connections(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> dict[str, str]:
        return await astore.call(connections, _payer(user_id), filter_to_sids)

    async def get_agent_loop_info(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> list[AgentLoopInfo]:
        return await astore.call(infos, _payer(user_id), filter_to_sids)

    async def _infos(self, rows: Any) -> list[AgentLoopInfo]:
        return await astore.call(infos_of, rows)

    async def send_to_event_stream(self, connection_id: str, data: Mapping[str, Any]) -> int | None:
        if connection_id not in self._joined:
            raise LoopUnavailable(f"no_connected_session:{connection_id}")
        conversation, user_id = self._joined[connection_id]
        return await self.send_event_to_conversation(conversation, data, sender_id=user_id)

    async def disconnect_from_session(self, connection_id: str) -> None:
        self._joined.pop(connection_id, None)
        await presence.disconnect(connection_id)


def _payer(user_id: str | None) -> User | None:
    """Return the user whose share of the threads a query counts in; None for the server's."""
    return User(pk=int(user_id)) if user_id else None


def _starting(conversation: ConversationRef) -> AgentLoopInfo:
    return AgentLoopInfo(
        conversation_id=conversation.public_id,
        status=LoopStatus.STARTING,
        runtime_status=None,
        execution_status=ExecutionStatus.IDLE,
    )
