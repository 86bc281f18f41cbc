"""The sockets by address."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from django.urls import re_path

from sessions_app.sockets.native.conversation import native_socket
from sessions_app.sockets.native.list import native_list_socket
from sessions_app.sockets.socket import Socket
from sessions_app.sockets.v0.server import socketio_v0
from sessions_app.sockets.v1.events import v1_events_socket
from sessions_app.sockets.v1.session import v1_session_socket


async def no_such_socket(scope: Any, receive: Any, send: Any) -> None:
    """Reply that there is no socket at this address."""
    socket = Socket(scope, receive, send)
    await socket.accept()
    await socket.close(4404, "There is no socket at this address.")


# One list, no slashes added: the addresses are exactly those of the wires.
_sockets: list[tuple[str, Any]] = [
    (r"^socket\.io/", socketio_v0),
    (r"^ws/conversations$", native_list_socket),
    (r"^ws/conversations/(?P<conversation_id>[^/]+)$", native_socket),
    (r"^(?:agent/)?sockets/events/(?P<conversation_id>[^/]+)$", v1_events_socket),
    (r"^(?:agent/)?sockets/session/(?P<conversation_id>[^/]+)$", v1_session_socket),
    (r"", no_such_socket),
]
_routes: Any = [re_path(address, socket) for address, socket in _sockets]
router = URLRouter(_routes)
