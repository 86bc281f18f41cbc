"""The sockets by address."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from django.urls import re_path

from sessions_app.sockets.native.agent import AgentConsumer
from sessions_app.sockets.native.conversation import ConversationConsumer
from sessions_app.sockets.native.list import ListConsumer
from sessions_app.sockets.socket import Socket, SocketConsumer
from sessions_app.sockets.v0.server import SocketIOConsumer
from sessions_app.sockets.v1.commands import CommandsConsumer
from sessions_app.sockets.v1.events import EventsConsumer
from sessions_app.sockets.v1.session import SessionConsumer


class NoSuchSocket(SocketConsumer):
    async def serve(self, socket: Socket) -> None:
        await socket.accept()
        await socket.close(4404, "There is no socket at this address.")


# One list, no slashes added: the addresses are exactly those of the wires.
_sockets: list[tuple[str, Any]] = [
    (r"^socket\.io/", SocketIOConsumer),
    (r"^ws/conversations$", ListConsumer),
    (r"^ws/conversations/(?P<conversation_id>[^/]+)$", ConversationConsumer),
    (r"^ws/agents/(?P<name>[^/]+)$", AgentConsumer),
    (r"^(?:agent/)?sockets/events/(?P<conversation_id>[^/]+)$", EventsConsumer),
    (r"^(?:agent/)?sockets/session/(?P<conversation_id>[^/]+)$", SessionConsumer),
    (r"^(?:agent/)?sockets/bash-events$", CommandsConsumer),
    (r"", NoSuchSocket),
]
_routes: Any = [re_path(address, consumer.as_asgi()) for address, consumer in _sockets]
router = URLRouter(_routes)
