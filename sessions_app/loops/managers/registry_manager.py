"""The part of a manager that answers from rows: loops, and connections of V0 clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.contrib.auth.models import User

from conversations.exceptions import LoopUnavailable
from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.live import presence
from sessions_app.loops import registry
from sessions_app.loops.conversation_manager import AgentLoopInfo, ConversationManager
from sessions_app.models import ExecutionStatus, LoopStatus


class RegistryConversationManager(ConversationManager):
    """Finds conversations, loops and connections; a subclass runs the loops."""

    def __init__(self) -> None:
        # By the id of a connection: its conversation and its user.
        self._joined: dict[str, tuple[ConversationRef, int]] = {}

    async def attach_to_conversation(
        self, conversation_id: str, user_id: str | None = None
    ) -> ConversationRef | None:
        return await astore.call(registry.attached, conversation_id, _payer(user_id))

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
        return await astore.call(registry.connections, _payer(user_id), filter_to_sids)

    async def get_agent_loop_info(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> list[AgentLoopInfo]:
        return await astore.call(registry.infos, _payer(user_id), filter_to_sids)

    async def _infos(self, rows: Any) -> list[AgentLoopInfo]:
        return await astore.call(registry.infos_of, rows)

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
