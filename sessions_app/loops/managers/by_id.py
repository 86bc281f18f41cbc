"""The running manager as programs for the OpenHands server call it: with ids, settings and plain messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from conversations import dialects
from conversations.events import ConversationRef, NewEvent
from conversations.exceptions import ConversationNotFound
from sessions_app.loops.conversation_manager import AgentLoopInfo, ConversationManager
from sessions_app.loops.manager import get_manager


class ManagerById:
    """A manager whose methods take `sid`, the id of a conversation (spec V0 §5.1); it finds the row itself.

    The methods that are not here take ids in ConversationManager, too, and are the manager's own.
    """

    def __init__(self, manager: ConversationManager) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    async def join_conversation(
        self, sid: str, connection_id: str, settings: Mapping[str, Any] | None, user_id: str
    ) -> AgentLoopInfo:
        """Record the connection, and start the loop if there is none. Raise ConversationNotFound."""
        conversation = await self._found(sid, user_id)
        return await self._manager.join_conversation(conversation, connection_id, user_id, settings)

    async def maybe_start_agent_loop(
        self,
        sid: str,
        settings: Mapping[str, Any] | None,
        user_id: str,
        initial_user_msg: str | Mapping[str, Any] | None = None,
    ) -> AgentLoopInfo:
        """Start the loop if there is none. Raise ConversationNotFound.

        The message, a text or an action of V0, is stored only if the loop starts.
        """
        conversation = await self._found(sid, user_id)
        message = _message(conversation, initial_user_msg, user_id) if initial_user_msg else None
        return await self._manager.maybe_start_agent_loop(conversation, settings, message)

    async def send_event_to_conversation(self, sid: str, data: Mapping[str, Any]) -> int | None:
        """Do what ConversationManager does with an event of V0."""
        return await self._manager.send_event_to_conversation(sid, data)

    async def _found(self, sid: str, user_id: str) -> ConversationRef:
        conversation = await self._manager.attach_to_conversation(sid, user_id)
        if conversation is None:
            raise ConversationNotFound("Conversation not found.")
        return conversation


def running() -> ManagerById:
    """Return the manager of the running event loop in this form."""
    return ManagerById(get_manager())


def _message(conversation: ConversationRef, given: str | Mapping[str, Any], user_id: str) -> NewEvent:
    args = {"content": given} if isinstance(given, str) else given.get("args", given)
    event_id = str(uuid4())
    authored = dialects.author(conversation.dialect).user_message(
        text=str(args.get("content", "")), image_urls=args.get("image_urls") or (), event_id=event_id
    )
    return authored.event(event_id, sender_id=int(user_id), is_input=True)
