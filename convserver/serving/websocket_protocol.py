"""WebSockets with bounds on what a client may send before it is known.

Those of uvicorn have one bound for all messages, which is that of known clients.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import OPEN

from conversations.server_log import log_refusal, printable
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from convserver.serving.connections import ConnectionPlace, Connections
from convserver.serving.unknown_frames import TooLarge, UnknownFrames
from sessions_app.identity import known_sockets
from sessions_app.live import text_frames

UNKNOWN = f"Log in before you send more than {UNKNOWN_BODY_MAX_BYTES} bytes."


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket, which keeps the place of the connection that it was.

    Until its door knows the client, frames are read one by one, each when the door waits for it, and a
    message has at most UNKNOWN_BODY_MAX_BYTES. What comes early is held: it may follow the frame that
    authenticates the client.
    """

    _place: ConnectionPlace | None = None

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._is_known = False
        self._is_awaited = False  # whether the door of an unknown client waits for a message
        self._held = UnknownFrames()

    def keep(self, room: Connections, place: ConnectionPlace) -> None:
        """Keep the place for as long as the connection lasts."""
        self._room, self._place = room, place

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            self._room.leave(self._place)
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        """Begin, and let the door say when it knows the client."""
        super().handle_connect(event)
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            extensions: Any = self.scope["extensions"]
            extensions[known_sockets.EXTENSION] = {"let_in": self._let_in}
            extensions[text_frames.EXTENSION] = text_frames.Writer(self._write, self._write_at_once)

    async def _write(self, frames: bytes) -> None:
        """Write whole frames, as `send` does: once the client has made room. Raise ClientDisconnected."""
        await self.writable.wait()
        if self.disconnected or self.conn.state is not OPEN:
            raise ClientDisconnected
        self.transport.write(frames)

    def _write_at_once(self, frames: bytes) -> bool:
        """Write whole frames if the client is there and has made room; say whether they were written."""
        if self.disconnected or self.conn.state is not OPEN or not self.writable.is_set():
            return False
        self.transport.write(frames)
        return True

    def handle_ping(self) -> None:
        """Answer, unless the client does not read: unread answers would fill the memory."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # takes the pong that the library has prepared, and drops it

    def data_received(self, data: bytes) -> None:
        """Read it, or of an unknown client what its door waits for."""
        if self._is_known or not self.handshake_initiated:  # the first bytes are the handshake itself
            super().data_received(data)
        else:
            self._held.add(data)
            self._read_held()

    async def receive(self) -> ASGIReceiveEvent:
        if self._is_known:
            return await super().receive()
        self._is_awaited = True
        self._read_held()
        try:
            return await super().receive()
        finally:
            self._is_awaited = False

    def _let_in(self) -> None:
        """Read messages of any permitted length from now on."""
        self._is_known = True
        self._read_held()

    def _read_held(self) -> None:
        """Read what may be read of the held bytes; then let more come, or not."""
        try:
            while not self.transport.is_closing() and (part := self._readable()):
                super().data_received(part)
        except TooLarge:
            log_refusal(
                "Socket refused",
                code=int(CloseCode.MESSAGE_TOO_BIG),
                path=printable(self.scope["path"]),
                address=self.client[0] if self.client else None,
            )
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, UNKNOWN)
            self.handle_parser_exception()
        else:
            self._let_come()

    def _readable(self) -> bytes:
        # After a close of ours the rest is read to find the client's own close frame.
        if self._is_known or self.close_sent:
            return self._held.take_all()
        return self._held.take_frame() if self._is_wanted else b""

    def _let_come(self) -> None:
        if self._is_wanted or (self._is_known and self.queue.empty()):
            if self.read_paused:
                self.read_paused = False
                self.transport.resume_reading()
        # TCP holds the client up: no more than a message and one read of the socket is in memory.
        elif len(self._held) > UNKNOWN_BODY_MAX_BYTES and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    @property
    def _is_wanted(self) -> bool:
        """Return whether the door waits for a message and has none."""
        return self._is_awaited and self.queue.empty()
