"""One side of the proxy: HTTP/1.1 on a socket, bounded in memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import h11


class HttpSide:
    """A connection, and the state of the messages on it."""

    piece_bytes = 64 * 1024
    """Of each direction of a connection no more than this is held."""

    def __init__(self, sock: socket.socket, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        head_bytes = 64 * 1024
        self.socket = sock
        self.http = h11.Connection(role, max_incomplete_event_size=head_bytes)
        self.on_piece: Callable[[], None] = lambda: None
        """Called for every piece that was sent or received."""

    async def send(self, event: h11.Event) -> None:
        """Send a part of a message. Raise OSError or LocalProtocolError."""
        if data := self.http.send(event):
            await asyncio.get_running_loop().sock_sendall(self.socket, data)
            self.on_piece()

    async def received(self) -> h11.Event | type[h11.PAUSED]:
        """Wait for the next part of a message. Raise OSError or RemoteProtocolError."""
        loop = asyncio.get_running_loop()
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await loop.sock_recv(self.socket, self.piece_bytes))
            self.on_piece()
        return event  # type: ignore[return-value]
