"""Two consumers that send each frame back, under the server's own settings.

`/plain` is what Channels itself makes of a WebSocket, `/door` what the doors are made of (SocketConsumer).
"""

from __future__ import annotations

import os
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "convserver.settings"
django.setup(set_prefix=False)

from channels.generic.websocket import AsyncWebsocketConsumer

from benchmarks.limits.serving import serve
from sessions_app.sockets.socket import Closed, Socket, SocketConsumer


class Plain(AsyncWebsocketConsumer):
    """By the dispatch of Channels."""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Send the frame back."""
        await self.send(text_data=text_data)


class Door(SocketConsumer):
    """As the doors of the server do it."""

    async def serve(self, socket: Socket) -> None:
        """Send each frame back."""
        await socket.accept()
        try:
            while True:
                await socket.send_text(await socket.receive_text() or "")
        except Closed:
            pass


_consumers: dict[str, Any] = {"/plain": Plain.as_asgi(), "/door": Door.as_asgi()}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Serve one socket."""
    await _consumers[scope["path"]](scope, receive, send)


def main() -> None:
    """Serve on the port that the command line names."""
    serve(application)


if __name__ == "__main__":
    main()
